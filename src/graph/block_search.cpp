#include "graph/block_search.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/gather.hpp"
#include "core/threads.hpp"
#include "graph/byte_candidates.hpp"
#include "graph/mapped_rows.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> all(at(end - begin));
  std::iota(all.begin(), all.end(), begin);
  return all;
}

PrepareHints hints_for(const StoredSearch& search, std::int64_t queries, std::int64_t batch, bool self) {
  return {.k = search.width, .queries = queries, .batch = batch, .self = self, .seven_bits = search.form == RowForm::candidates};
}

void name_as_in_base(Neighbors& lists, const std::vector<std::uint32_t>& ids) {
  for (RowId& id : lists.ids) {
    if (id != no_row) id = RowId{ids[at(value_of(id))]};
  }
}

// Some rows of a base, numbered in their order.
class RowNumbers {
 public:
  explicit RowNumbers(std::int64_t n) : bits_(at((n + 63) / 64)), before_(bits_.size()) {}

  void add(std::int64_t row) {
    std::uint64_t& word = bits_[at(row / 64)];
    const std::uint64_t bit = std::uint64_t{1} << row % 64;
    count_ += (word & bit) == 0;
    word |= bit;
  }
  std::int64_t count() const { return count_; }
  /// Numbers them.
  std::vector<std::int64_t> all() {
    std::vector<std::int64_t> rows;
    rows.reserve(at(count_));
    for (std::size_t w = 0; w < bits_.size(); ++w) {
      before_[w] = static_cast<std::uint32_t>(rows.size());
      for (std::uint64_t left = bits_[w]; left != 0; left &= left - 1) {
        rows.push_back(static_cast<std::int64_t>(w) * 64 + std::countr_zero(left));
      }
    }
    return rows;
  }
  std::int64_t number_of(std::int64_t row) const {
    const std::uint64_t below = bits_[at(row / 64)] & ((std::uint64_t{1} << row % 64) - 1);
    return std::int64_t{before_[at(row / 64)]} + std::popcount(below);
  }
  void clear() {
    std::fill(bits_.begin(), bits_.end(), 0);
    count_ = 0;
  }

 private:
  std::vector<std::uint64_t> bits_;
  std::vector<std::uint32_t> before_;  // rows before those of each word
  std::int64_t count_ = 0;
};

}  // namespace

StoredSearch StoredSearch::of(const StoredGraph& graph, std::int64_t candidates, const CandidateRows* form) {
  if (candidates == 0) return {RowForm::of_base, graph.params.metric, graph.params.k, graph.plan.chunk_rows};
  return {RowForm::candidates, form->metric_for(graph.params.metric), candidates, graph.plan.byte_chunk_rows};
}

Neighbors nearest_in_files(const Ops& ops, const StoredCells& cells, const ShardPlan& plan, const StoredSearch& search, MatrixRef queries,
                           std::span<const RowId> self, std::span<const RowId> probes, std::int64_t width, const RunOptions& run) {
  Neighbors lists(queries.rows, search.width);
  clear_lists(NeighborsOut(lists), search.metric);
  std::vector<std::uint8_t> wanted(at(cells.cells()));
  for (const RowId probe : probes) {
    if (probe != no_row) wanted[at(value_of(probe))] = 1;
  }
  for (const std::vector<std::int64_t>& chunk : cells.chunks(wanted, search.chunk_rows, plan.chunk_cells(search.chunk_rows))) {
    const LoadedCells loaded = cells.load(chunk, search.form, run);
    const auto prepared =
        ops.prepare_cells(loaded.rows, {loaded.order, loaded.begins}, search.metric, hints_for(search, queries.rows, queries.rows, false), run);
    std::vector<RowId> here(probes.begin(), probes.end()), itself;
    for (RowId& probe : here) {
      const auto cell = std::lower_bound(chunk.begin(), chunk.end(), value_of(probe));
      probe = cell != chunk.end() && *cell == value_of(probe) ? RowId{cell - chunk.begin()} : no_row;
    }
    for (const RowId row : self) {
      const auto place = std::lower_bound(loaded.ids.begin(), loaded.ids.end(), value_of(row));
      itself.push_back(place != loaded.ids.end() && *place == value_of(row) ? RowId{place - loaded.ids.begin()} : no_row);
    }
    Neighbors found(queries.rows, search.width);
    ops.nearest_in_cells(*prepared, queries, here.data(), width, search.width, NeighborsOut(found), run, itself.data());
    name_as_in_base(found, loaded.ids);
    merge_lists(NeighborsOut(lists), found, 0, search.metric, run);
  }
  return lists;
}

