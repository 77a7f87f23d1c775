#include "ops/merge_lists.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/threads.hpp"

namespace gigaknn {
namespace {

// The total order of values that ops return; NaN does not occur among them.
bool is_before(float a, RowId a_id, float b, RowId b_id, bool larger_first) {
  if (a != b) return larger_first ? a > b : a < b;
  return a_id < b_id;
}

// Merges a sorted list of new_k, k at most, into a sorted list of k; a row that both have is taken once. no_row marks free slots, always at
// the end.
void merge_list(RowId* ids, float* distances, const RowId* new_ids, const float* new_distances, std::int64_t new_k,
                std::int64_t offset, std::int64_t k, bool larger_first,
                std::vector<RowId>& id_scratch, std::vector<float>& distance_scratch) {
  id_scratch.assign(ids, ids + k);
  distance_scratch.assign(distances, distances + k);
  std::int64_t a = 0;
  std::int64_t b = 0;
  for (std::int64_t i = 0; i < k; ++i) {
    const bool has_a = a < k && id_scratch[static_cast<std::size_t>(a)] != no_row;
    const bool has_b = b < new_k && new_ids[b] != no_row;
    if (!has_a && !has_b) break;
    const RowId moved = has_b ? RowId{value_of(new_ids[b]) + offset} : no_row;
    const bool take_a = has_a && (!has_b || is_before(distance_scratch[static_cast<std::size_t>(a)],
                                                      id_scratch[static_cast<std::size_t>(a)],
                                                      new_distances[b], moved, larger_first));
    ids[i] = take_a ? id_scratch[static_cast<std::size_t>(a)] : moved;
    distances[i] = take_a ? distance_scratch[static_cast<std::size_t>(a)] : new_distances[b];
    if (has_a && has_b && id_scratch[static_cast<std::size_t>(a)] == moved) {
      ++a;
      ++b;
    } else {
      take_a ? ++a : ++b;
    }
  }
}

}  // namespace

void clear_lists(NeighborsOut out, Metric metric) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  std::fill_n(out.ids, out.rows * out.k, no_row);
  std::fill_n(out.distances, out.rows * out.k, larger_is_nearer(metric) ? -infinity : infinity);
}

void sort_by_id(NeighborsOut out) {
  const auto number = [](RowId id) { return static_cast<std::uint64_t>(value_of(id)); };  // no_row is the largest
  for (std::int64_t i = 0; i < out.rows; ++i) {
    std::sort(out.ids + i * out.k, out.ids + (i + 1) * out.k, [&](RowId a, RowId b) { return number(a) < number(b); });
  }
}

void merge_lists(NeighborsOut out, const Neighbors& part, std::int64_t begin, Metric metric,
                 const RunOptions& run) {
  const std::int64_t k = out.k;
  parallel_for(run, out.rows, 256, [&](std::int64_t first, std::int64_t last, int) {
    std::vector<RowId> ids;
    std::vector<float> distances;
    for (std::int64_t i = first; i < last; ++i) {
      merge_list(out.ids + i * k, out.distances + i * k, part.ids.data() + i * part.k,
                 part.distances.data() + i * part.k, part.k, begin, k, larger_is_nearer(metric), ids, distances);
    }
  });
}

void merge_lists(NeighborsOut out, std::span<const RowId> lists, const Neighbors& part, std::span<const RowId> rows, Metric metric,
                 const RunOptions& run) {
  parallel_for(run, part.queries, 256, [&](std::int64_t first, std::int64_t last, int) {
    std::vector<RowId> ids, named(static_cast<std::size_t>(out.k), no_row);
    std::vector<float> distances, beside(named.size());
    for (std::int64_t i = first; i < last; ++i) {
      for (std::int64_t j = 0; j < part.k; ++j) {
        const auto from = static_cast<std::size_t>(i * part.k + j);
        const auto to = static_cast<std::size_t>(j);
        named[to] = part.ids[from] == no_row ? no_row : rows[static_cast<std::size_t>(value_of(part.ids[from]))];
        beside[to] = part.distances[from];
      }
      const std::int64_t list = value_of(lists[static_cast<std::size_t>(i)]) * out.k;
      merge_list(out.ids + list, out.distances + list, named.data(), beside.data(), out.k, 0, out.k, larger_is_nearer(metric), ids,
                 distances);
    }
  });
}

void merge_nearest(const Ops& ops, const PreparedRows& part, std::int64_t begin, MatrixRef queries,
                   std::int64_t k, NeighborsOut out, const RunOptions& run,
                   std::int64_t first_self) {
  const std::int64_t part_rows = merge_part_rows(k);
  const std::int64_t end = begin + part.rows();
  Neighbors found(std::min(part_rows, queries.rows), k);
  for (std::int64_t from = 0; from < queries.rows;) {
    // A round ends where the queries enter or leave the part as rows of their own.
    std::int64_t to = std::min(queries.rows, from + part_rows);
    std::int64_t self = -1;
    if (first_self >= 0) {
      const std::int64_t row = first_self + from;
      if (row < begin) to = std::min(to, from + begin - row);
      if (row >= begin && row < end) {
        self = row - begin;
        to = std::min(to, from + end - row);
      }
    }
    NeighborsOut lists(found);
    lists.rows = to - from;
    ops.nearest_rows(part, queries.slice(from, to), k, lists, run, self);
    NeighborsOut into = out;
    into.ids += from * k;
    into.distances += from * k;
    into.rows = to - from;
    merge_lists(into, found, begin, part.metric(), run);
    from = to;
  }
}

Neighbors without_self(const Neighbors& found, std::span<const RowId> self) {
  const std::int64_t k = found.k - 1;
  Neighbors others(found.queries, k);
  for (std::int64_t i = 0; i < found.queries; ++i) {
    std::size_t to = static_cast<std::size_t>(i * k);
    const std::size_t end = to + static_cast<std::size_t>(k);
    for (auto from = static_cast<std::size_t>(i * (k + 1)); to < end; ++from) {
      if (found.ids[from] != no_row && found.ids[from] == self[static_cast<std::size_t>(i)]) continue;
      others.ids[to] = found.ids[from];
      others.distances[to++] = found.distances[from];
    }
  }
  return others;
}

RadiusNeighbors merge_within(const std::vector<RadiusNeighbors>& parts,
                             const std::vector<std::int64_t>& begins, std::int64_t queries,
                             Metric metric) {
  RadiusNeighbors all;
  all.offsets.push_back(0);
  const bool larger_first = larger_is_nearer(metric);
  std::vector<std::pair<float, RowId>> list;
  for (std::size_t q = 0; q < static_cast<std::size_t>(queries); ++q) {
    list.clear();
    for (std::size_t p = 0; p < parts.size(); ++p) {
      for (auto i = parts[p].offsets[q]; i < parts[p].offsets[q + 1]; ++i) {
        const auto at = static_cast<std::size_t>(i);
        list.emplace_back(parts[p].distances[at], RowId{value_of(parts[p].ids[at]) + begins[p]});
      }
    }
    std::sort(list.begin(), list.end(), [&](const auto& a, const auto& b) {
      return is_before(a.first, a.second, b.first, b.second, larger_first);
    });
    for (const auto& [distance, id] : list) {
      all.ids.push_back(id);
      all.distances.push_back(distance);
    }
    all.offsets.push_back(static_cast<std::int64_t>(all.ids.size()));
  }
  return all;
}

}  // namespace gigaknn
