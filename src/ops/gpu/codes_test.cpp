// The edges of searching product codes, and of encoding, on the GPU, real or emulated: against the rows that codes stand for, in float64.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/expect_error.hpp"
#include "ops/conformance.hpp"
#include "ops/gpu/gpu_codes.hpp"
#include "ops/gpu/gpu_ops.hpp"
#include "ops/product_codes.hpp"
#include "ops/reference.hpp"
#include "simt/device.hpp"
#include "simt/memory_budget.hpp"

namespace gigaknn {
namespace {

using namespace test;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
#if defined(GIGAKNN_SANITIZED) && defined(GIGAKNN_TINY_TILES)
constexpr std::int64_t rows_share = 4;  // of many rows a quarter: a list has little room there
#else
constexpr std::int64_t rows_share = 1;
#endif
const Ops& gpu_ops() { return *gpu::devices().front(); }
float small_integer(std::uint64_t stream, std::int64_t i) {
  return static_cast<float>(random_below(9, 5, stream, static_cast<std::uint64_t>(i))) - 4;
}

struct Shape {
  std::int64_t d, m;
  int bits;
  std::vector<std::int64_t> sizes;  // of cells
  std::int64_t queries = 3;
};

// Codewords, centroids and queries of small integers, in halves: many distances are the same. Codes are drawn. What a test changes comes
// before `finish`, which `check` calls.
struct Coded {
  Shape shape;
  Matrix codewords, centroids, queries;
  std::vector<std::int64_t> begins = {0};
  std::vector<LocalRow> names;
  bool named = true;  // else rows are called by their numbers, which is what `names` has then
  std::vector<std::uint8_t> parts;  // [n, m]
  std::vector<std::uint8_t> blocks;
  Matrix decoded;  // by name
  bool scaled = false;  // all parts share the codewords of the first
  float shift_size = 1;
  std::vector<RowScale> scales;
  std::vector<float> shifts;  // by name
  std::vector<RowId> probes;
  std::int64_t width;

  explicit Coded(const Shape& shape_)
      : shape(shape_), codewords(shape.m << shape.bits, (shape.d + shape.m - 1) / shape.m, DType::f32), centroids(std::ssize(shape.sizes), shape.d, DType::f32),
        queries(shape.queries, shape.d, DType::f32), width(std::ssize(shape.sizes)) {
    for (const std::int64_t size : shape.sizes) begins.push_back(begins.back() + size);
    const auto draw = [](Matrix& rows, std::uint64_t stream) {
      for (std::int64_t i = 0; i < rows.rows(); ++i) {
        for (std::int64_t j = 0; j < rows.cols(); ++j) rows.row<float>(i)[j] = 0.5f * small_integer(stream, i * rows.cols() + j);
      }
    };
    draw(codewords, 1);
    draw(centroids, 2);
    draw(queries, 3);
    for (std::int64_t i = 0; i < n() * shape.m; ++i) {
      parts.push_back(static_cast<std::uint8_t>(random_below(std::uint64_t{1} << shape.bits, 5, 4, static_cast<std::uint64_t>(i))));
    }
    names.resize(at(n()));
    std::iota(names.begin(), names.end(), LocalRow{0});
    for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[random_below(i, 5, 6, i)]);
    for (std::int64_t q = 0; q < shape.queries; ++q) {
      for (std::int64_t cell = 0; cell < width; ++cell) probes.push_back(RowId{(cell + q) % width});
    }
  }

  std::int64_t n() const { return begins.back(); }
  const float* word(std::int64_t row, std::int64_t part) const {
    return codewords.row<float>((scaled ? 0 : part << shape.bits) + parts[at(row * shape.m + part)]);
  }

