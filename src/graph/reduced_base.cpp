#include "graph/reduced_base.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/gather.hpp"
#include "core/sample.hpp"
#include "graph/compared_rows.hpp"
#include "learn/reduced_rows.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t most_proving = 48;
#else
constexpr std::int64_t most_proving = 2048;
#endif
constexpr std::int64_t fitted_rows = 4096;
constexpr std::int64_t rows_at_once = std::int64_t{1} << 14;  // that become bytes
constexpr std::int64_t a_lossy_row = 256;                     // of so many rows one may have lost more than usual
constexpr std::int64_t most_lossy = 512;
constexpr double safety = 1e-5;  // of radii: canonical distances are float32

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

float round_up(double value) {
  if (std::isnan(value)) return std::numeric_limits<float>::infinity();
  return std::nextafter(static_cast<float>(value), std::numeric_limits<float>::infinity());
}

// As far as rows at this canonical distance are from each other as the bytes see them; nothing is known of other metrics.
double radius_of(Metric metric, float distance) {
  switch (metric) {
    case Metric::l2: return std::sqrt(static_cast<double>(distance));
    case Metric::euclidean: return static_cast<double>(distance);
    case Metric::cosine: return std::sqrt(2 * static_cast<double>(distance) + 1e-6);
    default: return std::numeric_limits<double>::infinity();
  }
}

std::int64_t proving_of(std::int64_t k, std::int64_t n) { return std::min(std::max(most_proving, 4 * k), n - 1); }

}  // namespace

bool ReducedBase::may_exist(std::int64_t d, Metric metric) {
  return may_reduce(d) && has_byte_rows(metric) && metric_of_bytes(metric) == Metric::l2;
}
std::int64_t ReducedBase::most_dims(std::int64_t d) { return std::min(ReducedRows::most_dims, d / 2); }

std::size_t ReducedBase::bytes_needed(const Ops& ops, MatrixRef base, std::int64_t k, int threads) {
  const std::int64_t d = base.cols, part = std::min(base.rows, rows_at_once), sample = std::min(base.rows, fitted_rows);
  const std::size_t row_bytes = at(d) * size_of(base.dtype);
  const std::size_t encoding = at(part * d) + ReducedRows::encoding_bytes(part, d);
  const std::size_t fitting = at(sample) * (row_bytes + at(d) * (1 + sizeof(float))) + fitted_reduction_bytes(ops, sample, d, k, threads);
  return at(base.rows) * (at(most_dims(d)) + 2 * sizeof(float)) + std::max(encoding, fitting);
}

std::optional<ReducedBase> ReducedBase::make(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, std::uint64_t seed,
                                             const RunOptions& run) {
  if (!may_exist(base.cols, metric)) return std::nullopt;
  const bool are_bytes = base.dtype == DType::u8 && compared_as_they_are(base.dtype, metric);
  Matrix sample = gather_rows(base, sample_rows(base.rows, fitted_rows, seed), run);
  ByteRows form;
  if (!are_bytes) {
    form = fit_byte_rows(sample, metric);
    sample = form.encode(sample, run);
  }
  const auto reduced = fit_reduced_rows(ops, sample, k, most_seven_bits, run);
  if (!reduced) return std::nullopt;
  ReducedBase made(base, metric);
  made.rows_ = Matrix(base.rows, reduced->dims(), DType::u8);
  made.lost_.resize(at(base.rows));
  const double step = are_bytes ? 1 : 1 / form.inverse_step;
  const double unit = step * reduced->unit();
  for (std::int64_t begin = 0; begin < base.rows; begin += rows_at_once) {
    const MatrixRef part = base.slice(begin, std::min(base.rows, begin + rows_at_once));
    std::uint8_t* const to = made.rows_.row<std::uint8_t>(begin);
    float* const lost = made.lost_.data() + begin;
    if (are_bytes) {
      reduced->encode(ops, part, to, lost, run);
      for (std::int64_t i = 0; i < part.rows; ++i) lost[i] = round_up(unit * static_cast<double>(lost[i]));
    } else {
      std::vector<float> of_bytes(at(part.rows));
      reduced->encode(ops, form.encode(part, run, of_bytes.data()), to, lost, run);
      for (std::int64_t i = 0; i < part.rows; ++i) {
        lost[i] = round_up(unit * static_cast<double>(lost[i]) + static_cast<double>(of_bytes[at(i)]));
      }
    }
  }
  made.know_losses(unit);
  return made;
}

