// What each part of NN-Descent is worth, on one set of u8 rows: the figures of Wang, Zhao, Zeng 2021 on this machine.
//
//   build/release/bench/descent_bench BASE.u8bin [k] > descent.json; bench/descent.py runs it and draws
//
//   figure 4  phi(G), the mean distance of a list's entries, round by round
//   figure 5  rounds with and without selective update, without locks; with locks, which are here alone: classic NN-Descent with a lock a list,
//             selective update with a lock a list (GNND-r2 there) and with a lock a segment of it (GNND)
//   figure 6  recall against time, begun at random and begun in cells
//   figure 7  two graphs merged (GGM), against a search of each graph for the other's rows, which is here alone, and against a rebuild
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <queue>
#include <string>
#include <vector>

#include <gigaknn/gigaknn.hpp>
#include <nlohmann/json.hpp>

#include "core/gather.hpp"
#include "core/random.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "graph/cell_search.hpp"
#include "ops/cpu/pair_tile.hpp"
#include "ops/growth_rules.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t sampled_rows = 500;
constexpr int most_rounds = 14;

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Rows with known neighbours.
struct Truth {
  std::vector<std::int64_t> rows;
  Neighbors lists;

  Truth(const Ops& ops, MatrixRef base, std::int64_t k) : rows(sample_rows(base.rows, sampled_rows, 7)), lists(std::ssize(rows), k + 1) {
    const auto prepared = ops.prepare(base, Metric::l2, {.k = k + 1, .queries = sampled_rows, .batch = sampled_rows, .self = false}, {});
    ops.nearest_rows(*prepared, gather_rows(base, rows), k + 1, NeighborsOut(lists), {});
  }
  /// `distances_of(row)`: k values, nearest first.
  template <class DistancesOf>
  double recall(std::int64_t k, DistancesOf distances_of) const {
    std::int64_t hits = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const float last = lists.distances[(i + 1) * at(k + 1) - 1];
      const float* const mine = distances_of(rows[i]);
      hits += std::count_if(mine, mine + k, [&](float distance) { return distance <= last; });
    }
    return static_cast<double>(hits) / static_cast<double>(std::ssize(rows) * k);
  }
};

struct Round {
  double seconds;
  double recall;
  double phi;
};
using Course = std::vector<Round>;

/// The time of the rounds alone; what is measured between them is not counted.
class Watch {
 public:
  void begin() { start_ = now_s(); }
  void end() { total_ += now_s() - start_; }
  double total() const { return total_; }

 private:
  double start_ = 0, total_ = 0;
};

Round measure(const Neighbors& lists, const Truth& truth, std::int64_t k, double seconds) {
  double phi = 0;
  for (const float distance : lists.distances) phi += std::isfinite(distance) ? std::sqrt(static_cast<double>(distance)) : 0;
  const double recall = truth.recall(k, [&](std::int64_t row) { return lists.distances.data() + row * lists.k; });
  return {seconds, recall, phi / static_cast<double>(lists.distances.size())};
}

std::vector<RowId> random_ids(std::int64_t n, std::int64_t k) {
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < n * k; ++i) ids.push_back(RowId{static_cast<std::int64_t>(random_below(at(n), 1, 2, at(i)))});
  return ids;
}

/// Rounds on the waist. `cells`: begun with what a search of a few cells finds.
Course grow(const Ops& ops, MatrixRef base, const GrowthParams& params, const Truth& truth, std::int64_t k, bool cells) {
  const RunOptions run;
  Watch watch;
  watch.begin();
  auto graph = ops.grow_graph(base, Metric::l2, params, run);
  if (cells) {
    CellSearch search(ops, base, Metric::l2, params.k, 0, false, run);
    std::vector<RowId> rows;
    for (std::size_t i = 0; i < 300; ++i) rows.push_back(RowId{static_cast<std::int64_t>(random_below(at(base.rows), 3, 4, i))});
    search.choose_probes(RecallSample(Metric::l2, base.rows, rows, search.truth_of(rows, k)), 0.8);
    std::vector<RowId> ids(at(base.rows * params.k));
    search.search(params.k, [&](std::int64_t, std::span<const RowId> batch, Neighbors& found) {
      for (std::size_t i = 0; i < batch.size(); ++i) {
        std::copy_n(found.ids.begin() + static_cast<std::ptrdiff_t>(i) * params.k, params.k, ids.begin() + value_of(batch[i]) * params.k);
      }
    });
    graph->fill(0, base.rows, ids.data(), params.k, 0, run);
  } else {
    graph->fill(0, base.rows, random_ids(base.rows, params.k).data(), params.k, 0, run);
  }
  watch.end();
  Course course;
  for (int round = 0;; ++round) {
    Neighbors lists(base.rows, params.k);
    graph->read(0, NeighborsOut(lists), run);
    course.push_back(measure(lists, truth, k, watch.total()));
    if (round == most_rounds) return course;
    watch.begin();
    graph->sample_neighbors(at(round), run);
    graph->local_join(0, run);
    const std::int64_t taken = graph->merge_lists(run);
    watch.end();
    if (taken < base.rows * params.k / 1000) return course;
  }
}

