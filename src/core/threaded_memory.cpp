#include "core/threaded_memory.hpp"

#include <cstddef>

namespace gigaknn {
namespace {

void bring_pages(void* memory, std::size_t bytes, const RunOptions& run) {
  if (bytes < least_large_bytes) return;
  parallel_for(run, static_cast<std::int64_t>(bytes / large_page_bytes), 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
      static_cast<volatile std::byte*>(memory)[i * large_page_bytes] = std::byte{0};
    }
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
