// Codes of one dimension a part to levels, in the order of kernels (level_codes.hpp): a lookup in 16, 64 or 256 bytes for every code, many
// at a time.
#pragma once

#include <cstdint>

namespace gigaknn::cpu {

struct LevelTile {
  const std::uint8_t* codes;   ///< [blocks][m * bits / 8][32]; other bytes may stand behind a block
  std::int64_t blocks;
  std::int64_t block_bytes;    ///< from one block to the next
  std::int64_t m;
  int bits;                    ///< of a part: 8, 6 or 4
  const std::uint8_t* levels;  ///< [m][1 << bits]
  std::uint8_t zero;           ///< the level of dimensions that are not there
  std::int64_t group_rows;     ///< of kernels; 4 dimensions of a row stand together
  std::int64_t steps;
};

/// out [groups][steps][group_rows][4].
using ReadLevels = void (*)(const LevelTile& tile, std::uint8_t* out);

enum class Isa;
/// Null where there are no kernels to read for. Call only where the machine has the instructions.
ReadLevels level_reader(Isa isa);

}  // namespace gigaknn::cpu
