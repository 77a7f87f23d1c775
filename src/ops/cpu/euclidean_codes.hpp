// Codes for everything that is a Euclidean distance or a product underneath.
//
//   row [d] --widen, normalise or take roots--> x [d] --minus mean, project--> y [dims] --round / step--> code
//
// The projection keeps `dims - 1` directions of largest variance, rotated so that all spread equally, and one more
// coordinate: the norm of the rest.
#pragma once

#include "ops/cpu/code_space.hpp"
#include "ops/cpu/row_sample.hpp"

namespace gigaknn::cpu {

class EuclideanCodes : public CodeSpace {
 public:
  EuclideanCodes(const CodeSource& source, const RunOptions& run);

  static constexpr std::int64_t most_fitted_dims = 2048;  ///< beyond, directions are not looked for: the eigenproblem costs too much
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, int threads);
  /// Whether cells of such rows have codes that are the rows' bytes, from which a pair's key follows. `seven_bits`: of
  /// PrepareHints.
  static bool keys_from_bytes(Metric metric, DType dtype, std::int64_t d, const CodeKernels& kernels, bool seven_bits);

  int byte_zero() const override { return byte_zero_; }
  std::size_t bytes() const override;
  void encode(MatrixRef rows, const RowFacts& facts, std::int64_t begin, std::int64_t end, bool queries,
              CodedRows& out, std::int64_t out_begin) const override;

 private:
  bool takes_whole_bytes() const;
  int zero_of_bytes() const { return pair_.dtype() != DType::u8 ? 0 : kernels_->takes_bytes ? 128 : kernels_->most_level; }
  void encode_bytes(MatrixRef rows, const RowFacts& facts, std::int64_t begin, std::int64_t end, CodedRows& out,
                    std::int64_t out_begin) const;
  void centre(RowSample& sample);
  void fit_directions(const RowSample& sample, const RunOptions& run);
  void choose_dims(const RowSample& sample, const CodeSource& source, const RunOptions& run);
  void build_projection();
  void fit_step(const RowSample& sample);
  void load_row(MatrixRef rows, const RowFacts& facts, std::int64_t i, float* x, float* scratch) const;
  // y [count, dims] and, for each row, a bound of what was lost so far.
  void project(const float* x, std::int64_t count, float* y, double* errors) const;
  // Rounds y / step to codes and adds what that loses to `error`.
  void quantize(const float* y, double step, double& error, std::int8_t* codes, std::int32_t& squares,
                std::int32_t& sum) const;

  PairDistance pair_;
  const CodeKernels* kernels_;
  const FloatKernels* floats_;
  std::int64_t d_;
  std::int64_t dims_ = 0;
  int byte_zero_ = 0;
  bool product_;
  std::vector<float> mean_;        // [d]
  std::vector<float> directions_;  // [found, d] principal directions, largest variance first
  std::int64_t found_ = 0;
  std::vector<float> projection_;  // [d, kept padded to 64]; empty: y = x
  std::int64_t kept_ = 0;          // dims_ == kept_ + 1 where the norm of the rest is a coordinate
  double orthogonality_ = 0;       // bound of |P P^T - I|
  double rest_centre_ = 0;
};

}  // namespace gigaknn::cpu
