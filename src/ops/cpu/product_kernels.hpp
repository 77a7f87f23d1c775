// Sums of table entries by product codes (product_codes.hpp), in registers. One table an instruction set.
//
//   codes      [blocks][m * bits / 8][32], of 8, 6 or 4 bits a part; other bytes of a row may stand behind them
//   table      [m][256], [m][64] or [m][16]   u8
//   terms      [blocks][32]   in lane order: the even rows of a block, then the odd ones
//   estimate   terms + step * sum over parts of table[part][code]; scaled: terms + factors * (base + step * sum)
#pragma once

#include <cstdint>

namespace gigaknn::cpu {

/// Parts whose sums 16 bits hold; of more, those of so many at a time are added in float32, exactly: it holds those of twice
/// most_code_parts.
#ifdef GIGAKNN_TINY_TILES
inline constexpr std::int64_t parts_of_sum = 4;
#else
inline constexpr std::int64_t parts_of_sum = 256;
#endif

struct ProductTile {
  const std::uint8_t* codes;
  std::int64_t blocks;
  std::int64_t m;            ///< at most twice most_code_parts
  std::int64_t block_bytes;  ///< from one block to the next
  const std::uint8_t* table;
  const float* terms;
  float step;
  const float* factors = nullptr;  ///< [blocks][32] in lane order, none below 0; null: not scaled
  float base = 0;                  ///< of scaled ones
};

/// Of codes of one width.
struct CodeScan {
  /// masks [blocks]: bit r where the estimate of row r is not above `limit`.
  void (*survivors)(const ProductTile& tile, float limit, std::uint32_t* masks);
  /// out [blocks][32] by row.
  void (*estimates)(const ProductTile& tile, float* out);
  /// In float32 the product of `x` [m * part_dims] with the codewords of one row, the bytes of whose codes stand 32 apart; those of a part
  /// stand `next_part` floats behind those of the one before.
  float (*product)(const float* x, const float* codewords, std::int64_t next_part, std::int64_t m, std::int64_t part_dims,
                   const std::uint8_t* codes);
};

struct ProductKernels {
  const char* name;   ///< for people, of codes of 8 bits
  bool quick_bytes;   ///< a code of 8 bits is looked up sooner than two of 4 are
  CodeScan of_bytes;
  CodeScan of_sixes;  ///< codes of 6 bits a part
  /// masks [blocks of count]: bit r where value r of 32 is not above `limit`; 0 behind the last.
  void (*up_to)(const float* values, std::int64_t count, float limit, std::uint32_t* masks);
  // Of values [count], a multiple of 16 and at most 256:
  /// The largest, and the least.
  void (*range)(const float* values, std::int64_t count, float* largest, float* least);
  /// out[i] = min(255, floor((largest - values[i]) * factor)).
  void (*quantize)(const float* values, std::int64_t count, float largest, float factor, std::uint8_t* out);
};

const ProductKernels& product_kernels_generic();
const CodeScan& nibble_scan_generic();
/// Call only where the machine has the instructions.
const ProductKernels& product_kernels_avx2();
const ProductKernels& product_kernels_avx512vbmi();
enum class Isa;
/// Of codes of 4 bits a part, of which there is an even number. As above.
const CodeScan& nibble_scan(Isa isa);

}  // namespace gigaknn::cpu
