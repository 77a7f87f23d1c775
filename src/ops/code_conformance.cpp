// Product codes against what their definition says, without a table or a bound: rows are decoded and compared in float64.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ranges>
#include <span>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "ops/conformance.hpp"
#include "ops/product_codes.hpp"
#include "ops/reference.hpp"

namespace gigaknn::test {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Of some cases the rows as they are in a smaller or larger world, where float32 has no relative errors, or no squares of what is rounded,
// or none at all.
Matrix at_some_scale(const Case& c, MatrixRef rows) {
  constexpr float scales[] = {1e-21f, 1e-14f, 1e-10f, 1e12f, 3e18f};
  const std::uint64_t drawn = random_below(12, c.seed, 40, 0);
  const float scale = drawn < std::size(scales) ? scales[drawn] : 1.0f;
  Matrix scaled(rows.rows, rows.cols, DType::f32);
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    for (std::int64_t j = 0; j < rows.cols; ++j) scaled.row<float>(i)[j] = scale * rows.row<float>(i)[j];
  }
  return scaled;
}

float shifted_distance(Metric metric, float to_decoded, float shift) {
  if (shift == 0 || metric == Metric::inner_product) return to_decoded;
  if (metric == Metric::l2) return to_decoded + shift;
  const double square = double{to_decoded} * double{to_decoded} + double{shift};
  return static_cast<float>(square < 0 ? -std::sqrt(-square) : std::sqrt(square));
}

// Codewords and centroids of what the base holds, codes drawn.
struct CodeCase {
  std::int64_t m, part_dims, words;
  int bits = 8, planes = 1;
  bool scaled = false;
  Matrix codewords, centroids;
  std::vector<std::int64_t> begins = {0};
  std::vector<LocalRow> names;
  std::vector<std::uint8_t> codes;   // [n, m]
  std::vector<std::uint8_t> blocks;
  std::vector<RowScale> scales;      // of scaled codes
  std::vector<float> shifts;         // by name
  Matrix decoded;                    // by name

