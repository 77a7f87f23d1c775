// NN-Descent's steps on the CPU: every instruction set, any number of threads, the same lists.
#include "core/expect_error.hpp"
#include "ops/conformance.hpp"
#include "ops/growth_rules.hpp"

namespace gigaknn {
namespace {

using namespace test;

class Growth : public testing::TestWithParam<Subject> {};
INSTANTIATE_TEST_SUITE_P(Every, Growth, testing::ValuesIn(subjects()), [](const auto& info) {
  return std::string(name_of(info.param.metric)) + "_" + std::string(name_of(info.param.dtype));
});

TEST_P(Growth, steps_equal_the_reference) {
  CaseMaker maker(static_cast<std::uint64_t>(GetParam().metric) * 10 + static_cast<std::uint64_t>(GetParam().dtype) + 900);
  for (std::int64_t index = 0; index < 8; ++index) {
    Case c = maker.make(GetParam(), index, 1e5, true);
    c.n = std::min<std::int64_t>(c.n, 257);
    check_growth(c);
  }
}

TEST_P(Growth, every_kind_of_vectors_grows) {
  for (int kind = 0; kind < kind_count; ++kind) {
    Case c{.metric = GetParam().metric, .dtype = GetParam().dtype, .kind = static_cast<Kind>(kind)};
    c.n = 90;
    c.d = 21;
    c.k = 9;
    c.threads = 3;
    c.seed = static_cast<std::uint64_t>(kind);
    check_growth(c);
  }
}

TEST(Growth, sums_of_the_longest_rows_fit) {
  for (const std::int64_t d : {32767, 32768, 32769}) {
    for (const DType dtype : {DType::u8, DType::i8}) {
      constexpr std::int64_t n = 6;
      Matrix rows(n, d, dtype);
      // All zero bits, all ones, the ends of both ranges, and both ends in turn.
      const std::uint8_t ends[] = {0, 255, 127, 128};
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < d; ++j) rows.row<std::uint8_t>(i)[j] = i < 4 ? ends[i] : ends[(i + j) % 4];
      }
      for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::l1, Metric::inner_product}) {
        for (const Ops* ops : instruction_sets()) {
          GrowthParams params;
          params.k = n - 1;
          const auto graph = ops->grow_graph(rows, metric, params, {});
          std::vector<RowId> ids;
          for (std::int64_t i = 0; i < n * n; ++i) ids.push_back(RowId{i % n});
          graph->fill(0, n, ids.data(), n, 0, {});
          Neighbors lists(n, n - 1);
          graph->read(0, NeighborsOut(lists), {});
          const reference::Rows values(rows, metric);
          for (std::size_t e = 0; e < lists.ids.size(); ++e) {
            const auto row = static_cast<std::int64_t>(e) / (n - 1);
            ASSERT_EQ(lists.distances[e], reference::distance(values, row, values, value_of(lists.ids[e]), metric))
                << ops->isa() << ' ' << name_of(metric) << ' ' << name_of(dtype) << ' ' << d;
          }
        }
      }
    }
  }
}

TEST(GrowthRules, a_hash_of_a_sample_tells_the_sample) {
  for (std::uint32_t i = 0; i < 100000; ++i) {
    const auto row = static_cast<LocalRow>(random_bits(1, 2, i)), by = static_cast<LocalRow>(random_bits(1, 3, i));
    ASSERT_EQ(sample_of_hash(row, hash_sample(row, by, i), i), by);
  }
}

TEST(GrowthRules, places_of_candidates_are_used_evenly) {
  constexpr int places = 16, rows = 16000;
  std::vector<int> used(places);
  for (LocalRow candidate = 0; candidate < rows; ++candidate) ++used[place_of_candidate(7, candidate, 5, places)];
  for (const int count : used) EXPECT_NEAR(count, rows / places, 150);
}

TEST(Growth, refuses_what_it_cannot_grow) {
  const Ops& ops = ops_of("cpu");
  Matrix rows(5, 3, DType::u8);
  std::fill_n(rows.row<std::uint8_t>(0), 15, std::uint8_t{1});
  const auto grow = [&](GrowthParams params) { return ops.grow_graph(rows, Metric::l2, params, {}); };
  expect_error(Fault::invalid_argument, {"k must be >= 1, got 0"}, [&] { grow({.k = 0}); });
  expect_error(Fault::invalid_argument, {"samples must be in [1, 64], got 65"}, [&] { grow({.samples = 65}); });
  expect_error(Fault::invalid_argument, {"candidates must be a power of two in [1, 64], got 12"}, [&] { grow({.candidates = 12}); });
  const auto graph = grow({});
  const RowId bad[] = {RowId{1}, RowId{5}};
  expect_error(Fault::invalid_argument, {"row 5 must be in [-1, 4]"}, [&] { graph->fill(0, 1, bad, 2, 0, {}); });
  expect_error(Fault::invalid_argument, {"lists [4, 6) are not of the 5 rows"}, [&] { graph->fill(4, 2, bad, 1, 0, {}); });
}

}  // namespace
}  // namespace gigaknn
