// The codes of a base in the order and packing that the kernels want, and what bounds need to know of each row.
//
//   rows that are not far --ordered by region, then error--> positions [live]
//   position p: row r of group g, r = p mod group_rows; its code's bytes stand as [groups][steps][group_rows][step_dims]
//
// Regions in turn, in each the rows of small error first, so that one bad row does not loosen the bound of many. Rows that
// lose far more than most come last, in a region of their own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/neighbor.hpp"
#include "ops/cell_rows.hpp"
#include "ops/cpu/code_bounds.hpp"
#include "ops/cpu/code_space.hpp"

namespace gigaknn::cpu {

struct PackedCodes {
  std::int64_t group_rows = 0;
  std::int64_t step_dims = 0;
  std::int64_t stride = 0;                ///< bytes of a code
  std::int64_t live = 0;
  static constexpr LocalRow no_code = ~LocalRow{0};

  std::vector<LocalRow> order;            ///< [live] the row at each position, or no_code
  std::vector<std::int64_t> region_begin; ///< [regions + 1] positions
  std::vector<LocalRow> region_rows;      ///< [regions] that hold a code; of cells
  std::vector<std::uint8_t> codes;
  std::vector<std::int32_t> terms;        ///< [groups * group_rows] where the kernel's sums start
  std::vector<std::int32_t> squares;      ///< [groups * group_rows] sum of code^2; cells of codes that are bytes alone
  std::vector<float> errors;              ///< [groups * group_rows]; none of cells
  std::vector<float> norms;               ///< [groups * group_rows]; none of cells
  std::vector<float> group_errors;        ///< [groups] the largest of the group, scaled
  std::vector<float> group_norms;         ///< [groups]

  std::int64_t groups() const { return (live + group_rows - 1) / group_rows; }
  std::int64_t steps() const { return stride / step_dims; }
  /// Where byte j of the code at position p stands.
  std::int64_t place(std::int64_t p, std::int64_t j) const {
    return p / group_rows * group_rows * stride + j / step_dims * group_rows * step_dims + p % group_rows * step_dims +
           j % step_dims;
  }
  std::int64_t region_centre(std::int64_t region) const {
    return (region_begin[static_cast<std::size_t>(region)] + region_begin[static_cast<std::size_t>(region + 1)]) / 2;
  }
  std::size_t bytes() const;
  /// The codes at positions [begin, end) with their sums, the first to row `to` of `coded`; where there is none, of zeros.
  void unpack(std::int64_t begin, std::int64_t end, const CodeKernels& kernels, const RowKernels& row_kernels, CodeForm form,
              CodedRows& coded, std::int64_t to) const;
  /// The codes at some positions, one after another, with what `tile` and bounds need; `out` may have held others of this base.
  void gather(std::span<const std::uint32_t> positions, PackedCodes& out) const;
  /// Groups [group, group + groups) against the codes of some queries, asking for survivors.
  CodeTile tile(std::int64_t group, std::int64_t groups, const std::int8_t* queries, std::int64_t query_count) const;
};

PackedCodes pack_codes(const CodeSpace& space, const CodeBounds& bounds, MatrixRef base, const RowFacts& facts,
                       const CodeKernels& kernels, const RunOptions& run);
/// Whether `pack_cells` has a position for each row and what fills its groups: below 2^32 - 1, by which searches know them.
bool can_pack_cells(std::span<const std::int64_t> begins, std::int64_t group_rows);
/// A base in cells, as Ops::prepare_cells has them: each is a region and begins with a group of its own, so that behind the
/// last rows of a cell positions hold no code.
PackedCodes pack_cells(const CodeSpace& space, const CodeBounds& bounds, MatrixRef base, const RowFacts& facts,
                       const CellRows& cells, const CodeKernels& kernels, const RunOptions& run);
/// Of each thread that packs cells, however large these are.
std::int64_t packing_bytes(const CodeKernels& kernels, std::int64_t code_bytes, std::int64_t row_bytes);
/// Every `every`-th position, alike but for what only bounds need.
PackedCodes sample_codes(const PackedCodes& all, std::int64_t every);

}  // namespace gigaknn::cpu
