#include "graph/reduced_base.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/gather.hpp"
#include "graph/candidate_rows.hpp"
#include "graph/compared_rows.hpp"
#include "learn/reduced_rows.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t few_proving = 12, many_proving = 48;
#else
constexpr std::int64_t few_proving = 512, many_proving = 4096;  // neighbours among reduced rows
#endif
constexpr std::int64_t fitted_rows = 4096;
constexpr std::int64_t rows_at_once = std::int64_t{1} << 14;  // that become bytes
constexpr double safety = 1e-5;  // canonical distances are float32

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// As far as rows at this canonical distance are from each other as the bytes see them; nothing is known of other metrics.
double radius_of(Metric metric, float rounded) {
  // What became 0 was less than the next.
  const auto distance = static_cast<double>(std::nextafter(rounded, std::numeric_limits<float>::infinity()));
  switch (metric) {
    case Metric::l2: return std::sqrt(distance);
    case Metric::euclidean: return distance;
    case Metric::cosine: return std::sqrt(2 * distance + 1e-6);
    default: return std::numeric_limits<double>::infinity();
  }
}

std::int64_t proving_of(std::int64_t k, int pass, std::int64_t n) {
  return std::min(pass == 0 ? std::max(few_proving, 4 * k) : std::max(many_proving, 16 * k), n - 1);
}

}  // namespace

bool ReducedBase::may_exist(std::int64_t d, Metric metric) {
  return may_reduce(d) && has_byte_rows(metric) && metric_of_bytes(metric) == Metric::l2;
}
std::int64_t ReducedBase::most_dims(std::int64_t d) { return std::min(ReducedRows::most_dims, d / 2); }

std::size_t ReducedBase::making_bytes(const Ops& ops, MatrixRef base, std::int64_t k, int threads) {
  const std::int64_t d = base.cols, part = std::min(base.rows, rows_at_once), sample = std::min(base.rows, fitted_rows);
  const std::size_t row_bytes = at(d) * size_of(base.dtype);
  const std::size_t encoding = at(part * d) + ReducedRows::encoding_bytes(part, d);
  const std::size_t fitting = at(sample) * (row_bytes + at(d) * (1 + sizeof(float))) + fitted_reduction_bytes(ops, sample, d, k, threads);
  return std::max(encoding, fitting);
}

std::optional<ReducedBase> ReducedBase::make(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, std::uint64_t seed,
                                             const RunOptions& run) {
  if (!may_exist(base.cols, metric)) return std::nullopt;
  const auto found = CandidateRows::fit_reduced(ops, gather_rows(base, sample_of_byte_rows(base.rows, seed), run), metric, k, run);
  if (!found) return std::nullopt;
  const ReducedRows& reduced = *found->reduced;
  ReducedBase made(base, metric);
  made.rows_ = Matrix(base.rows, reduced.dims(), DType::u8);
  const double unit = (found->bytes ? 1 / found->bytes->inverse_step : 1) * reduced.unit();
  if (std::isfinite(unit) && unit > 0) made.unit_ = unit;
  for (std::int64_t begin = 0; begin < base.rows; begin += rows_at_once) {
    const MatrixRef part = base.slice(begin, std::min(base.rows, begin + rows_at_once));
    std::uint8_t* const to = made.rows_.row<std::uint8_t>(begin);
    std::vector<float> lost(at(part.rows));
    std::vector<double> of_bytes(at(part.rows));
    if (found->bytes) {
      reduced.encode(ops, found->bytes->encode(part, run, of_bytes.data()), to, lost.data(), run);
    } else {
      reduced.encode(ops, part, to, lost.data(), run);
    }
    for (std::size_t i = 0; i < lost.size(); ++i) {
      made.lost_ = std::max(made.lost_, made.unit_ * static_cast<double>(lost[i]) + of_bytes[i]);
    }
  }
  return made;
}

double ReducedBase::least_distance(double square) const { return unit_ * std::sqrt(square) * (1 - safety) - 2 * lost_; }
bool ReducedBase::proves() const { return unit_ > 0 && std::isfinite(radius_of(metric_, 0)); }
std::int64_t ReducedBase::proving(std::int64_t k, int pass) const { return proving_of(k, pass, base_.rows); }
std::size_t ReducedBase::proving_bytes(MatrixRef base, std::int64_t k, std::int64_t neighbors) {
  const std::int64_t narrow = proving_of(k, 0, base.rows), wide = std::max(neighbors, proving_of(k, 1, base.rows));
  return list_bytes(1, wide) * 2 + at(wide) * sizeof(RowId) + at(neighbors / narrow + 1) * at(base.cols) * size_of(base.dtype);
}

std::vector<std::size_t> ReducedBase::prove(const Ops& ops, std::span<const RowId> some, const Neighbors& among_reduced, NeighborsOut out,
                                            const RunOptions& run) const {
  const std::int64_t found = among_reduced.k, k = out.k, first = std::min(found, 2 * k + 8);
  const Matrix queries = gather_rows(base_, some, run);
  std::vector<RowId> candidates;
  for (std::int64_t i = 0; i < among_reduced.queries; ++i) {
    const auto list = among_reduced.ids.begin() + i * found;
    candidates.insert(candidates.end(), list, list + first);
  }
  ops.nearest_among(queries, base_, metric_, candidates.data(), first, k, out, run);
  // A few of the nearest are near enough to tell which others need not be looked at.
  candidates.assign(some.size() * at(found), no_row);
  std::vector<std::size_t> unproven;
  for (std::size_t i = 0; i < some.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i) * found;
    const float* const squares = among_reduced.distances.data() + place;
    const double radius = radius_of(metric_, out.distances[(static_cast<std::int64_t>(i) + 1) * k - 1]);
    std::int64_t count = first;
    while (count < found && !(least_distance(static_cast<double>(squares[count])) > radius)) ++count;
    if (count == found && found < base_.rows - 1) {
      unproven.push_back(i);
      continue;
    }
    std::copy_n(among_reduced.ids.begin() + place, count, candidates.begin() + place);
  }
  ops.nearest_among(queries, base_, metric_, candidates.data(), found, k, out, run);
  return unproven;
}

}  // namespace gigaknn
