#include "hdf5.hpp"

#include <hdf5.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/require.hpp"
#include "io/mapped_file.hpp"
#include "io/output_file.hpp"

namespace gigaknn::cli {
namespace {

/// An HDF5 identifier that closes itself.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle(hid_t id, Close close) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  hid_t id() const { return id_; }

 private:
  hid_t id_;
  Close close_;
};

herr_t keep_first_reason(unsigned, const H5E_error2_t* entry, void* text) {
  auto* reason = static_cast<std::string*>(text);
  if (reason->empty() && entry->desc) *reason = entry->desc;
  return 0;
}

[[noreturn]] void fail_hdf5(Fault fault, const std::string& name, const std::string& what) {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first_reason, &reason);
  fail(fault, name, ": ", what, reason.empty() ? "" : ": ", printable(reason));
}

Handle checked(hid_t id, Handle::Close close, Fault fault, const std::string& name,
               const std::string& what) {
  if (id < 0) fail_hdf5(fault, name, what);
  return Handle(id, close);
}

/// IEEE half and bfloat16, which HDF5 1.10 has no names for.
Handle half_type(std::size_t exponent_bits) {
  const std::size_t fraction_bits = 15 - exponent_bits;
  Handle type(H5Tcopy(H5T_IEEE_F32LE), H5Tclose);
  H5Tset_fields(type.id(), 15, fraction_bits, exponent_bits, 0, fraction_bits);
  H5Tset_size(type.id(), 2);
  H5Tset_ebias(type.id(), (std::size_t{1} << (exponent_bits - 1)) - 1);
  return type;
}

std::optional<DType> dtype_of(hid_t type) {
  const H5T_class_t kind = H5Tget_class(type);
  const std::size_t bytes = H5Tget_size(type);
  const bool is_signed = kind == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
  if (kind == H5T_FLOAT && bytes == 4) return DType::f32;
  if (kind == H5T_FLOAT && bytes == 2) return H5Tget_ebias(type) == 127 ? DType::bf16 : DType::f16;
  if (kind != H5T_INTEGER) return std::nullopt;
  if (bytes == 1) return is_signed ? DType::i8 : DType::u8;
  if (bytes == 4 && is_signed) return DType::i32;
  if (bytes == 8 && is_signed) return DType::i64;
  return std::nullopt;
}

/// As ours are called, also where it is none of them.
std::string type_name(hid_t type) {
  if (const std::optional<DType> dtype = dtype_of(type)) return std::string(name_of(*dtype));
  const H5T_class_t kind = H5Tget_class(type);
  if (kind != H5T_FLOAT && kind != H5T_INTEGER) return "neither integers nor reals";
  const char letter = kind == H5T_FLOAT ? 'f' : H5Tget_sign(type) == H5T_SGN_2 ? 'i' : 'u';
  return letter + std::to_string(8 * H5Tget_size(type));
}

Handle memory_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return Handle(H5Tcopy(H5T_NATIVE_FLOAT), H5Tclose);
    case DType::f16:
      return half_type(5);
    case DType::bf16:
      return half_type(8);
    case DType::u8:
      return Handle(H5Tcopy(H5T_NATIVE_UINT8), H5Tclose);
    case DType::i8:
      return Handle(H5Tcopy(H5T_NATIVE_INT8), H5Tclose);
    case DType::i32:
      return Handle(H5Tcopy(H5T_NATIVE_INT32), H5Tclose);
    case DType::i64:
      break;
  }
  return Handle(H5Tcopy(H5T_NATIVE_INT64), H5Tclose);
}

/// A file open for reading, and its name for messages.
struct File {
  explicit File(const std::filesystem::path& path)
      : name(map_file(path).name), handle(open(path, name)) {}

  static Handle open(const std::filesystem::path& path, const std::string& name) {
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);  // its errors come as one line of ours
    return checked(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose,
                   Fault::corrupt_file, name, "byte 0: not a readable HDF5 file");
  }
  bool has(const std::string& part) const {
    return H5Lexists(handle.id(), part.c_str(), H5P_DEFAULT) > 0;
  }

  std::string name;
  Handle handle;
};

/// A data set of one or two dimensions.
struct Part {
  Part(const File& file, const std::string& part)
      : handle(checked(H5Dopen2(file.handle.id(), part.c_str(), H5P_DEFAULT), H5Dclose,
                       Fault::corrupt_file, file.name, "has no data set '" + part + "'")),
        type(H5Dget_type(handle.id()), H5Tclose) {
    const Handle space(H5Dget_space(handle.id()), H5Sclose);
    rank = H5Sget_simple_extent_ndims(space.id());
    if (rank == 1 || rank == 2) H5Sget_simple_extent_dims(space.id(), dims, nullptr);
  }

