// Kernels that compare 8-bit codes of many rows with codes of many queries, in registers.
//
//   codes        [groups][steps][group_rows][step_dims]
//   queries      [query_count][steps * step_dims]
//   row_terms    [groups][group_rows]
//   thresholds   [groups][query_count]
//   masks        [groups][query_count]           bit r: row r of the group survives
//
// A row survives where
//   products     sum_i (code_i + zero) * query_i + row_term >= threshold    codes stored as code + zero, queries signed
//   differences  -sum_i |code_i - query_i| >= threshold                     codes and queries unsigned; no row terms
// and the left sides are what is called sums here. The sums are exact, so what a mask rules out is ruled out by the thresholds alone, whose
// proof is in docs/exact-search.md.
#pragma once

#include <cstdint>

namespace gigaknn::cpu {

/// What is asked of the pairs of a tile.
enum class Ask {
  survivors,   ///< pairs whose sum reaches the query's threshold
  either_side, ///< of a set with itself: also where the sum reaches row_limits[row] + query_limits[query]
  band,        ///< survivors whose sum stays below the query's cut
  sums,        ///< no masks: the sums themselves
  survivor_sums,  ///< survivors, and the sums of a group and query where there are any
  either_side_sums,  ///< the same of either_side
};
constexpr bool on_either_side(Ask ask) { return ask == Ask::either_side || ask == Ask::either_side_sums; }
constexpr bool with_sums(Ask ask) { return ask == Ask::survivor_sums || ask == Ask::either_side_sums; }

struct CodeTile {
  Ask ask;
  const std::uint8_t* codes;
  const std::int32_t* row_terms;
  std::int64_t groups;
  std::int64_t steps;
  const std::int8_t* queries;
  std::int64_t query_count;
  const std::int32_t* thresholds;
  std::uint64_t* masks;
  const std::int32_t* row_limits;    ///< either_side: [groups][group_rows]
  const std::int32_t* query_limits;  ///< either_side: [query_count]
  const std::int32_t* cuts;          ///< band: [query_count]
  std::int32_t* sums;                ///< sums, and survivors with sums: [groups][query_count][group_rows]
};

/// One instruction set's way with the codes of one form.
struct CodeKernels {
  const char* name;  ///< for people
  int group_rows;  ///< rows whose sums one call of the inner kernel keeps in registers
  int step_dims;   ///< dimensions of a row that stand together
  int most_level;  ///< codes lie in [-most_level, most_level] ...
  int zero;        ///< ... and are stored as code + zero
  /// Most dimensions of a code, so that every integer fits: a squared distance halved, which a threshold may have
  /// to reach, stays below 2^30 ((2 most_level)^2 / 2 a dimension; bytes 255^2 / 2), and a sum of
  /// (zero + most_level) * most_level a dimension below 2^31; for differences 255 a dimension, below 2^30.
  std::int64_t most_dims;
  bool takes_bytes;  ///< true: codes may also be -128, so that u8 - 128 and i8 are codes as they are
  double macs_per_cycle;  ///< for the cost model, as measured: products or differences a cycle and core,
  double pair_cycles;     ///< and what a pair costs beside them
  void (*scan)(const CodeTile& tile);
  /// Which of a group's sums are at least `least`: bit r for that of row r.
  std::uint64_t (*reaching)(const std::int32_t* sums, std::int32_t least);
  /// Raises each of `most` [group_rows] to the group's sum at its place, if that is larger.
  void (*raise)(const std::int32_t* sums, std::int32_t* most);
};

/// The kernels of one instruction set; all null: it has none.
struct CodeKernelSet {
  const CodeKernels* products = nullptr;     ///< the quickest of codes that are made
  const CodeKernels* bytes = nullptr;        ///< of rows that are bytes, as they are (takes_bytes)
  const CodeKernels* differences = nullptr;
};
/// Call only where the machine has the instructions.
CodeKernelSet code_kernels_avx2();
CodeKernelSet code_kernels_avx512vnni();

}  // namespace gigaknn::cpu
