#include "ops/conformance.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <sstream>
#include <string_view>
#include <tuple>

#include <gigaknn/error.hpp>

#include "core/elements.hpp"
#include "core/gather.hpp"
#include "core/require.hpp"

namespace gigaknn::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr std::int64_t sizes_n[] = {1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 2999};
constexpr std::int64_t sizes_q[] = {1, 2, 5, 6, 7, 16, 64, 300};
constexpr std::int64_t sizes_d[] = {1,  2,  3,  4,  7,  8,   16,  17,  31,
                                    32, 33, 63, 64, 65, 100, 128, 200, 784};

std::uint32_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value);
}

/// Compares ids and distance bits; reports the first difference and how many there are.
testing::AssertionResult same_entries(std::span<const RowId> ids, std::span<const float> distances, std::span<const RowId> true_ids,
                                      std::span<const float> true_distances, std::int64_t k) {
  std::int64_t different = 0;
  std::ostringstream first;
  first.precision(9);
  for (std::size_t i = 0; i < true_ids.size(); ++i) {
    if (ids[i] == true_ids[i] && bits_of(distances[i]) == bits_of(true_distances[i])) continue;
    if (different++ > 0) continue;
    first << "row " << static_cast<std::int64_t>(i) / k << " place "
          << static_cast<std::int64_t>(i) % k << ": got id " << value_of(ids[i]) << " at "
          << distances[i] << " (0x" << std::hex << bits_of(distances[i]) << std::dec
          << "), want id " << value_of(true_ids[i]) << " at " << true_distances[i] << " (0x"
          << std::hex << bits_of(true_distances[i]) << ')' << std::dec;
  }
  if (different == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << different << " of " << true_ids.size() << " entries differ; " << first.str();
}

// Lists of k, each in ascending order.
std::vector<RowId> in_order(std::span<const RowId> of, std::int64_t k) {
  std::vector<RowId> ids(of.begin(), of.end());
  for (auto list = ids.begin(); list != ids.end(); list += k) std::sort(list, list + k);
  return ids;
}

// The rows of each list as Ops::nearest_set finds them, ascending.
std::vector<RowId> sets_of(const Ops& ops, const Problem& problem, const Case& c) {
  const auto prepared = ops.prepare(problem.base, c.metric, c.hints, problem.run);
  constexpr RowId guard{-77};
  std::vector<RowId> ids(static_cast<std::size_t>(c.q * c.k + 1), guard);
  ops.nearest_set(*prepared, problem.queries, c.k, ids.data(), problem.run);
  EXPECT_EQ(ids.back(), guard) << "wrote beyond its lists";
  ids.pop_back();
  return in_order(ids, c.k);
}

}  // namespace

const std::vector<Subject>& subjects() {
  static const std::vector<Subject> list = [] {
    std::vector<Subject> all;
    for (const Metric metric : all_metrics()) {
      if (on_bits(metric)) {
        all.push_back({metric, DType::u8});
        continue;
      }
      for (const DType dtype : vector_dtypes) all.push_back({metric, dtype});
    }
    return all;
  }();
  return list;
}

const Devices& instruction_sets() {
  static const Devices list = [] {
    Devices found;
    for (const char* name : {"cpu:avx512vnni", "cpu:avx2", "cpu:generic"}) {
      try {
        found.push_back(&ops_of(name));
      } catch (const Error& error) {
        if (error.fault() != Fault::device) throw;
      }
    }
    if (found.empty()) found.push_back(&ops_of("cpu"));
    return found;
  }();
  return list;
}

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << name_of(c.metric) << ' ' << name_of(c.dtype) << ' ' << name_of(c.kind)
             << " n=" << c.n << " q=" << c.q << " d=" << c.d << " k=" << c.k << " seed=" << c.seed
             << " threads=" << c.threads << " hints{k=" << c.hints.k
             << " queries=" << c.hints.queries << " batch=" << c.hints.batch
             << " self=" << c.hints.self << " few=" << c.hints.few << " seven_bits=" << c.hints.seven_bits << '}' << (c.strided ? " strided" : "");
}

