// Index files of Faiss (1.15), read and written by their format alone; docs/faiss.md says what maps to what. Files that are read are mapped
// meanwhile, and must not shrink (OpenParams::map).
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include <gigaknn/ids.hpp>
#include <gigaknn/index.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

/// What a file of Faiss holds, whether it can be converted or not.
struct FaissFacts {
  std::string kind;        ///< "IndexIDMap(IndexRefineFlat(IndexIVFPQ, IndexFlat))"
  std::string metric;      ///< as Faiss calls it, without "METRIC_": "L2", "INNER_PRODUCT", ...
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t lists = 0;  ///< inverted lists; 0: none, or behind what is not read
  std::int64_t nprobe = 0;  ///< that is written there; 0: none
  float k_factor = 0;       ///< the same, of an IndexRefine
};

/// True for a name that ends in ".faiss", and for a file of no name known here that begins as an index of Faiss does.
bool is_faiss(const std::filesystem::path& path);

/// Throws Error: io, corrupt_file (also of what is no index of Faiss: the format has no mark of its own).
FaissFacts describe_faiss(const std::filesystem::path& path);

/// Writes the index of Faiss at `from` to `to`, a .gknn. Rows are read in turns; what is held is their ids, and product codes once.
///
///   IndexFlat                                          flat, f32
///   IndexScalarQuantizer                               flat: u8, i8, f16 or bf16 as below, else the f32 rows that codes stand for
///   IndexIVFFlat                                       ivf_flat, f32
///   IndexIVFScalarQuantizer, QT_8bit_direct,           ivf_flat, u8, i8, f16 or bf16
///     QT_8bit_direct_signed, QT_fp16, QT_bf16, no residuals
///   the same of QT_8bit_uniform around 0 and of        ivf_sq
///     QT_fp16 and QT_bf16, in an IndexPreTransform
///   the same of 8, 6 or 4 bits, of residuals           ivf_pq of a part a dimension, where these fill the bytes of a code
///   IndexIVFScalarQuantizer, else                      ivf_flat, f32: the rows that codes stand for
///   IndexIVFPQ by residual, 8, 6 or 4 bits             ivf_pq without full vectors
///   IndexPreTransform, linear, of IVFFlat and IVFPQ    ivf_transformed
///   IndexRefine(Flat) of product and scalar codes,     the same with full vectors
///     and of IndexPreTransform
///   IndexIDMap(2) around any of them                   the same, by these ids
///
/// docs/faiss.md has all cases. Returns what is other than in Faiss for who searches it, a line; empty: nothing. A .gknn has no `nprobe`
/// and `k_factor`: FaissFacts tells those of the file, and whether there is an IndexIDMap is in its `kind`; who writes the index again
/// hands all three to `export_faiss` (FaissExport). Throws Error: io, corrupt_file (with the byte; also ids that are negative or there
/// twice), out_of_memory, invalid_data (NaN or infinity in rows), and unsupported, by name: other indexes and metrics; a coarse quantizer
/// that is no IndexFlat, or that chooses other lists than `Index::search` would (inner products with centroids that are not of length 1);
/// transforms that are not linear, or under INNER_PRODUCT move rows; QT_..._tqmse, tq and eden.
std::string import_faiss(const std::filesystem::path& from, const std::filesystem::path& to, const RunOptions& run = {});

/// Which IndexIDMap a file has around an index: by itself one where full vectors have ids of their own, or always.
enum class FaissMap { where_needed, id_map, id_map2 };

/// What a file of Faiss says beside the index itself; its searches begin with `nprobe` and `k_factor`.
struct FaissExport {
  std::int64_t nprobe = SearchParams().nprobe;    ///< at least 1
  float k_factor = static_cast<float>(SearchParams().refine);  ///< finite, at least 1
  FaissMap map = FaissMap::where_needed;
};

/// Writes the index at `from`, a .gknn, to `to`, such that `import_faiss` gives it back: as above, from right to left, with IndexRefine of
/// an IndexScalarQuantizer for full vectors of u8, i8, f16 and bf16, and IndexIDMap as `params` say. Rows are read in turns. What Faiss has
/// no words for is lost: that ids above the largest were given, euclidean (Faiss's L2 is its square), and of product codes alone the rows'
/// type. Throws as `open_index`, and Error: invalid_argument; unsupported, by name: metrics but l2, euclidean and inner_product; product
/// codes whose parts do not divide the dimensions; rows with NaN or infinity.
void export_faiss(const std::filesystem::path& from, const std::filesystem::path& to, const RunOptions& run = {},
                  const FaissExport& params = {});

/// Writes `rows` [n, d] to `to` as an IndexFlat, as f32; with `ids` [n] in an IndexIDMap. Throws Error: invalid_argument, invalid_data (ids
/// that are negative or there twice), unsupported (metrics but l2, euclidean and inner_product), io.
void write_faiss_flat(MatrixRef rows, Metric metric, std::span<const RowId> ids, const std::filesystem::path& to,
                      const RunOptions& run = {});

}  // namespace gigaknn