  CodeCase(const Case& c, MatrixRef base, bool named, bool may_scale)
      : m(std::min<std::int64_t>(c.d, 1 + static_cast<std::int64_t>(random_below(9, c.seed, 30, 0)))), part_dims((c.d + m - 1) / m) {
    if (c.d <= 40 && random_below(3, c.seed, 46, 0) == 0) part_dims = 1;
    m = (c.d + part_dims - 1) / part_dims;
    for (const int fewer : {4, 6}) {
      if (m % parts_together(fewer) == 0 && random_below(2, c.seed, 41, static_cast<std::uint64_t>(fewer)) == 0) bits = fewer;
    }
    words = std::int64_t{1} << bits;
    scaled = may_scale && random_below(2, c.seed, 42, 0) == 0;
    if (scaled && bits == 8) planes = 1 + static_cast<int>(random_below(7, c.seed, 45, 0));
    m *= planes;
    const auto element = [&](std::int64_t row, std::int64_t col) {
      const float value = col < c.d ? base.row<float>(row % base.rows)[col] : 0;
      return std::isfinite(value) ? value : 1.0f;
    };
    codewords = Matrix((scaled ? 1 : m) * words, part_dims, DType::f32);
    for (std::int64_t i = 0; i < codewords.rows(); ++i) {
      // Half of them are what rows hold, the others half of that: several alike where the base is small.
      for (std::int64_t j = 0; j < part_dims; ++j) {
        codewords.row<float>(i)[j] = element(i * 7, i / words * part_dims + j) / (i % 2 == 0 ? 1.0f : 2.0f);
      }
    }
    if (scaled && words == most_codewords && part_dims % 2 == 0 && random_below(2, c.seed, 43, 0) == 0) {
      // A grid: each half of a word goes by one half of its number.
      for (std::int64_t i = codewords.rows() - 1; i >= 0; --i) {
        const std::int64_t half = part_dims / 2;
        std::copy_n(codewords.row<float>(i / 16), half, codewords.row<float>(i) + half);
        std::copy_n(codewords.row<float>(i % 16), half, codewords.row<float>(i));
      }
    }
    while (begins.back() < c.n) {
      begins.push_back(std::min<std::int64_t>(c.n, begins.back() + static_cast<std::int64_t>(random_below(200, c.seed, 31, begins.size()))));
    }
    centroids = Matrix(std::ssize(begins) - 1, c.d, DType::f32);
    for (std::int64_t i = 0; i < centroids.rows(); ++i) {
      for (std::int64_t j = 0; j < c.d; ++j) centroids.row<float>(i)[j] = element(i * 5 + 1, j);
    }
    for (std::int64_t i = 0; i < c.n * m; ++i) codes.push_back(static_cast<std::uint8_t>(random_below(static_cast<std::uint64_t>(words), c.seed, 32, static_cast<std::uint64_t>(i))));
    // Bit by bit, the lowest of the first part first.
    std::int64_t code_bytes = m * bits / 8;
    std::vector<std::uint8_t> packed(at(c.n * code_bytes));
    for (std::size_t bit = 0; bit < 8 * packed.size(); ++bit) {
      const std::size_t part_bits = static_cast<std::size_t>(bits);
      packed[bit / 8] = static_cast<std::uint8_t>(packed[bit / 8] | (codes[bit / part_bits] >> bit % part_bits & 1) << bit % 8);
    }
    if (scaled) {
      draw_scales(c, element(0, 0));
      std::vector<std::uint8_t> longer;
      for (std::int64_t row = 0; row < c.n; ++row) {
        longer.insert(longer.end(), packed.begin() + row * code_bytes, packed.begin() + (row + 1) * code_bytes);
        for (const float value : {scales[at(row)].factor, scales[at(row)].shift}) {
          for (int byte = 0; byte < 4; ++byte) {
            longer.push_back(static_cast<std::uint8_t>(std::bit_cast<std::uint32_t>(value) >> (8 * byte)));
          }
        }
      }
      packed = std::move(longer);
      code_bytes += scale_bytes;
    }
    blocks = in_blocks(packed, code_bytes, begins);
    if (named) {
      names.resize(at(c.n));
      std::iota(names.begin(), names.end(), LocalRow{0});
      for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[random_below(i, c.seed, 33, i)]);
    }
    decoded = Matrix(c.n, c.d, DType::f32);
    shifts.resize(at(c.n));
    for (std::int64_t cell = 0; cell + 1 < std::ssize(begins); ++cell) {
      for (std::int64_t row = begins[at(cell)]; row < begins[at(cell + 1)]; ++row) {
        const RowScale scale = scaled ? scales[at(row)] : RowScale();
        const bool usable = scale.factor >= 0 && scale.factor < INFINITY && std::isfinite(scale.shift);
        shifts[at(name_of(row))] = scale.shift;
        for (std::int64_t j = 0; j < c.d; ++j) {
          const std::int64_t part = j / part_dims * planes;
          float word = 0;
          for (int plane = planes - 1; plane >= 0; --plane) {
            word = word + word + codewords.row<float>((scaled ? 0 : part * words) + codes[at(row * m + part + plane)])[j % part_dims];
          }
          decoded.row<float>(name_of(row))[j] = usable ? centroids.row<float>(cell)[j] + (scaled ? scale.factor * word : word) : NAN;
        }
      }
    }
  }

  // Factors and shifts of about the size of rows and of their squares; some that nothing can be.
  void draw_scales(const Case& c, float size) {
    for (std::int64_t row = 0; row < c.n; ++row) {
      const auto drawn = [&](int what) { return static_cast<float>(random_unit(c.seed, 44, static_cast<std::uint64_t>(3 * row + what))); };
      RowScale scale{row % 5 == 0 ? 0.0f : 3 * drawn(0), (drawn(1) - 0.7f) * size * size};
      if (drawn(2) < 0.02f) scale.factor = row % 2 == 0 ? -scale.factor - 1 : INFINITY;
      if (drawn(2) > 0.98f) scale.shift = NAN;
      scales.push_back(scale);
    }
  }
  float distance(Metric metric, float to_decoded, std::int64_t name) const {
    return scaled ? shifted_distance(metric, to_decoded, shifts[at(name)]) : to_decoded;
  }

  std::int64_t name_of(std::int64_t row) const { return names.empty() ? row : std::int64_t{names[at(row)]}; }
  std::int64_t cells() const { return centroids.rows(); }
  ProductCodes codes_of(const Case& c) const { return {c.d, m, codewords, centroids, blocks, {{}, begins, names}, bits, scaled, planes}; }
};

