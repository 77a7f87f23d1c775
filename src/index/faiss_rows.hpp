// Rows as Faiss keeps them, f32 or scalar codes, and what they are in gigaknn.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <gigaknn/matrix.hpp>

#include "index/faiss_file.hpp"

namespace gigaknn {

/// The type of rows whose scalar codes are the rows themselves, or (direct_signed: x + 128) all but a sign bit.
std::optional<DType> dtype_of(FaissScalarType type);
FaissScalarType scalar_type_of(DType dtype);  ///< of u8, i8, f16 or bf16
/// The step of codes that are bytes around 0, as an `ivf_sq` has them: x = step * (code - 128). None: they are others.
std::optional<double> step_of(const FaissScalar& quantizer);
/// What a quantizer of such codes is trained to.
std::array<float, 2> trained_by(double step);
/// Of codes of 8, 6 or 4 bits that stand for so many steps between bounds; 0: they are others.
int step_bits_of(FaissScalarType type);
/// What such a code of dimension j stands for.
float in_steps(const FaissScalar& quantizer, std::int64_t cols, std::int64_t j, unsigned code);
/// Makes codes of i8 rows, or rows of such codes.
void flip_signs(std::span<std::byte> values);

class FaissRows {
 public:
  /// `quantizer`, which must outlive this: null where rows are f32. Residuals are to the centroid that `read` is given; `as_bytes`: codes
  /// by a step are i8 rows, not decoded.
  FaissRows(std::int64_t cols, const FaissScalar* quantizer, bool by_residual, bool as_bytes = false);

  DType dtype() const { return dtype_; }                         ///< of the rows that `read` makes
  bool decodes() const { return quantizer_ && decodes_; }        ///< into f32 that codes stand for
  std::size_t code_bytes() const { return code_bytes_; }
  std::size_t row_bytes() const { return decoded_.size() * size_of(dtype_); }

  /// The row that a code stands for; `centroid`: null where there is none to add. False where it has NaN or infinity.
  bool read(const std::byte* code, const float* centroid, std::byte* row);

 private:
  const FaissScalar* quantizer_;
  std::vector<float> decoded_;  // [d]
  std::size_t code_bytes_;
  DType dtype_ = DType::f32;
  bool decodes_ = true;
};

}  // namespace gigaknn