  Handle handle;
  Handle type;
  int rank = 0;
  hsize_t dims[2] = {0, 1};
};

Matrix read_part(const File& file, const Part& part, const std::string& name, DType dtype) {
  require(part.rank == 1 || part.rank == 2, Fault::unsupported, file.name, ": '", name, "' has ",
          part.rank, " dimensions, expected 1 or 2");
  require(part.dims[0] >= 1 && part.dims[1] >= 1, Fault::corrupt_file, file.name, ": '", name,
          "' is ", part.dims[0], " x ", part.dims[1], ", expected at least 1 x 1");
  // No filter of HDF5 packs better than deflate's 1032 to 1: a header may not make us reserve more.
  const WideSize bytes = WideSize{part.dims[0]} * part.dims[1] * H5Tget_size(part.type.id());
  const hsize_t stored = H5Dget_storage_size(part.handle.id());
  require(bytes <= WideSize{stored} * 1032, Fault::corrupt_file, file.name, ": '", name, "' of ",
          part.dims[0], " x ", part.dims[1], " values cannot be in the ", stored,
          " bytes that are stored");
  Matrix matrix(static_cast<std::int64_t>(part.dims[0]), static_cast<std::int64_t>(part.dims[1]),
                dtype);
  const Handle memory = memory_type(dtype);
  if (H5Dread(part.handle.id(), memory.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, matrix.data()) < 0) {
    fail_hdf5(Fault::corrupt_file, file.name, "cannot read '" + name + "'");
  }
  return matrix;
}

herr_t keep_name(hid_t, const char* name, const H5L_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

// HDF5 gives the largest for those that are larger (u64).
void take_ids(const Matrix& matrix, const std::string& name, std::span<RowId> ids) {
  const std::int64_t* values = matrix.row<std::int64_t>(0);
  constexpr std::int64_t end = std::numeric_limits<std::int64_t>::max();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (values[i] < -1 || values[i] == end) {
      const auto at = static_cast<std::int64_t>(i);
      fail(Fault::corrupt_file, name, ": 'neighbors' row ", at / matrix.cols(), ", column ",
           at % matrix.cols(), ": id ", values[i], values[i] == end ? " or more" : "", ", expected -1 to ", end - 1);
    }
    ids[i] = RowId{values[i]};
  }
}

void write_part(hid_t file, const std::string& file_name, const char* name, MatrixRef matrix) {
  const hsize_t dims[2] = {static_cast<hsize_t>(matrix.rows), static_cast<hsize_t>(matrix.cols)};
  const Handle space(H5Screate_simple(2, dims, nullptr), H5Sclose);
  const Handle properties(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  H5Pset_obj_track_times(properties.id(), false);
  const Handle type = memory_type(matrix.dtype);
  const Handle part = checked(
      H5Dcreate2(file, name, type.id(), space.id(), H5P_DEFAULT, properties.id(), H5P_DEFAULT),
      H5Dclose, Fault::io, file_name, "cannot make a data set");
  if (H5Dwrite(part.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, matrix.data) < 0) {
    fail_hdf5(Fault::io, file_name, "cannot write a data set");
  }
}

void write_ids(hid_t file, const std::string& name, const Neighbors& result) {
  const bool wide = std::any_of(result.ids.begin(), result.ids.end(), [](RowId id) {
    return value_of(id) > std::numeric_limits<std::int32_t>::max();
  });
  if (wide) {
    return write_part(file, name, "neighbors",
                      MatrixRef(result.ids.data(), result.queries, result.k, DType::i64));
  }
  std::vector<std::int32_t> narrow(result.ids.size());
  std::transform(result.ids.begin(), result.ids.end(), narrow.begin(),
                 [](RowId id) { return static_cast<std::int32_t>(value_of(id)); });
  write_part(file, name, "neighbors",
             MatrixRef(narrow.data(), result.queries, result.k, DType::i32));
}

}  // namespace

void require_hdf5(const std::filesystem::path&) {}

std::vector<Hdf5Part> list_hdf5(const std::filesystem::path& path) {
  const File file(path);
  std::vector<std::string> names;
  if (H5Literate(file.handle.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, keep_name, &names) < 0) {
    fail_hdf5(Fault::corrupt_file, file.name, "cannot list its data sets");
  }
  std::vector<Hdf5Part> parts;
  for (const std::string& name : names) {
    const Handle object(H5Oopen(file.handle.id(), name.c_str(), H5P_DEFAULT), H5Oclose);
    if (object.id() < 0 || H5Iget_type(object.id()) != H5I_DATASET) continue;
    const Part part(file, name);
    if (part.rank != 1 && part.rank != 2) continue;
    parts.push_back({printable(name), static_cast<std::int64_t>(part.dims[0]),
                     static_cast<std::int64_t>(part.dims[1]), type_name(part.type.id())});
  }
  return parts;
}

