// An inverted file of full vectors (Jégou, Douze, Schmid 2011, section IV; Johnson, Douze, Jégou 2017, section 5.3).
//
//   base [n, d] --k-means--> centroids --ListCentroids::divide--> ListRows --Ops::prepare_cells, at the first search--> cells
//   queries [q, d] --ListCentroids::probe--> probes [q, nprobe] --Ops::nearest_in_cells, part by part--> neighbours
//
// Without centroids ("flat") all rows stand in one list: a search looks at every row.
#pragma once

#include "index/ivf_index.hpp"
#include "index/list_rows.hpp"

namespace gigaknn {

class IvfFlatIndex : public IvfIndex {
 public:
  /// The most that preparing [n, d] rows in `lists` lists (0: without centroids) and one search allocate, results not counted.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, const IndexSetting& setting, int threads);

  IvfFlatIndex(StoredIvfFlat stored, IndexSetting setting);

  std::string_view kind() const override { return lists() > 0 ? ivf_flat_schema : flat_schema; }
  std::string description() const override;
  Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override;
  RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const override;
  Neighbors search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const override {
    return search(queries, k, {.nprobe = centroids_.lists(), .only = only}, run);
  }
  std::size_t least_writing_bytes(std::int64_t n) const override;

 private:
  LiveRows part_of(MatrixRef rows, RowIds ids, const RunOptions& run) const override;
  void write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path, const RunOptions& run) const override;
  const char* other_fit_than(const IvfIndex&) const override { return nullptr; }
  template <class Take>
  void for_batches(const Scope& scope, MatrixRef queries, const RunOptions& run, const Take& take) const;
};

}  // namespace gigaknn
