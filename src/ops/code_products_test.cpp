// Scans of codes by every instruction set that this machine has, beside plain loops: sums of table entries, products with codewords, and
// what goes before them.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "ops/cpu/product_kernels.hpp"
#include "ops/cpu/row_kernels.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn::cpu {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<const ProductKernels*> products() {
  std::vector<const ProductKernels*> found = {&product_kernels_generic()};
#if defined(__x86_64__)
  if (row_kernels(Isa::avx2)) found.push_back(&product_kernels_avx2());
  if (row_kernels(Isa::avx512vnni)) found.push_back(&product_kernels_avx512vbmi());
#endif
  return found;
}

std::vector<std::pair<int, const CodeScan*>> scans() {
  std::vector<std::pair<int, const CodeScan*>> found = {{4, &nibble_scan_generic()}};
  for (const Isa isa : {Isa::generic, Isa::avx2, Isa::avx512vnni}) {
    if (row_kernels(isa)) found.push_back({4, &nibble_scan(isa)});
  }
  for (const ProductKernels* const kernels : products()) {
    found.push_back({8, &kernels->of_bytes});
    found.push_back({6, &kernels->of_sixes});
  }
  return found;
}

TEST(CodeProducts, equal_sums_in_plain_order_but_for_rounding) {
  for (const auto& [bits, scan] : scans()) {
    for (const std::int64_t dims : {1, 2, 3, 4, 5, 8, 12, 16, 20}) {
      for (std::int64_t m = 1; m <= 13; ++m) {
        if (m % parts_together(bits) != 0) continue;
        const std::int64_t words = std::int64_t{1} << bits, bytes = m * bits / 8;
        std::vector<float> x, codewords;
        for (std::int64_t i = 0; i < m * dims; ++i) x.push_back(static_cast<float>(random_unit(5, 1, static_cast<std::uint64_t>(i))));
        for (std::int64_t i = 0; i < m * words * dims; ++i) {
          codewords.push_back(static_cast<float>(random_unit(5, 2, static_cast<std::uint64_t>(i))));
        }
        std::vector<std::uint8_t> codes(at(bytes * code_block_rows));
        for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(random_below(256, 5, 3, i));
        double want = 0;
        for (std::int64_t part = 0; part < m; ++part) {
          const int code = code_in_bytes(codes.data() + part * bits / 8 * code_block_rows, code_block_rows, part, bits);
          for (std::int64_t j = 0; j < dims; ++j) {
            want += static_cast<double>(x[at(part * dims + j)]) * static_cast<double>(codewords[at((part * words + code) * dims + j)]);
          }
        }
        EXPECT_NEAR(scan->product(x.data(), codewords.data(), words * dims, m, dims, codes.data()), want, 1e-5 * want)
            << bits << " bits, " << m << " parts of " << dims;
      }
    }
  }
}

// Whole numbers, which no order of sums rounds.
TEST(CodeScans, sums_of_entries_are_those_of_a_plain_loop) {
  for (const auto& [bits, scan] : scans()) {
    const std::int64_t words = std::int64_t{1} << bits;
    for (const std::int64_t m : {1, 2, 3, 4, 5, 6, 8, 12, 20, 256, 257, 258, 260, 1000}) {
      if (m % parts_together(bits) != 0) continue;
      for (const std::int64_t blocks : {1, 2, 3, 4, 5, 9}) {
        const std::int64_t block_bytes = (m * bits / 8 + 3) * code_block_rows, rows = blocks * code_block_rows;
        std::vector<std::uint8_t> codes(at(blocks * block_bytes)), table(at(m * words));
        for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(random_below(256, 6, 1, i));
        for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<std::uint8_t>(random_below(256, 6, 2, i));
        std::vector<float> terms, factors;
        for (std::int64_t i = 0; i < rows; ++i) {
          terms.push_back(static_cast<float>(random_below(1000, 6, 3, static_cast<std::uint64_t>(i))));
          factors.push_back(static_cast<float>(random_below(4, 6, 4, static_cast<std::uint64_t>(i))));
        }
        for (const bool scaled : {false, true}) {
          const ProductTile tile{.codes = codes.data(), .blocks = blocks, .m = m, .block_bytes = block_bytes, .table = table.data(), .terms = terms.data(), .step = 2,
                                 .factors = scaled ? factors.data() : nullptr, .base = 3};
          std::vector<float> want, got(at(rows));
          for (std::int64_t row = 0; row < rows; ++row) {
            const std::int64_t block = row / code_block_rows, r = row % code_block_rows,
                               lane = block * code_block_rows + r / 2 + r % 2 * (code_block_rows / 2);
            float sum = 0;
            for (std::int64_t part = 0; part < m; ++part) {
              sum += table[at(part * words + code_in_bytes(codes.data() + block * block_bytes + part * bits / 8 * code_block_rows + r,
                                                           code_block_rows, part, bits))];
            }
            want.push_back(terms[at(lane)] + (scaled ? factors[at(lane)] * (3 + 2 * sum) : 2 * sum));
          }
          scan->estimates(tile, got.data());
          ASSERT_EQ(got, want) << bits << " bits, " << m << " parts, " << blocks << " blocks";
          const float limit = want[at(rows / 2)];
          std::vector<std::uint32_t> masks(at(blocks));
          scan->survivors(tile, limit, masks.data());
          for (std::int64_t row = 0; row < rows; ++row) {
            ASSERT_EQ(masks[at(row / code_block_rows)] >> (row % code_block_rows) & 1, want[at(row)] <= limit ? 1u : 0u)
                << bits << " bits, " << m << " parts, row " << row;
          }
        }
      }
    }
  }
}

TEST(CodeScans, tables_are_made_as_a_plain_loop_makes_them) {
  const ProductKernels& plain = product_kernels_generic();
  for (const ProductKernels* const kernels : products()) {
    for (std::int64_t count = 16; count <= 256; count += 16) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(random_unit(7, 1, static_cast<std::uint64_t>(i)) - 0.5));
      float largest = 0, least = 0, want_largest = 0, want_least = 0;
      kernels->range(values.data(), count, &largest, &least);
      plain.range(values.data(), count, &want_largest, &want_least);
      EXPECT_EQ(largest, want_largest) << kernels->name << ", " << count;
      EXPECT_EQ(least, want_least) << kernels->name << ", " << count;
      // Entries beyond 255 steps are 255.
      std::vector<std::uint8_t> entries(at(count)), want(at(count));
      kernels->quantize(values.data(), count, largest, 300, entries.data());
      plain.quantize(values.data(), count, largest, 300, want.data());
      EXPECT_EQ(entries, want) << kernels->name << ", " << count;
    }
    for (std::int64_t count = 1; count <= 100; ++count) {
      std::vector<float> values;
      for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(random_below(5, 7, 2, static_cast<std::uint64_t>(i))));
      values[at(count / 2)] = std::nanf("");
      std::vector<std::uint32_t> masks(at((count + 31) / 32)), want = masks;
      kernels->up_to(values.data(), count, 2, masks.data());
      plain.up_to(values.data(), count, 2, want.data());
      EXPECT_EQ(masks, want) << kernels->name << ", " << count;
    }
  }
}

}  // namespace
}  // namespace gigaknn::cpu
