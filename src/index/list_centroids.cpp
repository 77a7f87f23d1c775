#include "index/list_centroids.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/elements.hpp"
#include "core/gather.hpp"
#include "core/random.hpp"
#include "core/sample.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t expected_probes = 32;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

PrepareHints hints_of(std::int64_t expected_queries) {
  return {.k = expected_probes, .queries = expected_queries, .batch = std::min(expected_queries, ListCentroids::batch_rows), .self = false, .few = true};
}

}  // namespace

PrepareHints IndexSetting::hints() const {
  constexpr std::int64_t most = std::int64_t{1} << 31;
  const std::int64_t k = std::clamp<std::int64_t>(expected_k, 1, most), refine = std::clamp<std::int64_t>(expected_refine, 1, most);
  return {.k = k > most / refine ? most : k * refine, .queries = expected_queries, .batch = std::min(expected_queries, ListCentroids::batch_rows), .self = false};
}

std::int64_t candidates_of(std::int64_t k, std::int64_t refine, std::int64_t n) { return refine > n / k ? std::max(k, n) : k * refine; }

KMeansParams lists_fit(std::int64_t n, std::int64_t lists, Metric metric, int iterations, std::uint64_t seed, const std::string& device,
                       bool allow_nonfinite) {
  KMeansParams fit;
  fit.clusters = lists > 0 ? lists : std::clamp<std::int64_t>(std::llround(4 * std::sqrt(static_cast<double>(n))), 1, n);
  fit.iterations = iterations;
  fit.metric = ListCentroids::chosen_by(metric);
  fit.seed = seed;
  fit.device = device;
  fit.allow_nonfinite = allow_nonfinite;
  return fit;
}

std::vector<std::int64_t> held_out_rows(std::int64_t n, std::int64_t count, std::uint64_t seed) {
  constexpr std::uint64_t held_out_stream = 0x4E1D;
  return sample_rows(n, count, mix_bits(seed + held_out_stream));
}

ProbingBatch ProbingBatch::some(const std::vector<std::int64_t>& which) const {
  ProbingBatch batch{{}, gather_rows(queries, which), {}, width};
  for (const std::int64_t i : which) {
    batch.rows.push_back(rows[at(i)]);
    batch.probes.insert(batch.probes.end(), probes.begin() + i * width, probes.begin() + (i + 1) * width);
  }
  return batch;
}

ProbingBatch ProbingBatch::of_lists(MatrixRef queries, std::int64_t begin, std::int64_t end, std::span<const RowId> lists,
                                    const RunOptions& run) {
  const std::int64_t width = std::max<std::int64_t>(1, std::ssize(lists));
  ProbingBatch batch{std::vector<std::int64_t>(at(end - begin)), {}, std::vector<RowId>(at((end - begin) * width), RowId{0}), width};
  std::iota(batch.rows.begin(), batch.rows.end(), begin);
  for (std::int64_t i = 0; i < end - begin; ++i) std::copy(lists.begin(), lists.end(), batch.probes.begin() + i * width);
  batch.queries = gather_rows(queries, batch.rows, run);
  return batch;
}

void ProbingBatch::put(const Neighbors& found, std::int64_t first, Neighbors& to) const {
  for (std::int64_t i = 0; i < found.queries; ++i) {
    const std::int64_t place = (first + rows[at(i)]) * found.k;
    std::copy_n(found.ids.begin() + i * found.k, found.k, to.ids.begin() + place);
    std::copy_n(found.distances.begin() + i * found.k, found.k, to.distances.begin() + place);
  }
}

ListCentroids::ListCentroids(Matrix centroids, Metric metric, std::string device, std::int64_t expected_queries)
    : centroids_(std::move(centroids)), metric_(chosen_by(metric)), device_(std::move(device)), expected_queries_(expected_queries) {}

std::size_t ListCentroids::bytes_needed(std::int64_t lists, std::int64_t d, DType dtype, Metric metric, const std::string& device,
                                        std::int64_t expected_queries, int threads) {
  const PrepareHints hints = hints_of(expected_queries);
  const std::size_t batch =
      at(hints.batch) * at(d) * (size_of(dtype) + sizeof(float)) + at(std::min(batch_probes, hints.batch * lists)) * 20;
  if (lists == 0) return batch;
  return at(lists * d) * sizeof(float) + ops_of(device).bytes_needed(lists, d, DType::f32, chosen_by(metric), hints, threads) + batch;
}

