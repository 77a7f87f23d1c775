#include "learn/reduced_rows.hpp"

#include <algorithm>
#include <cmath>

#include "core/gather.hpp"
#include "core/random.hpp"
#include "core/threads.hpp"
#include "learn/orthonormal.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t least_dims = 4;   // that rows are reduced to
constexpr std::int64_t least_reduced = 24;  // dimensions of rows that are
#else
constexpr std::int64_t least_dims = 64;
constexpr std::int64_t least_reduced = 192;
#endif
constexpr std::int64_t most_fitted = 1024;    // rows: sums of 1,024 products of signed bytes are below 2^24
constexpr std::int64_t most_compared = 256;   // rows whose neighbours tell whether so many dimensions do
constexpr std::int64_t most_neighbors = 16;   // of each
// Of these neighbours, which are farther than all rows have: among all, more may be missed or fewer. With twice as many dimensions to come,
// and with none.
constexpr double most_missed = 0.0025;
constexpr double most_missed_at_last = 0.0075;
constexpr std::int64_t rows_at_once = 1 << 11;  // that are encoded
constexpr double largest_whole = 0x1p24;      // up to which float32 has all whole numbers
constexpr double largest_byte = 128;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t candidates_for(std::int64_t k) { return 2 * std::min(k, most_neighbors) + 4; }

// u - 128, whose bits are those of u but for the first.
void less_128(MatrixRef bytes, Matrix& out, const RunOptions& run) {
  parallel_for(run, bytes.rows, 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto* const from = bytes.row<std::uint8_t>(i);
      auto* const to = out.row<std::uint8_t>(i);
      for (std::int64_t j = 0; j < bytes.cols; ++j) to[j] = static_cast<std::uint8_t>(from[j] ^ 0x80);
    }
  });
}

Matrix transposed(MatrixRef rows) {
  Matrix out(rows.cols, rows.rows, DType::i8);
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    for (std::int64_t j = 0; j < rows.cols; ++j) out.row<std::int8_t>(j)[i] = rows.row<std::int8_t>(i)[j];
  }
  return out;
}

std::vector<float> products_of(const Ops& ops, MatrixRef rows, MatrixRef directions, const RunOptions& run) {
  std::vector<float> out(at(rows.rows * directions.rows));
  ops.products(rows, directions, out.data(), run);
  return out;
}

Matrix random_signs(std::int64_t rows, std::int64_t cols) {
  Matrix signs(rows, cols, DType::i8);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      signs.row<std::int8_t>(i)[j] = random_bits(1, 11, static_cast<std::uint64_t>(i * cols + j)) & 1 ? 1 : -1;
    }
  }
  return signs;
}

double mean_of_column(const std::vector<float>& values, std::int64_t rows, std::int64_t cols, std::int64_t j) {
  double sum = 0;
  for (std::int64_t i = 0; i < rows; ++i) sum += static_cast<double>(values[at(i * cols + j)]);
  return sum / static_cast<double>(rows);
}

// Of a sample's products [rows, dims] each dimension, less its mean, as signed bytes: [dims, rows].
Matrix combinations(const std::vector<float>& products, std::int64_t rows, std::int64_t dims) {
  Matrix out(dims, rows, DType::i8);
  for (std::int64_t j = 0; j < dims; ++j) {
    const double mean = mean_of_column(products, rows, dims, j);
    double most = 0;
    for (std::int64_t i = 0; i < rows; ++i) most = std::max(most, std::abs(static_cast<double>(products[at(i * dims + j)]) - mean));
    const double scale = most > 0 ? 127 / most : 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      out.row<std::int8_t>(j)[i] = static_cast<std::int8_t>(std::lround((static_cast<double>(products[at(i * dims + j)]) - mean) * scale));
    }
  }
  return out;
}

