#include "learn/opq.hpp"

#include <algorithm>
#include <limits>
#include <memory>

#include "core/random.hpp"
#include "core/require.hpp"
#include "core/sample.hpp"
#include "learn/orthonormal.hpp"
#include "learn/pca.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t words = most_codewords;
constexpr std::int64_t sample_limit = 1 << 15;  // 128 rows a codeword
constexpr int rounds = 25;
constexpr int codeword_rounds = 3;  // that come first, with a start as it is
constexpr int start_rounds = 10;    // of orthogonal iteration: a start need not be exact
constexpr std::uint64_t word_stream = 104, empty_stream = 105;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Direction i of most variance goes to a part to and fro: 0, 1, ..., m - 1, m - 1, ..., 0, 0, ...
std::vector<double> start_of(MatrixRef sample, std::int64_t dims, std::int64_t m, const RunOptions& run) {
  const Matrix directions = leading_directions(sample, dims, run, start_rounds);
  const std::int64_t part_dims = dims / m;
  std::vector<double> rotation(at(dims * sample.cols));
  for (std::int64_t i = 0; i < dims; ++i) {
    const std::int64_t turn = i / m, part = turn % 2 == 0 ? i % m : m - 1 - i % m;
    std::copy_n(directions.row<float>(i), sample.cols, rotation.data() + (part * part_dims + turn) * sample.cols);
  }
  return rotation;
}

class OpqFit {
 public:
  OpqFit(const Ops& ops, MatrixRef sample, std::vector<double> start, std::int64_t dims, const OpqParams& params, const RunOptions& run)
      : ops_(ops), sample_(sample), m_(params.m), dims_(dims), part_dims_(dims / params.m), seed_(params.seed), run_(run),
        rotation_(std::move(start)), transform_{Matrix(dims, sample.cols, DType::f32), {}}, rotated_(sample.rows, dims, DType::f32),
        codewords_(params.m * words, part_dims_, DType::f32), codes_(at(sample.rows * params.m)) {
    rotate();
    for (std::int64_t part = 0; part < m_; ++part) {
      const auto first = sample_rows(sample.rows, words, mix_bits(seed_ + word_stream + static_cast<std::uint64_t>(part)));
      for (std::int64_t word = 0; word < words; ++word) set_word(part, word, first[at(word)]);
    }
  }

  // One of codewords, and of the rotation too.
  void round(int number, bool of_rotation) {
    held_ = 0;
    ops_.encode_products(rotated_, codewords_, codes_.data(), run_);
    std::vector<double> agreeing(at(of_rotation ? dims_ * sample_.cols : 0));
    for (std::int64_t part = 0; part < m_; ++part) move_words(part, number, agreeing);
    if (!of_rotation) return;
    rotation_ = nearest_orthonormal(std::move(agreeing), dims_, sample_.cols, turns_, run_);
    rotate();
  }
  LinearTransform& transform() { return transform_; }
  // What codewords hold of the squares of the sample, as the last round moved them.
  double held() const { return held_; }

 private:
  void rotate() {
    std::transform(rotation_.begin(), rotation_.end(), transform_.matrix.row<float>(0), [](double x) { return static_cast<float>(x); });
    rotated_ = transform_.apply(ops_, sample_, run_);
  }
  void set_word(std::int64_t part, std::int64_t word, std::int64_t row) {
    std::copy_n(rotated_.row<float>(row) + part * part_dims_, part_dims_, codewords_.row<float>(part * words + word));
  }

