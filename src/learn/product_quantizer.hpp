// A product quantizer: the 256 codewords, or 64, or 16, of each part of a row (Jégou, Douze, Schmid 2011, section II), by k-means of each
// part alone; or the grid of RaBitQ, which all parts share (rabitq.hpp).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

#include "learn/rabitq.hpp"
#include "ops/ops.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn {

struct ProductQuantizer {
  std::int64_t d = 0;  ///< of a row
  std::int64_t m = 0;
  Matrix codewords;    ///< [m * words, part_dims]: zeros stand behind a row where m does not divide d; of a grid [words, part_dims]
  int bits = 8;        ///< of a part: 8, 6 or 4; m is a multiple of parts_together
  int grid_bits = 0;   ///< of a dimension of a grid; 0: codewords were fitted

  bool scaled() const { return grid_bits > 0; }
  CodeShape shape() const { return {d, m, codewords.cols(), bits, scaled(), planes()}; }
  int planes() const { return scaled() ? grid_planes(grid_bits) : 1; }
  std::int64_t part_dims() const { return codewords.cols(); }
  std::int64_t words() const { return shape().words(); }
  std::int64_t code_bytes() const { return shape().code_bytes(); }
  /// Codes that are written in it; codewords are borrowed.
  ProductCodes codes(MatrixRef centroids) const { return {d, m, codewords, centroids, {}, {}, bits, scaled(), planes()}; }
};

/// Dimensions of a part.
inline std::int64_t part_dims_of(std::int64_t d, std::int64_t m) { return (d + m - 1) / m; }
inline CodeShape product_shape(std::int64_t d, std::int64_t m, int bits) { return {d, m, part_dims_of(d, m), bits}; }
inline CodeShape grid_shape(std::int64_t d, int grid_bits) {
  const int planes = grid_planes(grid_bits);
  const std::int64_t dims = grid_dims(grid_bits);
  return {d, (d + dims - 1) / dims * planes, dims, 8, true, planes};
}
/// Of product codes of one dimension a part: as many as fill bytes, of which the last may have none.
inline std::int64_t parts_of_dims(std::int64_t d, int bits) {
  return (d + parts_together(bits) - 1) / parts_together(bits) * parts_together(bits);
}

/// Of RaBitQ: 1 to 8 bits a dimension. Throws Error: invalid_argument.
ProductQuantizer grid_quantizer(std::int64_t d, int bits);

inline constexpr std::int64_t quantizer_sample_rows = 256 * 256;  ///< that codewords are fitted to, of more

struct ProductQuantizerParams {
  std::int64_t m = 16;
  int bits = 8;        ///< of a part
  int iterations = 20;
  std::uint64_t seed = 0;
};

/// What is left of some rows when the centroids of their labels are taken off, in float32, zeros behind: [which, padded].
Matrix residuals_of(MatrixRef rows, std::span<const std::int64_t> which, MatrixRef centroids, const RowId* labels, std::int64_t padded,
                    const RunOptions& run);

/// Fits codewords to `rows` [n, d] less the centroids of their labels [n]; n >= words, all finite. The same for the same arguments on every
/// device.
ProductQuantizer fit_product_quantizer(const Ops& ops, MatrixRef rows, MatrixRef centroids, const RowId* labels,
                                       const ProductQuantizerParams& params, const RunOptions& run);

/// Codes [n, code_bytes] of all rows.
std::vector<std::uint8_t> encode_rows(const Ops& ops, const ProductQuantizer& quantizer, MatrixRef rows, MatrixRef centroids,
                                      const RowId* labels, const RunOptions& run);

/// The most that fitting and encoding allocate, the codes with it.
std::size_t quantizer_bytes_needed(const Ops& ops, std::int64_t n, const CodeShape& shape, int threads);

}  // namespace gigaknn