  void finish() {
    std::int64_t code_bytes = shape.m * shape.bits / 8;
    std::vector<std::uint8_t> packed(at(n() * code_bytes));
    for (std::size_t bit = 0; bit < 8 * packed.size(); ++bit) {
      const auto part_bits = static_cast<std::size_t>(shape.bits);
      packed[bit / 8] = static_cast<std::uint8_t>(packed[bit / 8] | (parts[bit / part_bits] >> bit % part_bits & 1) << bit % 8);
    }
    scales.assign(at(n()), RowScale());
    shifts.assign(at(n()), 0.0f);
    if (scaled) {
      std::vector<std::uint8_t> longer;
      for (std::int64_t row = 0; row < n(); ++row) {
        RowScale& scale = scales[at(row)];
        scale = {row % 11 == 0 ? 0 : 0.25f * static_cast<float>(row % 9), 0.5f * shift_size * small_integer(7, row)};
        if (row % 50 == 13) (row % 100 == 13 ? scale.factor : scale.shift) = row % 3 == 0 ? NAN : row % 3 == 1 ? INFINITY : -INFINITY;
        shifts[names[at(row)]] = scale.shift;
        longer.insert(longer.end(), packed.begin() + row * code_bytes, packed.begin() + (row + 1) * code_bytes);
        for (const float value : {scale.factor, scale.shift}) {
          for (int byte = 0; byte < 4; ++byte) {
            longer.push_back(static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value) >> (8 * byte)));
          }
        }
      }
      packed = std::move(longer);
      code_bytes += scale_bytes;
    }
    blocks = in_blocks(packed, code_bytes, begins);
    decoded = Matrix(n(), shape.d, DType::f32);
    for (std::int64_t cell = 0; cell + 1 < std::ssize(begins); ++cell) {
      for (std::int64_t row = begins[at(cell)]; row < begins[at(cell + 1)]; ++row) {
        for (std::int64_t j = 0; j < shape.d; ++j) {
          decoded.row<float>(names[at(row)])[j] = scales[at(row)].usable() ? centroids.row<float>(cell)[j] + scales[at(row)].factor * word(row, j / codewords.cols())[j % codewords.cols()] : NAN;
        }
      }
    }
  }
  ProductCodes codes() const {
    const MatrixRef words = scaled ? codewords.ref().slice(0, std::int64_t{1} << shape.bits) : codewords.ref();
    return {shape.d,    shape.m, words,
            centroids,  blocks,  {{}, begins, named ? std::span<const LocalRow>(names) : std::span<const LocalRow>()},
            shape.bits, scaled};
  }
  float distance(Metric metric, float to_decoded, LocalRow name) const {
    if (metric == Metric::inner_product || shifts[name] == 0) return to_decoded;
    if (metric == Metric::l2) return to_decoded + shifts[name];
    const double square = double{to_decoded} * double{to_decoded} + double{shifts[name]};
    return static_cast<float>(square < 0 ? -std::sqrt(-square) : std::sqrt(square));
  }


  Neighbors want(Metric metric, std::int64_t k, RowMask allowed) const {
    const reference::Rows xs(queries, metric), ys(decoded, metric);
    Neighbors lists(shape.queries, k);
    std::fill(lists.distances.begin(), lists.distances.end(), reference::farthest(metric));
    for (std::int64_t q = 0; q < shape.queries; ++q) {
      std::vector<reference::Entry> entries;
      for (std::int64_t j = 0; j < width && xs.usable[at(q)]; ++j) {
        const std::int64_t cell = value_of(probes[at(q * width + j)]);
        for (std::int64_t row = cell < 0 ? 0 : begins[at(cell)]; cell >= 0 && row < begins[at(cell + 1)]; ++row) {
          const LocalRow name = names[at(row)];
          if (allowed.has(name) && ys.usable[name]) {
            entries.push_back({distance(metric, reference::distance(xs, q, ys, name, metric), name), name});
          }
        }
      }
      std::sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) { return reference::nearer(a, b, metric); });
      for (std::int64_t j = 0; j < std::min<std::int64_t>(k, std::ssize(entries)); ++j) {
        lists.ids[at(q * k + j)] = RowId{entries[at(j)].id};
        lists.distances[at(q * k + j)] = entries[at(j)].value;
      }
    }
    return lists;
  }
  PrepareHints hints(std::int64_t k) const { return {.k = k, .queries = shape.queries, .batch = shape.queries, .self = false}; }
};

