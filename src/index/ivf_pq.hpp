// An inverted file of product codes (IVFADC: Jégou, Douze, Schmid 2011, section IV; Johnson, Douze, Jégou 2017, section 5), with full
// vectors behind it or not.
//
//   base [n, d] --k-means--> centroids --lists_of_rows--> lists; what centroids leave --fit_product_quantizer--> codewords --encode_rows--> codes
//   queries [q, d] --ListCentroids::probe--> probes --Ops::nearest_in_codes--> k, or k * refine, nearest decoded rows
//     --Ops::nearest_among, where there are full vectors--> the k nearest of these
//
// Results depend on no table and no bound: they are the nearest of the decoded rows, exactly, the same bits on every device.
#pragma once

#include "index/ivf_index.hpp"
#include "learn/product_quantizer.hpp"

namespace gigaknn {

class IvfPqIndex : public IvfIndex {
 public:
  /// `owner` keeps what `parts` shows alive. `file`: whose ids these are, for messages.
  IvfPqIndex(const IvfFacts& facts, const IvfPqParts& parts, std::shared_ptr<const void> owner, std::string file, IndexSetting setting);

  /// The most that preparing and one search allocate, results not counted.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, std::int64_t code_bytes, int code_bits, bool refines,
                                  const IndexSetting& setting, int threads);

  std::string_view kind() const override { return ivf_pq_schema; }
  bool keeps_rows() const override { return refines_; }
  bool refines() const override { return refines_; }
  std::string description() const override;
  Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override;
  RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const override;
  Neighbors search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const override;
  std::size_t part_bytes_needed(std::int64_t n, const RunOptions& run) const override;
  std::size_t least_writing_bytes(std::int64_t n) const override;

  std::int64_t code_bytes() const { return quantizer_.code_bytes(); }
  int code_bits() const { return quantizer_.bits; }

 private:
  ProductCodes fit() const { return {facts_.cols, quantizer_.m, quantizer_.codewords, centroids_.centroids(), {}, {}, quantizer_.bits}; }
  LiveRows part_of(MatrixRef rows, RowIds ids, const RunOptions& run) const override;
  void write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path, const RunOptions& run) const override;
  const char* other_fit_than(const IvfIndex& other) const override;

  const bool refines_;
  const ProductQuantizer quantizer_;
};

/// What an index is made of.
struct EncodedIvfPq {
  IvfFacts facts;
  IvfPqParts parts;
  std::shared_ptr<const void> owner;  ///< of what `parts` shows
};
EncodedIvfPq encode_ivf_pq(MatrixRef base, const IvfPqParams& params, const RunOptions& run);

/// `base` divided, fitted and encoded; borrows it where it refines, and its rows have no ids of their own.
std::unique_ptr<IvfPqIndex> build_ivf_pq(MatrixRef base, const IvfPqParams& params, const RunOptions& run);

}  // namespace gigaknn