Case CaseMaker::make(Subject subject, std::int64_t index, double most_work, bool self) {
  const std::int64_t subject_number =
      static_cast<std::int64_t>(subject.metric) * 4 + static_cast<std::int64_t>(subject.dtype);
  Case c;
  c.metric = subject.metric;
  c.dtype = subject.dtype;
  c.kind = static_cast<Kind>((index * 5 + subject_number * 7) % kind_count);
  c.d = sizes_d[(index + subject_number) % std::ssize(sizes_d)];
  c.n = any(sizes_n);
  c.q = self ? 1 : any(sizes_q);
  const auto work = [&] {
    return static_cast<double>(c.n) * static_cast<double>((self ? c.n : c.q) * c.d);
  };
  while (!self && work() > most_work && c.q > 7) c.q = c.q * 2 / 3;
  while (work() > most_work && c.n > 17) c.n = c.n * 2 / 3;
  const std::int64_t sizes_k[] = {1, 2, 10, c.n - 1, c.n, c.n + 1, 100, 1000};
  c.k = std::max<std::int64_t>(1, any(sizes_k));
  c.seed = draw(1000000);
  c.threads = any({1, 2, 5});
  c.hints.queries = any<std::int64_t>({1, 100, 10000, 1000000});
  c.hints.batch = std::min<std::int64_t>(c.hints.queries, any<std::int64_t>({1, 16, 10000}));
  c.hints.k = any<std::int64_t>({1, 10, 1000});
  c.hints.self = draw(2) == 0;
  c.hints.few = draw(2) == 0;
  c.strided = draw(4) == 0;
  c.hints.seven_bits = draw(3) == 0 && !on_bits(c.metric);
  return c;
}

bool is_of_share(std::int64_t number) {
  const char* const share = std::getenv("GIGAKNN_SHARE");
  if (share == nullptr || *share == '\0') return true;
  const std::string_view text = share;
  const std::size_t slash = text.find('/');
  const std::int64_t part = std::atoll(share), parts = slash == text.npos ? 0 : std::atoll(share + slash + 1);
  require(part >= 0 && part < parts, Fault::invalid_argument, "GIGAKNN_SHARE must be as 1/3, got ", text);
  return number % parts == part;
}

testing::AssertionResult same_lists(const GuardedLists& got, const Neighbors& want) {
  if (!got.guard_stands()) return testing::AssertionFailure() << "wrote beyond its lists";
  return same_entries(got.lists.ids, got.lists.distances, want.ids, want.distances, want.k);
}

testing::AssertionResult same_lists(const RadiusNeighbors& got, const RadiusNeighbors& want) {
  if (got.offsets != want.offsets || got.ids.size() != want.ids.size() ||
      got.distances.size() != want.distances.size()) {
    std::size_t i = 0;
    while (i < got.offsets.size() && i < want.offsets.size() && got.offsets[i] == want.offsets[i])
      ++i;
    return testing::AssertionFailure() << "offsets differ at " << i << ": " << got.ids.size()
                                       << " entries, want " << want.ids.size();
  }
  return same_entries(got.ids, got.distances, want.ids, want.distances,
                      std::max<std::int64_t>(1, std::ssize(want.ids)));
}

GuardedLists search(const Ops& ops, const Problem& problem, const Case& c) {
  const auto prepared = ops.prepare(problem.base, c.metric, c.hints, problem.run);
  GuardedLists lists(c.q, c.k);
  ops.nearest_rows(*prepared, problem.queries, c.k, lists.out(), problem.run);
  return lists;
}

GuardedLists search_self(const Ops& ops, const Problem& problem, const Case& c) {
  const auto prepared = ops.prepare(problem.base, c.metric, c.hints, problem.run);
  GuardedLists lists(c.n, c.k);
  ops.self_nearest(*prepared, c.k, lists.out(), problem.run);
  return lists;
}

void check_nearest_rows(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const Neighbors want = reference::nearest_rows(problem.queries, problem.base, c.metric, c.k);
  for (const Ops* ops : devices) {
    EXPECT_TRUE(same_lists(search(*ops, problem, c), want))
        << "nearest_rows on " << ops->isa() << ": " << c;
  }
}

void check_nearest_set(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const std::vector<RowId> want = in_order(reference::nearest_rows(problem.queries, problem.base, c.metric, c.k).ids, c.k);
  for (const Ops* ops : devices) {
    EXPECT_EQ(sets_of(*ops, problem, c), want) << "nearest_set on " << ops->isa() << ": " << c;
  }
}

void check_nearest_one(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const Neighbors want = reference::nearest_rows(problem.queries, problem.base, c.metric, 1);
  PrepareHints hints = c.hints;
  hints.k = 1;
  for (const Ops* ops : devices) {
    const auto prepared = ops->prepare(problem.base, c.metric, hints, problem.run);
    GuardedLists lists(c.q, 1);
    ops->nearest_one(*prepared, problem.queries, lists.lists.ids.data(), lists.lists.distances.data(),
                     problem.run);
    EXPECT_TRUE(same_lists(lists, want)) << "nearest_one on " << ops->isa() << ": " << c;
  }
}

void check_self_nearest(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const Neighbors want = reference::nearest_rows(problem.base, problem.base, c.metric, c.k, 0);
  for (const Ops* ops : devices) {
    EXPECT_TRUE(same_lists(search_self(*ops, problem, c), want))
        << "self_nearest on " << ops->isa() << ": " << c;
  }
}