void fill(Matrix& rows, float value) {
  for (std::int64_t i = 0; i < rows.rows(); ++i) std::fill_n(rows.row<float>(i), rows.cols(), value);
}

void check(Coded& coded, std::int64_t k, RowMask allowed = {}, std::initializer_list<bool> with_scales = {false, true}) {
  for (const bool scaled : with_scales) {
    coded.scaled = scaled;
    coded.finish();
    for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::inner_product}) {
      const auto prepared = gpu_ops().prepare_codes(coded.codes(), metric, coded.hints(k), {});
      GuardedLists lists(coded.shape.queries, k);
      gpu_ops().nearest_in_codes(*prepared, coded.queries, coded.probes.data(), coded.width, k, lists.out(), {}, allowed);
      EXPECT_TRUE(same_lists(lists, coded.want(metric, k, allowed)))
          << name_of(metric) << ", n=" << coded.n() << " d=" << coded.shape.d << " m=" << coded.shape.m << " bits=" << coded.shape.bits
          << (scaled ? ", scaled" : "") << " k=" << k;
    }
  }
}

void check(Coded&& coded, std::int64_t k) { check(coded, k); }

TEST(GpuCodes, answers_any_number_of_parts_and_any_k) {
  for (const Shape& shape : {Shape{7, 1, 8, {40, 3}}, Shape{5, 2, 4, {70}}, Shape{6, 3, 8, {33}}, Shape{13, 4, 4, {65, 64}},
                             Shape{9, 5, 8, {100}}, Shape{13, 4, 6, {65, 64}}, Shape{30, 20, 6, {129, 1}}, Shape{11, 6, 4, {129, 1}},
                             Shape{2, 5, 8, {50}} /* the last parts are empty */}) {
    for (const std::int64_t k : {1, 10, 200}) check(Coded(shape), k);
  }
}
TEST(GpuCodes, cells_may_be_empty_or_end_within_a_block) {
  for (const std::int64_t k : {1, 7}) {
    check(Coded({8, 4, 8, {0, 33, 0, 0, 1, 32, 31, 0, 64, 65, 0}}), k);
    check(Coded({8, 4, 4, {0, 0, 2, 0}}), k);
  }
}
TEST(GpuCodes, lists_overflow_with_rows_that_are_alike) {
  Coded coded({12, 4, 8, {900, 1700, 600}});
  std::fill(coded.parts.begin(), coded.parts.end(), std::uint8_t{3});
  fill(coded.centroids, 1);
  check(coded, 10);
  check(coded, 1500);
}
TEST(GpuCodes, many_rows_pass_through_a_list) {
  check(Coded({16, 8, 8, {1500 / rows_share, 200, 3000 / rows_share}}), 10);
  check(Coded({16, 8, 4, {1500 / rows_share, 200, 3000 / rows_share}, 20}), 3);
}
TEST(GpuCodes, a_query_alone_is_shared_among_blocks) {
  Shape shape{8, 4, 8, {}, 1};
  for (std::int64_t cell = 0; cell < 40; ++cell) shape.sizes.push_back(cell % 7 * 11);
  for (const std::int64_t k : {1, 5, 3000}) check(Coded(shape), k);
}
TEST(GpuCodes, masks_may_leave_some_rows_or_none) {
  Coded coded({8, 4, 8, {300, 80}});
  for (const std::uint64_t word : {std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{0xF0F0}}) {
    const std::vector<std::uint64_t> words(RowMask::words_for(coded.n()), word);
    check(coded, 12, {words});
  }
}
TEST(GpuCodes, queries_may_look_nowhere) {
  Coded coded({8, 4, 8, {50}});
  coded.probes.assign(coded.probes.size(), no_row);
  check(coded, 3);
  coded.width = 0;
  check(coded, 3);
}
std::string table_of(Coded& coded) {
  coded.finish();
  return gpu_ops().prepare_codes(coded.codes(), Metric::l2, coded.hints(3), {})->description();
}
// So many for the 99 KiB that a block of the emulated device has, and as many more as this one has more; four parts of 6 bits stand
// together.
std::int64_t for_shared_memory(std::int64_t parts) {
  const auto bytes = static_cast<std::int64_t>(simt::shared_bytes_a_block(0));
  return bytes == 99 << 10 ? parts : (parts * bytes / (99 << 10) + 4) / 4 * 4;
}
// Parts of a byte whose tables fit in shared memory in steps alone.
std::int64_t parts_in_steps() {
#ifdef GIGAKNN_TINY_TILES
  return 5;
#else
  return for_shared_memory(128);
#endif
}
// Tables of 150 KiB, and 75 in steps of 16 bits.
TEST(GpuCodes, tables_that_shared_memory_cannot_hold_stand_there_in_steps) {
  for (Shape shape : {Shape{160, 150, 8, {270, 30}}, Shape{300, 300, 4, {400, 30}}, Shape{450, 400, 6, {200, 40}}}) {
    shape.d = for_shared_memory(shape.d);
    shape.m = for_shared_memory(shape.m);
    Coded coded(shape);
#ifndef GIGAKNN_TINY_TILES
    EXPECT_NE(table_of(coded).find("tables of 16 bits in shared"), std::string::npos);
#endif
    check(coded, 3);
  }
}
// Codewords that no row has set the step; rows and queries of every size are told apart all the same.
TEST(GpuCodes, steps_are_as_fine_as_they_have_to_be) {
  const std::int64_t m = parts_in_steps();
  for (const float giant : {0.0f, 1e6f, 1e19f, 3e38f, INFINITY}) {
    for (const float scale : {1.0f, 1e-20f, 1e15f}) {
      Coded coded({m, m, 8, {180, 1200 / rows_share}});
      for (Matrix* rows : {&coded.codewords, &coded.centroids, &coded.queries}) {
        for (std::int64_t i = 0; i < rows->rows(); ++i) {
          for (std::int64_t j = 0; j < rows->cols(); ++j) rows->row<float>(i)[j] *= scale;
        }
      }
      coded.shift_size = scale * scale;
      for (std::uint8_t& part : coded.parts) part = part == 77 ? 78 : part;
      if (giant > 0) coded.codewords.row<float>(77)[0] = giant;
      EXPECT_NE(table_of(coded).find("16 bits"), std::string::npos);
      check(coded, 10);
    }
  }
}
// Products as large as steps have room for: of queries along one dimension.
TEST(GpuCodes, the_largest_products_are_told_apart_in_steps) {
  const std::int64_t m = parts_in_steps();
  Coded coded({m, m, 8, {2600}});
  for (std::int64_t word = 0; word < 256; ++word) {
    for (std::int64_t part = 0; part < m; ++part) {
      coded.codewords.row<float>(256 * part + word)[0] *=
          part == 1 ? 0.9f + 0.1f * static_cast<float>(random_unit(5, 11, static_cast<std::uint64_t>(word))) : 0.25f;
    }
  }
  for (std::int64_t q = 0; q < 3; ++q) {
    std::fill_n(coded.queries.row<float>(q), m, 0.0f);
    coded.queries.row<float>(q)[1] = 0.731f * static_cast<float>(2 * q - 1);
  }
  EXPECT_NE(table_of(coded).find("16 bits"), std::string::npos);
  check(coded, 10);
}
TEST(GpuCodes, tables_that_even_steps_do_not_make_fit_stand_in_the_devices) {
  const std::int64_t m = for_shared_memory(300);  // 300 KiB
  Coded coded({m, m, 8, {70, 30}});
  EXPECT_NE(table_of(coded).find("device memory"), std::string::npos);
  check(coded, 3);
}
TEST(GpuCodes, rows_that_overflow_are_not_found) {
  Coded coded({6, 3, 8, {200, 40}});
  for (std::int64_t j = 0; j < 6; ++j) coded.centroids.row<float>(1)[j] = 3e38f;
  for (std::int64_t w = 0; w < 256; w += 3) coded.codewords.row<float>(w)[0] = 2e38f;
  check(coded, 20);
  for (std::int64_t j = 0; j < 6; ++j) coded.centroids.row<float>(0)[j] = 3e38f;
  fill(coded.codewords, 3e38f);
  check(coded, 20);  // none is left
}
TEST(GpuCodes, queries_far_from_everything_find_what_is_nearest) {
  Coded coded({6, 3, 8, {200, 140}, 20});  // enough of them that each has one list
  for (std::int64_t j = 0; j < 6; ++j) {
    coded.queries.row<float>(0)[j] = 1e30f;  // rows differ by less than float32 can tell
    coded.queries.row<float>(1)[j] = 1e4f;
    coded.queries.row<float>(2)[j] = NAN;
    coded.queries.row<float>(3)[j] = 3e38f;
    coded.queries.row<float>(4)[j] = 1e-30f;
  }
  coded.queries.row<float>(5)[0] = INFINITY;
  check(coded, 9);
}
TEST(GpuCodes, a_giant_row_hides_no_other) {
  for (const float giant : {1e6f, 1e18f, 1e25f}) {
    Coded coded({6, 3, 8, {1300, 40}});
    for (std::int64_t j = 0; j < 6; ++j) coded.centroids.row<float>(1)[j] = giant;
    check(coded, 9);
  }
}
// Centroids and codewords that cancel: rows at zero, of which the products are as large as any.
TEST(GpuCodes, rows_at_zero_are_told_apart) {
  Coded coded({4, 2, 8, {4000 / rows_share}, 20});
  for (std::int64_t q = 0; q < 20; ++q) {
    for (std::int64_t j = 0; j < 4; ++j) coded.queries.row<float>(q)[j] = 1.1f + 0.37f * small_integer(10, q * 4 + j);
  }
  for (std::int64_t j = 0; j < 4; ++j) coded.centroids.row<float>(0)[j] = 1e5f;
  for (std::int64_t w = 0; w < coded.codewords.rows(); ++w) {
    for (std::int64_t j = 0; j < 2; ++j) coded.codewords.row<float>(w)[j] = -1e5f + 0.0078125f * small_integer(9, w * 2 + j);
  }
  check(coded, 10);
  fill(coded.codewords, -1e5f);
  check(coded, 10);
}
// Distances as small as the smallest floats.
TEST(GpuCodes, distances_that_vanish_keep_their_order) {
  for (const float scale : {1e-18f, 1e-20f, 1e-22f, 1e-38f}) {
    Coded coded({6, 3, 8, {1400}});
    coded.shift_size = scale * scale;
    for (Matrix* rows : {&coded.codewords, &coded.centroids, &coded.queries}) {
      for (std::int64_t i = 0; i < rows->rows(); ++i) {
        for (std::int64_t j = 0; j < rows->cols(); ++j) rows->row<float>(i)[j] *= scale;
      }
    }
    check(coded, 10);
  }
}
// ---- rows decoded for queries that share their cells

