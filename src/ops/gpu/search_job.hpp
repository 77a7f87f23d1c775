// What the kernels of one search share: rows and queries, their codes, and how a scan's number tells what a key can be.
#pragma once

#include <cstdint>

#include "ops/gpu/device_rows.hpp"

namespace gigaknn::gpu {

enum class ProductKind : std::uint8_t { bf16, u8, s8 };

/// Rows in the form that tensor cores multiply (product_codes.hpp).
struct CodesView {
  const std::byte* data = nullptr;  ///< rows of `steps` times 32 bytes
  std::int64_t rows = 0;
  std::int64_t pitch = 0;  ///< bytes of a row
  int steps = 0;
  ProductKind kind = ProductKind::bf16;
  const float* scale = nullptr;  ///< rows of the base: bytes [n]
  const float* bias = nullptr;   ///< bytes [n]; bf16: h, which their products subtract
  const std::int32_t* shift = nullptr;  ///< bytes [n]: `bias`, rounded up; null: of cosine, whose rows have scales
};

/// A query's own part of its limit (product_codes.hpp).
struct QueryTerms {
  double start;
  double slope;
};

/// How the numbers of a scan tell that a key is not above t:
///   at_least  number >= start - slope * growth(t); growth is t, or what the metric's formula has
///   at_most   number <= t * (1 + error) + slack
enum class LimitForm : std::uint8_t { none, at_least, at_most };
struct LimitRule {
  LimitForm form = LimitForm::none;
  Metric metric = Metric::l2;
  const QueryTerms* terms = nullptr;  ///< at_least: [q]
  const std::uint8_t* far = nullptr;  ///< [q] far_row: nothing comes through; null: none is
  double error = 0;  ///< at_most
  double slack = 0;  ///< at_most
};

/// Places [begin, end) of a base in the order of the scans: place i holds row order[i].
struct Places {
  const LocalRow* order = nullptr;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// The cells that queries look into: those of places [begins[c], begins[c + 1]). Which of their rows count, and what lists call them.
struct CellsView {
  const std::int64_t* begins = nullptr;  ///< [cells + 1]
  const std::int32_t* probes = nullptr;  ///< [q, width]; -1: none
  std::int64_t width = 0;
  const LocalRow* names = nullptr;   ///< [rows] what lists call them; null: their numbers, from `first` on
  LocalRow first = 0;
  const LocalRow* selves = nullptr;  ///< [q] the name of the row that a query is, and no neighbour of; null: none is any
  const std::uint64_t* allowed = nullptr;  ///< [rows] bits by name; null: all are
  /// Of rows that stand in cells for another reason: those whose home a query has looked into are known to it already.
  const std::int32_t* homes = nullptr;   ///< [rows]; null: none is
  const std::int32_t* looked = nullptr;  ///< [q, looked_width] homes
  std::int64_t looked_width = 0;
};

/// No row.
inline constexpr LocalRow no_self = ~LocalRow{0};

/// A stretch of a cell: the next that a query comes to (cell_windows.hpp).
struct ProbePlace {
  std::int32_t rank;     ///< of the cell among the query's probes
  std::int32_t stretch;  ///< of that cell
};
/// A part of what each query looks into, and, turned round, the queries of each stretch.
struct CellWindow {
  const std::int64_t* stretch_begins = nullptr;   ///< [stretches + 1] places
  const std::int32_t* first_stretches = nullptr;  ///< [cells + 1]
  const ProbePlace* from = nullptr;               ///< [q]
  const ProbePlace* to = nullptr;                 ///< [q]
  const std::uint32_t* queries = nullptr;         ///< stretch after stretch
  const std::uint32_t* query_begins = nullptr;    ///< [stretches + 1]
  const std::uint32_t* tile_begins = nullptr;     ///< [stretches + 1] tiles of a stretch's queries, numbered through
  std::int32_t stretches = 0;
  std::int64_t tiles = 0;
};

struct SearchJob {
  RowsView base;
  RowsView queries;
  CodesView base_codes;   ///< where the scan multiplies; rows are places
  CodesView query_codes;
  Metric metric;
  std::int64_t first_self;  ///< query i is row first_self + i of the base and no neighbour of
                            ///< itself; -1: none is
  Places places;            ///< what this scan goes through
  LimitRule rule;
  bool finished;  ///< the scan knows keys, and leaves packed neighbours

  /// A base searched with itself: list i is that of row query_order[i], as places are; null: of query i.
  const LocalRow* query_order = nullptr;
  /// The lists that this scan serves.
  std::int64_t first_list = 0;
  std::int64_t end_list = 0;
  /// Of lists that are places: pairs with the row's place beyond the list's alone, each for both of its lists.
  bool both_sides = false;

  /// Of searches in cells.
  CellsView cells = {};
  CellWindow window = {};
};

}  // namespace gigaknn::gpu
