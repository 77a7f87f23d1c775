// NN-Descent's steps as their contract says them (growing_graph.hpp, growth_rules.hpp), row by row with sets and maps.
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>

#include "ops/canonical.hpp"
#include "ops/conformance.hpp"
#include "ops/growth_rules.hpp"

namespace gigaknn::test {
namespace {

class ReferenceGraph {
 public:
  ReferenceGraph(MatrixRef rows, Metric metric, const GrowthParams& params)
      : rows_(rows, metric), metric_(metric), params_(params), lists_(rows.rows), candidates_(rows.rows) {}

  void fill(std::int64_t row, const RowId* ids, std::int64_t width, std::int64_t old_columns) {
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t other = value_of(ids[j]);
      if (other < 0 || other == row || !rows_.usable[row] || !rows_.usable[other]) continue;
      // Of one named twice the one that is not new counts.
      bool known = false;
      for (std::int64_t i = 0; i < std::min(width, old_columns); ++i) known |= value_of(ids[i]) == other;
      lists_[row].insert({{key_bits(row, other), other}, !known});
    }
    trim(row);
  }

  void sample_neighbors(std::uint64_t round) {
    salt_ = salt_of_round(params_.seed, round);
    for (auto& named_by : named_by_) named_by.clear();
    samples_.assign(lists_.size(), {});
    for (std::size_t row = 0; row < lists_.size(); ++row) {
      for (auto& [entry, fresh] : lists_[row]) {
        auto& mine = samples_[row][fresh];
        if (std::ssize(mine) == params_.samples) continue;
        mine.insert(entry.second);
        const auto sample = static_cast<LocalRow>(entry.second);
        const std::uint32_t hash = hash_sample(sample, static_cast<LocalRow>(row), salt_);
        const auto place = std::pair(entry.second, hash % params_.samples);
        const auto [at, first] = named_by_[fresh].emplace(place, std::pair(hash, static_cast<std::int64_t>(row)));
        if (!first) at->second = std::min(at->second, std::pair(hash, static_cast<std::int64_t>(row)));
      }
    }
    sampled_ = samples_;
    for (const bool fresh : {false, true}) {
      for (const auto& [place, by] : named_by_[fresh]) samples_[place.first][fresh].insert(by.second);
    }
  }

  void local_join(std::int64_t split) {
    for (auto& [old, fresh] : samples_) {
      for (const std::int64_t row : fresh) old.erase(row);
      join(fresh, fresh, split);
      join(fresh, old, split);
      join(old, fresh, split);
    }
  }

  std::int64_t merge_lists() {
    std::int64_t taken = 0;
    for (std::size_t row = 0; row < lists_.size(); ++row) {
      for (auto& [entry, fresh] : lists_[row]) {
        if (fresh && sampled_[row][1].contains(entry.second)) fresh = false;
      }
      std::set<Entry> before;
      for (const auto& [entry, fresh] : lists_[row]) before.insert(entry);
      for (const auto& [place, entry] : candidates_[row]) lists_[row].insert({entry, true});
      candidates_[row].clear();
      trim(row);
      for (const auto& [entry, fresh] : lists_[row]) taken += !before.contains(entry);
    }
    return taken;
  }

  Neighbors read(std::int64_t k) const {
    Neighbors out(std::ssize(lists_), k);
    std::fill(out.distances.begin(), out.distances.end(), reference::farthest(metric_));
    for (std::size_t row = 0; row < lists_.size(); ++row) {
      std::size_t to = row * k;
      for (const auto& [entry, fresh] : lists_[row]) {
        if (to == (row + 1) * k) break;
        out.ids[to] = RowId{entry.second};
        out.distances[to++] = value_of_key(metric_, key_of_bits(entry.first));
      }
    }
    return out;
  }

 private:
  using Entry = std::pair<std::uint32_t, std::int64_t>;  // bits of the key, row