void ReducedBase::know_losses(double unit) {
  if (std::isfinite(unit) && unit > 0) unit_ = unit;
  std::vector<float> sorted = lost_;
  const std::int64_t n = std::ssize(sorted), lossy = std::min(most_lossy, n / a_lossy_row);
  const auto usual = sorted.end() - 1 - lossy;
  std::nth_element(sorted.begin(), usual, sorted.end());
  usual_loss_ = *usual;
  for (std::int64_t i = 0; i < n; ++i) {
    if (lost_[at(i)] > usual_loss_) lossy_.push_back(RowId{i});
  }
}

std::int64_t ReducedBase::proving(std::int64_t k) const { return proving_of(k, base_.rows); }
std::size_t ReducedBase::proving_bytes(MatrixRef base, std::int64_t k, std::int64_t some) {
  const std::int64_t lists = proving_of(k, base.rows);
  return list_bytes(some, lists) * 2 + at(some) * (at(lists + most_lossy) * sizeof(RowId) + at(base.cols) * size_of(base.dtype));
}

std::vector<std::size_t> ReducedBase::prove(const Ops& ops, std::span<const RowId> some, const Neighbors& among_reduced, NeighborsOut out,
                                            const RunOptions& run) const {
  const std::int64_t found = among_reduced.k, k = out.k, first = std::min(found, 2 * k + 8), width = found + std::ssize(lossy_);
  const Matrix queries = gather_rows(base_, some, run);
  std::vector<RowId> candidates(some.size() * at(first));
  for (std::size_t i = 0; i < some.size(); ++i) {
    std::copy_n(among_reduced.ids.begin() + static_cast<std::int64_t>(i) * found, first, candidates.begin() + static_cast<std::int64_t>(i) * first);
  }
  ops.nearest_among(queries, base_, metric_, candidates.data(), first, k, out, run);
  // A few of the nearest are near enough to tell which others need not be looked at.
  const auto least_distance = [&](std::size_t i, float square) {
    return unit_ * std::sqrt(static_cast<double>(square)) - static_cast<double>(lost_[at(value_of(some[i]))]);
  };
  const auto radius = [&](std::size_t i) {
    return radius_of(metric_, out.distances[(static_cast<std::int64_t>(i) + 1) * k - 1]) * (1 + safety);
  };
  candidates.assign(some.size() * at(width), no_row);
  std::vector<std::size_t> unproven;
  for (std::size_t i = 0; i < some.size(); ++i) {
    const RowId* const ids = among_reduced.ids.data() + static_cast<std::int64_t>(i) * found;
    const float* const squares = among_reduced.distances.data() + static_cast<std::int64_t>(i) * found;
    RowId* const to = candidates.data() + i * at(width);
    const double farthest = radius(i) + static_cast<double>(usual_loss_);
    std::int64_t count = first;
    while (count < found && !(least_distance(i, squares[count]) > farthest)) ++count;
    if (unit_ == 0 || (count == found && found < base_.rows - 1)) unproven.push_back(i);
    std::copy_n(ids, count, to);
    std::int64_t next = count;
    for (const RowId row : lossy_) {
      if (row != some[i] && std::find(ids, ids + count, row) == ids + count) to[next++] = row;
    }
  }
  ops.nearest_among(queries, base_, metric_, candidates.data(), width, k, out, run);
  return unproven;
}

}  // namespace gigaknn