  // To the means of the rows that are nearest, and what these say of the rotation, unless `agreeing` is empty.
  void move_words(std::int64_t part, int number, std::vector<double>& agreeing) {
    constexpr double most = std::numeric_limits<float>::max();
    const std::int64_t n = sample_.rows, d = sample_.cols;
    std::vector<RowId> labels(at(n));
    for (std::int64_t i = 0; i < n; ++i) labels[at(i)] = RowId{codes_[at(i * m_ + part)]};
    std::vector<double> sums(at(words * d));
    std::vector<std::int64_t> counts(at(words));
    ops_.sum_by_label(sample_, nullptr, labels.data(), words, sums.data(), counts.data(), run_);
    for (std::int64_t word = 0; word < words; ++word) {
      if (counts[at(word)] == 0) {
        // It begins anew, where rows are.
        const auto counter = static_cast<std::uint64_t>((number * m_ + part) * words + word);
        set_word(part, word, static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(n), seed_, empty_stream, counter)));
        continue;
      }
      const double* const sum = sums.data() + word * d;
      for (std::int64_t k = 0; k < part_dims_; ++k) {
        const double* const direction = rotation_.data() + (part * part_dims_ + k) * d;
        double sum_along = 0;
        for (std::int64_t j = 0; j < d; ++j) sum_along += direction[j] * sum[j];
        const double value = sum_along / static_cast<double>(counts[at(word)]);
        codewords_.row<float>(part * words + word)[k] = static_cast<float>(std::clamp(value, -most, most));
        held_ += value * sum_along;
        if (agreeing.empty()) continue;
        double* const to = agreeing.data() + (part * part_dims_ + k) * d;
        for (std::int64_t j = 0; j < d; ++j) to[j] += value * sum[j];
      }
    }
  }

  const Ops& ops_;
  const MatrixRef sample_;
  const std::int64_t m_, dims_, part_dims_;
  const std::uint64_t seed_;
  const RunOptions& run_;
  std::vector<double> rotation_;  // [dims, d]
  std::vector<double> turns_;
  LinearTransform transform_;     // the same
  double held_ = 0;
  Matrix rotated_;                // [s, dims]
  Matrix codewords_;              // [m * 256, part_dims]
  std::vector<std::uint8_t> codes_;
};

}  // namespace

void require_opq(MatrixRef rows, const OpqParams& params) {
  const std::int64_t dims = params.dims > 0 ? params.dims : rows.cols;
  require(dims <= rows.cols, Fault::invalid_argument, "a transform of ", rows.cols, " dimensions keeps 1 to ", rows.cols, ", got ", dims);
  require(params.m >= 1 && params.m <= 256 && dims % params.m == 0, Fault::invalid_argument,
          "OPQ has 1 to 256 parts of as many dimensions each, got ", params.m, " parts of ", dims, " dimensions: OPQ", params.m,
          "_<dims> says how many are left");
  require(rows.rows >= words, Fault::invalid_argument, "OPQ needs at least ", words, " rows to be fitted to, got ", rows.rows);
}

LinearTransform fit_opq(const Ops& ops, MatrixRef rows, const OpqParams& params, const RunOptions& run) {
  require_opq(rows, params);
  const CentredSample sample = centred_sample(rows, sample_limit, params.seed, run);
  const std::int64_t dims = params.dims > 0 ? params.dims : rows.cols;
  const auto begun = [&](std::vector<double> start) {
    const Progress::Quiet quiet(run.progress);
    auto fit = std::make_unique<OpqFit>(ops, sample.rows, std::move(start), dims, params, run);
    for (int round = 0; round < codeword_rounds; ++round) fit->round(round, false);
    return fit;
  };
  auto fit = begun(start_of(sample.rows, dims, params.m, run));
  if (dims == rows.cols) {
    // Dimensions as they stand may have the better parts already: those of SIFT do.
    std::vector<double> as_they_stand(at(dims * dims));
    for (std::int64_t i = 0; i < dims; ++i) as_they_stand[at(i * dims + i)] = 1;
    auto other = begun(std::move(as_they_stand));
    if (other->held() > fit->held()) fit = std::move(other);
  }
  for (int round = 0; round < rounds; ++round) {
    if (run.progress) run.progress->report("rotation", round, rounds);
    const Progress::Quiet quiet(run.progress);
    fit->round(codeword_rounds + round, true);
  }
  return std::move(fit->transform());
}

std::size_t opq_bytes_needed(const Ops& ops, std::int64_t n, std::int64_t d, const OpqParams& params, int threads) {
  const std::int64_t dims = params.dims > 0 ? params.dims : d, sample = std::min(n, sample_limit), m = std::max<std::int64_t>(1, params.m);
  const std::int64_t of_sample = sample * (3 * d + 3 * dims) * 4 + sample * (2 * m + 24);  // drawn, centred, as floats once more; rotated, of two starts, and anew
  const std::int64_t of_words =
      dims * words * 12 + words * d * 8 + threads * 64 * (std::max<std::int64_t>(dims / m, 16) + 1) * 4 + m * (words * 4 + 128);
  return at(of_sample + of_words + dims * d * 56 + dims * dims * 24) + leading_directions_bytes(d, dims) +
         ops.copies_to_sum_bytes(sample, d) + (1u << 16);
}

}  // namespace gigaknn