  std::uint32_t key_bits(std::int64_t a, std::int64_t b) const {
    return sortable_bits(key_of_value(metric_, reference::distance(rows_, a, rows_, b, metric_)));
  }
  void trim(std::size_t row) {
    while (std::ssize(lists_[row]) > params_.k) lists_[row].erase(std::prev(lists_[row].end()));
  }
  // Each of `takers` takes its nearest among `others`, or all that its list has room for.
  void join(const std::set<std::int64_t>& takers, const std::set<std::int64_t>& others, std::int64_t split) {
    for (const std::int64_t taker : takers) {
      std::set<Entry> found;
      for (const std::int64_t other : others) {
        if (other == taker || (split > 0 && (taker < split) == (other < split))) continue;
        found.insert({key_bits(taker, other), other});
      }
      while (params_.selective && found.size() > 1) found.erase(std::prev(found.end()));
      for (const Entry& entry : found) {
        const auto& list = lists_[taker];
        if (std::ssize(list) == params_.k && entry >= std::prev(list.end())->first) continue;
        const std::uint32_t place = place_of_candidate(static_cast<LocalRow>(taker), static_cast<LocalRow>(entry.second), salt_,
                                                       params_.candidates);
        const auto [at, first] = candidates_[taker].emplace(place, entry);
        if (!first) at->second = std::min(at->second, entry);
      }
    }
  }

  reference::Rows rows_;
  Metric metric_;
  GrowthParams params_;
  std::uint32_t salt_ = 0;
  std::vector<std::map<Entry, bool>> lists_;  // each entry, and whether it is new
  std::vector<std::map<std::uint32_t, Entry>> candidates_;
  std::map<std::pair<std::int64_t, std::uint32_t>, std::pair<std::uint32_t, std::int64_t>> named_by_[2];  // old, new
  std::vector<std::array<std::set<std::int64_t>, 2>> samples_, sampled_;  // [n] old, new; and a list's own ones
};

}  // namespace

