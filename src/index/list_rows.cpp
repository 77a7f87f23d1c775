#include "index/list_rows.hpp"

#include <cstring>

namespace gigaknn {
namespace {

struct OwnedRows {
  Matrix rows;
  std::vector<RowId> ids;
};

}  // namespace

void ListRows::copy_row(std::int64_t row, std::byte* out) const {
  std::memcpy(out, rows_.row_bytes(row), static_cast<std::size_t>(rows_.cols) * size_of(rows_.dtype));
}

std::shared_ptr<const InvertedLists> ListRows::with_rows(Matrix rows, std::vector<std::int64_t> begins, std::vector<RowId> ids) const {
  const auto owned = std::make_shared<OwnedRows>(std::move(rows), std::move(ids));
  return std::make_shared<ListRows>(owned->rows, std::vector<LocalRow>(), std::move(begins), RowIds(owned->ids, owned), owned);
}

const PreparedCells& ListRows::prepared(const ListScan& scan, const RunOptions& run) const {
  const std::lock_guard lock(preparing_);
  if (!prepared_) prepared_ = scan.ops.prepare_cells(rows_, {order(), begins(), ids().ranks()}, scan.metric, scan.hints, run);
  return *prepared_;
}

void ListRows::nearest(const ListScan& scan, const ProbingBatch& batch, std::int64_t k, NeighborsOut out, RowMask allowed, bool,
                       const RunOptions& run) const {
  scan.ops.nearest_in_cells(prepared(scan, run), batch.queries, batch.probes.data(), batch.width, k, out, run, nullptr, allowed);
}

std::string ListRows::description() const {
  const std::lock_guard lock(preparing_);
  return prepared_ ? prepared_->description() : std::string();
}

}  // namespace gigaknn