/// What locks are for. Neither: classic NN-Descent, every pair tried at once on both lists, each behind a spin lock.
struct LockedWay {
  bool selective = false;     ///< of a sample's pairs its nearest alone (Wang, Zhao, Zeng 2021, algorithm 2)
  std::int64_t segments = 1;  ///< of a list, each behind a lock of its own; a row belongs to one by its number (there, section 4.3)
};

/// NN-Descent as on a CPU (Dong, Charikar, Li 2011, algorithm 2): samples of any size below rho k, lists behind spin locks.
class LockedDescent {
 public:
  LockedDescent(MatrixRef base, std::int64_t k, std::int64_t samples, LockedWay way)
      : base_(base), k_(k), samples_(samples), way_(way), segment_(k / way.segments), pair_(*kernels(), Metric::l2, base.dtype, base.cols),
        facts_(pair_.facts_of(base, {})), tile_(base, facts_, pair_, codes(), {}), lists_(at(base.rows * k), no_entry),
        locks_(at(base.rows * way.segments)) {
    require(k % way.segments == 0, Fault::invalid_argument, "lists of ", k, " have no ", way.segments, " segments of one length");
    const std::vector<RowId> ids = random_ids(base.rows, k);
    parallel_for({}, base.rows, 256, [&](std::int64_t begin, std::int64_t end, int) {
      cpu::PairTile::Scratch scratch;
      for (std::int64_t row = begin; row < end; ++row) {
        std::vector<LocalRow> named = {static_cast<LocalRow>(row)};
        for (std::int64_t j = 0; j < k; ++j) named.push_back(static_cast<LocalRow>(value_of(ids[at(row * k + j)])));
        tile_.compare(named, 1, 0, scratch);
        for (std::size_t j = 1; j < named.size(); ++j) {
          if (named[j] != row) insert(static_cast<LocalRow>(row), scratch.keys[j], named[j]);
        }
      }
    });
  }