// Vectors [dims, d], dims a power of two, become sums and differences of all of them (Hadamard), by random signs, twice: as orthogonal as
// they were, and each about as long in every direction that one of them has.
void mix(std::vector<double>& vectors, std::int64_t dims, std::int64_t d) {
  for (const std::uint64_t stream : {12, 13}) {
    for (std::int64_t i = 0; i < dims; ++i) {
      if (random_bits(1, stream, static_cast<std::uint64_t>(i)) & 1) continue;
      for (std::int64_t j = 0; j < d; ++j) vectors[at(i * d + j)] = -vectors[at(i * d + j)];
    }
    for (std::int64_t half = 1; half < dims; half *= 2) {
      for (std::int64_t i = 0; i < dims; ++i) {
        if (i & half) continue;
        double* const a = vectors.data() + i * d;
        double* const b = a + half * d;
        for (std::int64_t j = 0; j < d; ++j) {
          const double sum = a[j] + b[j];
          b[j] = a[j] - b[j];
          a[j] = sum;
        }
      }
    }
  }
}

// As signed bytes, with products of signed bytes below 2^24.
Matrix whole_directions(const std::vector<double>& vectors, std::int64_t dims, std::int64_t d) {
  double largest = 0, longest = 0;
  for (std::int64_t i = 0; i < dims; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < d; ++j) {
      const double size = std::abs(vectors[at(i * d + j)]);
      largest = std::max(largest, size);
      sum += size;
    }
    longest = std::max(longest, sum);
  }
  // Rounding adds half of one to each.
  const double room = largest_whole / largest_byte - static_cast<double>(d) / 2;
  const double scale = largest > 0 ? std::min(127 / largest, room / longest) : 0;
  Matrix out(dims, d, DType::i8);
  for (std::int64_t i = 0; i < dims * d; ++i) {
    out.row<std::int8_t>(0)[i] = static_cast<std::int8_t>(std::lround(vectors[at(i)] * scale));
  }
  return out;
}

// The square root of a bound on the largest eigenvalue of G = P P^T, by G = c I + E and |E| <= |E E|_F^(1/2).
double stretch_of(const Ops& ops, MatrixRef directions, const RunOptions& run) {
  const std::int64_t dims = directions.rows;
  const std::vector<float> squares = products_of(ops, directions, directions, run);
  double mean = 0, largest = 0;
  for (std::int64_t i = 0; i < dims; ++i) {
    mean += static_cast<double>(squares[at(i * dims + i)]) / static_cast<double>(dims);
    largest = std::max(largest, static_cast<double>(squares[at(i * dims + i)]));
  }
  std::vector<double> off(squares.begin(), squares.end());
  for (std::int64_t i = 0; i < dims; ++i) off[at(i * dims + i)] -= mean;
  double sum = 0;
  std::vector<double> row(at(dims));
  for (std::int64_t i = 0; i < dims; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (std::int64_t k = 0; k < dims; ++k) {
      const double weight = off[at(i * dims + k)];
      const double* const other = off.data() + k * dims;
      for (std::int64_t j = 0; j < dims; ++j) row[at(j)] += weight * other[j];
    }
    for (const double x : row) sum += x * x;
  }
  return std::sqrt(std::max(largest, mean + std::sqrt(std::sqrt(sum)))) * (1 + 1e-9);
}

// Of i8 rows, to which they are fitted.
ReducedRows fit_to(const Ops& ops, MatrixRef rows, std::int64_t dims, std::uint8_t most, const RunOptions& run) {
  const std::int64_t d = rows.cols;
  const std::vector<float> at_random = products_of(ops, rows, random_signs(dims, d), run);
  const std::vector<float> along = products_of(ops, transposed(rows), combinations(at_random, rows.rows, dims), run);
  std::vector<double> vectors(at(dims * d));
  for (std::int64_t i = 0; i < dims; ++i) {
    for (std::int64_t j = 0; j < d; ++j) vectors[at(i * d + j)] = static_cast<double>(along[at(j * dims + i)]);
  }
  nearly_orthonormalize(vectors, dims, d, run);
  mix(vectors, dims, d);
  ReducedRows reduced{whole_directions(vectors, dims, d), std::vector<float>(at(dims)), {}, 0};
  Matrix products(rows.rows, dims, DType::f32);
  ops.products(rows, reduced.directions, products.row<float>(0), run);
  const std::vector<float> copy(products.row<float>(0), products.row<float>(0) + rows.rows * dims);
  for (std::int64_t j = 0; j < dims; ++j) {
    reduced.means[at(j)] = static_cast<float>(std::round(mean_of_column(copy, rows.rows, dims, j)));
    for (std::int64_t i = 0; i < rows.rows; ++i) products.row<float>(i)[j] -= reduced.means[at(j)];
  }
  reduced.levels = fit_byte_rows(products, Metric::l2, most);
  return reduced;
}

