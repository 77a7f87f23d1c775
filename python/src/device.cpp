// Arrays in the memory of a GPU: rows that are sent there, and results that stay there.
#include <gigaknn/device.hpp>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <vector>

#include "arrays.hpp"
#include "bind.hpp"
#include "core/require.hpp"
#include "gil.hpp"

namespace gigaknn::python {
namespace {

/// Values of one or two dimensions, which come dense.
class DeviceArray {
 public:
  DeviceArray(MatrixRef values, int dimensions, const std::string& device)
      : matrix_(device, values.rows, values.cols, values.dtype), dimensions_(dimensions) {
    matrix_.upload(values.data);
  }

  MatrixRef values() const { return matrix_; }
  const std::string& device() const { return matrix_.device(); }
  bool on_cuda() const { return device().starts_with("cuda:"); }
  int number() const { return matrix_.number(); }
  std::vector<std::size_t> shape() const {
    std::vector<std::size_t> sizes = {static_cast<std::size_t>(values().rows)};
    if (dimensions_ == 2) sizes.push_back(static_cast<std::size_t>(values().cols));
    return sizes;
  }
  nb::object numpy() const {
    Matrix host(values().rows, values().cols, values().dtype);
    {
      WithoutGil without;
      matrix_.download(host.data());
    }
    const bool wide = host.dtype() == DType::i64;
    const nb::object array = wide ? as_int64(matrix_array(std::move(host))) : matrix_array(std::move(host));
    return dimensions_ == 2 ? array : array.attr("reshape")(-1);
  }

 private:
  DeviceMatrix matrix_;
  int dimensions_;
};

nb::object dlpack(nb::handle self) {
  const auto& array = nb::cast<const DeviceArray&>(self);
  const std::vector<std::size_t> shape = array.shape();
  const nb::object lent = nb::cast(nb::ndarray<>(const_cast<void*>(array.values().data), shape.size(), shape.data(), self, nullptr, dlpack_dtype_of(array.values().dtype),
                                                 array.on_cuda() ? nb::device::cuda::value : emulated_device, array.number()));
  return nb::hasattr(lent, "__dlpack__") ? lent.attr("__dlpack__")() : lent;
}

// Of numbers as NumPy has them, dense.
DeviceArray device_array_of(const nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>& array, const std::string& device) {
  require(array.ndim() == 1 || array.ndim() == 2, Fault::invalid_argument, "an array of ", array.ndim(), " dimensions, expected 1 or 2");
  const std::optional<DType> dtype = dtype_of(array.dtype());
  require(dtype.has_value(), Fault::unsupported, "an array of this type has no place on a device: expected float32, float16, uint8, int8, int32 or int64");
  const auto rows = static_cast<std::int64_t>(array.shape(0));
  const std::int64_t cols = array.ndim() == 2 ? static_cast<std::int64_t>(array.shape(1)) : 1;
  WithoutGil without;
  return DeviceArray(MatrixRef(array.data(), rows, cols, *dtype), static_cast<int>(array.ndim()), device);
}

}  // namespace

void bind_device(nb::module_& m) {
  nb::class_<DeviceArray>(m, "DeviceArray",
                          "An array in the memory of a GPU. Others take it by DLPack, where it is: torch.from_dlpack(array), cupy.from_dlpack(array).")
      .def_prop_ro("shape", [](const DeviceArray& array) { return nb::tuple(nb::cast(array.shape())); })
      .def_prop_ro("dtype", [](const DeviceArray& array) { return std::string(name_of(array.values().dtype)); }, "\"f32\", \"i64\"")
      .def_prop_ro("device", &DeviceArray::device, "\"cuda:0\", \"emulated\"")
      .def("numpy", &DeviceArray::numpy, "A copy in the memory of the host.\n\nReturns\n-------\narray of `shape`")
      .def("__array__", [](const DeviceArray& array, nb::args, nb::kwargs) { return array.numpy(); })
      .def("__len__", [](const DeviceArray& array) { return array.values().rows; })
      .def("__dlpack_device__", [](const DeviceArray& array) { return nb::make_tuple(array.on_cuda() ? int{nb::device::cuda::value} : int{emulated_device}, array.number()); })
      .def("__dlpack__", [](nb::handle self, nb::kwargs) { return dlpack(self); })
      .def("__repr__", [](const DeviceArray& array) {
        std::string sizes;
        for (const std::size_t size : array.shape()) sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
        return join_text("<DeviceArray [", sizes, "] ", name_of(array.values().dtype), " on ", array.device(), ">");
      });
  m.def("device_array_of", &device_array_of, nb::arg("array"), nb::arg("device"));
  m.def(
      "copy_to_host",
      [](const Rows& rows) {
        std::optional<Matrix> copy;
        {
          WithoutGil without;
          copy = copy_to_host(rows.matrix());
        }
        return matrix_array(std::move(*copy));
      },
      nb::arg("rows"), "A copy of rows of a GPU, as a NumPy array; of bf16 one of uint16.");
  m.def("wait_for_stream", &wait_for_stream, nb::arg("number"), nb::arg("stream"), nb::call_guard<WithoutGil>());
}

}  // namespace gigaknn::python
