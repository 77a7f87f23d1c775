#include "learn/product_quantizer.hpp"

#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/elements.hpp"
#include "core/known_dims.hpp"
#include "core/random.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "core/threads.hpp"
#include "learn/scalar_codewords.hpp"

namespace gigaknn {
namespace {

constexpr std::uint64_t start_stream = 101, empty_stream = 102;
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t rows_at_once = 40;
#else
constexpr std::int64_t rows_at_once = 1 << 14;  // that are made floats of
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Some parts, one after the other: the rows of a codeword are then read from a cache, and what stands beside a part in memory is copied
// while it is at hand.
class PartRows {
 public:
  PartRows(const Matrix& rows, std::int64_t part_dims, std::int64_t m)
      : rows_(rows), m_(m), at_once_(std::clamp<std::int64_t>(cache_line_floats / part_dims, 1, m)), copied_(at_once_ * rows.rows(), part_dims, DType::f32), labels_(at(at_once_ * rows.rows())) {}
  static std::int64_t bytes_of_row(std::int64_t part_dims) {
    return std::max(part_dims, cache_line_floats) * 4 + std::max<std::int64_t>(1, cache_line_floats / part_dims) * 8;
  }

  std::int64_t at_once() const { return at_once_; }
  /// Of parts [first, first + at_once()), and the codewords [n, m] they have.
  void take(std::int64_t first, const std::vector<std::uint8_t>& codes, const RunOptions& run) {
    const std::int64_t n = rows_.rows();
    parallel_for(run, n, 4096, [&](std::int64_t begin, std::int64_t end, int) {
      // Few rows at a time: a line of each, and of its codes, stays in L1 for all parts.
      for (std::int64_t some = begin; some < end; some += 32) take(first, some, std::min(end, some + 32), codes);
    });
  }
  MatrixRef rows(std::int64_t i) const { return copied_.ref().slice(i * rows_.rows(), (i + 1) * rows_.rows()); }
  const RowId* labels(std::int64_t i) const { return labels_.data() + i * rows_.rows(); }

 private:
  static constexpr std::int64_t cache_line_floats = 16;

  void take(std::int64_t first, std::int64_t begin, std::int64_t end, const std::vector<std::uint8_t>& codes) {
    for (std::int64_t part = first; part < std::min(m_, first + at_once_); ++part) {
      const std::int64_t to = (part - first) * rows_.rows();
      with_known_dims(copied_.cols(), [&](auto dims) {
        for (std::int64_t i = begin; i < end; ++i) {
          std::copy_n(rows_.row<float>(i) + part * dims, std::int64_t{dims}, copied_.row<float>(to + i));
        }
      });
      for (std::int64_t i = begin; i < end; ++i) labels_[at(to + i)] = RowId{codes[at(i * m_ + part)]};
    }
  }

  const Matrix& rows_;
  std::int64_t m_, at_once_;
  Matrix copied_;
  std::vector<RowId> labels_;
};

void set_word(ProductQuantizer& quantizer, std::int64_t part, std::int64_t word, const Matrix& residuals, std::int64_t row) {
  const std::int64_t dims = quantizer.part_dims();
  std::copy_n(residuals.row<float>(row) + part * dims, dims, quantizer.codewords.row<float>(part * quantizer.words() + word));
}

// Of one dimension a part.
void fit_each_dim(const Matrix& residuals, int iterations, ProductQuantizer& quantizer, const RunOptions& run) {
  std::atomic<std::int64_t> done = 0;
  parallel_for(run, quantizer.m, 1, [&](std::int64_t part, std::int64_t, int) {
    std::vector<float> values(at(residuals.rows()));
    for (std::int64_t i = 0; i < residuals.rows(); ++i) values[at(i)] = residuals.row<float>(i)[part];
    const std::vector<float> words = fit_scalar_codewords(values, quantizer.words(), iterations);
    for (std::int64_t word = 0; word < quantizer.words(); ++word) {
      *quantizer.codewords.row<float>(part * quantizer.words() + word) = words[at(word)];
    }
    if (run.progress) run.progress->report("codewords", ++done, quantizer.m);
  });
}

}  // namespace

Matrix residuals_of(MatrixRef rows, std::span<const std::int64_t> which, MatrixRef centroids, const RowId* labels, std::int64_t padded,
                    const RunOptions& run) {
  Matrix residuals(std::ssize(which), padded, DType::f32);
  parallel_for(run, residuals.rows(), 256, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = which[at(i)];
      const float* const centroid = centroids.row<float>(value_of(labels[row]));
      float* const to = residuals.row<float>(i);
      row_as_floats(rows, row, to);
      for (std::int64_t j = 0; j < rows.cols; ++j) to[j] -= centroid[j];
      std::fill(to + rows.cols, to + padded, 0.0f);
    }
  });
  check_cancelled(run);
  return residuals;
}

ProductQuantizer grid_quantizer(std::int64_t d, int bits) {
  require_grid_bits(bits);
  return {d, grid_shape(d, bits).m, grid_codewords(bits), 8, bits};
}

