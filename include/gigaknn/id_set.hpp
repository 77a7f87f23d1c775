// Ids that a search may find.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/ids.hpp>

namespace gigaknn {

/// A set of ids: a list of them, or a bit for each from 0 on. Copies are as large as what they were made from.
class IdSet {
 public:
  /// In any order, each once or more. Throws Error: invalid_argument where one is negative.
  static IdSet of_ids(std::vector<RowId> ids);
  /// Bit i of byte j stands for id 8 j + i, as Faiss's and NumPy's (bitorder "little") have it; of ids [0, 8 bytes).
  static IdSet of_bits(std::span<const std::uint8_t> bytes);

  /// As of_ids, but all others.
  static IdSet all_but(std::vector<RowId> ids);

  bool has(RowId id) const;
  // One of both, the other is empty; ids ascend.
  std::span<const RowId> ids() const { return ids_; }
  bool is_all_but() const { return all_but_; }  ///< ids() are those that are not in it
  bool is_bits() const { return is_bits_; }
  std::span<const std::uint8_t> bits() const { return bits_; }

 private:
  bool is_bits_ = false;
  bool all_but_ = false;
  std::vector<RowId> ids_;
  std::vector<std::uint8_t> bits_;
};

}  // namespace gigaknn
