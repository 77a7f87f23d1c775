// IDX.gz. Even inputs are the packed file; odd ones are packed here first, so that headers behind
// right checksums are reached.
#include <zlib.h>

#include <string>

#include "fuzz/fuzz_bytes.hpp"
#include "io/idx.hpp"

namespace {

std::string pack(const std::uint8_t* data, std::size_t size) {
  z_stream stream{};
  deflateInit2(&stream, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::string packed(deflateBound(&stream, size) + 32, '\0');
  stream.next_in = const_cast<Bytef*>(data);
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  if (size == 0) return 0;
  const std::string packed = data[0] % 2 == 1
                                 ? pack(data + 1, size - 1)
                                 : std::string(reinterpret_cast<const char*>(data + 1), size - 1);
  const FileBytes file =
      file_of(reinterpret_cast<const std::uint8_t*>(packed.data()), packed.size());
  expect_result_or_error([&] { touch(read_idx_gz(file, DType::u8).matrix); });
  return 0;
}