void check_self_any_k(const Devices& devices, std::int64_t most_k) {
  for (const std::int64_t k : {1, 10, 32, 100, 1000, 2048, 5000}) {
    for (const std::int64_t n : {std::int64_t{40}, k <= most_k ? k + 37 : 300}) {
      for (const DType dtype : {DType::f32, DType::u8}) {
        Case c{.metric = Metric::l2, .dtype = dtype, .kind = Kind::clustered, .n = n, .d = 3, .k = k};
        c.seed = static_cast<std::uint64_t>(k + n);
        c.threads = 2;
        c.hints = {.k = k, .queries = n, .batch = n, .self = true};
        const Problem problem(c);
        const auto some = std::min<std::int64_t>(n, 100);  // of many rows those at the ends and in the middle are compared
        for (const Ops* ops : devices) {
          const GuardedLists lists = search_self(*ops, problem, c);
          EXPECT_TRUE(lists.guard_stands()) << "self_nearest on " << ops->isa() << ": " << c;
          for (const std::int64_t first : {std::int64_t{0}, (n - some) / 2, n - some}) {
            const Neighbors want = reference::nearest_rows(problem.base.ref().slice(first, first + some), problem.base, c.metric, k, first);
            const auto begin = static_cast<std::size_t>(first * k);
            EXPECT_TRUE(same_entries(std::span(lists.lists.ids).subspan(begin), std::span(lists.lists.distances).subspan(begin), want.ids,
                                     want.distances, k))
                << "self_nearest of rows from " << first << " on, on " << ops->isa() << ": " << c;
          }
        }
      }
    }
  }
}

void check_first_self(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const std::int64_t first = c.n / 3;
  const MatrixRef part = problem.base.ref().slice(first, std::min(c.n, first + c.q));
  const Neighbors want = reference::nearest_rows(part, problem.base, c.metric, c.k, first);
  for (const Ops* ops : devices) {
    const auto prepared = ops->prepare(problem.base, c.metric, c.hints, problem.run);
    GuardedLists lists(part.rows, c.k);
    ops->nearest_rows(*prepared, part, c.k, lists.out(), problem.run, first);
    EXPECT_TRUE(same_lists(lists, want))
        << "first_self=" << first << " on " << ops->isa() << ": " << c;
  }
}

void check_within_radius(const Case& c, const Devices& devices) {
  const Problem problem(c);
  // The exact value of some entry stands on the boundary; one float to either side decides it.
  const Neighbors some =
      reference::nearest_rows(problem.queries, problem.base, c.metric, std::min(c.k, c.n));
  const float edge = some.distances[some.distances.size() / 2];
  for (const float radius : {edge, std::nextafter(edge, -infinity), std::nextafter(edge, infinity),
                             0.0f, -1.0f, infinity, -infinity}) {
    const RadiusNeighbors want =
        reference::within_radius(problem.queries, problem.base, c.metric, radius);
    for (const Ops* ops : devices) {
      const auto prepared = ops->prepare(problem.base, c.metric, c.hints, problem.run);
      EXPECT_TRUE(
          same_lists(ops->within_radius(*prepared, problem.queries, radius, problem.run), want))
          << "within_radius " << radius << " on " << ops->isa() << ": " << c;
    }
  }
}

void check_pair_distances(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const reference::Rows queries(problem.queries, c.metric);
  const reference::Rows base(problem.base, c.metric);
  for (const std::int64_t width : {1, 3}) {
    std::vector<RowId> ids;
    std::vector<float> want;
    for (std::int64_t i = 0; i < c.q * width; ++i) {
      const bool none = i % 5 == 4;
      const std::int64_t id =
          static_cast<std::int64_t>(random_below(static_cast<std::uint64_t>(c.n), c.seed, 5, i));
      ids.push_back(none ? no_row : RowId{id});
      want.push_back(none ? reference::farthest(c.metric)
                          : reference::distance(queries, i / width, base, id, c.metric));
    }
    for (const Ops* ops : devices) {
      std::vector<float> got(ids.size(), -77.0f);
      ops->pair_distances(problem.queries, problem.base, c.metric, ids.data(), width, got.data(),
                          problem.run);
      EXPECT_TRUE(same_entries(ids, got, ids, want, width))
          << "pair_distances, " << width << " a query, on " << ops->isa() << ": " << c;
    }
  }
}

namespace {

// Rows in cells of none to `most_cell_rows`.
struct CellCase {
  std::vector<std::int64_t> begins = {0};
  std::int64_t cells;
  std::vector<LocalRow> as_they_are, shuffled;