// Asked again and again, so that rows are decoded for all of them.
Coded crowded(Coded coded) {
  constexpr std::int64_t q = 50;
  Matrix queries(q, coded.shape.d, DType::f32);
  std::vector<RowId> probes;
  for (std::int64_t i = 0; i < q; ++i) {
    const std::int64_t from = i % coded.shape.queries;
    std::copy_n(coded.queries.row<float>(from), coded.shape.d, queries.row<float>(i));
    probes.insert(probes.end(), coded.probes.begin() + from * coded.width, coded.probes.begin() + (from + 1) * coded.width);
  }
  coded.queries = std::move(queries);
  coded.probes = std::move(probes);
  coded.shape.queries = q;
  return coded;
}
// Rows are decoded for few queries, while it lives.
class FewShareCells {
 public:
  FewShareCells() { gpu::decoded_sharing() = std::min(usual_, 32.0); }
  ~FewShareCells() { gpu::decoded_sharing() = usual_; }

 private:
  double usual_ = gpu::decoded_sharing();
};
void check_decoded(Coded&& coded, std::int64_t k, RowMask allowed = {}) {
  const FewShareCells few;
  Coded many = crowded(std::move(coded));
  const std::int64_t before = gpu::launches()["decode_rows"];
  check(many, k, allowed, {false});  // scaled codes are not decoded
  EXPECT_GT(gpu::launches()["decode_rows"], before);
}
// The cells that bound a list are not decoded: there are more.
std::vector<std::int64_t> with_first_cells(std::vector<std::int64_t> sizes) {
  sizes.insert(sizes.begin(), {140, 150});
  return sizes;
}

