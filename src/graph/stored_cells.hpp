// The rows of a base in files, by cell: what a graph is built from that is larger than memory. Each file is a container
// (docs/formats.md), written whole or not at all.
//
//   cells.gkc     the coarse quantizer, as it was fitted; as what rows have candidates, if they do (candidate_rows.hpp)
//   shard-S.gkc   rows [S * shard_rows, ...) of the base by cell, those of a cell in their order, and which rows they are; these as
//                 candidates are found among them
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "graph/candidate_rows.hpp"
#include "graph/shard_plan.hpp"
#include "io/container.hpp"
#include "io/mapped_file.hpp"
#include "learn/coarse_quantizer.hpp"

namespace gigaknn {

void write_quantizer(const CoarseQuantizer& quantizer, const std::optional<CandidateRows>& candidates, const std::filesystem::path& path);
/// Throws Error: io, corrupt_file.
CoarseQuantizer read_quantizer(const std::filesystem::path& path);
/// Of rows of `cols` dimensions.
std::optional<CandidateRows> read_candidate_rows(const std::filesystem::path& path, std::int64_t cols);

/// Writes the file of some rows of a base: `cells` [rows] are theirs, `first` is the first one's id. `candidates`: as these, too.
void write_shard(const Ops& ops, MatrixRef rows, std::int64_t first, const std::vector<std::uint32_t>& cells, std::int64_t cell_count,
                 const std::optional<CandidateRows>& candidates, const std::filesystem::path& path, const RunOptions& run);

/// Rows as they are, or as candidates are found among them.
enum class RowForm : std::uint8_t { of_base, candidates };

/// Rows of some cells together in memory, in the order of their ids: a base for Ops::prepare_cells.
struct LoadedCells {
  Matrix rows;
  std::vector<std::uint32_t> ids;       ///< [rows], ascending
  std::vector<LocalRow> order;          ///< [rows] cell after cell
  std::vector<std::int64_t> begins;     ///< [cells + 1] into `order`
};

/// All shards of a base, mapped. Cells of too many rows count as several, whose rows follow each other.
class StoredCells {
 public:
  /// Throws Error: io, corrupt_file (they are not those of `base`).
  StoredCells(const std::vector<std::filesystem::path>& shards, MatrixRef base, std::int64_t most_rows_of_a_cell);

  std::int64_t rows() const { return begins_.back(); }
  std::int64_t cells() const { return static_cast<std::int64_t>(begins_.size()) - 1; }
  /// [cells of the quantizer] how often each counts.
  const std::vector<std::int64_t>& copies() const { return copies_; }
  /// [cells + 1] places in the order of all rows by cell.
  const std::vector<std::int64_t>& begins() const { return begins_; }
  bool have(RowForm form) const;
  /// Those of `wanted` [cells], ascending, in chunks of so many rows and cells at most, or of one cell.
  std::vector<std::vector<std::int64_t>> chunks(const std::vector<std::uint8_t>& wanted, std::int64_t most_rows, std::int64_t most_cells) const;

  /// The row at each place of that order.
  std::vector<RowId> rows_at(std::span<const RowId> places) const;
  /// The cell of each row.
  std::vector<RowId> cells_of(std::span<const RowId> rows, const RunOptions& run) const;
  /// Rows of the cells [begin, end), in the order of cells; their ids.
  std::vector<std::uint32_t> ids_in(std::int64_t begin, std::int64_t end) const;
  Matrix rows_in(std::int64_t begin, std::int64_t end, RowForm form, const RunOptions& run) const;
  /// Rows of some cells, ascending.
  LoadedCells load(std::span<const std::int64_t> cells, RowForm form, const RunOptions& run) const;
  /// Has the files of some cells, ascending, read while others compute, for one of the three calls above.
  void read_ahead(std::span<const std::int64_t> cells, RowForm form, ReadAhead& reader) const;

 private:
  struct Shard {
    Container file;
    MatrixRef rows;                     // by cell
    std::optional<MatrixRef> encoded;   // these as candidates are found among them
    const std::uint32_t* ids;           // of these
    std::int64_t first;                 // id
    std::vector<std::uint32_t> begins;  // [cells + 1] into rows

    std::span<const std::uint32_t> ids_of(std::int64_t cell) const {
      const auto c = static_cast<std::size_t>(cell);
      return {ids + begins[c], begins[c + 1] - begins[c]};
    }
    MatrixRef in(RowForm form) const { return form == RowForm::candidates ? *encoded : rows; }
    /// A row's place among those of the shard. Throws Error: corrupt_file.
    std::size_t place_of(std::uint32_t id) const {
      const std::int64_t place = std::int64_t{id} - first;
      if (place < 0 || place >= rows.rows) fail_at(file.file(), 0, "holds row ", id, ", which is none of the shard");
      return static_cast<std::size_t>(place);
    }
  };
  // Where cells that follow each other are in the file, ids and rows; `cells` ascend.
  Stretches stretches(const Shard& shard, std::span<const std::int64_t> cells, RowForm form) const;
  void open(const std::filesystem::path& path);
  void split(std::int64_t most_rows);
  void release(const Shard& shard) const;

  std::vector<Shard> shards_;
  std::vector<std::int64_t> begins_;
  std::vector<std::int64_t> copies_;
};

}  // namespace gigaknn