Matrix read_hdf5_matrix(const std::filesystem::path& path, const std::string& part_name, std::size_t memory_bytes) {
  const File file(path);
  const Part part(file, part_name);
  const std::optional<DType> dtype = dtype_of(part.type.id());
  require(dtype.has_value(), Fault::unsupported, file.name, ": '", part_name,
          "' holds ", type_name(part.type.id()), ", expected one of f32 f16 bf16 u8 i8 i32 i64");
  const WideSize bytes = WideSize{part.dims[0]} * part.dims[1] * size_of(*dtype);
  require(memory_bytes == 0 || bytes <= memory_bytes, Fault::out_of_memory, "a budget of ", memory_bytes, " bytes is too small: '", part_name,
          "' of ", file.name, " is read into ", decimal(bytes), "; gigaknn convert makes a file of it that is mapped");
  return read_part(file, part, part_name, *dtype);
}

Neighbors read_hdf5_neighbors(const std::filesystem::path& path) {
  const File file(path);
  const Part ids(file, "neighbors");
  require(H5Tget_class(ids.type.id()) == H5T_INTEGER, Fault::unsupported, file.name,
          ": 'neighbors' does not hold integers");
  const Matrix id_matrix = read_part(file, ids, "neighbors", DType::i64);
  Neighbors result(id_matrix.rows(), id_matrix.cols());
  result.distances = {};
  take_ids(id_matrix, file.name, result.ids);
  if (!file.has("distances")) return result;
  const Part distances(file, "distances");
  require(H5Tget_class(distances.type.id()) == H5T_FLOAT, Fault::unsupported, file.name,
          ": 'distances' does not hold reals");
  const Matrix matrix = read_part(file, distances, "distances", DType::f32);
  require(matrix.rows() == result.queries && matrix.cols() == result.k, Fault::corrupt_file,
          file.name, ": ", matrix.rows(), " x ", matrix.cols(), " distances do not fit ",
          result.queries, " x ", result.k, " ids");
  result.distances.assign(matrix.row<float>(0), matrix.row<float>(0) + result.ids.size());
  return result;
}

std::optional<std::string> read_hdf5_distance(const std::filesystem::path& path) {
  const File file(path);
  if (H5Aexists(file.handle.id(), "distance") <= 0) return std::nullopt;
  const Handle attribute(H5Aopen(file.handle.id(), "distance", H5P_DEFAULT), H5Aclose);
  const Handle type(H5Aget_type(attribute.id()), H5Tclose);
  const Handle space(H5Aget_space(attribute.id()), H5Sclose);
  if (H5Tget_class(type.id()) != H5T_STRING || H5Sget_simple_extent_npoints(space.id()) != 1)
    return std::nullopt;
  if (H5Tis_variable_str(type.id()) > 0) {
    char* text = nullptr;
    if (H5Aread(attribute.id(), type.id(), &text) < 0 || text == nullptr) return std::nullopt;
    std::string distance = printable(text);
    H5free_memory(text);
    return distance;
  }
  std::string text(H5Tget_size(type.id()), '\0');
  if (H5Aread(attribute.id(), type.id(), text.data()) < 0) return std::nullopt;
  text.resize(std::min(text.find('\0'), text.size()));
  return printable(text);
}

void write_hdf5_neighbors(const Neighbors& result, const std::filesystem::path& path) {
  require(result.queries >= 1 && result.k >= 1, Fault::invalid_argument, printable(path.string()),
          ": cannot hold ", result.queries, " x ", result.k,
          " neighbours, expected at least 1 x 1");
  OutputFile output(path);
  const std::string name = printable(path.string());
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  // Made in memory and stored at once, so that the file appears whole or not at all.
  const Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  constexpr std::size_t growth_bytes = std::size_t{16} << 20;
  H5Pset_fapl_core(access.id(), growth_bytes, false);
  const Handle file = checked(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id()),
                              H5Fclose, Fault::io, name, "cannot make a HDF5 file");
  write_ids(file.id(), name, result);
  if (!result.distances.empty()) {
    write_part(file.id(), name, "distances",
               MatrixRef(result.distances.data(), result.queries, result.k, DType::f32));
  }
  if (H5Fflush(file.id(), H5F_SCOPE_LOCAL) < 0) fail_hdf5(Fault::io, name, "cannot write");
  const ssize_t bytes = H5Fget_file_image(file.id(), nullptr, 0);
  if (bytes <= 0) fail_hdf5(Fault::io, name, "cannot write");
  std::vector<char> image(static_cast<std::size_t>(bytes));
  if (H5Fget_file_image(file.id(), image.data(), image.size()) != bytes) {
    fail_hdf5(Fault::io, name, "cannot write");
  }
  output.write(image.data(), image.size());
  output.finish();
}

}  // namespace gigaknn::cli