TEST(GpuCodesDecoded, any_number_of_parts_and_any_k) {
  for (const Shape& shape : {Shape{7, 1, 8, with_first_cells({40, 3})}, Shape{13, 4, 4, with_first_cells({65, 0, 64})},
                             Shape{30, 20, 6, with_first_cells({129, 1})}, Shape{9, 5, 8, with_first_cells({1500 / rows_share})}}) {
    for (const std::int64_t k : {1, 10, 60}) check_decoded(Coded(shape), k);
  }
}
TEST(GpuCodesDecoded, lists_overflow_with_rows_that_are_alike) {
  Coded coded({12, 4, 8, {900, 1700, 600}});
  std::fill(coded.parts.begin(), coded.parts.end(), std::uint8_t{3});
  fill(coded.centroids, 1);
  // Neighbouring queries look into other cells: what stands behind a list that is full belongs to others.
  coded.width = 2;
  coded.probes = {RowId{0}, RowId{1}, RowId{0}, RowId{2}, RowId{1}, RowId{2}};
  check_decoded(std::move(coded), 10);
}
TEST(GpuCodesDecoded, masks_may_leave_some_rows_or_none) {
  for (const std::uint64_t word : {std::uint64_t{0}, std::uint64_t{1} << 63, std::uint64_t{0xF0F0}}) {
    Coded coded({8, 4, 8, with_first_cells({300, 80})});
    const std::vector<std::uint64_t> words(RowMask::words_for(coded.n()), word);
    check_decoded(std::move(coded), 12, {words});
  }
}
TEST(GpuCodesDecoded, rows_that_overflow_are_not_found) {
  Coded coded({6, 3, 8, {200, 40, 300, 200}});
  for (std::int64_t j = 0; j < 6; ++j) coded.centroids.row<float>(1)[j] = 3e38f;
  for (std::int64_t w = 0; w < 256; w += 3) coded.codewords.row<float>(w)[0] = 2e38f;
  check_decoded(std::move(coded), 20);
}
// They are decoded as rows of zeros, than which nothing is nearer to these queries.
TEST(GpuCodesDecoded, rows_that_are_not_finite_bound_nothing) {
  Coded coded({6, 3, 8, {200, 300, 200}});
  fill(coded.queries, 0);
  for (std::int64_t w = 0; w < 256; w += 3) coded.codewords.row<float>(w)[0] = w % 2 ? INFINITY : NAN;
  check_decoded(std::move(coded), 20);
}
TEST(GpuCodesDecoded, giant_queries_and_rows_hide_no_other) {
  for (const float giant : {1e4f, 1e18f, 1e25f, 3e38f}) {
    Coded coded({6, 3, 8, with_first_cells({600, 40})});
    for (std::int64_t j = 0; j < 6; ++j) coded.centroids.row<float>(giant < 1e20f ? 2 : 3)[j] = giant;
    for (std::int64_t j = 0; j < 6; ++j) coded.queries.row<float>(0)[j] = giant;
    coded.queries.row<float>(1)[2] = NAN;
    check_decoded(std::move(coded), 9);
  }
}
TEST(GpuCodesDecoded, rows_at_zero_are_told_apart) {
  Coded coded({4, 2, 8, {400, 2000 / rows_share}});
  for (std::int64_t q = 0; q < 3; ++q) {
    for (std::int64_t j = 0; j < 4; ++j) coded.queries.row<float>(q)[j] = 1.1f + 0.37f * small_integer(10, q * 4 + j);
  }
  fill(coded.centroids, 1e5f);
  for (std::int64_t w = 0; w < coded.codewords.rows(); ++w) {
    for (std::int64_t j = 0; j < 2; ++j) coded.codewords.row<float>(w)[j] = -1e5f + 0.0078125f * small_integer(9, w * 2 + j);
  }
  check_decoded(std::move(coded), 10);
}
TEST(GpuCodesDecoded, distances_that_vanish_keep_their_order) {
  for (const float scale : {1e-20f, 1e-38f}) {
    Coded coded({6, 3, 8, {300, 700}});
    coded.shift_size = scale * scale;
    for (Matrix* rows : {&coded.codewords, &coded.centroids, &coded.queries}) {
      for (std::int64_t i = 0; i < rows->rows(); ++i) {
        for (std::int64_t j = 0; j < rows->cols(); ++j) rows->row<float>(i)[j] *= scale;
      }
    }
    check_decoded(std::move(coded), 10);
  }
}
// Several bands, whose borders cells cross, and a device that refuses more than it was said.
TEST(GpuCodesDecoded, bands_stay_within_a_budget) {
  const FewShareCells few;
  Coded coded = crowded(Coded({32, 4, 8, {700, 5000, 0, 6100, 33}}));
  coded.named = false;
  std::iota(coded.names.begin(), coded.names.end(), LocalRow{0});
  coded.finish();
  const Neighbors want = coded.want(Metric::l2, 7, {});
  std::int64_t most_bands = 0;
  for (const std::size_t megabytes : {1, 2, 3, 4, 8}) {
    RunOptions run;
    run.device_memory_bytes = megabytes << 20;
    const simt::MemoryBudget budget(run.device_memory_bytes);
    const std::int64_t before = gpu::launches()["decode_rows"];
    const auto prepared = gpu_ops().prepare_codes(coded.codes(), Metric::l2, coded.hints(7), run);
    GuardedLists lists(coded.shape.queries, 7);
    gpu_ops().nearest_in_codes(*prepared, coded.queries, coded.probes.data(), coded.width, 7, lists.out(), run);
    EXPECT_TRUE(same_lists(lists, want)) << megabytes;
    most_bands = std::max(most_bands, gpu::launches()["decode_rows"] - before);
  }
  EXPECT_GE(most_bands, 2);
  EXPECT_EQ(simt::memory_use().bytes, 0u) << "something was not given back";
}
TEST(GpuCodes, codes_are_not_decoded_first) {
  auto before = gpu::launches();
  check(Coded({8, 4, 8, {300}}), 3);
  auto after = gpu::launches();
  EXPECT_GT(after["nearest_codes"], before["nearest_codes"]);
  EXPECT_EQ(after["take_cells"], before["take_cells"]);
}
TEST(GpuCodes, memory_stays_within_what_was_said) {
  for (const std::int64_t m : {4, 128, 300}) {  // the last one's tables stand in the device's memory
    for (const auto& [k, q] : {std::pair<std::int64_t, std::int64_t>{3, 40}, {200, 40}, {10, 1}}) {
      Coded coded({300, m, 8, {700, 0, 33}, q});
      coded.scaled = k == 200;
      coded.finish();
      const Neighbors want = coded.want(Metric::l2, k, {});
      std::size_t least = 0;
      try {
        RunOptions run;
        run.device_memory_bytes = 1000;
        gpu_ops().prepare_codes(coded.codes(), Metric::l2, coded.hints(k), run);
        ADD_FAILURE() << "1,000 bytes were enough";
      } catch (const Error& error) {
        EXPECT_EQ(error.fault(), Fault::out_of_memory);
        const std::string text = error.what();
        least = std::stoull(text.substr(text.rfind(' ')));
      }
      RunOptions run;
      run.device_memory_bytes = least;
      const simt::MemoryBudget budget(least);
      const auto prepared = gpu_ops().prepare_codes(coded.codes(), Metric::l2, coded.hints(k), run);
      EXPECT_LE(prepared->bytes(), least);
      GuardedLists lists(q, k);
      gpu_ops().nearest_in_codes(*prepared, coded.queries, coded.probes.data(), coded.width, k, lists.out(), run);
      EXPECT_TRUE(same_lists(lists, want)) << k << ' ' << q;
    }
    EXPECT_EQ(simt::memory_use().bytes, 0u) << "something was not given back";
  }
}

