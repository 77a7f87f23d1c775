// Codewords: means of what is nearest to them, the same everywhere; and codes, the nearest of them.
#include "learn/product_quantizer.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/expect_error.hpp"
#include "ops/reference.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn {
namespace {

using test::expect_error;
using test::Kind;
using test::StridedRows;

struct Problem {
  StridedRows rows, unused;
  Matrix centroids;
  std::vector<RowId> labels;

  explicit Problem(std::int64_t n, std::int64_t d, DType dtype = DType::f32, Kind kind = Kind::decaying)
      : rows(n, d, dtype, 1), unused(1, d, dtype, 0), centroids(2, d, DType::f32), labels(static_cast<std::size_t>(n)) {
    test::VectorMaker(kind, n, d, dtype, Metric::l2, 5).fill(rows, unused);
    for (std::int64_t j = 0; j < d; ++j) {
      centroids.row<float>(0)[j] = 0.25f;
      centroids.row<float>(1)[j] = -0.5f;
    }
    for (std::int64_t i = 0; i < n; ++i) labels[static_cast<std::size_t>(i)] = RowId{i % 2};
  }

  static int code_of(const ProductQuantizer& quantizer, const std::vector<std::uint8_t>& codes, std::int64_t row, std::int64_t part) {
    if (quantizer.bits == 8) return codes[static_cast<std::size_t>(row * quantizer.m + part)];
    return codes[static_cast<std::size_t>(row * quantizer.m / 2 + part / 2)] >> (part % 2 * 4) & 15;
  }
  double distortion(const ProductQuantizer& quantizer, const std::vector<std::uint8_t>& codes) const {
    double sum = 0;
    for (std::int64_t i = 0; i < rows.ref().rows; ++i) {
      for (std::int64_t j = 0; j < quantizer.d; ++j) {
        const std::int64_t part = j / quantizer.part_dims();
        const float word =
            quantizer.codewords.row<float>(part * quantizer.words() + code_of(quantizer, codes, i, part))[j % quantizer.part_dims()];
        const float centroid = centroids.row<float>(i % 2)[j];
        const double difference =
            static_cast<double>(reference::Rows(rows.ref().slice(i, i + 1), Metric::l2).row(0)[j]) - static_cast<double>(centroid + word);
        sum += difference * difference;
      }
    }
    return sum;
  }
};

TEST(ProductQuantizer, more_rounds_and_more_parts_lose_less) {
  const Problem problem(900, 12);
  const Ops& ops = ops_of("cpu");
  double before = INFINITY;
  for (const int iterations : {0, 1, 3, 12}) {
    const auto quantizer =
        fit_product_quantizer(ops, problem.rows, problem.centroids, problem.labels.data(), {.m = 3, .iterations = iterations}, {});
    const double lost =
        problem.distortion(quantizer, encode_rows(ops, quantizer, problem.rows, problem.centroids, problem.labels.data(), {}));
    EXPECT_LE(lost, before) << iterations;
    before = lost;
  }
  for (const std::int64_t m : {5, 12}) {  // parts of three dimensions, the last padded; and of one
    const auto quantizer =
        fit_product_quantizer(ops, problem.rows, problem.centroids, problem.labels.data(), {.m = m, .iterations = 6}, {});
    const double lost =
        problem.distortion(quantizer, encode_rows(ops, quantizer, problem.rows, problem.centroids, problem.labels.data(), {}));
    EXPECT_LT(lost, before) << m;
    before = lost;
  }
}

TEST(ProductQuantizer, four_bits_lose_more_than_eight_and_less_than_none) {
  const Problem problem(900, 12);
  const Ops& ops = ops_of("cpu");
  std::vector<double> lost;
  for (const auto& [m, bits] : {std::pair{6, 8}, {6, 4}, {2, 4}}) {
    const auto quantizer =
        fit_product_quantizer(ops, problem.rows, problem.centroids, problem.labels.data(), {.m = m, .bits = bits, .iterations = 6}, {});
    EXPECT_EQ(quantizer.codewords.rows(), m << bits);
    const auto codes = encode_rows(ops, quantizer, problem.rows, problem.centroids, problem.labels.data(), {});
    EXPECT_EQ(std::ssize(codes), 900 * m * bits / 8);
    lost.push_back(problem.distortion(quantizer, codes));
  }
  EXPECT_LT(lost[0], lost[1]);
  EXPECT_LT(lost[1], lost[2]);
  ProductQuantizer nothing{12, 2, Matrix(32, 6, DType::f32), 4};
  for (std::int64_t i = 0; i < 32; ++i) std::fill_n(nothing.codewords.row<float>(i), 6, 0.0f);
  EXPECT_LT(lost[2], problem.distortion(nothing, std::vector<std::uint8_t>(900)) / 2);
}

TEST(ProductQuantizer, codewords_in_the_end_are_means) {
  const Problem problem(700, 6, DType::u8);
  const Ops& ops = ops_of("cpu");
  const auto quantizer =
      fit_product_quantizer(ops, problem.rows, problem.centroids, problem.labels.data(), {.m = 2, .iterations = 300}, {});
  const std::vector<std::uint8_t> codes = encode_rows(ops, quantizer, problem.rows, problem.centroids, problem.labels.data(), {});
  std::vector<std::int64_t> all(700);
  std::iota(all.begin(), all.end(), 0);
  const Matrix residuals = residuals_of(problem.rows, all, problem.centroids, problem.labels.data(), 6, {});
  for (std::int64_t part = 0; part < 2; ++part) {
    for (std::int64_t word = 0; word < quantizer.words(); ++word) {
      double sums[3] = {};
      std::int64_t count = 0;
      for (std::int64_t i = 0; i < 700; ++i) {
        if (codes[static_cast<std::size_t>(i * 2 + part)] != word) continue;
        ++count;
        for (int j = 0; j < 3; ++j) sums[j] += static_cast<double>(residuals.row<float>(i)[part * 3 + j]);
      }
      for (int j = 0; j < 3 && count > 0; ++j) {
        EXPECT_NEAR(quantizer.codewords.row<float>(part * quantizer.words() + word)[j], sums[j] / static_cast<double>(count), 1e-3);
      }
    }
  }
}

TEST(ProductQuantizer, is_the_same_on_every_device_and_for_any_threads) {
  const Problem problem(600, 8);
  for (const int bits : {8, 4}) {
    std::vector<std::string> bytes;
    for (const char* device : {"cpu", "cpu:generic", "emulated"}) {
      for (const int threads : {1, 3}) {
        const Ops& ops = ops_of(device);
        const RunOptions run{.threads = threads};
        const ProductQuantizerParams params{.m = bits == 8 ? 3 : 4, .bits = bits, .iterations = 4, .seed = 3};
        const auto quantizer = fit_product_quantizer(ops, problem.rows, problem.centroids, problem.labels.data(), params, run);
        const auto codes = encode_rows(ops, quantizer, problem.rows, problem.centroids, problem.labels.data(), run);
        bytes.emplace_back(reinterpret_cast<const char*>(quantizer.codewords.ref().data),
                           static_cast<std::size_t>(quantizer.codewords.rows() * quantizer.codewords.ref().stride_bytes));
        bytes.back().append(codes.begin(), codes.end());
        EXPECT_EQ(bytes.back(), bytes.front()) << device << ' ' << threads << ' ' << bits;
      }
    }
  }
}

TEST(ProductQuantizer, says_what_it_cannot_be_fitted_to) {
  const Problem problem(255, 6);
  const auto fit = [&](std::int64_t m) {
    fit_product_quantizer(ops_of("cpu"), problem.rows, problem.centroids, problem.labels.data(), {.m = m}, {});
  };
  expect_error(Fault::invalid_argument, {"at least 256 rows", "got 255"}, [&] { fit(2); });
  expect_error(Fault::invalid_argument, {"1 to 6 parts, got 7"}, [&] { fit(7); });
  expect_error(Fault::invalid_argument, {"1 to 6 parts, got 0"}, [&] { fit(0); });
  const auto fit_bits = [&](std::int64_t m, int bits) {
    fit_product_quantizer(ops_of("cpu"), problem.rows, problem.centroids, problem.labels.data(), {.m = m, .bits = bits}, {});
  };
  expect_error(Fault::invalid_argument, {"4 of an even number of parts", "got 4 of 3"}, [&] { fit_bits(3, 4); });
  expect_error(Fault::invalid_argument, {"got 6 of 2"}, [&] { fit_bits(2, 6); });
}

TEST(ProductQuantizer, rows_that_are_alike_leave_codewords_to_spare) {
  const Problem problem(300, 4, DType::f32, Kind::all_equal);
  const auto quantizer =
      fit_product_quantizer(ops_of("cpu"), problem.rows, problem.centroids, problem.labels.data(), {.m = 2, .iterations = 3}, {});
  const auto codes = encode_rows(ops_of("cpu"), quantizer, problem.rows, problem.centroids, problem.labels.data(), {});
  EXPECT_NEAR(problem.distortion(quantizer, codes), 0, 1e-3);
}

}  // namespace
}  // namespace gigaknn
