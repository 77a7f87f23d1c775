#include "core/threaded_memory.hpp"

#include <cstddef>

namespace gigaknn {
namespace {

constexpr std::int64_t page = std::int64_t{2} << 20;

// Of memory that is too small for large pages it brings a few of the others, which is no harm.
void bring_pages(void* memory, std::size_t bytes, const RunOptions& run) {
  const auto pages = static_cast<std::int64_t>(bytes) / page;
  if (pages < 2) return;
  parallel_for(run, pages, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) *(static_cast<volatile std::byte*>(memory) + i * page) = std::byte{0};
  });
}

}  // namespace

Matrix threaded_matrix(std::int64_t rows, std::int64_t cols, DType dtype, const RunOptions& run) {
  Matrix matrix(rows, cols, dtype);
  bring_pages(matrix.data(), static_cast<std::size_t>(rows * matrix.ref().stride_bytes), run);
  return matrix;
}

Neighbors threaded_lists(std::int64_t queries, std::int64_t k, const RunOptions& run) {
  Neighbors lists;
  lists.queries = queries;
  lists.k = k;
  lists.ids.resize(static_cast<std::size_t>(queries * k));
  lists.distances.resize(lists.ids.size());
  bring_pages(lists.ids.data(), lists.ids.size() * sizeof(RowId), run);
  bring_pages(lists.distances.data(), lists.distances.size() * sizeof(float), run);
  return lists;
}

}  // namespace gigaknn
