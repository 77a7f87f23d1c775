// What a scan's numbers say of keys, against the keys themselves, pair by pair: no limit excludes a pair that it should let
// through, no key is above the most it may be, and where vectors are not made to spoil it, both are sharp.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "core/random.hpp"
#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/limits.cuh"
#include "ops/gpu/product_codes.hpp"
#include "ops/gpu/scan.hpp"
#include "ops/test_vectors.hpp"

namespace gigaknn::gpu {
namespace {

using test::Kind;

struct Measured {
  PackedNeighbor key;  // computed
  PackedNeighbor most;
  float number;
  float limit;       // that the key sets
  float most_limit;  // that the most it may be sets
};

// A block a query; every place has passed a scan without limits.
template <DType dtype>
__global__ void measure_kernel(SearchJob job, Survivors lists, Measured* out) {
  const std::int64_t query = blockIdx.x;
  for (unsigned i = static_cast<unsigned>(warp_id()); i < lists.counts[query]; i += static_cast<unsigned>(block_warps())) {
    const std::uint64_t entry = lists.keys[query * lists.pitch + i];
    const auto place = static_cast<std::uint32_t>(entry);
    const float number = __uint_as_float(static_cast<std::uint32_t>(entry >> 32));
    const LocalRow row = job.places.order[place];
    const PackedNeighbor key = canonical_neighbor<dtype>(job.metric, job.queries, query_row(job, query), job.base, row);
    if (lane_id() == 0) {
      const PackedNeighbor most = pack(most_key(job, query, place, number), row);
      out[query * lists.pitch + i] = {key, most, number, limit_of(job.rule, query, key), limit_of(job.rule, query, most)};
    }
  }
}

// Every pair of the case, query by query; `both`: of the base with itself, each number once for both sides.
std::vector<Measured> measure(Metric metric, DType dtype, Kind kind, std::int64_t n, std::int64_t q, std::int64_t d,
                              LimitForm& form, bool both = false) {
  test::StridedRows base(n, d, dtype, 0), queries(q, d, dtype, 0);
  test::VectorMaker(kind, n, d, dtype, metric, 17).fill(base, queries);
  const simt::OwnStream stream(0);
  DeviceRows rows(base, stream);
  find_facts(rows, metric, stream);
  DeviceRows others(queries, stream);
  find_facts(others, metric, stream);
  const auto marks = [&](const DeviceRows& of, std::int64_t count) {
    std::vector<std::uint8_t> far(static_cast<std::size_t>(count));
    simt::copy(far.data(), of.view().far, far.size(), stream);
    simt::synchronize(stream);
    return far;
  };
  std::vector<LocalRow> near_rows;
  std::uint8_t any = 0;
  const std::vector<std::uint8_t> far = marks(rows, n);
  for (std::int64_t i = 0; i < n; ++i) {
    any |= far[static_cast<std::size_t>(i)];
    if (!(far[static_cast<std::size_t>(i)] & far_row)) near_rows.push_back(static_cast<LocalRow>(i));
  }
  const std::vector<std::uint8_t> query_marks = marks(others, q);
  for (const std::uint8_t mark : query_marks) any |= mark;
  if (near_rows.empty() || (any & negative_row)) return {};

  const auto places = static_cast<std::int64_t>(near_rows.size());
  const simt::DeviceBuffer<LocalRow> order(std::span<const LocalRow>(near_rows), stream);
  SearchJob job{.base = rows.view(), .queries = others.view(), .base_codes = {}, .query_codes = {}, .metric = metric,
                .first_self = -1, .places = {order.get(), 0, places},
                .rule = {.metric = metric, .far = others.view().far}, .finished = false, .end_list = q};
  std::optional<ProductCodes> codes;
  std::optional<ProductCodes::Queries> query_codes;
  if (ProductCodes::suits(metric, d)) {
    codes.emplace(job.base, metric, order.get(), places, stream);
    query_codes = both ? codes->encode_places(job.base, order.get(), stream) : codes->encode_queries(job.queries, stream);
    job.base_codes = codes->view();
    job.query_codes = query_codes->codes;
    job.rule.form = LimitForm::at_least;
    job.rule.terms = query_codes->terms.get();
  } else {
    job.rule.form = LimitForm::at_most;
    job.rule.error = difference_error(metric, dtype, d);
    job.rule.slack = difference_slack(metric, d);
  }
  form = job.rule.form;
  if (both) {
    job.queries = job.base;
    job.rule.far = nullptr;
    job.query_order = order.get();
    job.end_list = q = places;
    job.both_sides = true;
  }

  const auto total = static_cast<std::size_t>(q * places);
  const simt::DeviceBuffer<PackedNeighbor> keys(total, stream);
  const simt::DeviceBuffer<std::uint32_t> counts(static_cast<std::size_t>(q), stream), held(static_cast<std::size_t>(q), stream);
  const simt::DeviceBuffer<PackedNeighbor> bounds(static_cast<std::size_t>(q), stream);
  const simt::DeviceBuffer<float> limits(static_cast<std::size_t>(q), stream);
  const Survivors lists{keys.get(), nullptr, counts.get(), held.get(), bounds.get(), limits.get(), q, 0, places};
  set_bounds(job.rule, no_neighbor, lists, stream);
  if (codes) {
    scan_products(job, lists, stream);
  } else {
    scan_differences(job, lists, stream);
  }
  const simt::DeviceBuffer<Measured> measured(total, stream);
  for_dtype(dtype, [&]<DType type>() {
    simt::launch({static_cast<unsigned>(q), 64, 0, stream, "measure"}, measure_kernel<type>, job, lists, measured.get());
  });
  const std::vector<std::uint32_t> found = counts.download();
  const std::vector<Measured> all = measured.download();
  std::vector<Measured> result;
  for (std::int64_t i = 0; i < q; ++i) {
    const bool far_query = !both && query_marks[static_cast<std::size_t>(i)] & far_row;
    EXPECT_EQ(std::int64_t{found[static_cast<std::size_t>(i)]}, far_query ? 0 : both ? places - 1 : places) << "of list " << i;
    const auto begin = all.begin() + i * places;
    result.insert(result.end(), begin, begin + found[static_cast<std::size_t>(i)]);
  }
  return result;
}

struct Subject {
  Metric metric;
  DType dtype;
};
// Whose scans leave keys open.
constexpr Subject subjects[] = {
    {Metric::l2, DType::f32},        {Metric::l2, DType::f16},        {Metric::euclidean, DType::f32},
    {Metric::inner_product, DType::f32}, {Metric::inner_product, DType::f16}, {Metric::cosine, DType::f32},
    {Metric::hellinger, DType::f32}, {Metric::hellinger, DType::u8},  {Metric::l1, DType::f32},
    {Metric::l1, DType::f16},        {Metric::chi2, DType::f32},      {Metric::chi2, DType::u8},
    {Metric::l2, DType::bf16},       {Metric::inner_product, DType::bf16}, {Metric::l1, DType::bf16}};

#if defined(GIGAKNN_SANITIZED)
constexpr int kinds_apart = 5;  // of the kinds of vectors every fifth
#else
constexpr int kinds_apart = 1;
#endif

bool passes_on_host(LimitForm form, float number, float limit) {
  return form == LimitForm::at_least ? number >= limit : number <= limit;
}

TEST(Limits, bound_every_key_from_both_sides) {
  constexpr std::int64_t dims[] = {1, 6, 33, 130};
  std::int64_t pairs = 0;
  for (const auto& [metric, dtype] : subjects) {
    for (int kind = static_cast<int>(metric) % kinds_apart; kind < test::kind_count; kind += kinds_apart) {
      const std::int64_t d = dims[(kind + static_cast<int>(metric)) % 4];
      LimitForm form{};
      std::vector<Measured> all = measure(metric, dtype, static_cast<Kind>(kind), 60, 3, d, form);
      const std::vector<Measured> both = measure(metric, dtype, static_cast<Kind>(kind), 20, 1, d, form, true);
      all.insert(all.end(), both.begin(), both.end());
      for (const Measured& pair : all) {
        ASSERT_LE(pair.key, pair.most) << name_of(metric) << " of " << name_of(dtype) << ", "
                                       << name_of(static_cast<Kind>(kind)) << ", d = " << d << ": key "
                                       << key_of(pair.key) << ", most " << key_of(pair.most);
        ASSERT_TRUE(passes_on_host(form, pair.number, pair.limit))
            << name_of(metric) << " of " << name_of(dtype) << ", " << name_of(static_cast<Kind>(kind)) << ", d = " << d
            << ": key " << key_of(pair.key) << ", number " << pair.number << ", limit " << pair.limit;
        ++pairs;
      }
    }
  }
  EXPECT_GT(pairs, 200000 / kinds_apart);
}

// What bf16_sum_error claims of the hardware, which its maker does not say: of random codes of all magnitudes, and of products
// that cancel. On a GPU this is the test of the claim; the emulated one cuts sums as the claim allows.
TEST(Limits, tensor_cores_err_by_less_than_is_claimed) {
  constexpr std::int64_t n = 140;  // more than a tile
  for (const int steps : {1, 5, 40}) {
    const int products = steps * 16;
    for (const int spread : {0, 6, 24}) {  // powers of two between magnitudes
      std::vector<std::uint16_t> codes;
      for (std::int64_t i = 0; i < n * products; ++i) {
        const auto draw = [&](std::uint64_t bound, std::uint64_t what) {
          return static_cast<int>(random_below(bound, static_cast<std::uint64_t>(spread), what, static_cast<std::uint64_t>(i)));
        };
        // Odd rows take back what even ones add.
        const bool again = i / products % 2 && i % 3;
        const std::uint16_t before = i < products ? 0 : codes[static_cast<std::size_t>(i - products)];
        const int exponent = 127 - draw(static_cast<std::uint64_t>(spread + 1), 1);
        codes.push_back(again ? before ^ 0x8000u
                              : static_cast<std::uint16_t>(draw(2, 2) << 15 | exponent << 7 | draw(128, 3)));
      }
      const simt::OwnStream stream(0);
      std::vector<LocalRow> places(n);
      std::iota(places.begin(), places.end(), 0);
      const simt::DeviceBuffer<std::uint16_t> data(std::span<const std::uint16_t>(codes), stream);
      const simt::DeviceBuffer<LocalRow> order(std::span<const LocalRow>(places), stream);
      const simt::DeviceBuffer<PackedNeighbor> keys(n * n, stream), bounds(n, stream);
      const simt::DeviceBuffer<std::uint32_t> counts(n, stream), held(n, stream);
      const simt::DeviceBuffer<float> limits(n, stream);
      CodesView view;
      view.data = reinterpret_cast<const std::byte*>(data.get());
      view.rows = n;
      view.pitch = std::int64_t{steps} * simt::mma_bytes;
      view.steps = steps;
      const SearchJob job{.base = {}, .queries = {}, .base_codes = view, .query_codes = view, .metric = Metric::inner_product,
                          .first_self = -1, .places = {order.get(), 0, n}, .rule = {}, .finished = false, .end_list = n};
      const Survivors lists{keys.get(), nullptr, counts.get(), held.get(), bounds.get(), limits.get(), n, 0, n};
      set_bounds(job.rule, no_neighbor, lists, stream);
      const std::vector<float> none(n, -std::numeric_limits<float>::infinity());
      simt::copy(limits.get(), none.data(), n * sizeof(float), stream);
      scan_products(job, lists, stream);
      const std::vector<PackedNeighbor> found = keys.download();
      const auto value = [&](std::int64_t row, int j) {
        return double{std::bit_cast<float>(std::uint32_t{codes[static_cast<std::size_t>(row * products + j)]} << 16)};
      };
      for (std::int64_t x = 0; x < n; ++x) {
        for (std::int64_t i = 0; i < n; ++i) {
          const std::uint64_t entry = found[static_cast<std::size_t>(x * n + i)];
          const auto y = static_cast<std::int64_t>(static_cast<std::uint32_t>(entry));
          double exact = 0;
          double absolute = 0;
          for (int j = 0; j < products; ++j) {
            exact += value(x, j) * value(y, j);
            absolute += std::abs(value(x, j) * value(y, j));
          }
          const double number = std::bit_cast<float>(static_cast<std::uint32_t>(entry >> 32));
          ASSERT_LE(std::abs(number - exact), simt::bf16_sum_error(products) * absolute) << steps << " steps, spread " << spread;
        }
      }
    }
  }
}

// How many keys a search for k would compute.
TEST(Limits, leave_few_keys_to_be_computed) {
  constexpr std::int64_t n = 1500 / kinds_apart;
  constexpr std::int64_t q = 4;
  constexpr std::int64_t k = 10;
  for (const auto& [metric, dtype] : subjects) {
    for (const Kind kind : {Kind::clustered, Kind::gaussian}) {
      LimitForm form{};
      std::vector<Measured> pairs = measure(metric, dtype, kind, n, q, 96, form);
      std::int64_t computed = 0;
      for (std::size_t first = 0; first < pairs.size(); first += n) {
        const auto begin = pairs.begin() + static_cast<std::ptrdiff_t>(first);
        std::nth_element(begin, begin + (k - 1), begin + n,
                         [](const Measured& a, const Measured& b) { return a.most < b.most; });
        const float limit = begin[k - 1].most_limit;
        computed += std::count_if(begin, begin + n,
                                  [&](const Measured& pair) { return passes_on_host(form, pair.number, limit); });
      }
      // bf16 keeps 8 bits, which cannot tell apart what lies in a narrow cluster.
      const std::int64_t most = kind == Kind::clustered && form == LimitForm::at_least ? n / 10 + k : 3 * k;
      EXPECT_LE(computed, pairs.empty() ? 0 : q * most)
          << name_of(metric) << " of " << name_of(dtype) << ", " << test::name_of(kind);
    }
  }
}

}  // namespace
}  // namespace gigaknn::gpu
