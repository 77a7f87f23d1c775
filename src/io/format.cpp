#include "io/format.hpp"

#include <limits>

#include "io/bin.hpp"
#include "io/idx.hpp"
#include "io/mapped_file.hpp"
#include "io/npy.hpp"
#include "io/vecs.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t i32_max = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t u32_max = std::numeric_limits<std::uint32_t>::max();
constexpr std::int64_t i64_max = std::numeric_limits<std::int64_t>::max();

// To add a format: write io/x.{hpp,cpp} with its reader (and writer), add a row here, its case in
// format_test.cpp, its fuzz target in fuzz/, its picture in docs/formats.md.
constexpr VectorFormat formats[] = {
    // suffix, dtype, any dtype, reader, writer, most rows, most columns
    {".fvecs", DType::f32, false, read_vecs, encode_vecs, i64_max, i32_max},
    {".bvecs", DType::u8, false, read_vecs, encode_vecs, i64_max, i32_max},
    {".ivecs", DType::i32, false, read_vecs, encode_vecs, i64_max, i32_max},
    {".fbin", DType::f32, false, read_bin, encode_bin, u32_max, u32_max},
    {".hbin", DType::f16, false, read_bin, encode_bin, u32_max, u32_max},
    {".bf16bin", DType::bf16, false, read_bin, encode_bin, u32_max, u32_max},
    {".u8bin", DType::u8, false, read_bin, encode_bin, u32_max, u32_max},
    {".i8bin", DType::i8, false, read_bin, encode_bin, u32_max, u32_max},
    {".ibin", DType::i32, false, read_bin, encode_bin, u32_max, u32_max},
    {".npy", DType::f32, true, read_npy, encode_npy, i64_max, i64_max},
    {".idx", DType::u8, false, read_idx, nullptr, 0, 0},
    {".idx.gz", DType::u8, false, read_idx_gz, nullptr, 0, 0},
    {"-ubyte", DType::u8, false, read_idx, nullptr, 0, 0},
    {"-ubyte.gz", DType::u8, false, read_idx_gz, nullptr, 0, 0},
};

}  // namespace

const VectorFormat* find_format(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  for (const VectorFormat& format : formats) {
    if (name.size() > format.suffix.size() && name.ends_with(format.suffix)) return &format;
  }
  return nullptr;
}

const VectorFormat& format_of(const std::filesystem::path& path) {
  if (const VectorFormat* format = find_format(path)) return *format;
  std::string known;
  for (const VectorFormat& format : formats) known.append(" ").append(format.suffix);
  fail(Fault::unsupported, printable(path.string()),
       ": not the name of a vector file, expected one of", known);
}

VectorRows read_vectors(const std::filesystem::path& path) {
  const VectorFormat& format = format_of(path);
  return read_vectors(map_file(path), format);
}

VectorRows read_vectors(const FileBytes& file, const VectorFormat& format) {
  return format.read(file, format.dtype);
}

}  // namespace gigaknn