ProductQuantizer fit_product_quantizer(const Ops& ops, MatrixRef rows, MatrixRef centroids, const RowId* labels,
                                       const ProductQuantizerParams& params, const RunOptions& run) {
  require(is_part_bits(params.bits) && params.m % parts_together(params.bits) == 0, Fault::invalid_argument,
          "product codes have 8 bits a part, 6 of a multiple of 4 parts, or 4 of an even number of parts, got ", params.bits, " of ",
          params.m);
  const std::int64_t most = parts_of_dims(rows.cols, params.bits);
  require(params.m >= 1 && params.m <= most, Fault::invalid_argument, "product codes have 1 to ", most, " parts, got ", params.m);
  const std::int64_t words = std::int64_t{1} << params.bits;
  // Of one number fewer do.
  require(rows.rows >= words || part_dims_of(rows.cols, params.m) == 1, Fault::invalid_argument, "product codes need at least ", words,
          " rows to be fitted to, got ", rows.rows);
  const std::int64_t part_dims = part_dims_of(rows.cols, params.m), padded = part_dims * params.m;
  const std::vector<std::int64_t> sample = sample_rows(rows.rows, quantizer_sample_rows, params.seed);
  const Matrix residuals = residuals_of(rows, sample, centroids, labels, padded, run);
  const std::int64_t n = residuals.rows(), m = params.m;
  ProductQuantizer quantizer{rows.cols, m, Matrix(m * words, part_dims, DType::f32), params.bits};
  if (part_dims == 1) {
    fit_each_dim(residuals, params.iterations, quantizer, run);
    return quantizer;
  }
  for (std::int64_t part = 0; part < m; ++part) {
    const std::vector<std::int64_t> first = sample_rows(n, words, mix_bits(params.seed + start_stream + static_cast<std::uint64_t>(part)));
    for (std::int64_t word = 0; word < words; ++word) set_word(quantizer, part, word, residuals, first[at(word)]);
  }
  // A round that only hands codes back to where they were is the last.
  std::vector<std::uint8_t> codes(at(n * m)), before;
  PartRows parts(residuals, part_dims, m);
  std::vector<double> sums(at(words * part_dims));
  std::vector<std::int64_t> counts(at(words));
  for (int round = 0; round < params.iterations; ++round) {
    ops.encode_products(residuals, quantizer.codewords, codes.data(), run);
    if (codes == before) break;
    before = codes;
    for (std::int64_t part = 0; part < m; ++part) {
      const std::int64_t copied = part % parts.at_once();
      if (copied == 0) parts.take(part, codes, run);
      ops.sum_by_label(parts.rows(copied), nullptr, parts.labels(copied), words, sums.data(), counts.data(), run);
      for (std::int64_t word = 0; word < words; ++word) {
        if (counts[at(word)] == 0) {
          // It begins anew, where rows are.
          const auto drawn = static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(n), params.seed, empty_stream,
                                                                    static_cast<std::uint64_t>((round * m + part) * words + word)));
          set_word(quantizer, part, word, residuals, drawn);
          continue;
        }
        for (std::int64_t j = 0; j < part_dims; ++j) {
          quantizer.codewords.row<float>(part * words + word)[j] =
              static_cast<float>(sums[at(word * part_dims + j)] / static_cast<double>(counts[at(word)]));
        }
      }
    }
    if (run.progress) run.progress->report("codewords", round + 1, params.iterations);
  }
  return quantizer;
}

std::vector<std::uint8_t> encode_rows(const Ops& ops, const ProductQuantizer& quantizer, MatrixRef rows, MatrixRef centroids,
                                      const RowId* labels, const RunOptions& run) {
  std::vector<std::uint8_t> codes(at(rows.rows * quantizer.code_bytes())), parts;
  std::vector<std::int64_t> which;
  for (std::int64_t begin = 0; begin < rows.rows; begin += rows_at_once) {
    which.resize(at(std::min(rows_at_once, rows.rows - begin)));
    std::iota(which.begin(), which.end(), begin);
    const Matrix residuals =
        residuals_of(rows, which, centroids, labels, quantizer.scaled() ? quantizer.d : quantizer.m * quantizer.part_dims(), run);
    std::uint8_t* const to = codes.data() + begin * quantizer.code_bytes();
    if (quantizer.scaled()) {
      encode_scaled(residuals, quantizer.grid_bits, to, run);
    } else if (quantizer.bits == 8) {
      ops.encode_products(residuals, quantizer.codewords, to, run);
    } else {
      parts.resize(at(residuals.rows() * quantizer.m));
      ops.encode_products(residuals, quantizer.codewords, parts.data(), run);
      parallel_for(run, residuals.rows(), 1024, [&](std::int64_t first, std::int64_t end, int) {
        pack_parts(std::span(parts).subspan(at(first * quantizer.m), at((end - first) * quantizer.m)), quantizer.bits,
                   to + first * quantizer.code_bytes());
      });
    }
    if (run.progress) run.progress->report("encode", begin + residuals.rows(), rows.rows);
  }
  return codes;
}

std::size_t quantizer_bytes_needed(const Ops& ops, std::int64_t n, const CodeShape& shape, int threads) {
  const std::int64_t m = shape.m, words = shape.words();
  const std::int64_t padded = shape.padded(), sample = shape.scaled ? 0 : std::min(n, quantizer_sample_rows);
  const std::int64_t codewords = (shape.scaled ? 1 : m) * shape.part_dims * words * 4;
  const std::int64_t a_thread = 64 * (std::max<std::int64_t>(shape.part_dims, 16) + 1) * 4;  // rows whose nearest codewords are sought
  const std::int64_t summing = sample * 4 + words * (shape.part_dims * 8 + 48);  // rows by codeword, sums
  const std::int64_t fitting = sample * (padded * 4 + 2 * m + 8 + PartRows::bytes_of_row(shape.part_dims)) + summing +
      (shape.part_dims == 1 ? threads * (sample * 4 + static_cast<std::int64_t>(scalar_codewords_bytes(words))) : 0);
  const std::int64_t encoding = std::min(n, rows_at_once) * (padded * 4 + 8 + m) + n * shape.code_bytes();
  const std::int64_t compared = shape.scaled ? 0 : m * (words * 5 + 128);  // beside codewords once more
  return at(2 * codewords + compared + threads * a_thread + std::max(fitting, encoding)) +
         ops.copies_to_sum_bytes(sample, shape.part_dims) + (1u << 16);
}

}  // namespace gigaknn
