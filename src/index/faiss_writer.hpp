// Objects of Faiss's format, written one after the other; faiss_file.hpp draws them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include <gigaknn/matrix.hpp>

#include "index/faiss_file.hpp"
#include "io/output_file.hpp"

namespace gigaknn {

class FaissWriter {
 public:
  explicit FaissWriter(const std::filesystem::path& path) : file_(path) {}

  /// Letters and header, as every index begins.
  void begin(std::string_view letters, std::int64_t cols, std::int64_t rows, std::int32_t metric) {
    require(cols <= most_faiss_cols, Fault::unsupported, "an index of Faiss has at most ", most_faiss_cols, " dimensions, got ", cols);
    bytes(letters.data(), letters.size());
    value(static_cast<std::int32_t>(cols));
    value(rows);
    constexpr std::int64_t unused = 1 << 20;
    value(unused);
    value(unused);
    value(std::uint8_t{1});  // trained
    value(metric);
  }
  /// An IndexFlat; f32 rows [n, d] follow as `bytes`.
  void begin_flat(std::int64_t cols, std::int64_t rows, std::int32_t metric) {
    begin(metric == faiss_l2 ? "IxF2" : "IxFI", cols, rows, metric);
    value(rows * cols);
  }
  void scalar_quantizer(FaissScalarType type, std::int64_t cols, std::int64_t code_bytes, std::span<const float> trained = {}) {
    value(type);
    value(std::int32_t{0});  // how it was trained: not
    value(0.0F);
    value(cols);
    value(code_bytes);
    value(std::ssize(trained));
    bytes(trained.data(), trained.size_bytes());
  }
  void centering(std::span<const float> mean) {
    bytes("VCnt", 4);
    value(std::ssize(mean));
    bytes(mean.data(), mean.size_bytes());
    value(static_cast<std::int32_t>(mean.size()));
    value(static_cast<std::int32_t>(mean.size()));
    value(std::uint8_t{1});  // trained
  }
  void linear_transform(MatrixRef matrix, std::span<const float> bias) {
    bytes("LTra", 4);
    value(static_cast<std::uint8_t>(!bias.empty()));
    value(matrix.rows * matrix.cols);
    bytes(matrix.data, static_cast<std::size_t>(matrix.rows * matrix.cols) * sizeof(float));
    value(static_cast<std::int64_t>(bias.size()));
    bytes(bias.data(), bias.size_bytes());
    value(static_cast<std::int32_t>(matrix.cols));
    value(static_cast<std::int32_t>(matrix.rows));
    value(std::uint8_t{1});  // trained
  }
  template <class T>
  void value(T value) {
    bytes(&value, sizeof value);
  }
  void bytes(const void* data, std::size_t count) { file_.write(data, count); }
  void finish() { file_.finish(); }

 private:
  OutputFile file_;
};

}  // namespace gigaknn