BlockSearch::BlockSearch(const StoredGraph& graph, const StoredCells& cells, const NearCellFinder& finder, const StoredSearch& search,
                         std::span<const std::int64_t> bands, const RunOptions& run)
    : graph_(graph), cells_(cells), finder_(finder), search_(search), bands_(bands), run_(run),
      ids_(cells.ids_in(bands.front(), bands.back())), lists_(std::ssize(ids_), search.width) {
  clear_lists(NeighborsOut(lists_), search_.metric);
}

void BlockSearch::search() {
  join_bands();
  const auto all = cells_.chunks(wanted_, search_.chunk_rows, graph_.plan.chunk_cells(search_.chunk_rows));
  if (!all.empty()) cells_.read_ahead(all.front(), search_.form, chunk_reader_);
  for (std::size_t i = 0; i < all.size(); ++i) search_chunk(all[i], i + 1 < all.size() ? all[i + 1] : std::vector<std::int64_t>{});
  probes_ = {};
  if (search_.form == RowForm::candidates) keep_nearest();
}

void BlockSearch::write(ContainerWriter& writer, std::int64_t pass) const {
  const auto n = std::ssize(ids_);
  const std::int64_t k = lists_.k;
  std::vector<std::uint32_t> order(ids_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return ids_[a] < ids_[b]; });
  const auto append_each = [&](const std::string& name, Element element, std::int64_t cols, auto&& value) {
    writer.begin_section(name + std::to_string(pass), element, at(n), at(cols));
    std::vector<decltype(value(0))> part;
    for (std::int64_t begin = 0; begin < n; begin += lists_at_once(k)) {
      part.clear();
      for (std::int64_t i = begin; i < std::min(n, begin + lists_at_once(k)); ++i) {
        for (std::int64_t j = 0; j < cols; ++j) part.push_back(value(std::int64_t{order[at(i)]} * cols + j));
      }
      writer.append(part.data(), part.size() * sizeof part[0]);
    }
  };
  append_each("rows", Element::u32, 1, [&](std::int64_t i) { return ids_[at(i)]; });
  append_each("ids", Element::u32, k, [&](std::int64_t i) { return static_cast<std::uint32_t>(value_of(lists_.ids[at(i)])); });
  append_each("distances", Element::f32, k, [&](std::int64_t i) { return lists_.distances[at(i)]; });
}

// visit(first row of the band, its first cell, the cell behind its last)
template <class Visit>
void BlockSearch::for_each_band(Visit visit) const {
  const std::vector<std::int64_t>& begins = cells_.begins();
  for (std::size_t band = 0; band + 1 < bands_.size(); ++band) {
    check_cancelled(run_);
    const std::int64_t cell = bands_[band], last = bands_[band + 1];
    if (begins[at(last)] > begins[at(cell)]) visit(begins[at(cell)] - begins[at(bands_.front())], cell, last);
  }
}

// The band that begins with `cell`, which is read while the one before is computed.
void BlockSearch::read_band_ahead(std::int64_t cell, RowForm form) {
  const auto band = std::lower_bound(bands_.begin(), bands_.end(), cell);
  if (bands_.end() - band > 1) cells_.read_ahead(range(band[0], band[1]), form, band_reader_);
}

NeighborsOut BlockSearch::lists_from(std::int64_t first, std::int64_t rows) {
  NeighborsOut lists(lists_);
  lists.ids += first * lists_.k;
  lists.distances += first * lists_.k;
  lists.rows = rows;
  return lists;
}

// Finds what rows of each band look into, and joins those that look into cells of their own band.
void BlockSearch::join_bands() {
  const std::int64_t width = finder_.width();
  probes_.resize(ids_.size() * at(width));
  wanted_.assign(at(cells_.cells()), 0);
  for_each_band([&](std::int64_t first, std::int64_t cell, std::int64_t last) {
    LoadedCells loaded = cells_.load(range(cell, last), RowForm::of_base, run_);
    read_band_ahead(last, RowForm::of_base);
    const std::int64_t count = loaded.rows.rows();
    std::vector<RowId> rows, own, probes(at(count * width));
    for (std::int64_t c = 0; c < last - cell; ++c) {
      for (std::int64_t place = loaded.begins[at(c)]; place < loaded.begins[at(c + 1)]; ++place) {
        rows.push_back(RowId{loaded.order[at(place)]});
        own.push_back(RowId{cell + c});
      }
    }
    finder_.nearest(loaded.rows, rows, own.data(), probes.data(), run_);
    for (RowId& mine : own) mine = RowId{value_of(mine) - cell};
    for (std::size_t i = 0; i < probes.size(); ++i) {
      const std::int64_t probe = value_of(probes[i]);
      const bool here = probe >= cell && probe < last;
      probes[i] = here ? RowId{probe - cell} : no_row;
      probes_[at(first * width) + i] = here || probe < 0 ? none : static_cast<std::uint32_t>(probe);
      if (!here && probe >= 0) wanted_[at(probe)] = 1;
    }
    if (search_.form == RowForm::candidates) {
      loaded.rows = Matrix();
      loaded = cells_.load(range(cell, last), RowForm::candidates, run_);
    }
    const auto prepared =
        graph_.ops.prepare_cells(loaded.rows, {loaded.order, loaded.begins}, search_.metric, hints_for(search_, count, count, true), run_);
    const NeighborsOut lists = lists_from(first, count);
    graph_.ops.join_cells(*prepared, rows, own.data(), probes.data(), width, lists_.k, lists, run_);
    for (std::int64_t i = 0; i < count * lists_.k; ++i) {
      if (lists.ids[i] != no_row) lists.ids[i] = RowId{loaded.ids[at(value_of(lists.ids[i]))]};
    }
  });
}

