// Which way of selecting suits a matrix of values: a table, one line a range, and how long rows are cut.
#pragma once

#include <cstdint>
#include <limits>

namespace gigaknn::gpu {

/// thread_queues  WarpSelect (Johnson et al. 2017): a warp or several a row, registers
/// ballot_buffer  a warp's queue in registers behind a buffer of 32 candidates that votes fill
/// stream         a block a row, a bound drawn from a sample, a buffer that is bisected when it is full; any k
enum class SelectMethod : std::uint8_t { thread_queues, ballot_buffer, stream };

inline constexpr int most_thread_queues_k = 2048;
inline constexpr int most_ballot_buffer_k = 256;

struct SelectPlan {
  SelectMethod method = SelectMethod::stream;
  int warps = 1;           ///< a row, or part of it: 1, 2 or 4; `stream`: a whole block
  std::int64_t parts = 1;  ///< of each row, selected alone and then merged
};

/// The first line that k and the length of rows do not exceed.
struct SelectRule {
  std::int64_t k;
  std::int64_t columns;
  SelectMethod method;
  int warps;
};
inline constexpr std::int64_t any_number = std::numeric_limits<std::int64_t>::max();
// By an H200's timings of 10,000 rows (bench/results/nvidia-h200/bench.log): k = 10 to 2048 at 128,000 values, 100 and 1,000 from 1,000
// to 64,000 on. The line of 256 lies between those.
inline constexpr SelectRule select_table[] = {
    {256, 4096, SelectMethod::ballot_buffer, 1},
    {1024, 1024, SelectMethod::thread_queues, 1},
    {any_number, any_number, SelectMethod::stream, 1},
};

/// The table's way, and rows cut in parts where there are too few of them to fill `multiprocessors`.
SelectPlan select_plan(std::int64_t rows, std::int64_t columns, std::int64_t k, int multiprocessors);

}  // namespace gigaknn::gpu