  explicit CellCase(const Case& c) : as_they_are(static_cast<std::size_t>(c.n)) {
    while (begins.back() < c.n) {
      const auto rows = random_below(static_cast<std::uint64_t>(c.most_cell_rows) + 1, c.seed, 10, begins.size());
      begins.push_back(std::min<std::int64_t>(c.n, begins.back() + static_cast<std::int64_t>(rows)));
    }
    cells = static_cast<std::int64_t>(begins.size()) - 1;
    std::iota(as_they_are.begin(), as_they_are.end(), LocalRow{0});
    shuffled = as_they_are;
    for (std::size_t i = shuffled.size(); i > 1; --i) std::swap(shuffled[i - 1], shuffled[random_below(i, c.seed, 13, i)]);
  }
  // Consecutive cells from a drawn one; sometimes none.
  std::vector<RowId> probes(const Case& c, std::int64_t queries, std::int64_t width) const {
    std::vector<RowId> drawn(static_cast<std::size_t>(queries * width), no_row);
    for (std::int64_t i = 0; i < queries; ++i) {
      const auto first = static_cast<std::int64_t>(random_below(cells, c.seed, 11, i));
      for (std::int64_t j = 0; j < std::min(width, cells); ++j) {
        if (random_below(8, c.seed, 12, i * width + j) > 0) {
          drawn[static_cast<std::size_t>(i * width + j)] = RowId{(first + j) % cells};
        }
      }
    }
    return drawn;
  }
};

void put_nearest(const Case& c, std::vector<reference::Entry>& entries, std::int64_t i, Neighbors& want) {
  std::sort(entries.begin(), entries.end(), [&](const reference::Entry& a, const reference::Entry& b) {
    return reference::nearer(a, b, c.metric);
  });
  for (std::int64_t j = 0; j < std::min<std::int64_t>(c.k, std::ssize(entries)); ++j) {
    want.ids[static_cast<std::size_t>(i * c.k + j)] = RowId{entries[j].id};
    want.distances[static_cast<std::size_t>(i * c.k + j)] = entries[j].value;
  }
}

}  // namespace

void check_nearest_in_cells(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const CellCase in_cells(c);
  const auto& [begins, cells, as_they_are, shuffled] = in_cells;
  const reference::Rows base_rows(problem.base, c.metric);
  // `self`: empty, or the row of the base that each query is. `named`: rows have other names than their numbers; `masked`: some do not
  // count.
  const auto check = [&](MatrixRef queries, std::int64_t width, const std::vector<LocalRow>& order,
                         const std::vector<RowId>& self, bool named = false, bool masked = false) {
    std::vector<LocalRow> names(named ? static_cast<std::size_t>(c.n) : 0);
    std::iota(names.begin(), names.end(), LocalRow{0});
    for (std::size_t i = names.size(); i > 1; --i) std::swap(names[i - 1], names[random_below(i, c.seed, 16, i)]);
    const auto name_of = [&](std::int64_t row) { return named ? std::int64_t{names[static_cast<std::size_t>(row)]} : row; };
    std::vector<std::uint64_t> bits(masked ? RowMask::words_for(c.n) : 0);
    for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = i % 3 == 2 ? 0 : random_bits(c.seed, 17, i) | random_bits(c.seed, 18, i);
    const RowMask allowed{bits};
    std::vector<RowId> self_names;
    for (const RowId row : self) self_names.push_back(row == no_row ? no_row : RowId{name_of(value_of(row))});
    const std::vector<RowId> probes = in_cells.probes(c, queries.rows, width);
    const reference::Rows query_rows(queries, c.metric);
    Neighbors want(queries.rows, c.k);
    std::fill(want.distances.begin(), want.distances.end(), reference::farthest(c.metric));
    for (std::int64_t i = 0; i < queries.rows; ++i) {
      std::vector<reference::Entry> entries;
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t cell = value_of(probes[static_cast<std::size_t>(i * width + j)]);
        if (cell < 0 || !query_rows.usable[i]) continue;
        for (std::int64_t place = begins[cell]; place < begins[cell + 1]; ++place) {
          const std::int64_t row = order[static_cast<std::size_t>(place)];
          if (!self.empty() && self[static_cast<std::size_t>(i)] == RowId{row}) continue;
          if (base_rows.usable[row] && allowed.has(name_of(row))) {
            entries.push_back({reference::distance(query_rows, i, base_rows, row, c.metric), name_of(row)});
          }
        }
      }
      put_nearest(c, entries, i, want);
    }
    for (const Ops* ops : devices) {
      const std::vector<LocalRow> given = order == as_they_are ? std::vector<LocalRow>() : order;
      const auto prepared = ops->prepare_cells(problem.base, {given, begins, names}, c.metric, c.hints, problem.run);
      GuardedLists lists(queries.rows, c.k);
      ops->nearest_in_cells(*prepared, queries, probes.data(), width, c.k, lists.out(), problem.run,
                            self.empty() ? nullptr : self_names.data(), allowed);
      EXPECT_TRUE(same_lists(lists, want)) << "nearest_in_cells of " << width << (given.empty() ? "" : ", shuffled")
                                           << (self.empty() ? "" : ", of itself")
                                           << (named ? ", named" : "") << (masked ? ", masked" : "") << " on " << ops->isa() << ": " << c;
    }
  };
  check(problem.queries, 3, as_they_are, {});
  check(problem.queries, 3, shuffled, {});
  check(problem.queries, 0, shuffled, {});
  // Rows of the base in any order, some of which do not say who they are.
  std::vector<std::int64_t> rows;
  std::vector<RowId> self;
  for (std::int64_t i = 0; i < std::min(c.n, c.q); ++i) {
    rows.push_back(static_cast<std::int64_t>(random_below(c.n, c.seed, 14, i)));
    self.push_back(random_below(8, c.seed, 15, i) > 0 ? RowId{rows.back()} : no_row);
  }
  const Matrix some = gather_rows(problem.base, rows);
  check(some, cells, as_they_are, self);
  check(some, cells, shuffled, self, true, true);
  check(problem.queries, 3, shuffled, {}, true);
  check(problem.queries, cells, as_they_are, {}, false, true);
}

