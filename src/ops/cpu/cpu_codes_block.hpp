// What is at hand while CpuCodes answers some queries: one thread's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/cpu/cpu_codes.hpp"

namespace gigaknn::cpu {

/// Queries whose products with all codewords are at hand at once: they stay in L2, beside the tables.
#ifdef GIGAKNN_TINY_TILES
inline constexpr std::int64_t codes_tile_queries = 3;
#else
inline constexpr std::int64_t codes_tile_queries = 16;
#endif

/// A query as bounds know it. Distances are squared, or products negated.
struct CpuCodes::CodedQuery {
  const float* row = nullptr;
  float step = 0;
  double norm = 0;     // |q|, beside levels
  double square = 0;   // |q|^2, where distances have it; beside levels |q - centroid|^2
  double base = 0;     // what the table's entries start from, in units of distance
  double margin = 0;   // that rounding may take away; not finite: bounds say nothing
  float coarse = 0;    // its product with the centroid of the cell at hand
  double slack = 0;    // of the cell at hand, that levels may take away beside the margin
};

/// A row that may be among the nearest.
struct CpuCodes::Candidate {
  float distance;  // in float32
  std::uint32_t cell;
  LocalRow row;    // of the cell
};

struct CpuCodes::Block {
  std::vector<std::int64_t> query;      // [count] rows of the query matrix; those that are far from everything are not among them
  std::vector<CodedQuery> coded;        // [count]
  std::unique_ptr<std::uint8_t[]> tables;  // [count][m][words]
  std::vector<std::vector<Candidate>> candidates;  // [count]
  std::vector<float> padded;            // [count][m * part_dims] what queries are away from the middle, zeros behind
  std::vector<std::uint32_t> masks;     // [blocks of the cell at hand]
  std::vector<float> estimates;
  std::vector<LocalRow> near;           // of the cell at hand: rows that pass
  std::vector<float> distances;         // theirs
  std::vector<float> sorted;
  std::vector<float> decoded;
  std::vector<std::uint8_t> levels;     // of a chunk of the cell at hand
  std::vector<std::int8_t> asked_levels;
  std::vector<LevelCodes::Asked> asked;
  std::vector<std::int32_t> sums;
  RowMask allowed;
};

}  // namespace gigaknn::cpu
