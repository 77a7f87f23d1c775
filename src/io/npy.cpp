#include "io/npy.hpp"

#include "io/npy_header.hpp"

namespace gigaknn {
namespace {

struct TypeCode {
  std::string_view code;  ///< kind and bytes, as NumPy writes them behind the byte order
  DType dtype;
};
// NumPy knows no bfloat16. It writes arrays of ml_dtypes' as <V2, and as |V2 two bytes that mean nothing.
constexpr TypeCode type_codes[] = {{"f4", DType::f32}, {"f2", DType::f16}, {"V2", DType::bf16}, {"u1", DType::u8},
                                   {"i1", DType::i8},  {"i4", DType::i32}, {"i8", DType::i64}};

DType dtype_of(const FileBytes& file, const std::string& descr) {
  const std::string_view code =
      descr.empty() ? std::string_view() : std::string_view(descr).substr(1);
  for (const TypeCode& type : type_codes) {
    if (code != type.code || descr == "|V2") continue;
    require(descr[0] != '>' || size_of(type.dtype) == 1, Fault::unsupported, file.name,
            ": byte 0: big-endian values (", descr, ") are not supported, save them as '<", code,
            "'");
    if (descr[0] == '<' || descr[0] == '|' || descr[0] == '=' || descr[0] == '>') return type.dtype;
  }
  fail(Fault::unsupported, file.name, ": byte 0: npy type '", printable(descr),
       "' is not supported, expected one of f4 f2 u1 i1 i4 i8, or <V2 for bfloat16");
}

}  // namespace

VectorRows read_npy(const FileBytes& file, DType) {
  const NpyHeader header = read_npy_header(file);
  const DType dtype = dtype_of(file, header.descr);
  const std::size_t rank = header.shape.size();
  require(rank == 1 || rank == 2, Fault::unsupported, file.name, ": byte 0: the npy array has ",
          rank, " dimensions, expected 1 or 2");
  require(!header.fortran_order || rank == 1, Fault::unsupported, file.name,
          ": byte 0: Fortran order is not supported, save numpy.ascontiguousarray(x)");
  return dense_rows(file, 0, header.data_offset, header.shape[0], rank == 2 ? header.shape[1] : 1,
                    dtype);
}

Encoding encode_npy(const MatrixShape& shape) {
  std::string code;
  for (const TypeCode& type : type_codes) {
    if (type.dtype == shape.dtype) code = type.code;
  }
  std::string text =
      join_text("{'descr': '", size_of(shape.dtype) == 1 ? '|' : '<', code,
                "', 'fortran_order': False, 'shape': (", shape.rows, ", ", shape.cols, "), }");
  // The values begin at a multiple of 64, as NumPy's own do, so that they can be mapped.
  constexpr std::size_t fixed_bytes = 10;
  const std::size_t total = (fixed_bytes + text.size() + 1 + 63) / 64 * 64;
  text.resize(total - fixed_bytes - 1, ' ');
  text.push_back('\n');

  Encoding encoding;
  encoding.header = "\x93NUMPY\x01";
  encoding.header.push_back('\0');
  append_value(encoding.header, static_cast<std::uint16_t>(text.size()));
  encoding.header += text;
  return encoding;
}

}  // namespace gigaknn