void check_join_cells(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const CellCase in_cells(c);
  const auto& [begins, cells, as_they_are, shuffled] = in_cells;
  const reference::Rows base(problem.base, c.metric);
  // The rows of the middle cells, but for some.
  std::vector<std::int64_t> rows;
  std::vector<RowId> self, own, cell_of(static_cast<std::size_t>(c.n));
  for (std::int64_t cell = 0; cell < cells; ++cell) {
    for (std::int64_t place = begins[cell]; place < begins[cell + 1]; ++place) {
      const LocalRow row = shuffled[static_cast<std::size_t>(place)];
      cell_of[row] = RowId{cell};
      const bool taken = cell >= cells / 4 && cell <= cells * 3 / 4 && random_below(8, c.seed, 16, place) > 0;
      if (!taken || std::ssize(rows) == c.q) continue;
      rows.push_back(row);
      self.push_back(RowId{row});
      own.push_back(RowId{cell});
    }
  }
  if (random_below(2, c.seed, 17, 0) == 0) {  // not in the order of their cells
    std::reverse(rows.begin(), rows.end());
    std::reverse(self.begin(), self.end());
    std::reverse(own.begin(), own.end());
  }
  const auto count = std::ssize(rows);
  for (const std::int64_t width : {std::int64_t{0}, std::int64_t{2}, std::min<std::int64_t>(cells, 7)}) {
    const std::vector<RowId> probes = in_cells.probes(c, count, width);
    const auto looks_into = [&](std::int64_t i, RowId cell) {
      return std::find(probes.begin() + i * width, probes.begin() + (i + 1) * width, cell) != probes.begin() + (i + 1) * width;
    };
    std::vector<std::int64_t> query_of(static_cast<std::size_t>(c.n), -1);
    for (std::int64_t i = 0; i < count; ++i) query_of[static_cast<std::size_t>(rows[static_cast<std::size_t>(i)])] = i;
    Neighbors want(count, c.k);
    std::fill(want.distances.begin(), want.distances.end(), reference::farthest(c.metric));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t mine = rows[static_cast<std::size_t>(i)];
      std::vector<reference::Entry> entries;
      for (std::int64_t row = 0; row < c.n && base.usable[mine]; ++row) {
        if (row == mine || !base.usable[row]) continue;
        const RowId cell = cell_of[static_cast<std::size_t>(row)];
        const std::int64_t other = query_of[static_cast<std::size_t>(row)];
        const bool meet = cell == own[static_cast<std::size_t>(i)] || looks_into(i, cell) ||
                          (other >= 0 && looks_into(other, own[static_cast<std::size_t>(i)]));
        if (meet) entries.push_back({reference::distance(base, mine, base, row, c.metric), row});
      }
      put_nearest(c, entries, i, want);
    }
    for (const Ops* ops : devices) {
      const auto prepared = ops->prepare_cells(problem.base, {shuffled, begins}, c.metric, c.hints, problem.run);
      GuardedLists lists(count, c.k);
      ops->join_cells(*prepared, self, own.data(), probes.data(), width, c.k, lists.out(), problem.run);
      EXPECT_TRUE(same_lists(lists, want)) << "join_cells of " << width << " on " << ops->isa() << ": " << c;
    }
  }
}