// Rows that are so far from the origin, or so long, and so close to each other, that what float32 rounds away decides who is nearest.
struct CloseCodes {
  enum class Far { centroids, words, shifts };
  struct Shape {
    std::int64_t d, part_dims;
    int bits, planes;
    bool grid = false;  // each half of a codeword goes by one half of its number
  };
  struct Place {
    Far far;            // what takes rows away
    float distance, spread;
  };
  static constexpr std::int64_t n = 200, q = 6, cells = 3;

  Shape shape;
  bool scaled;
  Matrix codewords, centroids, queries, decoded;
  std::vector<std::int64_t> begins = {0, 90, 91, n};
  std::vector<std::uint8_t> blocks;
  std::vector<float> shifts;

  CloseCodes(const Shape& asked, const Place& place, bool with_scales) : shape(asked), scaled(with_scales) {
    const std::int64_t d = shape.d, dims = shape.part_dims, words = std::int64_t{1} << shape.bits;
    const auto drawn = [](std::uint64_t what, std::int64_t i) {
      return 2 * static_cast<float>(random_unit(9, what, static_cast<std::uint64_t>(i))) - 1;
    };
    // The second cell, and every fourth query, lie on the other side of the origin.
    const auto away = [&](Far what, std::int64_t row, std::int64_t j) {
      return what == place.far ? (row % 4 == 1 ? -1.0f : 1.0f) * place.distance * (1 + drawn(2, j)) : 0;
    };
    codewords = Matrix((scaled ? 1 : parts()) * words, dims, DType::f32);
    for (std::int64_t i = 0; i < codewords.rows() * dims; ++i) {
      codewords.row<float>(0)[i] = away(Far::words, 0, i / dims / words * dims + i % dims) + place.spread * drawn(1, i);
    }
    for (std::int64_t i = words - 1; shape.grid && i >= 0; --i) {
      codewords.row<float>(i)[1] = codewords.row<float>(i / 16)[0];
      codewords.row<float>(i)[0] = codewords.row<float>(i % 16)[0];
    }
    centroids = Matrix(cells, d, DType::f32);
    for (std::int64_t i = 0; i < cells * d; ++i) {
      centroids.row<float>(0)[i] = away(Far::centroids, i / d, i % d) + place.spread * drawn(3, i);
    }
    queries = Matrix(q, d, DType::f32);
    for (std::int64_t i = 0; i < q * d; ++i) {
      const float of_words = away(Far::words, i / d, scaled ? i % d % dims : i % d);
      queries.row<float>(0)[i] = away(Far::centroids, i / d, i % d) + of_words + place.spread * drawn(4, i);
    }
    std::vector<std::uint8_t> packed(at(n * code_bytes()));
    for (std::size_t i = 0; i < packed.size(); ++i) packed[i] = static_cast<std::uint8_t>(random_bits(9, 5, i));
    for (std::int64_t row = 0; scaled && row < n; ++row) {
      const float shift = away(Far::shifts, 0, 0) + (row % 4 == 0 ? 0 : place.spread * drawn(7, row));
      const float values[] = {1 + place.spread * 1e-3f * drawn(6, row), shift};
      std::memcpy(packed.data() + (row + 1) * code_bytes() - scale_bytes, values, sizeof(values));
    }
    blocks = in_blocks(packed, code_bytes(), begins);
    decoded = Matrix(n, d, DType::f32);
    const std::vector<std::int64_t> first = codes().block_begins();
    for (std::int64_t cell = 0; cell < cells; ++cell) {
      for (std::int64_t row = begins[at(cell)]; row < begins[at(cell + 1)]; ++row) {
        const std::int64_t in_cell = row - begins[at(cell)], block = first[at(cell)] + in_cell / code_block_rows;
        codes().decode(cell, block, in_cell % code_block_rows, decoded.row<float>(row));
        shifts.push_back(codes().scale(block, in_cell % code_block_rows).shift);
      }
    }
  }

