#include "arrays.hpp"

#include <algorithm>
#include <string>

#include <gigaknn/error.hpp>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.hpp"
#include "core/require.hpp"
#include "gil.hpp"

namespace gigaknn::python {
namespace {

std::optional<Rows> view(nb::handle array) {
  nb::ndarray<nb::ro> lent;
  // ctypes leaves strides out of what it lends, which nanobind reads all the same; a memoryview has them.
  nb::object seen = nb::borrow(array);
  if (PyObject_CheckBuffer(array.ptr()) && !nb::hasattr(array, "__array__") && !nb::hasattr(array, "__dlpack__")) {
    seen = nb::steal(PyMemoryView_FromObject(array.ptr()));
    if (!seen.is_valid()) {  // a map that is closed
      PyErr_Clear();
      return std::nullopt;
    }
  }
  if (!nb::try_cast(seen, lent)) return std::nullopt;
  const std::optional<DType> dtype = dtype_of(lent.dtype());
  return dtype ? Rows::of(std::move(lent), *dtype) : std::nullopt;
}

std::optional<Rows> view_bfloat16(nb::ndarray<const std::uint16_t, nb::ro> words) { return Rows::of(nb::ndarray<nb::ro>(words), DType::bf16); }

}  // namespace

std::optional<DType> dtype_of(nb::dlpack::dtype dtype) {
  const auto is = [&](nb::dlpack::dtype_code code, int bits) { return dtype.code == static_cast<std::uint8_t>(code) && dtype.bits == bits && dtype.lanes == 1; };
  if (is(nb::dlpack::dtype_code::Float, 32)) return DType::f32;
  if (is(nb::dlpack::dtype_code::Float, 16)) return DType::f16;
  if (is(nb::dlpack::dtype_code::Bfloat, 16)) return DType::bf16;
  if (is(nb::dlpack::dtype_code::UInt, 8)) return DType::u8;
  if (is(nb::dlpack::dtype_code::Int, 8)) return DType::i8;
  if (is(nb::dlpack::dtype_code::Int, 32)) return DType::i32;
  if (is(nb::dlpack::dtype_code::Int, 64)) return DType::i64;
  return std::nullopt;
}

nb::dlpack::dtype dlpack_dtype_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return nb::dtype<float>();
    case DType::f16: return {static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float), 16, 1};
    case DType::bf16: return nb::dtype<std::uint16_t>();  // NumPy has none: gigaknn._bfloat16 says what the words are
    case DType::u8: return nb::dtype<std::uint8_t>();
    case DType::i8: return nb::dtype<std::int8_t>();
    case DType::i32: return nb::dtype<std::int32_t>();
    default: return nb::dtype<std::int64_t>();
  }
}

std::optional<Rows> Rows::of(nb::ndarray<nb::ro> array, DType dtype) {
  const int device = array.device_type();
  const bool cuda = device == nb::device::cuda::value, emulated = device == emulated_device;
  require(cuda || emulated || device == nb::device::cpu::value || device == nb::device::cuda_host::value || device == nb::device::rocm_host::value ||
              device == nb::device::cuda_managed::value,
          Fault::unsupported, "rows must be in the memory of the host or of a GPU of CUDA's, these are on a device of DLPack's type ", device);
  if (!holds_vectors(dtype) || array.ndim() != 2) return std::nullopt;
  const auto n = static_cast<std::int64_t>(array.shape(0));
  const auto d = static_cast<std::int64_t>(array.shape(1));
  require(d >= 1, Fault::invalid_argument, "rows have 0 columns, expected at least 1");
  Rows rows;
  rows.matrix_ = MatrixRef(array.data(), n, d, dtype);
  if (cuda) rows.device_ = join_text("cuda:", array.device_id());
  if (emulated) rows.device_ = "emulated";
  if (cuda || emulated) rows.matrix_.space = MemorySpace::device;
  if (n > 0) {
    const bool dense = (d == 1 || array.stride(1) == 1) && (n == 1 || array.stride(0) >= d);
    if (!dense || reinterpret_cast<std::uintptr_t>(array.data()) % size_of(dtype) != 0) return std::nullopt;
    if (n > 1) rows.matrix_.stride_bytes = array.stride(0) * static_cast<std::int64_t>(size_of(dtype));
  }
  rows.array_ = std::move(array);
  return rows;
}

