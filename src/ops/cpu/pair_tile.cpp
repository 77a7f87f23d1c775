#include "ops/cpu/pair_tile.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/threads.hpp"
#include "ops/cpu/cpu_rows.hpp"

namespace gigaknn::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Steps of a row side by side, of 4 or 8 dimensions each.
constexpr int vector_bytes = 16;
template <int step_dims>
struct StepsOf;
template <>
struct StepsOf<4> {
  typedef std::uint32_t Vector __attribute__((vector_size(vector_bytes)));
};
template <>
struct StepsOf<8> {
  typedef std::uint64_t Vector __attribute__((vector_size(vector_bytes)));
};

// Step s of each row comes to stand in the s-th vector.
void transpose(StepsOf<4>::Vector (&x)[4]) {
  const auto a = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), b = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5);
  const auto c = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7), d = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
  x[0] = __builtin_shufflevector(a, b, 0, 1, 4, 5);
  x[1] = __builtin_shufflevector(a, b, 2, 3, 6, 7);
  x[2] = __builtin_shufflevector(c, d, 0, 1, 4, 5);
  x[3] = __builtin_shufflevector(c, d, 2, 3, 6, 7);
}
void transpose(StepsOf<8>::Vector (&x)[2]) {
  const auto a = __builtin_shufflevector(x[0], x[1], 0, 2);
  x[1] = __builtin_shufflevector(x[0], x[1], 1, 3);
  x[0] = a;
}

// Metrics of bytes whose keys the sums tell.
bool told_by_sums(Metric metric, DType dtype) {
  const bool bytes = dtype == DType::u8 || dtype == DType::i8;
  return bytes && (metric == Metric::l2 || metric == Metric::euclidean || metric == Metric::inner_product || metric == Metric::l1);
}

}  // namespace

PairTile::PairTile(MatrixRef rows, const RowFacts& facts, const PairDistance& pair, const CodeKernelSet& codes,
                   const RunOptions& run)
    : rows_(rows), facts_(&facts), pair_(pair),
      prefetch_bytes_(std::min<std::int64_t>(rows.cols * static_cast<std::int64_t>(size_of(rows.dtype)), 1024)) {
  if (!told_by_sums(pair.metric(), pair.dtype())) return;
  kernels_ = pair.metric() == Metric::l1 ? codes.differences : codes.bytes;
  if (!kernels_ || pair.d() > kernels_->most_dims) {
    kernels_ = nullptr;
    return;
  }
  if (pair.metric() == Metric::l1) return;
  row_sums_.resize(at(rows.rows));
  squares_.resize(at(rows.rows));
  const int shift = pair.dtype() == DType::i8 ? 0x80 : 0;
  parallel_for(run, rows.rows, 1024, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto* const row = rows.row<std::uint8_t>(i);
      std::uint32_t sum = 0, squares = 0;
      for (std::int64_t j = 0; j < rows.cols; ++j) {
        const auto value = static_cast<std::uint32_t>(row[j] ^ shift);
        sum += value;
        squares += value * value;
      }
      row_sums_[at(i)] = static_cast<std::int32_t>(sum);
      squares_[at(i)] = squares;
    }
  });
}

