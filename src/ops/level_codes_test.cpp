// Levels bound products with codewords: at any scale, with steps of unlike size, for every kernel that this machine has.
#include "ops/cpu/level_codes.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.hpp"
#include "ops/cpu/row_kernels.hpp"
#include "ops/neighbors_out.hpp"
#include "ops/ops.hpp"

namespace gigaknn::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

struct Machine {
  const CodeKernels* kernels;
  ReadLevels read;
};
std::vector<Machine> machines() {
  std::vector<Machine> found;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) found.push_back({code_kernels_avx2().bytes, level_reader(Isa::avx2)});
  if (__builtin_cpu_supports("avx2")) found.push_back({code_kernels_avx2().products, level_reader(Isa::avx2)});
  if (row_kernels(Isa::avx512vnni)) found.push_back({code_kernels_avx512vnni().bytes, level_reader(Isa::avx512vnni)});
#endif
  return found;
}

// Codes drawn; codewords of one size but for some dimensions, and one far out.
struct Problem {
  std::int64_t d, n, m;
  int bits;
  Matrix codewords, centroids;
  std::vector<std::int64_t> begins;
  std::vector<std::uint8_t> parts, blocks;
  std::vector<float> query;

  float drawn(std::uint64_t stream, std::int64_t i) const {
    return 2 * static_cast<float>(random_below(1 << 20, static_cast<std::uint64_t>(d), stream, static_cast<std::uint64_t>(i))) / (1 << 20) -
           1;
  }
  Problem(std::int64_t d_, std::int64_t n_, int bits_, float scale)
      : d(d_), n(n_), m((d + parts_together(bits_) - 1) / parts_together(bits_) * parts_together(bits_)), bits(bits_), codewords(m << bits, 1, DType::f32), centroids(1, d, DType::f32),
        begins{0, n}, parts(at(n * m)), query(at(d)) {
    for (std::int64_t i = 0; i < codewords.rows(); ++i) {
      const std::int64_t dim = i >> bits;
      *codewords.row<float>(i) = dim < d ? scale * drawn(1, i) * (dim % 7 == 3 ? 50.0f : 1.0f) * (i == 5 ? 40.0f : 1.0f) : 0.0f;
    }
    for (std::int64_t j = 0; j < d; ++j) {
      centroids.row<float>(0)[j] = scale * 3 * drawn(2, j);
      query[at(j)] = scale * (3 * drawn(2, j) + drawn(3, j) * (j % 5 == 0 ? 4.0f : 0.3f));
    }
    for (std::int64_t i = 0; i < n * m; ++i) {
      parts[at(i)] = static_cast<std::uint8_t>(random_below(std::uint64_t{1} << bits, 9, 4, static_cast<std::uint64_t>(i)));
    }
    std::vector<std::uint8_t> packed(at(n * m));
    pack_parts(parts, bits, packed.data());
    packed.resize(at(n * m * bits / 8));
    blocks = in_blocks(packed, m * bits / 8, begins);
  }
  ProductCodes codes() const { return {d, m, codewords, centroids, blocks, {{}, begins, {}}, bits}; }
};

TEST(LevelCodes, are_never_farther_off_than_they_say) {
  for (const Machine& machine : machines()) {
    for (const int bits : {8, 6, 4}) {
      for (const std::int64_t d : {1, 3, 40, 65, 300}) {
        for (const float scale : {1e-19f, 1e-16f, 1e-13f, 1e-10f, 1e-7f, 1.0f, 1e6f, 1e12f, 1e16f}) {
          const Problem problem(d, 61, bits, scale);  // no more than a chunk has, however small tiles are
          const ProductCodes codes = problem.codes();
          ASSERT_TRUE(LevelCodes::suits(codes.shape(), machine.kernels));
          const LevelCodes levels(codes, *machine.kernels, machine.read);
          LevelCodes::Reach reach;
          for (std::int64_t row = 0; row < problem.n; ++row) reach.add(levels.row(codes, 0, row / code_block_rows, row % code_block_rows));
          std::vector<std::int8_t> bytes(at(levels.stride()));
          const float* const centroid = problem.centroids.row<float>(0);
          const LevelCodes::Asked asked = levels.ask(problem.query.data(), centroid, reach, bytes.data());
          std::vector<std::uint8_t> read;
          std::vector<std::int32_t> sums;
          const std::int64_t code_blocks = ProductCodes::blocks_of(problem.n), block_bytes = codes.code_bytes() * code_block_rows;
          levels.read_levels(problem.blocks.data(), code_blocks, block_bytes, read);
          levels.multiply(read, problem.n, bytes.data(), 1, sums);
          const std::vector<float> nothing(at(problem.n), 0.0f);
          std::vector<float> estimates(at(problem.n));
          levels.estimate(sums, 1, 0, asked, 1, nothing, estimates.data());
          double left = 0;
          for (std::int64_t j = 0; j < d; ++j) {
            left += std::pow(static_cast<double>(problem.query[at(j)]) - static_cast<double>(centroid[j]), 2);
          }
          EXPECT_NEAR(asked.square / left, 1, 1e-4) << scale;
          const double rounding = 1e-4 * 0x1p-8 * std::sqrt(left) * reach.words + 0x1p-120;
          for (std::int64_t row = 0; row < problem.n; ++row) {
            double exact = 0;
            for (std::int64_t j = 0; j < d; ++j) {
              exact += (static_cast<double>(problem.query[at(j)]) - static_cast<double>(centroid[j])) *
                       static_cast<double>(*codes.codeword(j, problem.parts[at(row * problem.m + j)]));
            }
            ASSERT_LE(std::abs(static_cast<double>(estimates[at(row)]) - exact), asked.slack + rounding)
                << bits << ' ' << d << ' ' << scale << ' ' << row;
            const std::uint8_t* const first =
                problem.blocks.data() + ProductCodes::place(row / code_block_rows, codes.code_bytes(), 0, row % code_block_rows);
            ASSERT_NEAR(static_cast<double>(levels.product(problem.query.data(), centroid, first)), exact, rounding);
          }
          // And they say something: where float32 has the numbers, a small share of what products may be.
          if (d >= 40 && scale > 1e-14f) {
            EXPECT_LT(asked.slack, 0.3 * std::sqrt(left) * reach.words) << bits << ' ' << d << ' ' << scale;
          }
        }
      }
    }
  }
}

