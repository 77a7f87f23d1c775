// Files of Faiss: described, converted to vectors, or to an index that must be sound, and the same after a way through Faiss's format.
#include <fstream>
#include <iterator>
#include <string>

#include <gigaknn/faiss.hpp>
#include <gigaknn/index.hpp>

#include "fuzz/fuzz_bytes.hpp"
#include "fuzz/temporary_file.hpp"
#include "index/faiss_vectors.hpp"

namespace {

std::filesystem::path beside(const gigaknn::TemporaryFile& file, const char* suffix) { return file.path().string() + suffix; }

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace gigaknn;
  static const TemporaryFile file(".faiss");
  file.store(data, size);
  RunOptions run;
  run.threads = 1;
  expect_result_or_error([&] { describe_faiss(file.path()); });
  expect_result_or_error([&] {
    faiss_ids(file.path());
    convert_faiss_vectors(file.path(), beside(file, ".fbin"), {.row_begin = 0, .row_end = {}, .dtype = {}, .allow_rounding = true}, run);
  });
  bool imported = false;
  expect_result_or_error([&] {
    import_faiss(file.path(), beside(file, ".gknn"), run);
    imported = true;
  });
  if (imported) {
    // Nothing of this may throw: an import that succeeds is an index that Faiss's format holds.
    check_index(beside(file, ".gknn"), run);
    export_faiss(beside(file, ".gknn"), beside(file, ".again.faiss"), run);
    import_faiss(beside(file, ".again.faiss"), beside(file, ".again.gknn"), run);
    const auto index = open_index(beside(file, ".gknn"), {}, run);
    const bool same = bytes_of(beside(file, ".gknn")) == bytes_of(beside(file, ".again.gknn"));
    if (!same) __builtin_trap();
  }
  for (const char* suffix : {".fbin", ".gknn", ".again.faiss", ".again.gknn"}) std::filesystem::remove(beside(file, suffix));
  return 0;
}