void check_select_k(const Case& c, const Devices& devices) {
  Matrix storage(c.q, c.n + (c.strided ? 3 : 0), DType::f32);
  MatrixRef values = storage;
  values.cols = c.n;
  const float special[] = {0.0f, -0.0f, infinity, -infinity, std::nanf(""), 1e-42f, 3e38f};
  for (std::int64_t i = 0; i < c.q; ++i) {
    for (std::int64_t j = 0; j < c.n; ++j) {
      const auto at = static_cast<std::uint64_t>(i * c.n + j);
      const auto drawn = random_below(1000, c.seed, 8, at);
      storage.row<float>(i)[j] = drawn < 7    ? special[drawn]
                                : drawn < 40 ? static_cast<float>(drawn % 5) - 2
                                             : static_cast<float>(random_unit(c.seed, 9, at) - 0.5);
    }
  }
  Neighbors want(c.q, c.k);
  for (std::int64_t i = 0; i < c.q; ++i) {
    std::vector<std::int64_t> columns(static_cast<std::size_t>(c.n));
    std::iota(columns.begin(), columns.end(), 0);
    const float* const row = values.row<float>(i);
    std::stable_sort(columns.begin(), columns.end(), [&](std::int64_t a, std::int64_t b) {
      return std::isnan(row[b]) ? !std::isnan(row[a]) : row[a] < row[b];
    });
    for (std::int64_t j = 0; j < c.k; ++j) {
      const auto entry = static_cast<std::size_t>(i * c.k + j);
      const bool none = j >= c.n;
      want.ids[entry] = none ? no_row : RowId{columns[static_cast<std::size_t>(j)]};
      want.distances[entry] = none ? infinity : row[columns[static_cast<std::size_t>(j)]] + 0.0f;
    }
  }
  RunOptions run;
  run.threads = c.threads;
  for (const Ops* ops : devices) {
    GuardedLists lists(c.q, c.k);
    ops->select_k(values, c.k, lists.out(), run);
    EXPECT_TRUE(same_lists(lists, want)) << "select_k on " << ops->isa() << ": " << c;
  }
}

void check_select_any_k(const Devices& devices) {
  for (const std::int64_t k : {1, 10, 32, 100, 1000, 2048, 5000}) {
    for (const std::int64_t n : {1, 40, 3000}) {
      Case c;
      c.n = n;
      c.q = 5;
      c.k = k;
      c.seed = static_cast<std::uint64_t>(k + n);
      c.threads = 2;
      c.strided = k % 3 == 1;
      check_select_k(c, devices);
    }
  }
}

void check_select_far_columns(const Devices& devices) {
  constexpr std::int64_t columns = (std::int64_t{1} << 24) + 100;
  constexpr std::int64_t apart = (std::int64_t{1} << 32) + 64;  // bytes
  const LazyZeros one(columns * 4), several(2 * apart + 4096);
  one.get<float>()[columns - 1] = -1;
  one.get<float>()[(1 << 24) + 1] = -2;
  one.get<float>()[(1 << 24) + 3] = -2;
  MatrixRef rows(several.get(), 3, 50, DType::f32);
  rows.stride_bytes = apart;
  for (std::int64_t i = 0; i < 3; ++i) several.get<float>()[i * apart / 4 + 40 + i] = -static_cast<float>(i + 1);
  for (const Ops* ops : devices) {
    GuardedLists lists(1, 5);
    ops->select_k(MatrixRef(one.get(), 1, columns, DType::f32), 5, lists.out(), {});
    Neighbors want(1, 5);
    want.ids = {RowId{(1 << 24) + 1}, RowId{(1 << 24) + 3}, RowId{columns - 1}, RowId{0}, RowId{1}};
    want.distances = {-2, -2, -1, 0, 0};
    EXPECT_TRUE(same_lists(lists, want)) << "select_k on " << ops->isa();
    GuardedLists apart_lists(3, 2);
    ops->select_k(rows, 2, apart_lists.out(), {});
    Neighbors apart_want(3, 2);
    apart_want.ids = {RowId{40}, RowId{0}, RowId{41}, RowId{0}, RowId{42}, RowId{0}};
    apart_want.distances = {-1, 0, -2, 0, -3, 0};
    EXPECT_TRUE(same_lists(apart_lists, apart_want)) << "select_k of rows gigabytes apart on " << ops->isa();
  }
}

