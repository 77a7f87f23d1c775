#include "ops/cpu/byte_products.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/threads.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t rows_at_once = 3;
constexpr std::int64_t most_groups = 2;
#else
constexpr std::int64_t rows_at_once = 60;  // whose sums with a tile's directions stay in L2
constexpr std::int64_t most_groups = 64;
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

void byte_products(const CodeKernels& kernels, MatrixRef rows, MatrixRef directions, float* out, const RunOptions& run) {
  const std::int64_t d = rows.cols, count = directions.rows;
  const std::int64_t group_rows = kernels.group_rows, step_dims = kernels.step_dims;
  const std::int64_t steps = (d + step_dims - 1) / step_dims, stride = steps * step_dims, groups = (count + group_rows - 1) / group_rows;
  // Behind the last dimension rows are zeros, and sums of places without a direction are not read.
  std::vector<std::uint8_t> codes(at(groups * group_rows * stride));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto* const direction = directions.row<std::int8_t>(i);
    std::uint8_t* const group = codes.data() + i / group_rows * group_rows * stride + i % group_rows * step_dims;
    for (std::int64_t j = 0; j < d; ++j) {
      group[j / step_dims * group_rows * step_dims + j % step_dims] = static_cast<std::uint8_t>(direction[j] + kernels.zero);
    }
  }
  const std::vector<std::int32_t> no_terms(at(groups * group_rows));
  parallel_blocks(run, rows.rows, 16 * rows_at_once, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::int8_t> asking(at(rows_at_once * stride));
    std::vector<std::int32_t> zeros(at(rows_at_once)), sums(at(std::min(groups, most_groups) * rows_at_once * group_rows));
    for (std::int64_t first = begin; first < end; first += rows_at_once) {
      const std::int64_t asked = std::min(rows_at_once, end - first);
      for (std::int64_t i = 0; i < asked; ++i) {
        const auto* const row = rows.row<std::int8_t>(first + i);
        std::copy_n(row, d, asking.data() + i * stride);
        std::int32_t sum = 0;
        for (std::int64_t j = 0; j < d; ++j) sum += row[j];
        zeros[at(i)] = sum * kernels.zero;  // what the kernel adds, since codes are stored with it
      }
      for (std::int64_t g = 0; g < groups; g += most_groups) {
        CodeTile tile{};
        tile.ask = Ask::sums;
        tile.codes = codes.data() + g * group_rows * stride;
        tile.row_terms = no_terms.data();
        tile.groups = std::min(most_groups, groups - g);
        tile.steps = steps;
        tile.queries = asking.data();
        tile.query_count = asked;
        tile.sums = sums.data();
        kernels.scan(tile);
        for (std::int64_t i = 0; i < asked; ++i) {
          for (std::int64_t group = 0; group < tile.groups; ++group) {
            const std::int32_t* const of_group = sums.data() + (group * asked + i) * group_rows;
            const std::int64_t place = (g + group) * group_rows, live = std::min(group_rows, count - place);
            float* const to = out + (first + i) * count + place;
            for (std::int64_t r = 0; r < live; ++r) to[r] = static_cast<float>(of_group[r] - zeros[at(i)]);
          }
        }
      }
    }
  });
}

}  // namespace gigaknn::cpu
