#include "graph/descent.hpp"

#include <algorithm>
#include <cmath>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threaded_memory.hpp"
#include "core/threads.hpp"
#include "ops/canonical.hpp"
#include "ops/growth_rules.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

// Measured on four sets (docs/graphs.md): shorter lists and fewer samples stand still before the recall is reached.
constexpr std::int64_t least_list = 30;
constexpr std::int64_t samples_a_list = 20;
constexpr std::int64_t candidates_a_list = 32;
constexpr std::int64_t most_rounds = 30;
constexpr double still = 0.001;  // of all entries; lists that change less stand still (Dong, Charikar, Li 2011, section 3.3)
constexpr std::int64_t batch_rows = std::int64_t{1} << 16;
// Where two sets are alike, half of a group's rows are on the other side, and so many are drawn from two groups.
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t group_rows = 16;
#else
constexpr std::int64_t group_rows = 128;
#endif
constexpr std::int64_t most_groups = 8192;  // that a row is compared with
constexpr std::int64_t least_drawn = 64;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

GrowthParams growth_params(std::int64_t k, std::int64_t n, std::uint64_t seed) {
  GrowthParams growth;
  growth.k = std::min(n - 1, std::max(least_list, k + k / 2));
  growth.samples = samples_a_list;
  growth.candidates = candidates_a_list;
  growth.selective = false;
  growth.seed = seed;
  return growth;
}
// Lists that are only put into order.
GrowthParams finish_params(std::int64_t k) {
  GrowthParams growth;
  growth.k = k;
  growth.samples = growth.candidates = 1;
  return growth;
}

std::vector<LocalRow> inverse_of(const std::vector<LocalRow>& order) {
  std::vector<LocalRow> places(order.size());
  for (std::size_t place = 0; place < order.size(); ++place) places[order[place]] = static_cast<LocalRow>(place);
  return places;
}

}  // namespace

Descent::Descent(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, std::vector<LocalRow> order, std::uint64_t seed,
                 const RunOptions& run)
    : ops_(ops), base_(base), metric_(metric), k_(k), run_(run), n_(base.rows), growth_(growth_params(k, base.rows, seed)),
      order_(std::move(order)), place_of_(inverse_of(order_)), rows_(compared_rows(base, order_, metric, 255, seed, run)),
      growing_(ops.grow_graph(rows_.rows(), rows_.metric(), growth_, run)) {}

std::size_t Descent::bytes_needed(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, int threads) {
  const std::int64_t n = base.rows;
  const GrowthParams growth = growth_params(k, n, 0);
  const std::size_t growing = ops.growth_bytes_needed(n, base.cols, growth, threads);
  const std::size_t finishing = list_bytes(n, k) + at(n * growth.k) * sizeof(LocalRow) +
                                ops.growth_bytes_needed(n, base.cols, finish_params(k), threads);
  return at(n) * 2 * sizeof(LocalRow) + 2 * list_bytes(std::min(n, batch_rows), growth.k) + compared_rows_bytes(base, metric) + growing +
         finishing;
}

std::size_t Descent::device_bytes_needed(const Ops& ops, MatrixRef base, std::int64_t k) {
  // Of rows as bytes, or as they are: the lists that are finished take less.
  return ops.growth_device_bytes_needed(base.rows, base.cols, base.dtype, growth_params(k, base.rows, 0));
}

std::int64_t Descent::list_length(std::int64_t k, std::int64_t n) { return growth_params(k, n, 0).k; }

void Descent::fill(std::int64_t first, std::int64_t count, std::span<RowId> ids, std::int64_t width, std::int64_t old_columns) {
  if (!order_.empty()) parallel_for(run_, std::ssize(ids), 1 << 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (RowId& id : ids.subspan(at(begin), at(end - begin))) {
      if (id != no_row) id = RowId{place_of(id)};
    }
  });
  growing_->fill(first, count, ids.data(), width, old_columns, run_);
}

void Descent::fill_nearby(std::int64_t width, std::int64_t split) {
  const MatrixRef rows = rows_.rows();
  const std::int64_t step = std::max(group_rows, (n_ + most_groups - 1) / most_groups);
  std::vector<std::int64_t> centres;
  for (std::int64_t row = step / 2; row < n_; row += step) centres.push_back(row);
  if (std::ssize(centres) < 2 || !has_product_form(rows_.metric()) || run_.device_memory_bytes > 0) return fill_at_random(width, split);
  std::vector<LocalRow> groups(at(2 * n_), 0);
  {
    const Matrix some = gather_rows(rows, centres, run_);
    const auto prepared =
        ops_.prepare(some, rows_.metric(), {.k = 2, .queries = n_, .batch = std::min(n_, batch_rows), .self = false}, run_);
    for (std::int64_t begin = 0; begin < n_; begin += batch_rows) {
      Neighbors nearest(std::min(batch_rows, n_ - begin), 2);
      ops_.nearest_rows(*prepared, rows.slice(begin, begin + nearest.queries), 2, NeighborsOut(nearest), run_);
      for (std::int64_t i = 0; i < 2 * nearest.queries; ++i) {
        if (nearest.ids[at(i)] != no_row) groups[at(2 * begin + i)] = static_cast<LocalRow>(value_of(nearest.ids[at(i)]));
      }
    }
  }
  growing_->fill_from_groups(RowGroups(std::move(groups), std::ssize(centres), split), least_drawn, growth_.seed, split, run_);
  if (width > least_drawn) fill_at_random(width - least_drawn, split);
}