void check_growth(const Case& c, const Devices& devices, std::optional<GrowthShape> shape) {
  const Problem problem(c);
  const auto draw = [&](std::uint64_t bound, std::uint64_t stream, std::int64_t counter) {
    return static_cast<std::int64_t>(random_below(bound, c.seed, stream, counter));
  };
  GrowthParams params;
  params.k = std::min<std::int64_t>(c.k, 70);
  params.samples = shape ? shape->samples : 1 + draw(12, 20, 0);
  params.candidates = std::int64_t{1} << draw(7, 20, 1);
  params.selective = draw(2, 20, 2) == 1;
  params.seed = c.seed;
  const std::int64_t split = (shape ? shape->split : draw(3, 20, 3) == 0) ? c.n / 3 : 0;
  const std::int64_t width = 1 + draw(params.k + 5, 20, 4);
  const std::int64_t old_columns = draw(3, 20, 5) == 0 ? width / 2 : 0;
  std::vector<RowId> ids;
  for (std::int64_t i = 0; i < c.n * width; ++i) {
    ids.push_back(draw(10, 21, i) == 0 ? no_row : RowId{draw(c.n, 22, i)});  // some twice, some the row itself
  }
  std::ostringstream about;
  about << "lists of " << params.k << " samples " << params.samples << " candidates " << params.candidates << " selective "
        << params.selective << " split " << split << " filled " << width << ": " << c;

  ReferenceGraph reference(problem.base, c.metric, params);
  std::vector<std::unique_ptr<GrowingGraph>> graphs;
  for (const Ops* ops : devices) graphs.push_back(ops->grow_graph(problem.base, c.metric, params, problem.run));
  const auto compare = [&](const char* after) {
    const std::int64_t k = params.k + 1;  // one that no list has
    const Neighbors want = reference.read(k);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      GuardedLists got(c.n, k);
      graphs[i]->read(0, got.out(), problem.run);
      EXPECT_TRUE(same_lists(got, want)) << after << " on " << devices[i]->isa() << ", " << about.str();
      const std::vector<LocalRow> some = {static_cast<LocalRow>(c.n - 1), 0, static_cast<LocalRow>(c.n / 2), 0};
      GuardedLists got_some(std::ssize(some), k);
      graphs[i]->read(some, got_some.out(), problem.run);
      Neighbors want_some(std::ssize(some), k);
      for (std::int64_t j = 0; j < want_some.queries; ++j) {
        const std::int64_t from = some[static_cast<std::size_t>(j)] * k;
        std::copy_n(want.ids.begin() + from, k, want_some.ids.begin() + j * k);
        std::copy_n(want.distances.begin() + from, k, want_some.distances.begin() + j * k);
      }
      EXPECT_TRUE(same_lists(got_some, want_some)) << "some lists, " << after << " on " << devices[i]->isa() << ", " << about.str();
    }
  };
  for (std::int64_t row = 0; row < c.n; ++row) reference.fill(row, ids.data() + row * width, width, old_columns);
  for (const auto& graph : graphs) {
    const std::int64_t half = c.n / 2;
    graph->fill(0, half, ids.data(), width, old_columns, problem.run);
    graph->fill(half, c.n - half, ids.data() + half * width, width, old_columns, problem.run);
  }
  compare("filled");
  const std::int64_t drawn = draw(params.k + 3, 20, 6);
  for (std::int64_t row = 0; row < c.n; ++row) {
    std::vector<RowId> others;
    for (std::int64_t i = 0; i < drawn; ++i) others.push_back(RowId{random_row(c.seed + 1, c.n, split, row, drawn, i)});
    for (const RowId other : others) EXPECT_TRUE(split == 0 || (value_of(other) < split) != (row < split)) << about.str();
    reference.fill(row, others.data(), drawn, 0);
  }
  for (const auto& graph : graphs) graph->fill_at_random(drawn, c.seed + 1, split, problem.run);
  compare("filled at random");
  const std::int64_t group_count = 1 + draw(12, 20, 7), near = draw(70, 20, 8);
  std::vector<LocalRow> groups;
  for (std::int64_t i = 0; i < 2 * c.n; ++i) groups.push_back(static_cast<LocalRow>(draw(group_count, 23, i)));
  const RowGroups row_groups(groups, group_count, split);
  for (std::int64_t row = 0; row < c.n; ++row) {
    std::vector<RowId> others;
    for (std::int64_t i = 0; i < near; ++i) {
      const LocalRow other = random_row_nearby(row_groups.view(), c.seed + 3, c.n, split, row, near, i);
      EXPECT_TRUE(split == 0 || other == row || (other < split) != (row < split)) << about.str();
      const bool of_all = i % draws_a_random_one == draws_a_random_one - 1;
      EXPECT_TRUE(of_all || other == row ||
                  groups[static_cast<std::size_t>(2) * other] == groups[static_cast<std::size_t>(2 * row + i % 2)])
          << about.str();
      others.push_back(RowId{other});
    }
    reference.fill(row, others.data(), near, 0);
  }
  for (const auto& graph : graphs) graph->fill_from_groups(row_groups, near, c.seed + 3, split, problem.run);
  compare("filled from groups");
  for (std::uint64_t round = 0; round < 3; ++round) {
    reference.sample_neighbors(round);
    reference.local_join(split);
    const std::int64_t want = reference.merge_lists();
    for (std::size_t i = 0; i < devices.size(); ++i) {
      graphs[i]->sample_neighbors(round, problem.run);
      graphs[i]->local_join(split, problem.run);
      EXPECT_EQ(graphs[i]->merge_lists(problem.run), want) << "on " << devices[i]->isa() << ", " << about.str();
    }
    compare("a round later");
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::size_t needed = devices[i]->growth_bytes_needed(c.n, c.d, params, problem.run.threads) +
                               devices[i]->growth_device_bytes_needed(c.n, c.d, c.dtype, params);
    EXPECT_LE(graphs[i]->bytes(), needed) << "on " << devices[i]->isa() << ", " << about.str();
  }
}

}  // namespace gigaknn::test
