#include "graph/recall_sample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/interval.hpp"
#include "core/gather.hpp"
#include "core/sample.hpp"
#include "ops/canonical.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

std::pair<std::vector<RowId>, std::vector<RowId>> draw_samples(std::int64_t n, std::uint64_t seed) {
  const std::int64_t rows =
      std::min((n + 1) / 2, std::clamp<std::int64_t>(std::min(n / 128, (std::int64_t{1} << 29) / n), 256, most_sampled));
  std::vector<RowId> steering, measuring;
  // Every second one steers: both are spread alike.
  for (const std::int64_t place : sample_rows(n, 2 * rows, seed ^ 0x5EED)) {
    (steering.size() > measuring.size() ? measuring : steering).push_back(RowId{place});
  }
  return {std::move(steering), std::move(measuring)};
}

bool RecallSample::is_wanted(std::size_t entry) const {
  return truth_.ids[entry] != no_row && key_of_value(metric_, truth_.distances[entry]) < std::numeric_limits<float>::infinity();
}

std::vector<RowId> RecallSample::wanted() const {
  std::vector<RowId> rows(truth_.ids.begin(), truth_.ids.end());
  for (std::size_t entry = 0; entry < rows.size(); ++entry) {
    if (!is_wanted(entry)) rows[entry] = no_row;
  }
  return rows;
}

// True neighbours of sampled row i.
std::int64_t RecallSample::wanted_of(std::int64_t i) const {
  std::int64_t wanted = truth_.k;
  while (wanted > 0 && !is_wanted(at(i * truth_.k + wanted - 1))) --wanted;
  return wanted;
}

// key_of(i, j): of entry j of the list of sampled row i; NaN where there is none.
template <class KeyOf>
Recall RecallSample::measure_keys(std::int64_t width, KeyOf key_of) const {
  const std::int64_t k = truth_.k;
  std::vector<RowHits> hits;
  for (std::int64_t i = 0; i < truth_.queries; ++i) {
    const std::int64_t wanted = wanted_of(i);
    RowHits row{0, wanted};
    if (wanted > 0) {
      const float last = key_of_value(metric_, truth_.distances[at(i * k + wanted - 1)]);
      for (std::int64_t j = 0; j < width; ++j) row.found += key_of(i, j) <= last;
      row.found = std::min(row.found, wanted);
    }
    hits.push_back(row);
  }
  return recall_of_rows(hits, k, population_);
}

Recall RecallSample::measure(const Neighbors& lists) const {
  return measure_keys(std::min(lists.k, truth_.k), [&](std::int64_t i, std::int64_t j) {
    const std::size_t entry = at(value_of(rows_[at(i)]) * lists.k + j);
    return lists.ids[entry] == no_row ? NAN : key_of_value(metric_, lists.distances[entry]);
  });
}

Recall RecallSample::measure_sampled(const Neighbors& lists) const {
  return measure_keys(std::min(lists.k, truth_.k), [&](std::int64_t i, std::int64_t j) {
    const std::size_t entry = at(i * lists.k + j);
    return lists.ids[entry] == no_row ? NAN : key_of_value(metric_, lists.distances[entry]);
  });
}

std::vector<float> RecallSample::distances_of(const Ops& ops, MatrixRef base, std::span<const RowId> lists, std::int64_t width,
                                              const RunOptions& run) const {
  std::vector<float> distances(lists.size());
  ops.pair_distances(gather_rows(base, rows_, run), base, metric_, lists.data(), width, distances.data(), run);
  return distances;
}

std::vector<std::int64_t> RecallSample::found_by_width(const Ops& ops, MatrixRef base, std::span<const RowId> lists, std::int64_t width,
                                                       const RunOptions& run) const {
  const std::vector<float> distances = distances_of(ops, base, lists, width, run);
  std::vector<std::int64_t> found(at(width + 1));
  for (std::int64_t i = 0; i < truth_.queries; ++i) {
    const std::int64_t wanted = wanted_of(i);
    if (wanted == 0) continue;
    const float last = key_of_value(metric_, truth_.distances[at(i * truth_.k + wanted - 1)]);
    std::int64_t of_row = 0;
    for (std::int64_t j = 0; j < width; ++j) {
      const std::size_t entry = at(i * width + j);
      of_row += of_row < wanted && lists[entry] != no_row && key_of_value(metric_, distances[entry]) <= last;
      found[at(j + 1)] += of_row;
    }
  }
  return found;
}

Recall RecallSample::measure(const Ops& ops, MatrixRef base, std::span<const RowId> lists, std::int64_t width,
                             const RunOptions& run) const {
  const std::vector<float> distances = distances_of(ops, base, lists, width, run);
  return measure_keys(width, [&](std::int64_t i, std::int64_t j) {
    const std::size_t entry = at(i * width + j);
    return lists[entry] == no_row ? NAN : key_of_value(metric_, distances[entry]);
  });
}

}  // namespace gigaknn
