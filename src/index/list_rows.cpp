#include "index/list_rows.hpp"

#include <cstring>

#include "core/cancelled.hpp"
#include "core/elements.hpp"
#include "index/id_words.hpp"

namespace gigaknn {
namespace {

struct OwnedRows {
  Matrix rows;
  std::vector<RowId> ids;
};

}  // namespace

void ListRows::copy_row(std::int64_t row, std::byte* out) const {
  const std::size_t bytes = static_cast<std::size_t>(rows_.cols) * size_of(rows_.dtype);
  look({rows_.row_bytes(row), bytes});
  std::memcpy(out, rows_.row_bytes(row), bytes);
}

void ListRows::decode_row(std::int64_t row, float* out) const {
  look({rows_.row_bytes(row), static_cast<std::size_t>(rows_.cols) * size_of(rows_.dtype)});
  row_as_floats(rows_, row, out);
}

std::shared_ptr<const ListRows> ListRows::of_rows(Matrix rows, std::vector<std::int64_t> begins, std::vector<RowId> ids) {
  const auto owned = std::make_shared<OwnedRows>(std::move(rows), std::move(ids));
  return std::make_shared<ListRows>(owned->rows, std::vector<LocalRow>(), std::move(begins), RowIds(owned->ids, owned), owned);
}

std::shared_ptr<const InvertedLists> ListRows::with_rows(Matrix rows, std::vector<std::int64_t> begins, std::vector<RowId> ids) const {
  return of_rows(std::move(rows), std::move(begins), std::move(ids));
}

const PreparedCells& ListRows::prepared(const ListScan& scan, const RunOptions& run) const {
  return prepared_.get(run, [&] {
    look({rows_.row_bytes(0), static_cast<std::size_t>(rows_.rows * rows_.stride_bytes)}, run);  // all of them are read
    return scan.ops.prepare_cells(rows_, {order(), begins(), ids().ranks()}, scan.metric, scan.hints, run);
  });
}

void ListRows::nearest(const ListScan& scan, const ProbingBatch& batch, std::int64_t k, NeighborsOut out, RowMask allowed, bool,
                       const RunOptions& run) const {
  scan.ops.nearest_in_cells(prepared(scan, run), batch.queries, batch.probes.data(), batch.width, k, out, run, nullptr, allowed);
}

std::string ListRows::description() const {
  const PreparedCells* const prepared = prepared_.if_made();
  return prepared ? prepared->description() : std::string();
}

LiveRows gathered_full(std::span<const LiveRows> parts, const std::vector<std::vector<std::uint64_t>>& words, std::int64_t count,
                       const RunOptions& run) {
  const MatrixRef like = parts.front().full.rows;
  Matrix rows(count, like.cols, like.dtype);
  std::vector<RowId> ids;
  ids.reserve(static_cast<std::size_t>(count));
  for (std::size_t p = 0; p < parts.size(); ++p) {
    check_cancelled(run);
    for (const LocalRow rank : ranks_in(words[p])) {
      std::memcpy(rows.row<std::byte>(std::ssize(ids)), parts[p].full.of_rank(rank),
                  static_cast<std::size_t>(like.cols) * size_of(like.dtype));
      ids.push_back(parts[p].lists->ids().of_rank(rank));
    }
  }
  return {ListRows::of_rows(std::move(rows), {0, count}, std::move(ids)), nullptr, count};
}

}  // namespace gigaknn