void BlockSearch::search_chunk(const std::vector<std::int64_t>& chunk, const std::vector<std::int64_t>& next) {
  const std::int64_t width = finder_.width();
  const std::int64_t k = lists_.k;
  const LoadedCells loaded = cells_.load(chunk, search_.form, run_);
  cells_.read_ahead(next, search_.form, chunk_reader_);
  const auto prepared = graph_.ops.prepare_cells(loaded.rows, {loaded.order, loaded.begins}, search_.metric,
                                                 hints_for(search_, std::ssize(ids_), graph_.plan.band_rows, false), run_);
  std::vector<std::uint32_t> local(at(cells_.cells()), none);
  for (std::size_t i = 0; i < chunk.size(); ++i) local[at(chunk[i])] = static_cast<std::uint32_t>(i);
  for_each_band([&](std::int64_t first, std::int64_t cell, std::int64_t last) {
    const std::int64_t count = cells_.begins()[at(last)] - cells_.begins()[at(cell)];
    std::vector<RowId> probes(at(count * width), no_row);
    parallel_for(run_, count, 1024, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::size_t place = at(i * width);
        for (std::int64_t j = 0; j < width; ++j) {
          const std::uint32_t probe = probes_[at((first + i) * width + j)];
          if (probe != none && local[probe] != none) probes[place++] = RowId{local[probe]};
        }
      }
    });
    if (std::all_of(probes.begin(), probes.end(), [](RowId probe) { return probe == no_row; })) return;
    const Matrix rows = cells_.rows_in(cell, last, search_.form, run_);
    read_band_ahead(last, search_.form);
    Neighbors found(rows.rows(), k);
    graph_.ops.nearest_in_cells(*prepared, rows, probes.data(), width, k, NeighborsOut(found), run_);
    name_as_in_base(found, loaded.ids);
    merge_lists(lists_from(first, count), found, 0, search_.metric, run_);
  });
}

// Of candidates the nearest, by canonical distances: of as many lists at a time as name no more rows than memory has room for.
void BlockSearch::keep_nearest() {
  const std::int64_t width = lists_.k, n = std::ssize(ids_);
  Neighbors nearest(n, graph_.params.k);
  RowNumbers named(graph_.base.rows);
  for (std::int64_t begin = 0, end = 0; begin < n; begin = end) {
    named.clear();
    for (; end < n && (end == begin || named.count() + width + 1 <= graph_.plan.gathered_rows); ++end) {
      named.add(ids_[at(end)]);
      for (std::int64_t j = 0; j < width; ++j) {
        if (const RowId id = lists_.ids[at(end * width + j)]; id != no_row) named.add(value_of(id));
      }
    }
    const std::vector<std::int64_t> rows = named.all();
    const Matrix vectors = gather_mapped(graph_.base, rows, run_);
    for (std::int64_t first = begin; first < end; first += nearest_at_once) {
      check_cancelled(run_);
      const std::int64_t count = std::min(nearest_at_once, end - first);
      std::vector<std::int64_t> own(at(count));
      std::vector<RowId> candidates(at(count * width));
      for (std::int64_t i = 0; i < count; ++i) own[at(i)] = named.number_of(ids_[at(first + i)]);
      for (std::int64_t i = 0; i < count * width; ++i) {
        const RowId id = lists_.ids[at(first * width + i)];
        candidates[at(i)] = id == no_row ? no_row : RowId{named.number_of(value_of(id))};
      }
      NeighborsOut out(nearest);
      out.ids += first * nearest.k;
      out.distances += first * nearest.k;
      out.rows = count;
      graph_.ops.nearest_among(gather_rows(vectors, own, run_), vectors, graph_.params.metric, candidates.data(), width, nearest.k, out, run_);
      for (std::int64_t i = 0; i < count * nearest.k; ++i) {
        if (out.ids[i] != no_row) out.ids[i] = RowId{rows[at(value_of(out.ids[i]))]};
      }
    }
  }
  lists_ = std::move(nearest);
}

}  // namespace gigaknn
