// Rows as Faiss keeps them, f32 or scalar codes, and what they are in gigaknn.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <gigaknn/matrix.hpp>

#include "index/faiss_file.hpp"

namespace gigaknn {

/// The type of rows whose scalar codes are the rows themselves, or (direct_signed: x + 128) all but a sign bit.
std::optional<DType> dtype_of(FaissScalarType type);
FaissScalarType scalar_type_of(DType dtype);  ///< of u8, i8 or f16
/// Makes codes of i8 rows, or rows of such codes.
void flip_signs(std::span<std::byte> values);

class FaissRows {
 public:
  /// `quantizer`, which must outlive this: null where rows are f32. Residuals are to the centroid that `read` is given.
  FaissRows(std::int64_t cols, const FaissScalar* quantizer, bool by_residual);

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