void check_far_rows(DType dtype, const Devices& devices) {
  Case c{.metric = Metric::l2, .dtype = dtype, .kind = Kind::clustered, .n = 300, .q = 20, .d = 20, .k = 5};
  c.hints = {.k = c.k, .queries = 1000, .batch = 1000, .self = true};
  const Problem problem(c);
  constexpr std::int64_t apart = (std::int64_t{16} << 20) + 64;  // bytes: the last row begins beyond 4 GiB, and more
  const LazyZeros memory(c.n * apart);
  MatrixRef far(memory.get(), c.n, c.d, dtype);
  far.stride_bytes = apart;
  for (std::int64_t i = 0; i < c.n; ++i) {
    std::memcpy(memory.get() + i * apart, problem.base.ref().row_bytes(i), static_cast<std::size_t>(c.d) * size_of(dtype));
  }
  std::vector<RowId> ids, labels;
  for (std::int64_t i = 0; i < c.q * 3; ++i) ids.push_back(RowId{c.n - 1 - i * 4});
  for (std::int64_t i = 0; i < c.n; ++i) labels.push_back(RowId{i % 7});
  const std::vector<std::int64_t> begins = {0, 100, 130, c.n};
  const std::vector<RowId> probes(static_cast<std::size_t>(c.q), RowId{2});
  for (const Ops* ops : devices) {
    const auto answers = [&](MatrixRef base) {
      const auto prepared = ops->prepare(base, c.metric, c.hints, problem.run);
      std::vector<GuardedLists> lists;
      for (const std::int64_t rows : {c.q, c.n, c.q, c.q, c.n}) lists.emplace_back(rows, c.k);
      ops->nearest_rows(*prepared, problem.queries, c.k, lists[0].out(), problem.run);
      ops->self_nearest(*prepared, c.k, lists[1].out(), problem.run);
      const auto in_cells = ops->prepare_cells(base, {{}, begins}, c.metric, c.hints, problem.run);
      ops->nearest_in_cells(*in_cells, problem.queries, probes.data(), 1, c.k, lists[2].out(), problem.run);
      ops->nearest_among(problem.queries, base, c.metric, ids.data(), 3, c.k, lists[3].out(), problem.run);
      const auto few = ops->prepare(problem.queries, c.metric, c.hints, problem.run);
      ops->nearest_rows(*few, base, c.k, lists[4].out(), problem.run);  // they are the queries
      std::vector<float> distances(ids.size());
      ops->pair_distances(problem.queries, base, c.metric, ids.data(), 3, distances.data(), problem.run);
      std::vector<double> sums(static_cast<std::size_t>(7 * c.d));
      std::vector<std::int64_t> counts(7);
      ops->sum_by_label(base, nullptr, labels.data(), 7, sums.data(), counts.data(), problem.run);
      return std::tuple(std::move(lists), distances, sums, counts);
    };
    const auto [want_lists, want_distances, want_sums, want_counts] = answers(problem.base);
    const auto [lists, distances, sums, counts] = answers(far);
    EXPECT_TRUE(same_lists(lists[0], reference::nearest_rows(problem.queries, problem.base, c.metric, c.k))) << ops->isa();
    for (std::size_t i = 0; i < lists.size(); ++i) EXPECT_TRUE(same_lists(lists[i], want_lists[i].lists)) << i << " on " << ops->isa();
    EXPECT_EQ(distances, want_distances) << ops->isa();
    EXPECT_EQ(sums, want_sums) << ops->isa();
    EXPECT_EQ(counts, want_counts) << ops->isa();
  }
}

void check_high_numbers(const Devices& devices) {
  constexpr std::int64_t n = (std::int64_t{1} << 24) + 100;
  Matrix base(n, 1, DType::u8);
  std::uint8_t* const values = base.row<std::uint8_t>(0);
  std::fill_n(values, n, std::uint8_t{0});
  for (const std::int64_t row : {std::int64_t{5}, n - 1}) values[row] = 201;
  for (const std::int64_t row : {(1 << 24) + 1, (1 << 24) + 3}) values[row] = 200;
  Matrix query(1, 1, DType::u8);
  query.row<std::uint8_t>(0)[0] = 200;
  Neighbors want(1, 4);
  want.ids = {RowId{(1 << 24) + 1}, RowId{(1 << 24) + 3}, RowId{5}, RowId{n - 1}};
  want.distances = {0, 0, 1, 1};
  RunOptions run;
  run.threads = 2;
  for (const Ops* ops : devices) {
    const auto prepared = ops->prepare(base, Metric::l2, {.k = 4, .queries = 1, .batch = 1}, run);
    GuardedLists lists(1, 4);
    ops->nearest_rows(*prepared, query, 4, lists.out(), run);
    EXPECT_TRUE(same_lists(lists, want)) << "nearest_rows on " << ops->isa();
  }
}

