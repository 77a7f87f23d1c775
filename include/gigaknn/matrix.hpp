// Matrices: rows of one element type, where they live, and who owns them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

namespace gigaknn {

/// Element types. Vectors are f32, f16 (IEEE half), bf16 (bfloat16: the upper half of an f32), u8 or i8 (packed bits are rows of u8);
/// i32 and i64 hold ids. Their numbers are part of the checksums of plans: new ones come last.
enum class DType : std::uint8_t { f32, f16, u8, i8, i32, i64, bf16 };

inline constexpr DType vector_dtypes[] = {DType::f32, DType::f16, DType::bf16, DType::u8, DType::i8};
constexpr bool is_floating(DType dtype) { return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16; }
constexpr bool holds_vectors(DType dtype) { return is_floating(dtype) || dtype == DType::u8 || dtype == DType::i8; }

std::size_t size_of(DType dtype);
std::string_view name_of(DType dtype);  ///< "f32", "f16", "bf16", "u8", "i8", "i32", "i64"

/// Where an address is valid.
enum class MemorySpace : std::uint8_t { host, device };

/// A borrowed, read-only matrix [rows, cols], row-major with a stride; pass by value.
struct MatrixRef {
  const void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride_bytes = 0;  ///< from one row to the next, >= cols * size_of(dtype)
  DType dtype = DType::f32;
  MemorySpace space = MemorySpace::host;

  MatrixRef() = default;
  MatrixRef(const void* data_, std::int64_t rows_, std::int64_t cols_, DType dtype_)
      : data(data_), rows(rows_), cols(cols_),
        stride_bytes(cols_ * static_cast<std::int64_t>(size_of(dtype_))), dtype(dtype_) {}

  const std::byte* row_bytes(std::int64_t i) const {
    return static_cast<const std::byte*>(data) + i * stride_bytes;
  }
  template <class T>
  const T* row(std::int64_t i) const {
    return reinterpret_cast<const T*>(row_bytes(i));
  }
  /// Rows [begin, end) as a matrix of their own.
  MatrixRef slice(std::int64_t begin, std::int64_t end) const {
    MatrixRef part = *this;
    part.data = row_bytes(begin);
    part.rows = end - begin;
    return part;
  }
};

/// An owning, 64-byte-aligned, dense matrix in host memory. Values are unspecified until written.
class Matrix {
 public:
  Matrix() = default;
  Matrix(std::int64_t rows, std::int64_t cols, DType dtype);  ///< throws Error: out_of_memory

  std::int64_t rows() const { return ref_.rows; }
  std::int64_t cols() const { return ref_.cols; }
  DType dtype() const { return ref_.dtype; }
  MatrixRef ref() const { return ref_; }
  operator MatrixRef() const { return ref_; }
  void* data() { return storage_.get(); }
  template <class T>
  T* row(std::int64_t i) {
    return reinterpret_cast<T*>(storage_.get() + i * ref_.stride_bytes);
  }
  template <class T>
  const T* row(std::int64_t i) const {
    return ref_.row<T>(i);
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> storage_;
  MatrixRef ref_;
};

}  // namespace gigaknn