  std::int64_t parts() const { return (shape.d + shape.part_dims - 1) / shape.part_dims * shape.planes; }
  std::int64_t code_bytes() const { return parts() * shape.bits / 8 + (scaled ? scale_bytes : 0); }
  ProductCodes codes() const {
    return {shape.d, parts(), codewords, centroids, blocks, {{}, begins, {}}, shape.bits, scaled, shape.planes};
  }
  // [q, n]: of each query all rows.
  std::vector<reference::Entry> nearest_first(Metric metric) const {
    const reference::Rows of_queries(queries, metric), of_rows(decoded, metric);
    std::vector<reference::Entry> entries;
    for (std::int64_t i = 0; i < q; ++i) {
      for (std::int64_t row = 0; row < n; ++row) {
        entries.push_back({shifted_distance(metric, reference::distance(of_queries, i, of_rows, row, metric), shifts[at(row)]), row});
      }
      std::sort(entries.end() - n, entries.end(), [&](const auto& a, const auto& b) { return reference::nearer(a, b, metric); });
    }
    return entries;
  }
};

}  // namespace

void check_encode_products(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const Matrix scaled = at_some_scale(c, problem.base);
  const CodeCase coded(c, scaled, false, false);
  Matrix rows(c.n, coded.m * coded.part_dims, DType::f32);
  for (std::int64_t i = 0; i < c.n; ++i) {
    std::fill_n(rows.row<float>(i), rows.cols(), 0.0f);
    std::copy_n(scaled.row<float>(i), c.d, rows.row<float>(i));
  }
  std::vector<int> want;  // -1: any
  for (std::int64_t part = 0; part < coded.m; ++part) {
    MatrixRef slice = rows;
    slice.data = rows.row<float>(0) + part * coded.part_dims;
    slice.cols = coded.part_dims;
    const MatrixRef words = coded.codewords.ref().slice(part * coded.words, (part + 1) * coded.words);
    const reference::Rows of_rows(slice, Metric::l2), of_words(words, Metric::l2);
    for (std::int64_t i = 0; i < c.n; ++i) {
      float least = INFINITY;
      int found = -1;
      for (std::int64_t w = 0; w < coded.words; ++w) {
        const float distance = reference::distance(of_rows, i, of_words, w, Metric::l2);
        if (distance < least) {
          least = distance;
          found = static_cast<int>(w);
        }
      }
      want.push_back(found);
    }
  }
  for (const Ops* ops : devices) {
    std::vector<std::uint8_t> codes(at(c.n * coded.m + 8), 77);
    ops->encode_products(rows, coded.codewords, codes.data(), problem.run);
    std::int64_t different = 0;
    for (std::int64_t part = 0; part < coded.m; ++part) {
      for (std::int64_t i = 0; i < c.n; ++i) {
        const int wanted = want[at(part * c.n + i)];
        const std::uint8_t code = codes[at(i * coded.m + part)];
        different += wanted >= 0 ? code != wanted : code >= coded.words;
      }
    }
    EXPECT_EQ(different, 0) << "encode_products, m=" << coded.m << " of " << coded.words << " on " << ops->isa() << ": " << c;
    EXPECT_TRUE(std::all_of(codes.end() - 8, codes.end(), [](std::uint8_t code) { return code == 77; }));
  }
}

