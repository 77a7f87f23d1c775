#include "io/idx.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "io/gunzip.hpp"

namespace gigaknn {
namespace {

constexpr std::uint64_t most_header_bytes = 4 + 3 * 4;

struct IdxHeader {
  std::uint64_t rows = 1;
  std::uint64_t height = 1;
  std::uint64_t width = 1;
  std::uint64_t rank = 0;
  std::uint64_t bytes = 0;  ///< of the header itself

  std::uint64_t cols() const { return height * width; }
};

std::uint64_t dimension_at(const FileBytes& file, std::uint64_t offset) {
  const auto raw = value_at<std::uint32_t>(file, offset, "a dimension of the IDX header");
  const std::uint32_t value = __builtin_bswap32(raw);
  require_at(value >= 1 && value <= std::numeric_limits<std::int32_t>::max(), file, offset,
             "an IDX dimension is ", value, ", expected 1 to ",
             std::numeric_limits<std::int32_t>::max());
  return value;
}

IdxHeader read_header(const FileBytes& file) {
  const auto zeros = value_at<std::uint16_t>(file, 0, "the IDX magic");
  require_at(zeros == 0, file, 0, "not an IDX file: the first two bytes are not 0");
  const int type = value_at<std::uint8_t>(file, 2, "the IDX type");
  const int rank = value_at<std::uint8_t>(file, 3, "the IDX rank");
  require(type == 0x08, Fault::unsupported, file.name, ": byte 2: IDX type ", type,
          " is not supported, expected 8 (u8)");
  require(rank >= 1 && rank <= 3, Fault::unsupported, file.name, ": byte 3: IDX rank ", rank,
          " is not supported, expected 1 to 3");
  IdxHeader header;
  header.rank = static_cast<std::uint64_t>(rank);
  header.rows = dimension_at(file, 4);
  if (rank >= 2) header.height = dimension_at(file, 8);
  if (rank == 3) header.width = dimension_at(file, 12);
  header.bytes = 4 + 4 * header.rank;
  return header;
}

VectorRows with_image_shape(VectorRows rows, const IdxHeader& header) {
  if (header.rank == 3) {
    rows.image_height = static_cast<int>(header.height);
    rows.image_width = static_cast<int>(header.width);
  }
  return rows;
}

}  // namespace

VectorRows read_idx(const FileBytes& file, DType) {
  const IdxHeader header = read_header(file);
  return with_image_shape(dense_rows(file, 4, header.bytes, header.rows, header.cols(), DType::u8),
                          header);
}

VectorRows read_idx_gz(const FileBytes& file, DType) {
  Gunzip stream(file);
  std::byte start[most_header_bytes];
  FileBytes unpacked{file.name + " (unpacked)", {}, nullptr};
  std::size_t have = stream.read(start, 4);
  unpacked.bytes = {start, have};
  if (have == 4) {
    const std::size_t rank = std::min<std::size_t>(3, static_cast<std::size_t>(start[3]));
    have += stream.read(start + 4, 4 * rank);
    unpacked.bytes = {start, have};
  }
  const IdxHeader header = read_header(unpacked);

  // Deflate packs at most 1032 to 1: a header may not make us reserve more than the file can hold.
  const WideSize needed = WideSize{header.rows} * header.cols();
  require_at(needed <= WideSize{file.size()} * 1032, unpacked, 4, header.rows, " x ", header.cols(),
             " values cannot be packed in ", file.size(), " bytes");
  Matrix matrix(static_cast<std::int64_t>(header.rows), static_cast<std::int64_t>(header.cols()),
                DType::u8);
  const auto bytes = static_cast<std::uint64_t>(needed);
  const std::uint64_t present = stream.read(matrix.data(), bytes);
  require_at(present == bytes, unpacked, 4, header.rows, " x ", header.cols(), " values need ",
             bytes, " bytes, but ", present, " follow the header");
  std::byte more;
  require_at(stream.read(&more, 1) == 0, unpacked, 4, header.rows, " x ", header.cols(),
             " values need ", bytes, " bytes, but more follow the header");
  return with_image_shape(rows_of(std::move(matrix)), header);
}

}  // namespace gigaknn
