// Products of a row with the codewords of a code, by every instruction set that this machine has, for parts of few dimensions and of many.
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

std::vector<std::pair<int, const CodeScan*>> scans() {
  std::vector<std::pair<int, const CodeScan*>> found = {{8, &product_kernels_generic().of_bytes}, {6, &product_kernels_generic().of_sixes}, {4, &nibble_scan_generic()}};
  for (const Isa isa : {Isa::avx2, Isa::avx512vnni}) {
    if (row_kernels(isa)) found.push_back({4, &nibble_scan(isa)});
  }
#if defined(__x86_64__)
  if (row_kernels(Isa::avx512vnni)) {
    found.push_back({8, &product_kernels_avx512vbmi().of_bytes});
    found.push_back({6, &product_kernels_avx512vbmi().of_sixes});
  }
#endif
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
        for (std::int64_t i = 0; i < m * words * dims; ++i) codewords.push_back(static_cast<float>(random_unit(5, 2, static_cast<std::uint64_t>(i))));
        std::vector<std::uint8_t> codes(at(bytes * code_block_rows));
        for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::uint8_t>(random_below(256, 5, 3, i));
        double want = 0;
        for (std::int64_t part = 0; part < m; ++part) {
          const int code = code_in_bytes(codes.data() + part * bits / 8 * code_block_rows, code_block_rows, part, bits);
          for (std::int64_t j = 0; j < dims; ++j) want += static_cast<double>(x[at(part * dims + j)]) * static_cast<double>(codewords[at((part * words + code) * dims + j)]);
        }
        EXPECT_NEAR(scan->product(x.data(), codewords.data(), words * dims, m, dims, codes.data()), want, 1e-5 * want) << bits << " bits, " << m << " parts of " << dims;
      }
    }
  }
}

}  // namespace
}  // namespace gigaknn::cpu