// ---- encoding

void check_encoding(MatrixRef rows, MatrixRef codewords, const RunOptions& run = {}) {
  const std::int64_t m = rows.cols / codewords.cols, words = codewords.rows / m;
  std::vector<std::uint8_t> got(at(rows.rows * m + 8), 77);
  gpu_ops().encode_products(rows, codewords, got.data(), run);
  for (std::int64_t part = 0; part < m; ++part) {
    MatrixRef slice = rows;
    slice.data = rows.row<float>(0) + part * codewords.cols;
    slice.cols = codewords.cols;
    const Neighbors want = reference::nearest_rows(slice, codewords.slice(part * words, (part + 1) * words), Metric::l2, 1);
    for (std::int64_t i = 0; i < rows.rows; ++i) {
      ASSERT_LT(got[at(i * m + part)], words);
      if (!std::isfinite(want.distances[at(i)])) continue;  // any of them
      ASSERT_TRUE(got[at(i * m + part)] == value_of(want.ids[at(i)]))
          << "row " << i << ", part " << part << " of " << m << ", " << words << " words";
    }
  }
  EXPECT_TRUE(std::all_of(got.end() - 8, got.end(), [](std::uint8_t code) { return code == 77; }));
}

TEST(GpuCodes, the_nearest_codeword_is_found_of_any_number_and_length) {
  for (const std::int64_t words : {1, 2, 31, 33, 255, 256}) {
    for (const auto& [m, part_dims] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {3, 2}, {2, 33}, {5, 17}}) {
      for (const std::int64_t n : {1, 15, 17, 40}) {
        Matrix rows(n, m * part_dims, DType::f32), codewords(m * words, part_dims, DType::f32);
        for (std::int64_t i = 0; i < n * m * part_dims; ++i) {
          rows.row<float>(i / (m * part_dims))[i % (m * part_dims)] = 0.5f * small_integer(20, i);
        }
        for (std::int64_t i = 0; i < m * words * part_dims; ++i) codewords.row<float>(i / part_dims)[i % part_dims] = small_integer(21, i);  // many are alike
        rows.row<float>(n - 1)[0] = NAN;
        check_encoding(rows, codewords);
      }
    }
  }
}
// Distances that float32 sums cannot tell apart, that vanish, and that overflow.
TEST(GpuCodes, nearly_equal_codewords_are_told_apart) {
  for (const float scale : {1.0f, 1e-22f, 3e18f}) {
    Matrix rows(20, 40, DType::f32), codewords(2 * 64, 20, DType::f32);
    for (std::int64_t i = 0; i < 20 * 40; ++i) rows.row<float>(i / 40)[i % 40] = scale * (1 + 1e-7f * small_integer(22, i));
    for (std::int64_t i = 0; i < 2 * 64 * 20; ++i) codewords.row<float>(i / 20)[i % 20] = scale * (3 + 1e-6f * small_integer(23, i));
    check_encoding(rows, codewords);
  }
}
TEST(GpuCodes, rows_are_encoded_within_a_budget) {
  Matrix rows(100, 8, DType::f32), codewords(4 * 16, 2, DType::f32);
  for (std::int64_t i = 0; i < 800; ++i) rows.row<float>(i / 8)[i % 8] = small_integer(24, i);
  for (std::int64_t i = 0; i < 128; ++i) codewords.row<float>(i / 2)[i % 2] = small_integer(25, i);
  RunOptions run;
  run.device_memory_bytes = 2000;
  check_encoding(rows, codewords, run);
  run.device_memory_bytes = 600;
  expect_error(Fault::out_of_memory, {"a device budget of 600 bytes is too small", "encoding a row needs"},
               [&] { check_encoding(rows, codewords, run); });
}

}  // namespace
}  // namespace gigaknn
