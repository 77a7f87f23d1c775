#include "graph/candidate_rows.hpp"

#include "graph/byte_candidates.hpp"
#include "graph/compared_rows.hpp"
#include "graph/reduced_base.hpp"

namespace gigaknn {

bool CandidateRows::may_exist(std::int64_t d, DType dtype, Metric metric) {
  return ByteCandidates::exist(dtype, metric) || ReducedBase::may_exist(d, metric);
}

std::optional<CandidateRows> CandidateRows::fit_reduced(const Ops& ops, const Matrix& sample, Metric metric, std::int64_t k,
                                                        const RunOptions& run) {
  const MatrixRef rows = sample;
  if (!ReducedBase::may_exist(rows.cols, metric)) return std::nullopt;
  CandidateRows found;
  if (rows.dtype == DType::u8 && compared_as_they_are(rows.dtype, metric)) {
    found.reduced = fit_reduced_rows(ops, rows, k, most_seven_bits, run);
  } else {
    found.bytes = fit_byte_rows(rows, metric);
    found.reduced = fit_reduced_rows(ops, found.bytes->encode(rows, run), k, most_seven_bits, run);
  }
  if (!found.reduced) return std::nullopt;
  return found;
}

std::optional<CandidateRows> CandidateRows::fit(const Ops& ops, const Matrix& sample, Metric metric, std::int64_t k, const RunOptions& run) {
  if (auto reduced = fit_reduced(ops, sample, metric, k, run)) return reduced;
  if (!ByteCandidates::exist(sample.ref().dtype, metric)) return std::nullopt;
  CandidateRows found;
  found.bytes = fit_byte_rows(sample, metric, most_seven_bits);
  return found;
}

Matrix CandidateRows::encode(const Ops& ops, MatrixRef rows, const RunOptions& run) const {
  Matrix encoded;
  if (bytes) {
    encoded = bytes->encode(rows, run);
    rows = encoded;
  }
  if (!reduced) return encoded;
  Matrix fewer(rows.rows, reduced->dims(), DType::u8);
  if (rows.rows > 0) reduced->encode(ops, rows, fewer.row<std::uint8_t>(0), nullptr, run);
  return fewer;
}

Metric CandidateRows::metric_for(Metric metric) const { return reduced ? Metric::l2 : metric_of_bytes(metric); }

}  // namespace gigaknn
