// Inverted lists of product codes, in blocks of 32 rows (ops/product_codes.hpp).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/made_once.hpp"
#include "index/inverted_lists.hpp"

namespace gigaknn {

class ListCodes : public InvertedLists {
 public:
  /// `fit`: what codes are written in, whose codewords and centroids must outlive this; its codes and cells are not looked at.
  /// Rows stand list after list; `owner` keeps codes and begins alive.
  ListCodes(const ProductCodes& fit, std::span<const std::uint8_t> codes, std::vector<std::int64_t> begins, RowIds ids,
            std::shared_ptr<const void> owner, std::shared_ptr<const FileCheck> check = {});
  /// Of codes [n, bytes of a row], row after row.
  static std::shared_ptr<const ListCodes> of_rows(const ProductCodes& fit, std::span<const std::uint8_t> codes,
                                                  std::vector<std::int64_t> begins, std::vector<RowId> ids,
                                                  const RunOptions& run = {.threads = 1});

  std::int64_t cols() const override { return fit_.code_bytes(); }
  DType dtype() const override { return DType::u8; }
  void copy_row(std::int64_t row, std::byte* out) const override;
  void decode_row(std::int64_t row, float* out) const override;
  bool same_in_any_list() const override { return false; }  // codes are of what centroids leave
  std::shared_ptr<const InvertedLists> with_rows(Matrix rows, std::vector<std::int64_t> begins, std::vector<RowId> ids) const override;
  void nearest(const ListScan& scan, const ProbingBatch& batch, std::int64_t k, NeighborsOut out, RowMask allowed, bool in_order,
               const RunOptions& run) const override;
  void prepare(const ListScan& scan, const RunOptions& run) const override { prepared(scan, run); }
  std::string description() const override;

 private:
  ProductCodes codes() const;
  // Where a row stands, which is looked at.
  struct Place {
    std::int64_t list, block, row;
  };
  Place place_of(std::int64_t row) const;
  const PreparedCodes& prepared(const ListScan& scan, const RunOptions& run) const;

  ProductCodes fit_;
  std::span<const std::uint8_t> codes_;
  std::vector<std::int64_t> blocks_;  // in which each list begins
  MadeOnce<PreparedCodes> prepared_;
};

}  // namespace gigaknn
