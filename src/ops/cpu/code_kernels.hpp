// Kernels that compare 8-bit codes of many rows with codes of many queries, in registers.
//
//   codes        [groups][steps][group_rows][4]  unsigned: code + zero of the kernel
//   queries      [query_count][steps * 4]        signed codes
//   row_terms    [groups][group_rows]            added to each product sum
//   thresholds   [groups][query_count]
//   masks        [groups][query_count]           bit r: row r of the group survives
//
// A row survives where  sum_i (code_i + zero) * query_i + row_term >= threshold. The products are exact,
// so what a mask rules out is ruled out by the thresholds alone, whose proof is in docs/exact-search.md.
#pragma once

#include <cstdint>

namespace gigaknn::cpu {

struct CodeTile {
  const std::uint8_t* codes;
  const std::int32_t* row_terms;
  std::int64_t groups;
  std::int64_t steps;
  const std::int8_t* queries;
  std::int64_t query_count;
  const std::int32_t* thresholds;
  std::uint64_t* masks;
  // A pair of a set with itself survives where either side still wants it: the query's threshold, or
  // row_limits[row] + query_limits[query]. Null, null: the query's alone.
  const std::int32_t* row_limits;    ///< [groups][group_rows]
  const std::int32_t* query_limits;  ///< [query_count]
};

/// One instruction set's way with codes.
struct CodeKernels {
  const char* name;  ///< for people
  int group_rows;  ///< rows whose sums one call of the inner kernel keeps in registers
  int most_level;  ///< codes lie in [-most_level, most_level] ...
  int zero;        ///< ... and are stored as code + zero
  /// Most dimensions of a code, so that every integer fits: a squared distance halved, which a threshold may have
  /// to reach, stays below 2^30 ((2 most_level)^2 / 2 a dimension; bytes 255^2 / 2), and a sum of
  /// (zero + most_level) * most_level a dimension below 2^31.
  std::int64_t most_dims;
  bool takes_bytes;  ///< true: codes may also be -128, so that u8 - 128 and i8 are codes as they are
  double macs_per_cycle;  ///< for the cost model, as measured: 8-bit products a cycle and core,
  double pair_cycles;     ///< and what a pair costs beside them
  void (*scan)(const CodeTile& tile);
};

/// Call only where the machine has the instructions.
const CodeKernels* code_kernels_avx2();
const CodeKernels* code_kernels_avx512vnni();

}  // namespace gigaknn::cpu