std::size_t ListCentroids::dividing_bytes_needed(std::int64_t n, const RunOptions& run) const {
  return centroids_.rows() > 0 ? nearest_centroids_bytes_needed(n, centroids_.cols(), centroids_.rows(), metric_, device_, run) : 0;
}

bool ListCentroids::gathering_pays(std::int64_t allowed, std::int64_t n, std::int64_t width) const {
  if (allowed > n / 2 || (width == lists() && allowed > n / 64)) return false;
  return static_cast<double>(allowed) * static_cast<double>(lists()) <= static_cast<double>(n) * static_cast<double>(width);
}

ListFinder::ListFinder(MatrixRef centroids, Metric metric, const std::string& device, std::int64_t rows, const RunOptions& run)
    : ops_(ops_of(device)), centroids_(centroids), metric_(metric) {
  if (rows > 0 && ops_.space() == MemorySpace::host) prepared_ = prepare(rows, run);
}

std::unique_ptr<PreparedRows> ListFinder::prepare(std::int64_t rows, const RunOptions& run) const {
  return ops_.prepare(centroids_, metric_, Ops::hints_to_label(rows), run);
}

std::size_t ListFinder::bytes_needed(std::int64_t rows, std::int64_t lists, std::int64_t d, Metric metric, const std::string& device,
                                     int threads) {
  const Ops& ops = ops_of(device);
  return ops.space() == MemorySpace::host ? ops.bytes_needed(lists, d, DType::f32, metric, Ops::hints_to_label(rows), threads) : 0;
}

std::vector<RowId> ListFinder::lists_of(MatrixRef rows, const RunOptions& run) const {
  std::vector<RowId> lists(at(rows.rows));
  if (rows.rows == 0) return lists;
  std::vector<float> distances(lists.size());
  const std::unique_ptr<PreparedRows> own = prepared_ ? nullptr : prepare(rows.rows, run);
  ops_.label_rows(prepared_ ? *prepared_ : *own, rows, lists.data(), distances.data(), run);
  std::replace(lists.begin(), lists.end(), no_row, RowId{0});
  return lists;
}

ListDivision divide_rows(std::span<const RowId> list_of, std::int64_t lists) {
  ListDivision division{std::vector<LocalRow>(list_of.size()), std::vector<std::int64_t>(at(lists + 1))};
  for (const RowId list : list_of) ++division.begins[at(value_of(list) + 1)];
  std::partial_sum(division.begins.begin(), division.begins.end(), division.begins.begin());
  std::vector<std::int64_t> next(division.begins.begin(), division.begins.end() - 1);
  for (std::size_t i = 0; i < list_of.size(); ++i) division.order[at(next[at(value_of(list_of[i]))]++)] = static_cast<LocalRow>(i);
  return division;
}

const PreparedRows& ListCentroids::prepared(const RunOptions& run) const {
  return prepared_.get(run, [&] { return ops_of(device_).prepare(centroids_, metric_, hints_of(expected_queries_), run); });
}

ProbingBatch ListCentroids::probe(MatrixRef queries, std::int64_t begin, std::int64_t end, std::int64_t width,
                                  const RunOptions& run) const {
  if (centroids_.rows() == 0) return ProbingBatch::of_lists(queries, begin, end, {}, run);
  const MatrixRef part = queries.slice(begin, end);
  const Matrix floats = as_floats(part, run);
  std::vector<RowId> probes(at(part.rows * width));
  ops_of(device_).nearest_set(prepared(run), floats, width, probes.data(), run);
  std::vector<std::int64_t> order(at(part.rows));
  std::iota(order.begin(), order.end(), 0);
  const auto first_list = [&](std::int64_t i) { return probes[at(i * width)]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return first_list(a) < first_list(b); });
  ProbingBatch batch{order, gather_rows(part, order, run), {}, width};
  batch.probes.reserve(probes.size());
  for (const std::int64_t i : order) {
    batch.probes.insert(batch.probes.end(), probes.begin() + i * width, probes.begin() + (i + 1) * width);
  }
  for (std::int64_t& row : batch.rows) row += begin;
  return batch;
}

}  // namespace gigaknn
