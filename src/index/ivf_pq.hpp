// An inverted file of product codes (IVFADC: Jégou, Douze, Schmid 2011, section IV; Johnson, Douze, Jégou 2017, section 5), with full
// vectors behind it or not.
//
//   base [n, d] --k-means--> centroids --lists_of_rows--> lists; what centroids leave --fit_product_quantizer--> codewords --encode_rows--> codes
//   queries [q, d] --ListCentroids::probe--> probes --Ops::nearest_in_codes--> k, or k * refine, nearest decoded rows
//     --Ops::nearest_among, where there are full vectors--> the k nearest of these
//
// Results depend on no table and no bound: they are the nearest of the decoded rows, exactly, the same bits on every device.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <gigaknn/index.hpp>

#include "index/ivf_file.hpp"
#include "index/list_centroids.hpp"
#include "index/row_ids.hpp"

namespace gigaknn {

class IvfPqIndex : public Index {
 public:
  /// `owner` keeps what `parts` shows alive. `file`: whose ids these are, for messages.
  IvfPqIndex(const IvfFacts& facts, const IvfPqParts& parts, std::shared_ptr<const void> owner, std::string file, IndexSetting setting);

  /// The most that preparing and one search allocate, results not counted.
  static std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, std::int64_t m, bool refines,
                                  const IndexSetting& setting, int threads);

  std::int64_t rows() const override { return std::ssize(parts_.ids); }
  std::int64_t cols() const override { return facts_.cols; }
  DType dtype() const override { return facts_.dtype; }
  Metric metric() const override { return facts_.metric; }
  std::int64_t lists() const override { return centroids_.lists(); }
  std::string_view kind() const override { return ivf_pq_schema; }
  bool keeps_rows() const override { return refines(); }
  bool refines() const override { return parts_.rows.data != nullptr; }
  std::int64_t next_id() const override { return facts_.next_id; }
  std::string description() const override;
  Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const override;
  RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const override;
  Neighbors search_all(MatrixRef queries, std::int64_t k, const IdSet* only, const RunOptions& run) const override;
  Matrix reconstruct(std::span<const RowId> ids) const override;
  std::vector<RowId> held_out() const override { return ids_.those_of(facts_.held_out); }
  void save(const std::filesystem::path& path, const RunOptions& run) const override;

  void prepare(const RunOptions& run) const;
  std::int64_t code_bytes() const { return parts_.codewords.rows / codewords_a_part; }

 private:
  ProductCodes codes() const;
  const PreparedCodes& prepared(const RunOptions& run) const;
  std::vector<std::uint64_t> words_of(const IdSet* only) const;

  const IvfFacts facts_;
  const IvfPqParts parts_;
  const std::shared_ptr<const void> owner_;
  const IndexSetting setting_;
  const Ops& ops_;
  const ListCentroids centroids_;
  const RowIds ids_;
  mutable std::mutex preparing_;
  mutable std::unique_ptr<PreparedCodes> prepared_;
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