// Rows as u8: from `first` on in groups as the kernel reads them, the first `queries` as it wants queries.
template <int step_dims>
void PairTile::gather(std::span<const LocalRow> named, std::int64_t queries, std::int64_t first, Scratch& scratch) const {
  using Steps = typename StepsOf<step_dims>::Vector;
  constexpr int lanes = vector_bytes / step_dims;  // rows, and their steps, that are transposed at once: groups have a multiple of them
  const std::int64_t d = rows_.cols;
  const std::int64_t steps = (d + step_dims - 1) / step_dims;
  const std::int64_t whole = d / step_dims;
  const std::int64_t stride = steps * step_dims;
  const std::int64_t group_rows = kernels_->group_rows;
  const std::int64_t step_bytes = group_rows * step_dims;
  const auto count = std::ssize(named);
  const std::int64_t groups = (count - first + group_rows - 1) / group_rows;
  // What stands behind the last row is compared, and not read.
  scratch.codes.resize(at(groups * steps * step_bytes));
  scratch.queries.resize(at(queries * stride));
  const auto shift = static_cast<std::uint8_t>(pair_.dtype() == DType::i8 ? 0x80 : 0);
  const auto to_query = static_cast<std::uint8_t>(kernels_->zero);
  const auto last_step = [&](const std::uint8_t* row, std::uint8_t* step) {
    std::fill_n(step, step_dims, shift);
    std::copy(row + whole * step_dims, row + d, step);
  };
  std::uint8_t shifts[vector_bytes];
  std::fill_n(shifts, vector_bytes, shift);
  Steps all_shifted;
  std::memcpy(&all_shifted, shifts, sizeof all_shifted);
  for (std::int64_t i = first; i < count; i += lanes) {
    const std::uint8_t* rows[lanes];
    for (int lane = 0; lane < lanes; ++lane) rows[lane] = rows_.row<std::uint8_t>(named[at(std::min(i + lane, count - 1))]);
    std::uint8_t* to = scratch.codes.data() + (i - first) / group_rows * steps * step_bytes + (i - first) % group_rows * step_dims;
    std::int64_t s = 0;
    for (; s + lanes <= whole; s += lanes) {
      Steps of_rows[lanes];
      for (int lane = 0; lane < lanes; ++lane) {
        std::memcpy(&of_rows[lane], rows[lane] + s * step_dims, sizeof(Steps));
        of_rows[lane] ^= all_shifted;
      }
      transpose(of_rows);
      for (int lane = 0; lane < lanes; ++lane, to += step_bytes) std::memcpy(to, &of_rows[lane], sizeof(Steps));
    }
    for (; s < steps; ++s, to += step_bytes) {
      for (int lane = 0; lane < lanes; ++lane) {
        std::uint8_t step[step_dims];
        if (s < whole) {
          std::memcpy(step, rows[lane] + s * step_dims, step_dims);
        } else {
          last_step(rows[lane], step);
        }
        for (std::uint8_t& byte : step) byte ^= shift;
        std::memcpy(to + lane * step_dims, step, step_dims);
      }
    }
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    const auto* const row = rows_.row<std::uint8_t>(named[at(i)]);
    // u - 128 as a signed byte has the bits of u ^ 128.
    std::int8_t* const query = scratch.queries.data() + i * stride;
    const auto signed_byte = [&](std::uint8_t byte) { return static_cast<std::int8_t>(byte ^ shift ^ to_query); };
    std::transform(row, row + whole * step_dims, query, signed_byte);
    if (whole == steps) continue;
    std::uint8_t step[step_dims];
    last_step(row, step);
    std::transform(step, step + step_dims, query + whole * step_dims, signed_byte);
  }
}