void check_close_codewords(const Devices& devices) {
  constexpr std::int64_t n = 500, m = 2;
  for (const std::int64_t part_dims : {2, 3, 4, 8, 20}) {
    for (const std::int64_t words : {4, 16, 64, 256}) {
      Matrix codewords(m * words, part_dims, DType::f32), rows(n, m * part_dims, DType::f32);
      for (std::int64_t i = 0; i < n * m * part_dims; ++i) {
        rows.row<float>(0)[i] = static_cast<float>(random_unit(4, 1, static_cast<std::uint64_t>(i)));
      }
      for (std::int64_t w = 0; w < m * words; ++w) {
        float* const word = codewords.row<float>(w);
        if (w % 2 == 0) {
          for (std::int64_t j = 0; j < part_dims; ++j) {
            word[j] = static_cast<float>(random_unit(4, 2, static_cast<std::uint64_t>(w * part_dims + j)));
          }
        } else {
          // A last bit apart from the one before; some are one of those before.
          const bool equal = w % 24 == 23;
          std::copy_n(codewords.row<float>(equal ? w / words * words + w % words / 2 : w - 1), part_dims, word);
          if (equal) continue;
          float& number = word[w / 2 % part_dims];
          number = std::nextafter(number, w % 4 == 1 ? 2.0f : -1.0f);
        }
      }
      const auto word_of = [&](std::int64_t part, std::int64_t w) {
        return std::span(codewords.row<float>(part * words + w), at(part_dims));
      };
      std::vector<std::uint8_t> want(at(n * m));
      std::int64_t alike = 0;
      for (std::int64_t part = 0; part < m; ++part) {
        MatrixRef slice = rows;
        slice.data = rows.row<float>(0) + part * part_dims;
        slice.cols = part_dims;
        const reference::Rows of_rows(slice, Metric::l2), of_words(codewords.ref().slice(part * words, (part + 1) * words), Metric::l2);
        for (std::int64_t i = 0; i < n; ++i) {
          std::vector<float> distances;
          for (std::int64_t w = 0; w < words; ++w) distances.push_back(reference::distance(of_rows, i, of_words, w, Metric::l2));
          const auto least = std::min_element(distances.begin(), distances.end());
          want[at(i * m + part)] = static_cast<std::uint8_t>(least - distances.begin());
          // To different codewords.
          const auto rounds_alike = [&](std::int64_t w) {
            return distances[at(w)] == *least && !std::ranges::equal(word_of(part, w), word_of(part, least - distances.begin()));
          };
          alike += std::ranges::any_of(std::views::iota(std::int64_t{0}, words), rounds_alike);
        }
      }
      EXPECT_GT(alike, n / 20);
      for (const Ops* ops : devices) {
        std::vector<std::uint8_t> codes(at(n * m));
        ops->encode_products(rows, codewords, codes.data(), {});
        EXPECT_EQ(codes, want) << words << " codewords of " << part_dims << " dimensions on " << ops->isa();
      }
    }
  }
}