std::int64_t Descent::descend(const RecallSample& steer, double recall, std::int64_t split) {
  const auto few = static_cast<std::int64_t>(still * static_cast<double>(n_ * growth_.k));
  for (std::int64_t round = 0; round < most_rounds; ++round) {
    if (recall < 1 && surely_reaches(recall_of(steer), recall)) return round;
    growing_->sample_neighbors(static_cast<std::uint64_t>(round), run_);
    growing_->local_join(split, run_);
    const std::int64_t taken = growing_->merge_lists(run_);
    if (run_.progress) run_.progress->report("rounds", round + 1, most_rounds);
    if (taken <= few) return round + 1;
  }
  return most_rounds;
}

Neighbors Descent::finish() { return rows_.canonical() ? translated() : computed_anew(); }

std::string Descent::description(std::int64_t rounds) const {
  return join_text(rounds, rounds == 1 ? " round" : " rounds", ", lists of ", growth_.k, ", ", growth_.samples, " samples");
}

RowId Descent::row_of_place(RowId place) const {
  return order_.empty() ? place : place == no_row ? no_row : RowId{order_[at(value_of(place))]};
}

Recall Descent::recall_of(const RecallSample& steer) const {
  std::vector<LocalRow> places;
  for (const RowId row : steer.rows()) places.push_back(place_of(row));
  Neighbors lists(std::ssize(places), growth_.k);
  growing_->read(places, NeighborsOut(lists), run_);
  if (rows_.canonical()) return steer.measure_sampled(lists);  // by their distances: ids are places here
  for (RowId& id : lists.ids) id = row_of_place(id);
  return steer.measure(ops_, base_, lists.ids, growth_.k, run_);
}

// The k nearest of each list, of rows in their first order: among equals the smaller row, not the earlier place.
Neighbors Descent::translated() const {
  Neighbors lists = threaded_lists(n_, k_, run_);
  if (order_.empty()) {
    growing_->read(0, NeighborsOut(lists), run_);
    return lists;
  }
  for (std::int64_t begin = 0; begin < n_; begin += batch_rows) {
    Neighbors part(std::min(batch_rows, n_ - begin), growth_.k);
    growing_->read(begin, NeighborsOut(part), run_);
    parallel_for(run_, part.queries, 1024, [&](std::int64_t from, std::int64_t to, int) {
      std::vector<PackedNeighbor> list;
      for (std::int64_t i = from; i < to; ++i) {
        list.clear();
        for (std::int64_t j = i * growth_.k; j < (i + 1) * growth_.k && part.ids[at(j)] != no_row; ++j) {
          list.push_back(pack_neighbor(key_of_value(metric_, part.distances[at(j)]), order_[at(value_of(part.ids[at(j)]))]));
        }
        std::sort(list.begin(), list.end());
        const std::int64_t first = std::int64_t{order_[at(begin + i)]} * k_;
        for (std::int64_t j = 0; j < k_; ++j) {
          const PackedNeighbor entry = j < std::ssize(list) ? list[at(j)] : no_neighbor;
          lists.ids[at(first + j)] = entry == no_neighbor ? no_row : RowId{row_of(entry)};
          lists.distances[at(first + j)] = value_of_key(metric_, entry == no_neighbor ? INFINITY : key_of(entry));
        }
      }
    });
  }
  return lists;
}

// The k nearest of each list by canonical distances of the base's own rows: what grew was bytes.
Neighbors Descent::computed_anew() {
  std::vector<LocalRow> wide(at(n_ * growth_.k), no_sample);  // [n, list], of rows in their first order
  for (std::int64_t begin = 0; begin < n_; begin += batch_rows) {
    Neighbors part(std::min(batch_rows, n_ - begin), growth_.k);
    growing_->read(begin, NeighborsOut(part), run_);
    parallel_for(run_, part.queries, 1024, [&](std::int64_t from, std::int64_t to, int) {
      for (std::int64_t i = from; i < to; ++i) {
        const std::int64_t list = value_of(row_of_place(RowId{begin + i}));
        for (std::int64_t j = 0; j < growth_.k; ++j) {
          const RowId row = row_of_place(part.ids[at(i * growth_.k + j)]);
          if (row != no_row) wide[at(list * growth_.k + j)] = static_cast<LocalRow>(value_of(row));
        }
      }
    });
  }
  growing_.reset();
  const auto ordered = ops_.grow_graph(base_, metric_, finish_params(k_), run_);
  std::vector<RowId> ids;
  for (std::int64_t begin = 0; begin < n_; begin += batch_rows) {
    const std::int64_t count = std::min(batch_rows, n_ - begin);
    ids.resize(at(count * growth_.k));
    parallel_for(run_, std::ssize(ids), 1 << 16, [&](std::int64_t from, std::int64_t to, int) {
      for (std::int64_t i = from; i < to; ++i) {
        const LocalRow row = wide[at(begin * growth_.k + i)];
        ids[at(i)] = row == no_sample ? no_row : RowId{row};
      }
    });
    ordered->fill(begin, count, ids.data(), growth_.k, 0, run_);
  }
  Neighbors lists = threaded_lists(n_, k_, run_);
  ordered->read(0, NeighborsOut(lists), run_);
  return lists;
}

}  // namespace gigaknn