  std::int64_t round(std::uint64_t salt) {
    const std::int64_t n = base_.rows;
    std::vector<std::vector<LocalRow>> fresh(at(n)), old(at(n)), named_fresh(at(n)), named_old(at(n));
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t j = 0; j < k_; ++j) {
        GrowingEntry& entry = lists_[at(row * k_ + j)];
        if (entry == no_entry) continue;  // the end of a segment
        if (!is_new(entry)) {
          old[at(row)].push_back(row_of_entry(entry));
        } else if (random_below(at(k_), salt, at(row), at(j)) < at(samples_)) {
          fresh[at(row)].push_back(row_of_entry(entry));
          entry = without_flag(entry);
        }
      }
      for (const LocalRow to : fresh[at(row)]) named_fresh[to].push_back(static_cast<LocalRow>(row));
      for (const LocalRow to : old[at(row)]) named_old[to].push_back(static_cast<LocalRow>(row));
    }
    std::atomic<std::int64_t> taken{0};
    parallel_for({}, n, 256, [&](std::int64_t begin, std::int64_t end, int) {
      cpu::PairTile::Scratch scratch;
      std::int64_t mine = 0;
      for (std::int64_t row = begin; row < end; ++row) {
        std::vector<LocalRow> rows = fresh[at(row)];
        add_some(named_fresh[at(row)], salt, rows);
        deduplicate(rows, 0);
        const auto news = std::ssize(rows);
        if (news == 0) continue;
        rows.insert(rows.end(), old[at(row)].begin(), old[at(row)].end());
        add_some(named_old[at(row)], salt, rows);
        deduplicate(rows, news);
        tile_.compare(rows, news, 0, scratch);
        mine += way_.selective ? insert_nearest(rows, news, scratch) : insert_all(rows, news, scratch);
      }
      taken += mine;
    });
    return taken;
  }

  Neighbors lists() const {
    Neighbors out(base_.rows, k_);
    std::vector<GrowingEntry> list;
    for (std::int64_t begin = 0; begin < std::ssize(lists_); begin += k_) {
      list.assign(lists_.begin() + begin, lists_.begin() + begin + k_);
      std::sort(list.begin(), list.end());  // of its segments
      for (std::int64_t j = 0; j < k_; ++j) {
        out.distances[at(begin + j)] = list[at(j)] == no_entry ? INFINITY : key_of_bits(key_bits_of_entry(list[at(j)]));
      }
    }
    return out;
  }

 private:
  static const cpu::RowKernels* kernels() {
    const auto* best = cpu::row_kernels(cpu::Isa::avx512vnni);
    return best ? best : cpu::row_kernels(cpu::Isa::generic);
  }
  static cpu::CodeKernelSet codes() {
#if defined(__x86_64__)
    if (cpu::row_kernels(cpu::Isa::avx512vnni)) return cpu::code_kernels_avx512vnni();
#endif
    return {};
  }
  void add_some(std::vector<LocalRow>& named, std::uint64_t salt, std::vector<LocalRow>& rows) const {
    for (std::size_t i = 0; i < named.size() && i < at(samples_); ++i) {
      std::swap(named[i], named[i + random_below(named.size() - i, salt, named[i], i)]);
      rows.push_back(named[i]);
    }
  }
  static void deduplicate(std::vector<LocalRow>& rows, std::int64_t first) {
    std::sort(rows.begin() + first, rows.end());
    rows.erase(std::unique(rows.begin() + first, rows.end()), rows.end());
    const auto known = [&](LocalRow row) { return std::binary_search(rows.begin(), rows.begin() + first, row); };
    rows.erase(std::remove_if(rows.begin() + first, rows.end(), known), rows.end());
  }
  std::int64_t insert_all(const std::vector<LocalRow>& rows, std::int64_t news, const cpu::PairTile::Scratch& scratch) {
    std::int64_t taken = 0;
    for (std::int64_t i = 0; i < news; ++i) {
      for (std::int64_t j = i + 1; j < std::ssize(rows); ++j) {
        const float key = scratch.keys[at(i * scratch.pitch + j)];
        taken += insert(rows[at(i)], key, rows[at(j)]) + insert(rows[at(j)], key, rows[at(i)]);
      }
    }
    return taken;
  }
  // A new sample's nearest among the other new ones and among the old, an old one's among the new.
  std::int64_t insert_nearest(const std::vector<LocalRow>& rows, std::int64_t news, const cpu::PairTile::Scratch& scratch) {
    const std::int64_t count = std::ssize(rows);
    const auto key = [&](std::int64_t one, std::int64_t other) {
      return one < news ? scratch.keys[at(one * scratch.pitch + other)] : scratch.keys[at(other * scratch.pitch + one)];
    };
    const auto insert_one_of = [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
      std::int64_t nearest = -1;
      for (std::int64_t i = begin; i < end; ++i) {
        if (i != row && (nearest < 0 || key(row, i) < key(row, nearest))) nearest = i;
      }
      return nearest >= 0 && insert(rows[at(row)], key(row, nearest), rows[at(nearest)]);
    };
    std::int64_t taken = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      taken += insert_one_of(i, 0, news);
      if (i < news) taken += insert_one_of(i, news, count);
    }
    return taken;
  }
  bool insert(LocalRow row, float key, LocalRow candidate) {
    const GrowingEntry entry = entry_of(sortable_bits(key), candidate, true);
    const std::int64_t segment = std::int64_t{row} * way_.segments + candidate % way_.segments;
    GrowingEntry* const list = lists_.data() + segment * segment_;
    std::atomic_ref<GrowingEntry> last(list[segment_ - 1]);
    if (entry >= last.load(std::memory_order_relaxed)) return false;  // may be an older last: then the lock tells
    std::atomic_flag& lock = locks_[at(segment)];
    while (lock.test_and_set(std::memory_order_acquire)) {
    }
    GrowingEntry* const end = list + segment_;
    GrowingEntry* const place = std::lower_bound(list, end, without_flag(entry));
    const bool takes = place != end && without_flag(*place) != without_flag(entry);
    if (takes) {
      const GrowingEntry new_last = place == end - 1 ? entry : end[-2];
      if (place != end - 1) {
        std::move_backward(place, end - 2, end - 1);
        *place = entry;
      }
      last.store(new_last, std::memory_order_relaxed);
    }
    lock.clear(std::memory_order_release);
    return takes;
  }

  MatrixRef base_;
  std::int64_t k_, samples_;
  LockedWay way_;
  std::int64_t segment_;  // entries of one
  cpu::PairDistance pair_;
  cpu::RowFacts facts_;
  cpu::PairTile tile_;
  std::vector<GrowingEntry> lists_;
  std::vector<std::atomic_flag> locks_;
};

