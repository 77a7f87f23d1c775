// What an index file of Faiss holds, as its write_index (1.15) lays it down: no magic, no version, no checksum, no total size. Every object
// begins with four letters that say what it is; an array is a u64 of its values' number, then these.
//
//   index      letters | header | what its kind adds
//   header     i32 d | i64 n | i64, i64 unused | u8 is trained | i32 metric | f32 where the metric is above 1
//   IxF2 IxFI IxFl    rows: array of f32                       IxSQ    scalar quantizer | array of codes' bytes
//   IwFl IwSq IwPQ    u64 lists | u64 nprobe | index of the centroids | direct map: u8 type, array of i64, with type 2 array of 16 bytes
//                     IwSq: scalar quantizer | u64 bytes of a code | u8 by residual        IwPQ: u8 by residual | u64 bytes of a code | product quantizer
//                     inverted lists
//   IxMp IxM2         index | array of i64: ids                IxRF    index | index of full vectors | f32 factor of k
//   IxPT              i32 transforms | these | index
//   transform         letters | what its kind adds | i32 d in | i32 d out | u8 is trained
//   LTra rrot Pcam    (Pcam: 13 bytes, arrays of f32: mean, eigenvalues, eigenvectors) | u8 has a bias | array of f32: matrix [d out][d in] | array of f32: bias
//   VCnt RmDT         array of f32: mean                       array of i32: which dimension each is, or -1
//   scalar quantizer  i32 type | i32, f32 how it was trained | u64 d | u64 bytes of a code | array of f32
//   product quantizer u64 d | u64 m | u64 bits | array of f32: codewords [m][2^bits][d / m]
//   inverted lists    "ilar" | u64 lists | u64 bytes of a code | "full", array of u64: sizes; or "sprs", array of u64: list, size, list, size, ...
//                     | of each list that has rows: codes, then i64 ids
#pragma once

#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>

#include "io/file_bytes.hpp"

namespace gigaknn {

inline constexpr std::int64_t most_faiss_cols = std::int64_t{1} << 20;  ///< Faiss's own bound

/// Values in a file, aligned to nothing.
template <class T>
class FileValues {
 public:
  FileValues() = default;
  explicit FileValues(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t size() const { return bytes_.size() / sizeof(T); }
  T operator[](std::size_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * sizeof(T), sizeof value);
    return value;
  }
  const std::byte* at(std::size_t i) const { return bytes_.data() + i * sizeof(T); }

 private:
  std::span<const std::byte> bytes_;
};

struct FaissIndex;
using FaissPart = std::unique_ptr<FaissIndex>;

struct FaissFlat {
  FileValues<float> values;  ///< [n, d]
};

/// Faiss's ScalarQuantizer::QuantizerType; those above are named and not read.
enum class FaissScalarType : std::int32_t {
  bits8, bits4, bits8_uniform, bits4_uniform, fp16, direct, bits6, bf16, direct_signed,
};
struct FaissScalar {
  FaissScalarType type{};
  std::uint64_t code_bytes = 0;
  std::vector<float> trained;  ///< least values, then widths: of each dimension, of all (uniform), or none
};
std::string_view name_of(FaissScalarType type);  ///< "QT_8bit", ...

struct FaissScalarRows {
  FaissScalar quantizer;
  std::span<const std::byte> codes;  ///< [n][code_bytes]
};

struct FaissProduct {
  std::int64_t m = 0;
  std::int64_t bits = 0;
  FileValues<float> codewords;  ///< [m][2^bits][d / m]
};

struct FaissList {
  std::span<const std::byte> codes;
  FileValues<std::int64_t> ids;
};
struct FaissIvf {
  FaissPart quantizer;
  std::variant<std::monostate, FaissScalar, FaissProduct> codes;  ///< the first: rows of f32
  bool by_residual = false;
  std::vector<FaissList> lists;
  std::uint64_t nprobe = 0;  ///< as it stands there
};

struct FaissIdMap {
  FaissPart index;
  FileValues<std::int64_t> ids;  ///< [n]
};

struct FaissRefine {
  FaissPart base;
  FaissPart refine;
  float k_factor = 0;  ///< as it stands there
};

/// Of all but normalizations and those that are named alone: what it does, if it is linear.
struct FaissTransform {
  std::string kind;
  std::uint64_t offset = 0;  ///< in the file
  std::int64_t cols_in = 0;
  std::int64_t cols_out = 0;
  FileValues<float> matrix;       ///< [cols_out, cols_in]
  FileValues<float> bias;         ///< [cols_out], or none
  FileValues<float> mean;         ///< [cols_in] of CenteringTransform
  FileValues<std::int32_t> from;  ///< [cols_out] of RemapDimensionsTransform: which dimension; -1: a zero
};
struct FaissPreTransform {
  std::vector<FaissTransform> chain;
  FaissPart index;
};

/// One of a kind that is named and not read, nor what stands behind it.
struct FaissOther {};

struct FaissIndex {
  std::string kind;          ///< "IndexFlat", ...
  std::uint64_t offset = 0;  ///< in the file
  std::int64_t cols = 0;
  std::int64_t rows = 0;
  std::int32_t metric = 0;
  bool whole = true;         ///< false: there is a FaissOther in it, and what stands behind that is missing
  std::variant<FaissOther, FaissFlat, FaissScalarRows, FaissIvf, FaissIdMap, FaissRefine, FaissPreTransform> what;
};

/// Checks every size against the file before it allocates; values that a conversion relies on are its business. The result views the file.
/// Throws Error: corrupt_file.
FaissIndex read_faiss(const FileBytes& file);

/// "IndexIDMap(IndexRefineFlat(IndexIVFPQ, IndexFlat))".
std::string tree_of(const FaissIndex& index);
/// The IndexFlat or IndexScalarQuantizer that the file is, in an IndexIDMap or not; null: it is another.
const FaissIndex* vectors_alone(const FaissIndex& root);
/// The inverted file in it, if there is one.
const FaissIvf* inverted_file_in(const FaissIndex& index);
/// Whether four letters begin an index of Faiss.
bool begins_faiss(const FileBytes& file);

inline constexpr std::int32_t faiss_inner_product = 0, faiss_l2 = 1, no_faiss_metric = -1;
std::string_view faiss_metric_name(std::int32_t metric);  ///< empty: none of Faiss's
/// Throws Error: unsupported where Faiss has no such index; `name`: whose metric it is.
std::int32_t faiss_metric_of(Metric metric, const std::string& name);

/// The first that is not of length 1, to the rounding of float32, if any: where all are, directions, products and distances choose the same
/// lists.
std::optional<std::int64_t> not_of_length_one(MatrixRef centroids);

}  // namespace gigaknn
