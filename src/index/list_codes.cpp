#include "index/list_codes.hpp"

#include <algorithm>

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct OwnedCodes {
  std::vector<std::uint8_t> blocks;
  std::vector<RowId> ids;
};

}  // namespace

ListCodes::ListCodes(const ProductCodes& fit, std::span<const std::uint8_t> codes, std::vector<std::int64_t> begins, RowIds ids,
                     std::shared_ptr<const void> owner, std::shared_ptr<const FileCheck> check)
    : InvertedLists({}, std::move(begins), std::move(ids), std::move(owner), std::move(check)), fit_(fit), codes_(codes) {
  ProductCodes standing = fit_;
  standing.cells = {{}, this->begins()};
  blocks_ = standing.block_begins();
}

std::shared_ptr<const ListCodes> ListCodes::of_rows(const ProductCodes& fit, std::span<const std::uint8_t> codes,
                                                    std::vector<std::int64_t> begins, std::vector<RowId> ids, const RunOptions& run) {
  const auto owned = std::make_shared<OwnedCodes>(in_blocks(codes, fit.code_bytes(), begins, run), std::move(ids));
  return std::make_shared<ListCodes>(fit, owned->blocks, std::move(begins), RowIds(owned->ids, owned), owned);
}

ListCodes::Place ListCodes::place_of(std::int64_t row) const {
  const std::int64_t list = list_at(row), in_list = row - begins()[at(list)];
  const Place place{list, blocks_[at(list)] + in_list / code_block_rows, in_list % code_block_rows};
  const auto block_bytes = at(cols() * code_block_rows);
  look(std::as_bytes(codes_.subspan(at(place.block) * block_bytes, block_bytes)));
  return place;
}

void ListCodes::copy_row(std::int64_t row, std::byte* out) const {
  const Place place = place_of(row);
  for (std::int64_t byte = 0; byte < cols(); ++byte) {
    out[byte] = std::byte{codes_[at(ProductCodes::place(place.block, cols(), byte, place.row))]};
  }
}

void ListCodes::decode_row(std::int64_t row, float* out) const {
  const Place place = place_of(row);
  ProductCodes codes = fit_;
  codes.codes = codes_;
  codes.decode(place.list, place.block, place.row, out);
}

std::shared_ptr<const InvertedLists> ListCodes::with_rows(Matrix rows, std::vector<std::int64_t> begins, std::vector<RowId> ids) const {
  return of_rows(fit_, {rows.row<std::uint8_t>(0), at(rows.rows() * rows.cols())}, std::move(begins), std::move(ids));
}

ProductCodes ListCodes::codes() const {
  ProductCodes codes = fit_;
  codes.codes = codes_;
  codes.cells = {{}, begins(), ids().ranks()};
  return codes;
}

const PreparedCodes& ListCodes::prepared(const ListScan& scan, const RunOptions& run) const {
  return prepared_.get(run, [&] {
    look(std::as_bytes(codes_), run);  // all of them are read
    return scan.ops.prepare_codes(codes(), scan.metric, scan.hints, run);
  });
}

void ListCodes::nearest(const ListScan& scan, const ProbingBatch& batch, std::int64_t k, NeighborsOut out, RowMask allowed, bool in_order,
                        const RunOptions& run) const {
  scan.ops.nearest_in_codes(prepared(scan, run), batch.queries, batch.probes.data(), batch.width, k, out, run, allowed,
                            in_order ? ListOrder::by_distance : ListOrder::by_id);
}

std::string ListCodes::description() const {
  const PreparedCodes* const prepared = prepared_.if_made();
  return prepared ? prepared->description() : std::string();
}

}  // namespace gigaknn