void check_nearest_in_codes(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const Matrix scaled = at_some_scale(c, problem.base), scaled_queries = at_some_scale(c, problem.queries);
  for (const bool named : {false, true}) {
    const CodeCase coded(c, scaled, named, true);
    const std::int64_t width = named ? coded.cells() : std::min<std::int64_t>(3, coded.cells());
    std::vector<RowId> probes;
    for (std::int64_t i = 0; i < c.q; ++i) {
      const auto first =
          static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(coded.cells()), c.seed, 34, static_cast<std::uint64_t>(i)));
      for (std::int64_t j = 0; j < width; ++j) {
        probes.push_back(random_below(8, c.seed, 35, probes.size()) > 0 ? RowId{(first + j) % coded.cells()} : no_row);
      }
    }
    std::vector<std::uint64_t> bits(named ? RowMask::words_for(c.n) : 0);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = i % 3 == 2 ? 0 : random_bits(c.seed, 36, i) | random_bits(c.seed, 37, i);
    const RowMask allowed{bits};
    const reference::Rows queries(scaled_queries, c.metric), base(coded.decoded, c.metric);
    Neighbors want(c.q, c.k);
    std::fill(want.distances.begin(), want.distances.end(), reference::farthest(c.metric));
    for (std::int64_t i = 0; i < c.q; ++i) {
      std::vector<reference::Entry> entries;
      for (std::int64_t j = 0; j < width && queries.usable[i]; ++j) {
        const std::int64_t cell = value_of(probes[at(i * width + j)]);
        for (std::int64_t row = cell < 0 ? 0 : coded.begins[at(cell)]; cell >= 0 && row < coded.begins[at(cell + 1)]; ++row) {
          const std::int64_t name = coded.name_of(row);
          if (allowed.has(name) && base.usable[name]) {
            entries.push_back({coded.distance(c.metric, reference::distance(queries, i, base, name, c.metric), name), name});
          }
        }
      }
      std::sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) { return reference::nearer(a, b, c.metric); });
      for (std::int64_t j = 0; j < std::min<std::int64_t>(c.k, std::ssize(entries)); ++j) {
        want.ids[at(i * c.k + j)] = RowId{entries[at(j)].id};
        want.distances[at(i * c.k + j)] = entries[at(j)].value;
      }
    }
    for (const Ops* ops : devices) {
      const auto prepared = ops->prepare_codes(coded.codes_of(c), c.metric, c.hints, problem.run);
      EXPECT_EQ(prepared->rows(), c.n);
      EXPECT_EQ(prepared->cells(), coded.cells());
      GuardedLists lists(c.q, c.k);
      ops->nearest_in_codes(*prepared, scaled_queries, probes.data(), width, c.k, lists.out(), problem.run, allowed);
      EXPECT_TRUE(same_lists(lists, want)) << "nearest_in_codes, m=" << coded.m << " of " << coded.words << (coded.scaled ? ", scaled" : "")
                                           << ", planes=" << coded.planes << (named ? ", named" : "") << " on " << ops->isa() << ": " << c;
      GuardedLists sets(c.q, c.k);
      ops->nearest_in_codes(*prepared, scaled_queries, probes.data(), width, c.k, sets.out(), problem.run, allowed, ListOrder::by_id);
      std::vector<RowId> by_id(want.ids.begin(), want.ids.end()), got(sets.out().ids, sets.out().ids + std::ssize(want.ids));
      for (std::int64_t i = 0; i < c.q; ++i) {
        std::sort(by_id.begin() + i * c.k, by_id.begin() + (i + 1) * c.k,
                  [](RowId a, RowId b) { return static_cast<std::uint64_t>(value_of(a)) < static_cast<std::uint64_t>(value_of(b)); });
      }
      EXPECT_EQ(got, by_id) << "nearest_in_codes by id on " << ops->isa() << ": " << c;
    }
  }
}

void check_close_codes(const Devices& devices, bool shared) {
  const CloseCodes::Shape shapes[] = {{24, 1, 8, 1}, {24, 1, 4, 1}, {23, 2, 8, 1}, {24, 2, 4, 1},       {23, 3, 8, 1},
                                      {24, 6, 6, 1}, {23, 2, 6, 1}, {24, 8, 8, 1}, {24, 2, 8, 1, true}, {24, 8, 8, 3}};
  using enum CloseCodes::Far;
  const CloseCodes::Place places[] = {{centroids, 0, 1},   {centroids, 300, 1}, {centroids, 1000, 0.01f}, {centroids, 1000, 1e-4f},
                                      {centroids, 3e7f, 1}, {words, 300, 1},     {words, 1000, 1e-4f},     {shifts, 1e6f, 0.1f}};
  constexpr std::int64_t n = CloseCodes::n, q = CloseCodes::q;
  std::vector<RowId> probes;
  for (std::int64_t i = 0; i < q * CloseCodes::cells; ++i) probes.push_back(RowId{i % CloseCodes::cells});
  std::int64_t number = 0;
  for (const CloseCodes::Shape& shape : shapes) {
    for (const CloseCodes::Place& place : places) {
      if (shared && !is_of_share(number++)) continue;
      for (const bool scaled : {false, true}) {
        if (!scaled && (shape.planes > 1 || shape.grid || place.far == shifts)) continue;
        const CloseCodes close(shape, place, scaled);
        for (const Metric metric : {Metric::l2, Metric::euclidean, Metric::inner_product}) {
          const std::int64_t k = metric == Metric::euclidean ? 70 : 9;
          const std::vector<reference::Entry> entries = close.nearest_first(metric);
          Neighbors want(q, k);
          std::vector<std::int64_t> by_id;
          for (std::int64_t i = 0; i < q; ++i) {
            for (std::int64_t j = 0; j < k; ++j) {
              want.ids[at(i * k + j)] = RowId{entries[at(i * n + j)].id};
              want.distances[at(i * k + j)] = entries[at(i * n + j)].value;
              by_id.push_back(entries[at(i * n + j)].id);
            }
            std::sort(by_id.end() - k, by_id.end());
          }
          for (const Ops* ops : devices) {
            const auto prepared = ops->prepare_codes(close.codes(), metric, {.k = k, .queries = q, .batch = q}, {});
            const std::string which = join_text(shape.bits, " bits of ", shape.part_dims, " of ", shape.d, " dimensions, ", shape.planes,
                                                " planes", scaled ? ", scaled" : "", shape.grid ? ", a grid" : "", ", ", place.spread,
                                                " apart, ", place.distance, " away, k ", k, ", ", name_of(metric), " on ", ops->isa());
            GuardedLists lists(q, k), sets(q, k);
            ops->nearest_in_codes(*prepared, close.queries, probes.data(), CloseCodes::cells, k, lists.out(), {});
            EXPECT_TRUE(same_lists(lists, want)) << which;
            ops->nearest_in_codes(*prepared, close.queries, probes.data(), CloseCodes::cells, k, sets.out(), {}, {}, ListOrder::by_id);
            std::vector<std::int64_t> got;
            for (std::int64_t i = 0; i < q * k; ++i) got.push_back(value_of(sets.out().ids[i]));
            EXPECT_EQ(got, by_id) << which;
          }
        }
      }
    }
  }
}