void check_assignment(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const MatrixRef rows = problem.base;
  const std::int64_t clusters = c.k;
  std::vector<DType> types = {rows.dtype};
  if (rows.dtype != DType::f32 && !on_bits(c.metric)) types.push_back(DType::f32);
  for (const DType type : types) {
    const Matrix floats = type == rows.dtype ? Matrix() : as_floats(rows);
    const MatrixRef readable = type == rows.dtype ? rows : floats.ref();
    const auto row_bytes = static_cast<std::size_t>(c.d) * size_of(type);
    std::vector<std::unique_ptr<Assignment>> assignments;
    for (const Ops* ops : devices) assignments.push_back(ops->start_assignment(rows, c.metric, type, clusters, problem.run));
    Matrix centroids(clusters, c.d, type);
    std::uint64_t counter = 0;
    const auto draw = [&](std::int64_t bound) { return random_below(static_cast<std::uint64_t>(bound), c.seed, 8, counter++); };
    for (const int percent : {100, 100, 30, 0, 60, 5}) {
      for (std::int64_t cluster = 0; cluster < clusters; ++cluster) {
        if (static_cast<int>(draw(100)) >= percent) continue;
        const bool is_query = counter < 3 * static_cast<std::uint64_t>(clusters) && type == rows.dtype && draw(2) == 0;
        const auto row = static_cast<std::int64_t>(draw(is_query ? c.q : c.n));
        std::memcpy(centroids.row<std::byte>(cluster), is_query ? problem.queries.ref().row_bytes(row) : readable.row_bytes(row),
                    row_bytes);
        // What moves later stays near to where it was, as means do; one becomes no number, for a round or more.
        if (type != DType::f32 || counter < 3 * static_cast<std::uint64_t>(clusters)) continue;
        centroids.row<float>(cluster)[0] = draw(20) == 0 ? NAN : centroids.row<float>(cluster)[0] * 1.25f;
      }
      const Neighbors want = reference::nearest_rows(readable, centroids, c.metric, 1);
      for (std::size_t i = 0; i < devices.size(); ++i) {
        std::vector<RowId> labels(static_cast<std::size_t>(c.n), RowId{-77});
        std::vector<float> distances(labels.size(), -77);
        assignments[i]->assign(centroids, labels.data(), distances.data(), problem.run);
        std::int64_t different = 0;
        for (std::size_t row = 0; row < labels.size(); ++row) {
          const bool none = !std::isfinite(want.distances[row]);
          different +=
              labels[row] != (none ? no_row : want.ids[row]) || bits_of(distances[row]) != bits_of(none ? infinity : want.distances[row]);
        }
        EXPECT_EQ(different, 0) << "of " << c.n << " rows, assigned to " << name_of(type) << " on " << devices[i]->isa() << " when "
                                << percent << " % had moved: " << c;
      }
    }
  }
}

void check_sum_by_label(const Case& c, const Devices& devices) {
  const Problem problem(c);
  const MatrixRef rows = problem.base;
  std::vector<double> some_weights;
  for (std::int64_t i = 0; i < c.n; ++i) some_weights.push_back(random_unit(c.seed, 7, static_cast<std::uint64_t>(i)) * 3);
  for (const double* const weights : {static_cast<const double*>(nullptr), static_cast<const double*>(some_weights.data())}) {
    for (const bool one_label : {false, true}) {
      std::vector<RowId> labels;
      for (std::int64_t i = 0; i < c.n; ++i) {
        const auto drawn = random_below(static_cast<std::uint64_t>(c.k + 1), c.seed, 6, i);
        labels.push_back(RowId{one_label ? c.k - 1 : static_cast<std::int64_t>(drawn) - 1});
      }
      const auto entries = static_cast<std::size_t>(c.k * c.d);
      std::vector<double> want(entries);
      std::vector<std::int64_t> want_counts(static_cast<std::size_t>(c.k));
      for (std::int64_t label = 0; label < c.k; ++label) {
        std::int64_t& count = want_counts[static_cast<std::size_t>(label)];
        for (std::int64_t col = 0; col < c.d; ++col) {
          double run = 0;
          double& sum = want[static_cast<std::size_t>(label * c.d + col)];
          count = 0;
          for (std::int64_t i = 0; i < c.n; ++i) {
            if (value_of(labels[static_cast<std::size_t>(i)]) != label) continue;
            run += weights ? weights[i] * reference::element(rows, i, col) : reference::element(rows, i, col);
            if (++count % 256 == 0) {
              sum += run;
              run = 0;
            }
          }
          if (count % 256 != 0) sum += run;
        }
      }
      for (const Ops* ops : devices) {
        std::vector<double> got(entries, -77);
        std::vector<std::int64_t> counts(want_counts.size(), -77);
        ops->sum_by_label(rows, weights, labels.data(), c.k, got.data(), counts.data(), problem.run);
        EXPECT_EQ(counts, want_counts) << "sum_by_label on " << ops->isa() << ": " << c;
        for (std::size_t i = 0; i < entries; ++i) {
          const bool same = std::bit_cast<std::uint64_t>(got[i] + 0.0) == std::bit_cast<std::uint64_t>(want[i] + 0.0);
          if (same || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
          EXPECT_EQ(got[i], want[i]) << "entry " << i << " of sum_by_label on " << ops->isa() << ": " << c;
          break;
        }
      }
    }
  }
}

}  // namespace gigaknn::test
