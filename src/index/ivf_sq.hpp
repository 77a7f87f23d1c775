// An inverted file of quantized rows of fewer dimensions, with full vectors behind it.
//
//   base [n, d] --fit_pca_bytes--> i8 [n, dims] --k-means--> centroids --> ListRows --Ops::prepare_cells, at the first search--> cells
//   queries [q, d] --the same bytes--> ListCentroids::probe --Ops::nearest_in_cells--> k * refine nearest by bytes
//     --Ops::nearest_among--> the k nearest of these by full vectors
//
// Both steps are exact and their ties go by id: the same bits on every device.
#pragma once

#include <memory>
#include <vector>

#include <gigaknn/index.hpp>

#include "index/ivf_file.hpp"
#include "index/list_centroids.hpp"

namespace gigaknn {

class IvfSqIndex : public Index {
 public:
  /// `owner` keeps what `stored` shows alive.
  IvfSqIndex(StoredIvfSq stored, std::shared_ptr<const void> owner, IndexSetting setting);

  /// The most that preparing and one search allocate, results not counted.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, std::int64_t dims,
                                  const IndexSetting& setting, int threads);

  std::int64_t rows() const override { return stored_.rows.rows; }
  std::int64_t cols() const override { return stored_.facts.cols; }
  DType dtype() const override { return stored_.facts.dtype; }
  Metric metric() const override { return stored_.facts.metric; }
  std::int64_t lists() const override { return centroids_.lists(); }
  std::string_view kind() const override { return ivf_sq_schema; }
  bool refines() const override { return true; }
  std::vector<RowId> held_out() const override { return ids().those_of(stored_.facts.held_out); }
  std::int64_t next_id() const override { return stored_.facts.next_id; }
  std::string description() const override;
  Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override;
  RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const override;
  Neighbors search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const override;
  Matrix reconstruct(std::span<const RowId> ids) const override;
  void save(const std::filesystem::path& path, const RunOptions& run) const override;

  void prepare(const RunOptions& run) const;
  std::int64_t dims() const { return stored_.pca.dims(); }

 private:
  // What one search looks at.
  struct Scope {
    std::vector<std::uint64_t> words;        // by rank, of what `only` leaves; none: all
    std::vector<LocalRow> ranks;             // of rows that are so few that they stand in one list of their own, which all queries look into
    Matrix bytes;                            // theirs
    std::unique_ptr<PreparedCells> gathered;
    std::int64_t width = 1;
  };

  const RowIds& ids() const { return stored_.lists->ids(); }
  const PreparedCells& prepared(const RunOptions& run) const;
  std::vector<std::uint64_t> words_of(const IdSet* only) const;
  Scope scope_of(const SearchParams& params, const RunOptions& run) const;
  Neighbors nearest_by_bytes(const Scope& scope, const ProbingBatch& batch, std::int64_t candidates, const RunOptions& run) const;

  const StoredIvfSq stored_;
  const std::shared_ptr<const void> owner_;
  const IndexSetting setting_;
  const Ops& ops_;
  const ListCentroids centroids_;
};

}  // namespace gigaknn