// One list of two rows whose products lie nearer to each other than what squares of such small numbers lose.
TEST(LevelCodes, small_numbers_find_the_nearest) {
  for (const int power : {-60, -50, -40, -30, 0, 40}) {
    const float s = std::ldexp(1.0f, power);
    const std::int64_t m = 4;
    Matrix codewords(m * 256, 1, DType::f32), centroids(1, m, DType::f32), query(1, m, DType::f32);
    for (std::int64_t i = 0; i < m * 256; ++i) *codewords.row<float>(i) = s * static_cast<float>(std::max<std::int64_t>(i % 256, 1) - 128);
    for (std::int64_t j = 0; j < m; ++j) {
      centroids.row<float>(0)[j] = 0;
      query.row<float>(0)[j] = j == 0 ? 127 * s : 0.4999f * s;
    }
    const std::vector<std::uint8_t> rows = {128, 255, 255, 255, 2, 146, 128, 128};
    const std::vector<std::int64_t> begins = {0, 2};
    const std::vector<std::uint8_t> blocks = in_blocks(rows, m, begins);
    const ProductCodes codes{m, m, codewords, centroids, blocks, {{}, begins, {}}, 8};
    for (const char* device : {"cpu", "cpu:generic"}) {
      const Ops& ops = ops_of(device);
      const auto prepared = ops.prepare_codes(codes, Metric::l2, {.k = 1, .queries = 1, .batch = 1}, {});
      const RowId probes[] = {RowId{0}};
      Neighbors found(1, 1);
      ops.nearest_in_codes(*prepared, query, probes, 1, 1, NeighborsOut(found), {});
      EXPECT_EQ(value_of(found.ids[0]), 0) << device << ' ' << power;
    }
  }
}

// Blocks by twos, groups that end within them or are these, parts that are not there, codes and levels that end where memory does.
TEST(LevelReader, equals_a_lookup_at_a_time) {
  constexpr std::int64_t rows = code_block_rows, guard = 64;
  constexpr std::uint8_t zero = 77, untouched = 0xAB;
  std::vector<ReadLevels> readers;
  for (const Machine& machine : machines()) readers.push_back(machine.read);
  for (const ReadLevels read : readers) {
    for (const int bits : {8, 6, 4}) {
      for (std::int64_t m = parts_together(bits); m <= 12; m += parts_together(bits)) {
        const std::int64_t steps = (m + 3) / 4, bytes = m * bits / 8 * rows, behind = m % 3 * rows;
        std::vector<std::uint8_t> levels(at(m << bits));
        for (std::size_t i = 0; i < levels.size(); ++i) levels[i] = static_cast<std::uint8_t>(random_below(256, 1, 5, i));
        for (const std::int64_t blocks : {1, 2, 3, 4, 5}) {
          const std::int64_t block_bytes = bytes + behind;
          std::vector<std::uint8_t> codes(at((blocks - 1) * block_bytes + bytes));
          for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(random_below(256, 2, 6, i));
          for (const std::int64_t group_rows : {16, 24, 32, 64}) {
            const std::int64_t groups = (blocks * rows + group_rows - 1) / group_rows, size = groups * steps * group_rows * 4;
            std::vector<std::uint8_t> out(at(size + guard), untouched);
            read({codes.data(), blocks, block_bytes, m, bits, levels.data(), zero, group_rows, steps}, out.data());
            for (std::int64_t row = 0; row < blocks * rows; ++row) {
              for (std::int64_t part = 0; part < 4 * steps; ++part) {
                std::uint8_t expected = zero;
                if (part < m) {
                  const std::uint8_t* const byte = codes.data() + row / rows * block_bytes + part * bits / 8 * rows + row % rows;
                  const int shift = static_cast<int>(part * bits % 8), next = shift + bits > 8 ? byte[rows] : 0;
                  expected = levels[at(part << bits) + at((byte[0] | next << 8) >> shift & ((1 << bits) - 1))];
                }
                ASSERT_EQ(out[at(((row / group_rows * steps + part / 4) * group_rows + row % group_rows) * 4 + part % 4)], expected)
                    << bits << " bits, " << m << " parts, " << blocks << " blocks, groups of " << group_rows << ", row " << row << ", part "
                    << part;
              }
            }
            for (std::int64_t i = 0; i < guard; ++i) ASSERT_EQ(out[at(size + i)], untouched);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace gigaknn::cpu
