#include "index/scan_rows.hpp"

#include <algorithm>

#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t rows_at_once = 128;
#else
constexpr std::int64_t rows_at_once = 1 << 16;  // a multiple of 64
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

Neighbors scan_rows(const Ops& ops, MatrixRef rows, Metric metric, MatrixRef queries, std::int64_t k, std::span<const std::uint64_t> words,
                    const RunOptions& run) {
  Neighbors found(queries.rows, k);
  clear_lists(NeighborsOut(found), metric);
  const std::vector<RowId> probes(at(queries.rows), RowId{0});
  for (std::int64_t begin = 0; begin < rows.rows; begin += rows_at_once) {
    const MatrixRef some = rows.slice(begin, std::min(rows.rows, begin + rows_at_once));
    const std::vector<std::int64_t> begins = {0, some.rows};
    const auto cells =
        ops.prepare_cells(some, {{}, begins}, metric, {.k = k, .queries = queries.rows, .batch = queries.rows, .self = false}, run);
    const auto bits = words.empty() ? words : words.subspan(at(begin / 64), RowMask::words_for(some.rows));
    Neighbors part(queries.rows, k);
    ops.nearest_in_cells(*cells, queries, probes.data(), 1, k, NeighborsOut(part), run, nullptr, {bits});
    merge_lists(NeighborsOut(found), part, begin, metric, run);
  }
  return found;
}

std::size_t scan_bytes_needed(const Ops& ops, std::int64_t n, std::int64_t d, DType dtype, Metric metric, const PrepareHints& hints,
                              int threads) {
  return ops.cell_bytes_needed(std::min(n, rows_at_once), d, dtype, metric, 1, hints, threads);
}

}  // namespace gigaknn