nb::object as_int64(const nb::object& array) {
  static const nb::handle int64 = nb::module_::import_("numpy").attr("dtype")("int64").release();
  return array.attr("view")(int64);
}

std::vector<RowId> row_ids_of(const Ids& ids) {
  std::vector<RowId> result(ids.size());
  std::transform(ids.data(), ids.data() + ids.size(), result.begin(), [](std::int64_t id) { return RowId{id}; });
  return result;
}

nb::object matrix_array(Matrix matrix) {
  auto* kept = new Matrix(std::move(matrix));
  const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<Matrix*>(p); });
  const std::size_t shape[] = {static_cast<std::size_t>(kept->rows()), static_cast<std::size_t>(kept->cols())};
  return nb::cast(nb::ndarray<nb::numpy>(kept->data(), 2, shape, owner, nullptr, dlpack_dtype_of(kept->dtype())));
}

nb::object view_of(MatrixRef matrix, nb::handle owner) {
  const std::size_t shape[] = {static_cast<std::size_t>(matrix.rows), static_cast<std::size_t>(matrix.cols)};
  const auto size = static_cast<std::int64_t>(size_of(matrix.dtype));
  if (matrix.stride_bytes % size != 0) return nb::none();
  const std::int64_t strides[] = {matrix.stride_bytes / size, 1};
  return nb::cast(nb::ndarray<nb::numpy, nb::ro>(matrix.data, 2, shape, owner, strides, dlpack_dtype_of(matrix.dtype)));
}

nb::tuple distances_and_ids(Neighbors neighbors) {
  const auto q = static_cast<std::size_t>(neighbors.queries);
  const auto k = static_cast<std::size_t>(neighbors.k);
  return nb::make_tuple(array_of<float>(std::move(neighbors.distances), {q, k}), ids_array(std::move(neighbors.ids), {q, k}));
}

nb::tuple offsets_distances_and_ids(RadiusNeighbors neighbors) {
  const std::size_t queries = neighbors.offsets.size();
  const std::size_t found = neighbors.ids.size();
  return nb::make_tuple(array_of<std::int64_t>(std::move(neighbors.offsets), {queries}), array_of<float>(std::move(neighbors.distances), {found}),
                        ids_array(std::move(neighbors.ids), {found}));
}

void bind_arrays(nb::module_& m) {
  nb::class_<Rows>(m, "Rows", "Rows [n, d], lent by an array or by files.")
      .def_prop_ro("shape", [](const Rows& rows) { return nb::make_tuple(rows.matrix().rows, rows.matrix().cols); })
      .def_prop_ro("device", &Rows::device, "\"cpu\", \"cuda:0\", \"emulated\"")
      .def_prop_ro("dtype", [](const Rows& rows) { return std::string(name_of(rows.matrix().dtype)); }, "\"f32\", \"f16\", \"bf16\", \"u8\" or \"i8\"")
      .def("numpy", [](nb::handle self) { return view_of(nb::cast<const Rows&>(self).matrix(), self); },
           "A read-only array of the rows, not copied, of bf16 one of uint16; None where they are not aligned.");
  m.def("view", &view, nb::arg("array").none(), "The rows of an array, not copied; None where they have to be.");
  m.def("view_bfloat16", &view_bfloat16, nb::arg("words"), "As `view`, of words that are bfloat16.");
  m.def(
      "open_rows",
      [](const std::vector<std::filesystem::path>& paths) {
        WithoutGil released;
        return Rows(paths.size() == 1 ? Dataset::open(paths.front()) : Dataset::open_shards(paths));
      },
      nb::arg("paths"), "The rows of files.");
}

}  // namespace gigaknn::python