// The nearest others of some of a set's u8 rows.
Neighbors nearest_in(const Ops& ops, MatrixRef rows, std::span<const RowId> some, std::int64_t k, bool seven_bits, const RunOptions& run) {
  const std::int64_t begins[] = {0, rows.rows};
  const std::int64_t count = std::ssize(some);
  const PrepareHints hints{.k = k, .queries = count, .batch = count, .self = true, .seven_bits = seven_bits};
  const auto prepared = ops.prepare_cells(rows, {{}, begins}, Metric::l2, hints, run);
  Neighbors found(count, k);
  const std::vector<RowId> cell(some.size(), RowId{0});
  ops.nearest_in_cells(*prepared, gather_rows(rows, some, run), cell.data(), 1, k, NeighborsOut(found), run, some.data());
  return found;
}

// The share of `nearest` that are not among `candidates`.
double missed_share(const Neighbors& nearest, const Neighbors& candidates) {
  std::int64_t missed = 0;
  for (std::int64_t i = 0; i < nearest.queries; ++i) {
    const auto begin = candidates.ids.begin() + i * candidates.k, end = begin + candidates.k;
    for (std::int64_t j = 0; j < nearest.k; ++j) missed += std::find(begin, end, nearest.ids[at(i * nearest.k + j)]) == end;
  }
  return static_cast<double>(missed) / static_cast<double>(std::max<std::size_t>(1, nearest.ids.size()));
}

// The nearest of the levels 0 to `most` to (x - start) * scale, brought among them first; returns how far the whole row is moved, and more
// than what float32 loses. Eight at a time, so that compilers take them at once.
float round_to_levels(const float* x, const float* starts, float scale, float most, std::int64_t width, std::uint8_t* to) {
  constexpr std::int64_t lanes = 8;
  float squares[lanes] = {};
  const auto round = [&](std::int64_t j, float& square) {
    const float level = (x[j] - starts[j]) * scale, above = level > 0 ? level : 0.0f, among = above < most ? above : most;
    const auto whole = static_cast<std::int32_t>(among + 0.5f);
    to[j] = static_cast<std::uint8_t>(whole);
    const float apart = among - static_cast<float>(whole);
    square += apart * apart;
  };
  std::int64_t j = 0;
  for (; j + lanes <= width; j += lanes) {
    for (std::int64_t lane = 0; lane < lanes; ++lane) round(j + lane, squares[lane]);
  }
  for (; j < width; ++j) round(j, squares[0]);
  float sum = 0;
  for (const float square : squares) sum += square;
  return std::sqrt(sum) * 1.001f + 1e-3f;
}

std::vector<RowId> every(std::int64_t n, std::int64_t most) {
  std::vector<RowId> rows;
  for (std::int64_t i = 0; i < n; i += (n + most - 1) / most) rows.push_back(RowId{i});
  return rows;
}

}  // namespace

bool may_reduce(std::int64_t d) { return d >= least_reduced && static_cast<double>(d) <= largest_whole / largest_byte / 2; }