void PairTile::compare_codes(std::span<const LocalRow> named, std::int64_t queries, std::int64_t first, Scratch& scratch) const {
  const std::int64_t group_rows = kernels_->group_rows;
  const auto count = std::ssize(named) - first;
  const std::int64_t groups = (count + group_rows - 1) / group_rows;
  if (kernels_->step_dims == 4) {
    gather<4>(named, queries, first, scratch);
  } else {
    gather<8>(named, queries, first, scratch);
  }
  const Metric metric = pair_.metric();
  scratch.pitch = groups * group_rows;
  scratch.terms.assign(at(scratch.pitch), 0);
  scratch.squares.resize(at(scratch.pitch));
  scratch.row_sums.resize(at(scratch.pitch));
  if (metric != Metric::l1) {
    // The term makes the sum of u (v - 128) that of u v.
    for (std::int64_t j = 0; j < count; ++j) scratch.row_sums[at(j)] = row_sums_[named[at(first + j)]];
    for (std::int64_t j = 0; j < count; ++j) scratch.terms[at(j)] = kernels_->zero * scratch.row_sums[at(j)];
    for (std::int64_t j = 0; j < count; ++j) scratch.squares[at(j)] = squares_[named[at(first + j)]];
  }
  scratch.sums.resize(at(queries * scratch.pitch));
  scratch.keys.resize(at(queries * scratch.pitch));
  CodeTile tile{};
  tile.ask = Ask::sums;
  tile.codes = scratch.codes.data();
  tile.row_terms = scratch.terms.data();
  tile.groups = groups;
  tile.steps = (rows_.cols + kernels_->step_dims - 1) / kernels_->step_dims;
  tile.queries = scratch.queries.data();
  tile.query_count = queries;
  tile.sums = scratch.sums.data();
  kernels_->scan(tile);
  // Keys from sums, exactly: all integers are below 2^32, and differences wrap to what they are.
  const std::uint32_t shifted = pair_.dtype() == DType::i8 ? 128 : 0;
  const auto all = [&](auto key) {
    for (std::int64_t g = 0; g < groups; ++g) {
      for (std::int64_t i = 0; i < queries; ++i) {
        const std::int32_t* const sums = scratch.sums.data() + (g * queries + i) * group_rows;
        const std::uint32_t* const squares = scratch.squares.data() + g * group_rows;
        const std::int32_t* const row_sums = scratch.row_sums.data() + g * group_rows;
        float* const keys = scratch.keys.data() + i * scratch.pitch + g * group_rows;
        const LocalRow query = named[at(i)];
        for (std::int64_t r = 0; r < group_rows; ++r) keys[r] = key(query, sums[r], squares[r], row_sums[r]);
      }
    }
  };
  const auto square = [&](LocalRow query, std::int32_t sum, std::uint32_t squares) {
    return static_cast<float>(static_cast<std::int32_t>(squares_[query] + squares - 2 * static_cast<std::uint32_t>(sum)));
  };
  switch (metric) {
    case Metric::l2:
      return all([&](LocalRow query, std::int32_t sum, std::uint32_t squares, std::int32_t) { return square(query, sum, squares); });
    case Metric::euclidean:
      // Roots are taken in float64, as the canonical distance does.
      return all([&](LocalRow query, std::int32_t sum, std::uint32_t squares, std::int32_t) {
        const std::uint32_t exact = squares_[query] + squares - 2 * static_cast<std::uint32_t>(sum);
        return static_cast<float>(std::sqrt(static_cast<double>(static_cast<std::int32_t>(exact))));
      });
    case Metric::inner_product: {
      // Of i8 rows u = x + 128: <x,y> = <u,v> - 128 (sum u + sum v) + 128^2 d.
      const auto constant = shifted * shifted * static_cast<std::uint32_t>(rows_.cols);
      return all([&](LocalRow query, std::int32_t sum, std::uint32_t, std::int32_t row_sum) {
        const std::uint32_t product =
            static_cast<std::uint32_t>(sum) - shifted * static_cast<std::uint32_t>(row_sums_[query] + row_sum) + constant;
        return -static_cast<float>(static_cast<std::int32_t>(product));
      });
    }
    default:
      return all([&](LocalRow, std::int32_t sum, std::uint32_t, std::int32_t) { return -static_cast<float>(sum); });
  }
}

void PairTile::compare_rows(std::span<const LocalRow> named, std::int64_t queries, std::int64_t first, Scratch& scratch) const {
  const auto count = std::ssize(named);
  const std::int64_t d = rows_.cols;
  scratch.pitch = count - first;
  scratch.keys.resize(at(queries * scratch.pitch));
  scratch.widened.resize(pair_.widens() ? at((count + 1) * d) : 0);
  const auto readable = [&](std::int64_t i) {
    float* const to = scratch.widened.data() + (pair_.widens() ? i * d : 0);
    return pair_.widens() ? static_cast<const void*>(to) : rows_.row_bytes(named[at(i)]);
  };
  if (pair_.widens()) {
    for (std::int64_t i = 0; i < count; ++i) {
      widen_row(pair_.kernels(), pair_.dtype(), rows_.row_bytes(named[at(i)]), scratch.widened.data() + i * d, d);
    }
  }
  const auto norm = [&](std::int64_t i) { return facts_->squared_norms.empty() ? 0 : facts_->squared_norms[named[at(i)]]; };
  for (std::int64_t i = 0; i < queries; ++i) {
    for (std::int64_t j = first; j < count; ++j) {
      // A pair of queries once: keys are symmetric.
      float& key = scratch.keys[at(i * scratch.pitch + j - first)];
      key = j < i ? scratch.keys[at(j * scratch.pitch + i)] : pair_.key(readable(i), readable(j), norm(i), norm(j));
    }
  }
}

void PairTile::compare(std::span<const LocalRow> named, std::int64_t queries, std::int64_t first, Scratch& scratch) const {
  if (kernels_) {
    compare_codes(named, queries, first, scratch);
  } else {
    compare_rows(named, queries, first, scratch);
  }
}

}  // namespace gigaknn::cpu
