#include "index/list_centroids.hpp"

#include <algorithm>
#include <numeric>

#include "core/elements.hpp"
#include "core/gather.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t expected_probes = 32;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

PrepareHints hints_of(std::int64_t expected_queries) {
  return {.k = expected_probes, .queries = expected_queries, .batch = std::min(expected_queries, ListCentroids::batch_rows), .self = false};
}

}  // namespace

ProbingBatch ProbingBatch::some(const std::vector<std::int64_t>& which) const {
  ProbingBatch batch{{}, gather_rows(queries, which), {}, width};
  for (const std::int64_t i : which) {
    batch.rows.push_back(rows[at(i)]);
    batch.probes.insert(batch.probes.end(), probes.begin() + i * width, probes.begin() + (i + 1) * width);
  }
  return batch;
}

ListCentroids::ListCentroids(Matrix centroids, Metric metric, std::string device, std::int64_t expected_queries)
    : centroids_(std::move(centroids)), metric_(chosen_by(metric)), device_(std::move(device)), expected_queries_(expected_queries) {}

std::size_t ListCentroids::bytes_needed(std::int64_t lists, std::int64_t d, DType dtype, Metric metric, const std::string& device,
                                        std::int64_t expected_queries, int threads) {
  const PrepareHints hints = hints_of(expected_queries);
  const std::size_t batch = at(hints.batch) * at(d) * (size_of(dtype) + sizeof(float)) + at(std::min(batch_probes, hints.batch * lists)) * 20;
  return at(lists * d) * sizeof(float) + ops_of(device).bytes_needed(lists, d, DType::f32, chosen_by(metric), hints, threads) + batch;
}

ListDivision divide_rows(MatrixRef rows, MatrixRef centroids, Metric metric, const std::string& device, const RunOptions& run) {
  const Neighbors nearest = nearest_centroids(rows, centroids, metric, device, run);
  ListDivision division{std::vector<LocalRow>(at(rows.rows)), std::vector<std::int64_t>(at(centroids.rows + 1))};
  // Rows that are no numbers are found by no query; those of zeros have no direction, and stand in the first list.
  const auto list_of = [&](std::int64_t i) { return nearest.ids[at(i)] == no_row ? 0 : value_of(nearest.ids[at(i)]); };
  for (std::int64_t i = 0; i < rows.rows; ++i) ++division.begins[at(list_of(i) + 1)];
  std::partial_sum(division.begins.begin(), division.begins.end(), division.begins.begin());
  std::vector<std::int64_t> next(division.begins.begin(), division.begins.end() - 1);
  for (std::int64_t i = 0; i < rows.rows; ++i) division.order[at(next[at(list_of(i))]++)] = static_cast<LocalRow>(i);
  return division;
}

const PreparedRows& ListCentroids::prepared(const RunOptions& run) const {
  const std::lock_guard lock(preparing_);
  if (!prepared_) prepared_ = ops_of(device_).prepare(centroids_, metric_, hints_of(expected_queries_), run);
  return *prepared_;
}

ProbingBatch ListCentroids::probe(MatrixRef queries, std::int64_t begin, std::int64_t end, std::int64_t width, const RunOptions& run) const {
  const MatrixRef part = queries.slice(begin, end);
  const Matrix floats = as_floats(part, run);
  Neighbors probes(part.rows, width);
  ops_of(device_).nearest_rows(prepared(run), floats, width, NeighborsOut(probes), run);
  std::vector<std::int64_t> order(at(part.rows));
  std::iota(order.begin(), order.end(), 0);
  const auto first_list = [&](std::int64_t i) { return probes.ids[at(i * width)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return first_list(a) < first_list(b); });
  ProbingBatch batch{order, gather_rows(part, order, run), {}, width};
  for (const std::int64_t i : order) {
    batch.probes.insert(batch.probes.end(), probes.ids.begin() + i * width, probes.ids.begin() + (i + 1) * width);
  }
  for (std::int64_t& row : batch.rows) row += begin;
  return batch;
}

}  // namespace gigaknn