Course grow_locked(MatrixRef base, const GrowthParams& params, LockedWay way, const Truth& truth, std::int64_t k) {
  Watch watch;
  watch.begin();
  LockedDescent descent(base, params.k, params.samples, way);
  watch.end();
  Course course = {measure(descent.lists(), truth, k, watch.total())};
  for (int round = 0; round < most_rounds; ++round) {
    watch.begin();
    const std::int64_t taken = descent.round(at(round));
    watch.end();
    course.push_back(measure(descent.lists(), truth, k, watch.total()));
    if (taken < base.rows * params.k / 1000) break;
  }
  return course;
}

/// The k nearest of `query` in a graph by best-first search with a list of `width`.
void search_graph(const KnnGraph& graph, MatrixRef base, const std::uint8_t* query, std::int64_t width, std::uint64_t seed,
                  std::vector<std::uint32_t>& seen, std::uint32_t mark, std::vector<std::pair<float, std::int64_t>>& nearest) {
  const auto distance = [&](std::int64_t row) {
    const auto* const x = base.row<std::uint8_t>(row);
    int sum = 0;
    for (std::int64_t j = 0; j < base.cols; ++j) sum += (int{x[j]} - int{query[j]}) * (int{x[j]} - int{query[j]});
    return static_cast<float>(sum);
  };
  using Entry = std::pair<float, std::int64_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  std::priority_queue<Entry> best;
  const auto visit = [&](std::int64_t row) {
    if (seen[at(row)] == mark) return;
    seen[at(row)] = mark;
    const Entry entry{distance(row), row};
    if (std::ssize(best) == width && entry >= best.top()) return;
    open.push(entry);
    best.push(entry);
    if (std::ssize(best) > width) best.pop();
  };
  for (std::uint64_t i = 0; i < 16; ++i) visit(static_cast<std::int64_t>(random_below(at(base.rows), seed, 5, i)));
  while (!open.empty() && !(std::ssize(best) == width && open.top() > best.top())) {
    const std::int64_t row = open.top().second;
    open.pop();
    for (std::int64_t j = 0; j < graph.lists.k; ++j) {
      const RowId id = graph.lists.ids[at(row * graph.lists.k + j)];
      if (id != no_row) visit(value_of(id));
    }
  }
  nearest.clear();
  for (; !best.empty(); best.pop()) nearest.push_back(best.top());
  std::reverse(nearest.begin(), nearest.end());
}

/// Recall of two graphs merged by a search of each for the other's rows, for the sampled rows; the time of all rows.
Round merge_by_search(const KnnGraph& a, MatrixRef base_a, const KnnGraph& b, MatrixRef base_b, const Truth& truth, std::int64_t k,
                      std::int64_t width) {
  const std::int64_t n = base_a.rows + base_b.rows;
  std::vector<float> distances(at(n * k));
  const double start = now_s();
  for (const bool of_a : {true, false}) {
    const KnnGraph& own = of_a ? a : b;
    const KnnGraph& other = of_a ? b : a;
    const MatrixRef queries = of_a ? base_a : base_b;
    const MatrixRef base = of_a ? base_b : base_a;
    parallel_for({}, queries.rows, 1024, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<std::uint32_t> seen(at(base.rows));
      std::vector<std::pair<float, std::int64_t>> found;
      for (std::int64_t row = begin; row < end; ++row) {
        search_graph(other, base, queries.row<std::uint8_t>(row), width, at(row), seen, static_cast<std::uint32_t>(row - begin + 1), found);
        std::vector<float> all(own.lists.distances.begin() + row * k, own.lists.distances.begin() + (row + 1) * k);
        for (const auto& [distance, id] : found) all.push_back(distance);
        std::sort(all.begin(), all.end());
        std::copy_n(all.begin(), k, distances.begin() + (of_a ? row : base_a.rows + row) * k);
      }
    });
  }
  const double seconds = now_s() - start;
  return {seconds, truth.recall(k, [&](std::int64_t row) { return distances.data() + row * k; }), 0};
}

