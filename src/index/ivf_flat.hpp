// An inverted file of vectors (Jégou, Douze, Schmid 2011, section IV; Johnson, Douze, Jégou 2017, section 5.3).
//
//   base [n, d] --k-means--> centroids --ListCentroids::divide--> ListRows --Ops::prepare_cells, at the first search--> cells
//   queries [q, d] --ListCentroids::probe--> probes [q, nprobe] --Ops::nearest_in_cells, part by part--> neighbours
//
// Without centroids ("flat") all rows stand in one list: a search looks at every row. Vectors are full ones, or others
// (transformed, quantized) with full vectors behind them or not.
#pragma once

#include "index/ivf_index.hpp"
#include "index/list_rows.hpp"

namespace gigaknn {

class IvfFlatIndex : public IvfIndex {
 public:
  /// The most that preparing rows in lists (0: without centroids) and one search allocate, results not counted.
  static std::size_t bytes_needed(const IvfShape& shape, const IndexSetting& setting, int threads);

  IvfFlatIndex(StoredIvfFlat stored, IndexSetting setting);

  std::string_view kind() const override { return schema_of(facts_, lists() > 0 ? ivf_flat_schema : flat_schema); }
  bool keeps_rows() const override { return !facts_.form || refines(); }
  Neighbors search_all(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override;
  std::size_t searching_bytes_needed(int threads) const override { return bytes_needed(shape(), setting_, threads); }
  std::size_t least_writing_bytes(std::int64_t n) const override;

 private:
  std::string lists_description() const override;
  void write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path,
             const RunOptions& run) const override;
  const char* other_fit_than(const IvfIndex&) const override { return nullptr; }
};

}  // namespace gigaknn