void ReducedRows::encode(const Ops& ops, MatrixRef bytes, std::uint8_t* to, float* lost, const RunOptions& run) const {
  const std::int64_t width = dims();
  std::vector<float> products(at(std::min(rows_at_once, bytes.rows) * width)), starts(means);
  for (float& start : starts) start += static_cast<float>(levels.low);
  Matrix asking(std::min(rows_at_once, bytes.rows), bytes.cols, DType::i8);
  for (std::int64_t begin = 0; begin < bytes.rows; begin += rows_at_once) {
    const std::int64_t count = std::min(rows_at_once, bytes.rows - begin);
    less_128(bytes.slice(begin, begin + count), asking, run);
    ops.products(asking.ref().slice(0, count), directions, products.data(), run);
    parallel_for(run, count, 256, [&](std::int64_t first, std::int64_t last, int) {
      for (std::int64_t i = first; i < last; ++i) {
        const float apart = round_to_levels(products.data() + i * width, starts.data(), static_cast<float>(levels.inverse_step),
                                            static_cast<float>(levels.most), width, to + (begin + i) * width);
        if (lost) lost[begin + i] = apart;
      }
    });
  }
}

std::size_t ReducedRows::encoding_bytes(std::int64_t n, std::int64_t d) {
  const std::int64_t some = std::min(n, rows_at_once);
  return at(some * (d + most_dims * std::int64_t{sizeof(float)}));
}

std::size_t fitted_reduction_bytes(const Ops& ops, std::int64_t sample, std::int64_t d, std::int64_t k, int threads) {
  const std::int64_t fitted = std::min(sample, most_fitted), some = std::min(sample, most_compared), dims = ReducedRows::most_dims;
  const std::int64_t candidates = candidates_for(k);
  const PrepareHints hints{.k = candidates, .queries = some, .batch = some, .self = true};
  // The sample twice, products and vectors, their copies; one set prepared at a time.
  constexpr std::int64_t of_product = 2 * std::int64_t{sizeof(float)} + 1;
  const std::int64_t fit = fitted * (2 * d + dims * of_product) + dims * d * (std::int64_t{sizeof(double)} + of_product);
  return at(fit + some * d) + at(sample * dims) + ReducedRows::encoding_bytes(sample, d) + 2 * list_bytes(some, candidates) +
         ops.cell_bytes_needed(sample, d, DType::u8, Metric::l2, 1, hints, threads);
}

std::optional<ReducedRows> fit_reduced_rows(const Ops& ops, MatrixRef sample, std::int64_t k, std::uint8_t most, const RunOptions& run) {
  const std::int64_t neighbors = std::min(k, most_neighbors), candidates = candidates_for(k);
  if (!may_reduce(sample.cols) || sample.rows <= 2 * candidates) return std::nullopt;
  // Rows to which directions are fitted lie along these better than others.
  const std::int64_t step = std::max<std::int64_t>(4, (sample.rows + most_fitted - 1) / most_fitted);
  std::vector<RowId> of_fit, others;
  for (std::int64_t i = 0; i < sample.rows; ++i) (i % step == 0 ? of_fit : others).push_back(RowId{i});
  const Matrix rest = gather_rows(sample, others, run);
  Matrix fitted(std::ssize(of_fit), sample.cols, DType::i8);
  less_128(gather_rows(sample, of_fit, run), fitted, run);
  const std::vector<RowId> some = every(rest.rows(), most_compared);
  const Neighbors nearest = nearest_in(ops, rest, some, neighbors, false, run);
  const std::int64_t most_here = std::min(ReducedRows::most_dims, sample.cols / 2);
  for (std::int64_t dims = least_dims; dims <= most_here; dims *= 2) {
    check_cancelled(run);
    ReducedRows reduced = fit_to(ops, fitted, dims, most, run);
    Matrix rows(rest.rows(), dims, DType::u8);
    reduced.encode(ops, rest, rows.row<std::uint8_t>(0), nullptr, run);
    const double missed = missed_share(nearest, nearest_in(ops, rows, some, candidates, most <= most_seven_bits, run));
    if (missed <= (2 * dims <= most_here ? most_missed : most_missed_at_last)) {
      reduced.stretch = stretch_of(ops, reduced.directions, run);
      return reduced;
    }
  }
  return std::nullopt;
}

}  // namespace gigaknn