nlohmann::json as_json(const std::string& way, const Course& course) {
  nlohmann::json rounds = nlohmann::json::array();
  for (const Round& round : course) rounds.push_back({{"seconds", round.seconds}, {"recall", round.recall}, {"phi", round.phi}});
  return {{"way", way}, {"rounds", rounds}};
}

nlohmann::json as_json(const std::string& way, double seconds, double recall) {
  return {{"way", way}, {"seconds", seconds}, {"recall", recall}};
}

// Two graphs of halves, which are exact and not counted.
nlohmann::json merges(MatrixRef base, const Truth& truth, std::int64_t k) {
  const std::int64_t half = base.rows / 2;
  const MatrixRef a = base.slice(0, half), b = base.slice(half, base.rows);
  GraphParams build;
  build.k = k;
  const KnnGraph of_a = build_graph(a, build), of_b = build_graph(b, build);
  nlohmann::json rows = nlohmann::json::array();
  const auto measure_graph = [&](const std::string& way, auto&& make) {
    const double start = now_s();
    const KnnGraph graph = make();
    const double seconds = now_s() - start;
    rows.push_back(as_json(way, seconds, truth.recall(k, [&](std::int64_t row) { return graph.lists.distances.data() + row * k; })));
  };
  for (const double recall : {0.9, 0.95, 0.98}) {
    MergeParams merge;
    merge.method = "nn-descent";
    merge.recall = recall;
    measure_graph("GGM", [&] { return merge_graphs(of_a, a, of_b, b, merge).graph; });
    for (const char* method : {"nn-descent", "ivf"}) {
      build.method = method;
      build.recall = recall;
      measure_graph(std::string("rebuild by ") + method, [&] { return build_graph(base, build); });
    }
  }
  for (const std::int64_t width : {20, 40, 80}) {
    const Round searched = merge_by_search(of_a, a, of_b, b, truth, k, width);
    rows.push_back(as_json("search of each graph", searched.seconds, searched.recall));
  }
  return rows;
}

int run(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: descent_bench BASE.u8bin [k] > descent.json\n");
    return 2;
  }
  const Dataset data = Dataset::open(argv[1]);
  const MatrixRef base = data.matrix();
  const std::int64_t k = argc > 2 ? std::atoll(argv[2]) : 10;
  const Ops& ops = ops_of("cpu");
  const Truth truth(ops, base, k);
  GrowthParams params;
  params.k = 30;
  params.samples = 20;
  params.candidates = 32;
  params.selective = false;
  GrowthParams selective = params;
  selective.selective = true;
  const nlohmann::json told = {
      {"commit", commit()}, {"n", base.rows}, {"d", base.cols}, {"k", k}, {"lists", params.k}, {"samples", params.samples},
      {"threads", threads_of({})}, {"isa", ops.isa()}, {"sampled", sampled_rows},
      {"courses", {as_json("random start, selective update, no locks (GNND)", grow(ops, base, selective, truth, k, false)),
                   as_json("random start, every pair near enough, no locks", grow(ops, base, params, truth, k, false)),
                   as_json("random start, classic NN-Descent, a lock a list", grow_locked(base, params, {}, truth, k)),
                   as_json("random start, selective update, a lock a list", grow_locked(base, params, {.selective = true}, truth, k)),
                   as_json("random start, selective update, a lock a segment", grow_locked(base, params, {.selective = true, .segments = 2}, truth, k)),
                   as_json("begun in cells, selective update", grow(ops, base, selective, truth, k, true)),
                   as_json("begun in cells, every pair near enough", grow(ops, base, params, truth, k, true))}},
      {"merges", merges(base, truth, k)}};
  std::printf("%s\n", told.dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace gigaknn

int main(int argc, char** argv) {
  try {
    return gigaknn::run(argc, argv);
  } catch (const gigaknn::Error& error) {
    std::fprintf(stderr, "descent_bench: %s\n", error.what());
    return 3;
  }
}
