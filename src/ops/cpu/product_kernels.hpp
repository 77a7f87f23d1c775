// Sums of table entries by product codes (product_codes.hpp), in registers; and the nearest of 16 or 256 codewords. One table an instruction set.
//
//   codes      [blocks][m][32], or, of 4 bits a part, [blocks][m / 2][32]
//   table      [m][256], or [m][16]   u8
//   terms      [blocks][32]   in lane order: the even rows of a block, then the odd ones
//   estimate   terms + step * sum over parts of table[part][code]
#pragma once

#include <cstdint>

namespace gigaknn::cpu {

/// Most parts whose sums 16 bits hold.
inline constexpr std::int64_t most_code_parts = 256;

struct ProductTile {
  const std::uint8_t* codes;
  std::int64_t blocks;
  std::int64_t m;  ///< at most most_code_parts
  const std::uint8_t* table;
  const float* terms;
  float step;
};

/// Of codes of one width.
struct CodeScan {
  /// masks [blocks]: bit r where the estimate of row r is not above `limit`.
  void (*survivors)(const ProductTile& tile, float limit, std::uint32_t* masks);
  /// out [blocks][32] by row.
  void (*estimates)(const ProductTile& tile, float* out);
  /// In float32 the product of `x` [m * part_dims] with the codewords of one row, the bytes of whose codes stand 32 apart.
  float (*product)(const float* x, const float* codewords, std::int64_t m, std::int64_t part_dims, const std::uint8_t* codes);
};

struct ProductKernels {
  const char* name;   ///< for people, of codes of 8 bits
  CodeScan of_bytes;
  /// masks [blocks of count]: bit r where value r of 32 is not above `limit`; 0 behind the last.
  void (*up_to)(const float* values, std::int64_t count, float limit, std::uint32_t* masks);
  // Of values [count], a multiple of 16 and at most 256:
  /// The largest, and the least.
  void (*range)(const float* values, std::int64_t count, float* largest, float* least);
  /// out[i] = min(255, floor((largest - values[i]) * factor)).
  void (*quantize)(const float* values, std::int64_t count, float largest, float factor, std::uint8_t* out);
  /// Which values offsets[i] - dots[i] are within `margin` of the least: their number, and they to `near` [count], ascending.
  int (*nearest)(const float* offsets, const float* dots, std::int64_t count, float margin, std::uint8_t* near);
};

const ProductKernels& product_kernels_generic();
const CodeScan& nibble_scan_generic();
/// Call only where the machine has the instructions.
const ProductKernels& product_kernels_avx512vbmi();
enum class Isa;
/// Of codes of 4 bits a part, of which there is an even number. As above.
const CodeScan& nibble_scan(Isa isa);

}  // namespace gigaknn::cpu
