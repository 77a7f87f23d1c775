// An inverted file of product codes (IVFADC: Jégou, Douze, Schmid 2011, section IV; Johnson, Douze, Jégou 2017, section 5), or of RaBitQ's,
// whose codewords are a grid (learn/rabitq.hpp), with full vectors behind it or not.
//
//   a sample of the base --k-means--> centroids; of another what these leave --fit_product_quantizer--> codewords
//   the base [n, d], some thousand rows at a time --RowForm--> --ListFinder--> lists --encode_rows--> codes: only codes are held of all
//   rows queries [q, d] --ListCentroids::probe--> probes --Ops::nearest_in_codes--> k, or k * refine, nearest decoded rows
//     --Ops::nearest_among, where there are full vectors--> the k nearest of these
//
// Results depend on no table and no bound: they are the nearest of the decoded rows, exactly, the same bits on every device.
#pragma once

#include "index/ivf_index.hpp"
#include "learn/formed_rows.hpp"
#include "learn/product_quantizer.hpp"

namespace gigaknn {

class IvfPqIndex : public IvfIndex {
 public:
  IvfPqIndex(StoredIvfPq stored, IndexSetting setting);

  /// The most that preparing and one search allocate, results not counted.
  static std::size_t bytes_needed(const IvfShape& shape, const CodeShape& codes, const IndexSetting& setting, int threads);

  std::string_view kind() const override { return schema_of(facts_, ivf_pq_schema); }
  std::size_t searching_bytes_needed(int threads) const override { return bytes_needed(shape(), quantizer_.shape(), setting_, threads); }
  std::size_t part_bytes_needed(std::int64_t n, const RunOptions& run) const override;
  std::size_t least_writing_bytes(std::int64_t n) const override;

 private:
  std::int64_t code_bytes() const { return quantizer_.code_bytes(); }
  ProductCodes fit() const { return quantizer_.codes(centroids_.centroids()); }
  std::optional<Matrix> compared_form_of(MatrixRef queries, const RunOptions& run) const override;
  LiveRows part_of(MatrixRef rows, RowIds ids, const RunOptions& run) const override;
  std::string lists_description() const override;
  void write(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path,
             const RunOptions& run) const override;
  const char* other_fit_than(const IvfIndex& other) const override;

  const ProductQuantizer quantizer_;
};

/// What an index is made of, of rows in `form` (null: as they stand).
StoredIvfPq encode_ivf_pq(MatrixRef base, const RowForm* form, const IvfPqParams& params, const RunOptions& run);
/// The most that it allocates beside what it returns and the ids of `params`, fitting the lists left out.
std::size_t encoding_bytes_needed(const FormedRowsShape& rows, const CodeShape& codes, std::int64_t lists, Metric metric,
                                  const std::string& device, const RunOptions& run);

/// `base` divided, fitted and encoded; borrows it where it refines, and its rows have no ids of their own.
std::unique_ptr<IvfPqIndex> build_ivf_pq(MatrixRef base, const IvfPqParams& params, const RunOptions& run);

}  // namespace gigaknn
