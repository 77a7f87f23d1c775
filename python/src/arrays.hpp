// Rows that Python lends, and results that it gets: neither is copied.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gigaknn/dataset.hpp>
#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

namespace gigaknn::python {

namespace nb = nanobind;

/// Rows [n, d] of an array of Python's, which lives as long as this does, or of files.
class Rows {
 public:
  /// Of an array whose elements are `dtype`. None where it has to be copied first: ids, not of two dimensions, or its rows are not dense.
  /// Throws Error: unsupported (memory of a device that is none of CUDA's, nor emulated), invalid_argument (no columns).
  static std::optional<Rows> of(nb::ndarray<nb::ro> array, DType dtype);
  explicit Rows(Dataset data) : data_(std::move(data)), matrix_(data_.matrix()) {}

  MatrixRef matrix() const { return matrix_; }
  /// Where they are: "cuda:1", "emulated"; "cpu" in the host's memory.
  const std::string& device() const { return device_; }

 private:
  Rows() = default;
  nb::ndarray<nb::ro> array_;
  Dataset data_;
  MatrixRef matrix_;
  std::string device_ = "cpu";
};

/// DLPack's type of the emulated GPU: an extension (kDLExtDev).
inline constexpr int emulated_device = 12;

std::optional<DType> dtype_of(nb::dlpack::dtype dtype);
nb::dlpack::dtype dlpack_dtype_of(DType dtype);

/// Integers [m] from Python, as int64 already.
using Ids = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::vector<RowId> row_ids_of(const Ids& ids);
template <class T>
std::span<const T> span_of(const nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>& array) {
  return {array.data(), array.size()};
}

/// The same array, of NumPy's int64 (C's long) and not of its longlong, which nanobind makes of 64 bits.
nb::object as_int64(const nb::object& array);

/// The NumPy array of `values` that `owner` keeps; of const ones read-only.
template <class Value>
nb::object array_of(Value* values, std::initializer_list<std::size_t> shape, nb::handle owner) {
  nb::object array = nb::cast(nb::ndarray<nb::numpy, Value>(values, shape, owner));
  return std::is_same_v<std::remove_const_t<Value>, std::int64_t> ? as_int64(array) : array;
}

/// The NumPy array that owns `values`.
template <class Value, class T, class Allocator>
nb::object array_of(std::vector<T, Allocator> values, std::initializer_list<std::size_t> shape) {
  static_assert(sizeof(Value) == sizeof(T));
  using Values = std::vector<T, Allocator>;
  auto* kept = new Values(std::move(values));
  return array_of(reinterpret_cast<Value*>(kept->data()), shape, nb::capsule(kept, [](void* p) noexcept { delete static_cast<Values*>(p); }));
}
template <class Allocator>
nb::object ids_array(std::vector<RowId, Allocator> ids, std::initializer_list<std::size_t> shape) {
  return array_of<std::int64_t>(std::move(ids), shape);
}
nb::object matrix_array(Matrix matrix);

/// A read-only NumPy array of `matrix`, which `owner` keeps.
nb::object view_of(MatrixRef matrix, nb::handle owner);

nb::tuple distances_and_ids(Neighbors neighbors);                     ///< ([q, k] f32, [q, k] i64)
nb::tuple offsets_distances_and_ids(RadiusNeighbors neighbors);       ///< ([q + 1] i64, f32, i64)

}  // namespace gigaknn::python
