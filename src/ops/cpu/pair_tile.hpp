// The keys of all pairs of a few rows that lie anywhere: gathered once, compared in registers.
//
//   rows named --gather--> tile of codes [steps][group_rows][step_dims] --kernel--> sums --> keys
//
// For bytes the sums are products or differences of the bytes themselves, so keys are exact. Other rows are compared pair by
// pair.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/neighbor.hpp"
#include "ops/cpu/code_kernels.hpp"
#include "ops/cpu/pair_distance.hpp"

namespace gigaknn::cpu {

class PairTile {
 public:
  /// Of one thread.
  struct Scratch {
    std::vector<std::uint8_t> codes;
    std::vector<std::int8_t> queries;
    std::vector<std::int32_t> terms, row_sums, sums;
    std::vector<std::uint32_t> squares;
    std::vector<float> widened;
    std::vector<float> keys;  // [queries, pitch]
    std::int64_t pitch = 0;
  };

  /// Borrows `rows` and `facts`.
  PairTile(MatrixRef rows, const RowFacts& facts, const PairDistance& pair, const CodeKernelSet& codes, const RunOptions& run);

  std::size_t bytes() const { return row_sums_.size() * 4 + squares_.size() * 4; }

  /// scratch.keys[i * scratch.pitch + j] becomes the key of rows named[i] and named[first + j], for i < queries. `first`: 0 or `queries`.
  void compare(std::span<const LocalRow> named, std::int64_t queries, std::int64_t first, Scratch& scratch) const;

  void prefetch(LocalRow row) const {
    const std::byte* p = rows_.row_bytes(row);
    for (std::int64_t i = 0; i < prefetch_bytes_; i += 64) __builtin_prefetch(p + i);
  }

 private:
  template <int step_dims>
  void gather(std::span<const LocalRow> named, std::int64_t queries, std::int64_t first, Scratch& scratch) const;
  void compare_codes(std::span<const LocalRow> named, std::int64_t queries, std::int64_t first, Scratch& scratch) const;
  void compare_rows(std::span<const LocalRow> named, std::int64_t queries, std::int64_t first, Scratch& scratch) const;

  MatrixRef rows_;
  const RowFacts* facts_;
  PairDistance pair_;
  const CodeKernels* kernels_ = nullptr;  // null: pair by pair
  std::int64_t prefetch_bytes_;
  std::vector<std::int32_t> row_sums_;   // of bytes as u8: i8 with 128 added
  std::vector<std::uint32_t> squares_;  // of the same
};

}  // namespace gigaknn::cpu
