#include "ops/cpu/exhaustive.hpp"

#include <algorithm>

#include "core/threads.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t tile_bytes = 64;
#else
constexpr std::int64_t tile_bytes = 128 << 10;  // of rows: a quarter of the smallest L2 in use
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

template <class Visit>
void Exhaustive::scan(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin, std::int64_t end,
                      std::int64_t first_row, std::int64_t end_row, const Run& run,
                      Visit&& visit) const {
  const std::int64_t d = pair_.d();
  std::vector<float> scratch(at(d)), widened;
  if (pair_.widens()) widened.resize(at((end - begin) * d));
  std::vector<ScoredQuery> scored(at(end - begin));
  for (std::int64_t i = begin; i < end; ++i) {
    float* to = widened.empty() ? nullptr : widened.data() + (i - begin) * d;
    const double squared = query_facts.squared_norms.empty() ? 0 : query_facts.squared_norms[at(i)];
    scored[at(i - begin)] = scorer_.query(pair_.readable(queries.row_bytes(i), to), squared);
  }
  const std::int64_t tile = std::max<std::int64_t>(1, tile_bytes / std::max<std::int64_t>(1, base_.stride_bytes));
  for (std::int64_t from = first_row; from < end_row; from += tile) {
    check_cancelled(run);
    const std::int64_t to = std::min(end_row, from + tile);
    for (std::int64_t i = begin; i < end; ++i) {
      if (query_facts.far[at(i)]) continue;
      for (std::int64_t row = from; row < to; ++row) {
        if (facts_->far[at(row)]) continue;
        visit(i, row, [&](PackedNeighbor bound) {
          return scorer_.score(scored[at(i - begin)], static_cast<LocalRow>(row), bound, scratch.data());
        });
      }
    }
  }
}

void Exhaustive::nearest(MatrixRef queries, const RowFacts& query_facts, std::int64_t first_self,
                         std::int64_t begin, std::int64_t end, std::int64_t slice, std::int64_t slices,
                         TopK& lists, const Run& run) const {
  scan(queries, query_facts, begin, end, base_.rows * slice / slices, base_.rows * (slice + 1) / slices,
       run, [&](std::int64_t i, std::int64_t row, auto&& score) {
         if (first_self >= 0 && first_self + i == row) return;
         lists.push(i - begin, score(lists.bound(i - begin)));
       });
}

void Exhaustive::within(MatrixRef queries, const RowFacts& query_facts, std::int64_t begin,
                        std::int64_t end, PackedNeighbor bound,
                        std::vector<std::vector<PackedNeighbor>>& found, const Run& run) const {
  scan(queries, query_facts, begin, end, 0, base_.rows, run, [&](std::int64_t i, std::int64_t, auto&& score) {
    const PackedNeighbor candidate = score(bound);
    if (candidate < bound) found[at(i)].push_back(candidate);
  });
}

}  // namespace gigaknn::cpu