void check_products(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const std::int64_t directions = std::min<std::int64_t>(c.n, 41);
  const reference::Rows queries(problem.queries, Metric::inner_product), base(problem.base, Metric::inner_product);
  for (const Ops* ops : devices) {
    std::vector<float> got(at(c.q * directions + 4), -77.0f);
    ops->products(problem.queries, problem.base.ref().slice(0, directions), got.data(), problem.run);
    std::int64_t different = 0;
    for (std::int64_t i = 0; i < c.q * directions; ++i) {
      different += std::bit_cast<std::uint32_t>(got[at(i)]) !=
                   std::bit_cast<std::uint32_t>(reference::distance(queries, i / directions, base, i % directions, Metric::inner_product));
    }
    EXPECT_EQ(different, 0) << "products on " << ops->isa() << ": " << c;
    EXPECT_TRUE(std::all_of(got.end() - 4, got.end(), [](float value) { return value == -77.0f; }));
  }
}

void check_nearest_among(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const std::int64_t width = std::min<std::int64_t>(c.n, 13);
  std::vector<RowId> candidates;
  for (std::int64_t i = 0; i < c.q; ++i) {
    const auto first = static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(c.n), c.seed, 38, static_cast<std::uint64_t>(i)));
    for (std::int64_t j = 0; j < width; ++j) {
      candidates.push_back(random_below(9, c.seed, 39, candidates.size()) > 0 ? RowId{(first + j) % c.n} : no_row);
    }
  }
  const reference::Rows queries(problem.queries, c.metric), base(problem.base, c.metric);
  Neighbors want(c.q, c.k);
  std::fill(want.distances.begin(), want.distances.end(), reference::farthest(c.metric));
  for (std::int64_t i = 0; i < c.q; ++i) {
    std::vector<reference::Entry> entries;
    for (std::int64_t j = 0; j < width; ++j) {
      const std::int64_t row = value_of(candidates[at(i * width + j)]);
      if (row < 0) continue;
      const float distance = reference::distance(queries, i, base, row, c.metric);
      if (distance != reference::farthest(c.metric)) entries.push_back({distance, row});
    }
    std::sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) { return reference::nearer(a, b, c.metric); });
    for (std::int64_t j = 0; j < std::min<std::int64_t>(c.k, std::ssize(entries)); ++j) {
      want.ids[at(i * c.k + j)] = RowId{entries[at(j)].id};
      want.distances[at(i * c.k + j)] = entries[at(j)].value;
    }
  }
  for (const Ops* ops : devices) {
    GuardedLists lists(c.q, c.k);
    ops->nearest_among(problem.queries, problem.base, c.metric, candidates.data(), width, c.k, lists.out(), problem.run);
    EXPECT_TRUE(same_lists(lists, want)) << "nearest_among on " << ops->isa() << ": " << c;
  }
}

}  // namespace gigaknn::test
