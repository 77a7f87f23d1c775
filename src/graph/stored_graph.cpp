#include "graph/stored_graph.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "graph/data_doubts.hpp"
#include "graph/graph_writer.hpp"
#include "graph/knng.hpp"
#include "graph/probes.hpp"
#include "graph/recall_sample.hpp"
#include "graph/stored_cells.hpp"
#include "io/mapped_file.hpp"
#include "io/validate.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t gathered_span = std::int64_t{1} << 24;  // bytes of a mapped base that are looked at before they are given back
constexpr std::int64_t entries_at_once = std::int64_t{1} << 19;  // of lists that are written or joined

std::int64_t lists_at_once(std::int64_t k) { return std::max<std::int64_t>(1, entries_at_once / k); }

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

void release_rows(MatrixRef rows) { release_mapped(rows.data, at(rows.rows * rows.stride_bytes)); }

// Without what lies behind the last row: the file may end there.
std::span<const std::byte> bytes_of(MatrixRef rows) {
  if (rows.rows == 0) return {};
  return {rows.row_bytes(0), at((rows.rows - 1) * rows.stride_bytes) + at(rows.cols) * size_of(rows.dtype)};
}

// Copies of some rows of a mapped base, ascending, few of whose pages are in memory at once.
Matrix gather_mapped(MatrixRef base, std::span<const std::int64_t> rows, const RunOptions& run) {
  Matrix gathered(std::ssize(rows), base.cols, base.dtype);
  const auto row_bytes = at(gathered.ref().stride_bytes);
  struct Span {
    std::size_t end;  // of the rows
    Stretches stretches;
  };
  const auto span_from = [&](std::size_t begin) {
    Span span{begin, {}};
    for (; span.end < rows.size() && (rows[span.end] - rows[begin]) * base.stride_bytes < gathered_span; ++span.end) {
      add_stretch(span.stretches, {base.row_bytes(rows[span.end]), row_bytes});
    }
    return span;
  };
  ReadAhead reader;
  Span span = span_from(0);
  for (std::size_t begin = 0; begin < rows.size();) {
    check_cancelled(run);
    const std::size_t end = span.end;
    await_mapped(span.stretches);
    Span next = span_from(end);
    reader.begin(next.stretches);
    parallel_for(run, static_cast<std::int64_t>(end - begin), 1024, [&](std::int64_t first, std::int64_t last, int) {
      for (auto i = static_cast<std::int64_t>(begin) + first; i < static_cast<std::int64_t>(begin) + last; ++i) {
        std::memcpy(gathered.row<std::byte>(i), base.row_bytes(rows[at(i)]), row_bytes);
      }
    });
    release_rows(base.slice(rows[begin], rows[end - 1] + 1));
    begin = end;
    span = std::move(next);
  }
  return gathered;
}

std::vector<std::int64_t> numbers_of(std::span<const RowId> rows) {
  std::vector<std::int64_t> numbers;
  for (const RowId row : rows) numbers.push_back(value_of(row));
  return numbers;
}

// The same of rows in any order.
Matrix gather_mapped_anyhow(MatrixRef base, std::span<const RowId> rows, const RunOptions& run) {
  std::vector<std::int64_t> ascending = numbers_of(rows), places(rows.size());
  std::sort(ascending.begin(), ascending.end());
  ascending.erase(std::unique(ascending.begin(), ascending.end()), ascending.end());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    places[i] = std::lower_bound(ascending.begin(), ascending.end(), value_of(rows[i])) - ascending.begin();
  }
  return gather_rows(gather_mapped(base, ascending, run), places);
}

// probes.gkc: how cells are looked for, and the sample that measures.
struct StoredProbes {
  ProbeChoice choice;
  std::vector<RowId> rows;
  Neighbors truth;

  void write(const std::filesystem::path& path) const {
    ContainerWriter writer(path, "gk-probes", 1);
    const std::int64_t numbers[3] = {choice.near, choice.width, choice.enough};
    writer.add_section("probes", Element::i64, 1, 3, numbers);
    writer.add_section("sample", Element::i64, rows.size(), 1, rows.data());
    writer.add_section("true-ids", Element::i64, rows.size(), static_cast<std::uint64_t>(truth.k), truth.ids.data());
    writer.add_section("true-distances", Element::f32, rows.size(), static_cast<std::uint64_t>(truth.k), truth.distances.data());
    writer.finish();
  }
  static StoredProbes read(const std::filesystem::path& path, std::int64_t n, std::int64_t k) {
    const Container file = Container::open(path);
    file.verify();
    StoredProbes probes;
    std::int64_t numbers[3];
    const Section& ids = file.section("true-ids", Element::i64);
    probes.rows.resize(ids.rows);
    probes.truth = Neighbors(static_cast<std::int64_t>(ids.rows), static_cast<std::int64_t>(ids.cols));
    const auto copy = [&](std::string_view name, Element element, void* to, std::size_t bytes) {
      const auto from = file.bytes_of(file.section(name, element));
      require_at(from.size() == bytes, file.file(), 0, "section '", name, "' has ", from.size(), " bytes, expected ", bytes);
      std::memcpy(to, from.data(), bytes);
    };
    copy("probes", Element::i64, numbers, sizeof numbers);
    copy("sample", Element::i64, probes.rows.data(), probes.rows.size() * 8);
    copy("true-ids", Element::i64, probes.truth.ids.data(), probes.truth.ids.size() * 8);
    copy("true-distances", Element::f32, probes.truth.distances.data(), probes.truth.distances.size() * 4);
    const auto is_row = [&](RowId row) { return row == no_row || (value_of(row) >= 0 && value_of(row) < n); };
    require_at(probes.truth.k == k && numbers[0] >= 1 && numbers[1] >= 1 && std::all_of(probes.rows.begin(), probes.rows.end(), is_row) &&
                   std::find(probes.rows.begin(), probes.rows.end(), no_row) == probes.rows.end() &&
                   std::all_of(probes.truth.ids.begin(), probes.truth.ids.end(), is_row),
               file.file(), 0, "holds no probes of this graph");
    probes.choice = {.near = numbers[0], .width = numbers[1], .enough = numbers[2] != 0};
    return probes;
  }
};

// Rows that are far from everything have no cell of their own: any will do, no query finds them.
RowId own_cell(RowId nearest) { return nearest == no_row ? RowId{0} : nearest; }

std::vector<std::filesystem::path> shard_files(const StoredGraph& graph) {
  std::vector<std::filesystem::path> files;
  for (std::int64_t s = 0; s < graph.plan.shards; ++s) files.push_back(graph.shard_file(s));
  return files;
}

}  // namespace

// Rows of a base that is read once for all of them, ascending, and their true neighbours.
struct StoredGraph::SampledRows {
  std::vector<RowId> ids;
  Matrix rows;
  Neighbors truth;

  SampledRows(const StoredGraph& graph, std::vector<RowId> wanted, const RunOptions& run) : ids(std::move(wanted)) {
    std::sort(ids.begin(), ids.end());
    rows = gather_mapped(graph.base, numbers_of(ids), run);
    Neighbors found(std::ssize(ids), graph.params.k + 1);
    clear_lists(NeighborsOut(found), graph.params.metric);
    const PrepareHints hints{.k = found.k, .queries = found.queries, .batch = found.queries, .self = false};
    const auto part_from = [&](std::int64_t begin) {
      return graph.base.slice(std::min(graph.base.rows, begin), std::min(graph.base.rows, begin + graph.plan.truth_rows));
    };
    ReadAhead reader;
    for (std::int64_t begin = 0; begin < graph.base.rows; begin += graph.plan.truth_rows) {
      const MatrixRef part = part_from(begin);
      await_mapped({bytes_of(part)});
      reader.begin({bytes_of(part_from(begin + graph.plan.truth_rows))});
      merge_nearest(graph.ops, *graph.ops.prepare(part, graph.params.metric, hints, run), begin, rows, found.k, NeighborsOut(found), run,
                    -1);
      release_rows(part);
    }
    truth = without_self(found, ids);
    // Rows that are farthest from everything are nobody's neighbours, and have none, in cells.
    for (std::size_t i = 0; i < truth.ids.size(); ++i) {
      if (std::isinf(truth.distances[i]) && (truth.distances[i] < 0) == larger_is_nearer(graph.params.metric)) truth.ids[i] = no_row;
    }
  }

  // They and their true neighbours, ascending, each once.
  std::vector<RowId> all() const {
    std::vector<RowId> some = ids;
    std::copy_if(truth.ids.begin(), truth.ids.end(), std::back_inserter(some), [](RowId id) { return id != no_row; });
    std::sort(some.begin(), some.end());
    some.erase(std::unique(some.begin(), some.end()), some.end());
    return some;
  }

  // Some of the rows; `cells` are those of all().
  ProbeSample probe_sample(std::span<const RowId> some, std::int64_t most, std::span<const RowId> cells, MatrixRef base,
                           const RunOptions& run) const {
    const std::vector<RowId> known = all();
    const auto cells_of = [&](std::span<const RowId> wanted) {
      std::vector<RowId> found;
      for (const RowId id : wanted) found.push_back(cells[at(std::lower_bound(known.begin(), known.end(), id) - known.begin())]);
      return found;
    };
    ProbeSample sample;
    std::vector<std::int64_t> places;
    for (const RowId id : some) places.push_back(place_of(id));
    sample.rows = gather_rows(rows, places);
    sample.cells = cells_of(some);
    const Neighbors lists = truth_of(some);
    std::vector<RowId> neighbors;
    for (const std::size_t entry : sampled_neighbors(lists, most, sample.begins)) neighbors.push_back(lists.ids[entry]);
    sample.neighbors = gather_mapped_anyhow(base, neighbors, run);
    sample.neighbor_cells = cells_of(neighbors);
    return sample;
  }

  Neighbors truth_of(std::span<const RowId> some) const {
    Neighbors lists(std::ssize(some), truth.k);
    for (std::size_t i = 0; i < some.size(); ++i) {
      const std::int64_t from = place_of(some[i]) * truth.k;
      std::copy_n(truth.ids.begin() + from, truth.k, lists.ids.begin() + static_cast<std::int64_t>(i) * truth.k);
      std::copy_n(truth.distances.begin() + from, truth.k, lists.distances.begin() + static_cast<std::int64_t>(i) * truth.k);
    }
    return lists;
  }

 private:
  std::int64_t place_of(RowId id) const { return std::lower_bound(ids.begin(), ids.end(), id) - ids.begin(); }
};

namespace {

// Lists of the rows of some bands, while they are found.
class BlockSearch {
 public:
  // `bands` [bands + 1] cells.
  BlockSearch(const StoredGraph& graph, const StoredCells& cells, const NearCellFinder& finder, std::span<const std::int64_t> bands,
              const RunOptions& run)
      : graph_(graph), cells_(cells), finder_(finder), bands_(bands), run_(run), ids_(cells.ids_in(bands.front(), bands.back())),
        lists_(std::ssize(ids_), graph.params.k) {
    clear_lists(NeighborsOut(lists_), graph.params.metric);
  }

  void search() {
    join_bands();
    const std::vector<std::vector<std::int64_t>> all = chunks();
    if (!all.empty()) cells_.read_ahead(all.front(), chunk_reader_);
    for (std::size_t i = 0; i < all.size(); ++i) search_chunk(all[i], i + 1 < all.size() ? all[i + 1] : std::vector<std::int64_t>{});
  }

  // By row, which `join` needs.
  void write(ContainerWriter& writer, std::int64_t pass) const {
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

 private:
  static constexpr std::uint32_t none = 0xFFFFFFFF;

  static std::vector<std::int64_t> range(std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> all(at(end - begin));
    std::iota(all.begin(), all.end(), begin);
    return all;
  }

  // The cells that are wanted, ascending, as many at once as memory allows.
  std::vector<std::vector<std::int64_t>> chunks() const {
    std::vector<std::vector<std::int64_t>> all;
    std::int64_t rows = 0;  // of the last
    for (std::int64_t cell = 0; cell < cells_.cells(); ++cell) {
      if (!wanted_[at(cell)]) continue;
      const std::int64_t more = cells_.begins()[at(cell + 1)] - cells_.begins()[at(cell)];
      if (all.empty() || rows + more > graph_.plan.chunk_rows ||
          std::ssize(all.back()) == graph_.plan.chunk_cells(graph_.plan.chunk_rows)) {
        all.emplace_back();
        rows = 0;
      }
      all.back().push_back(cell);
      rows += more;
    }
    return all;
  }

  // visit(first row of the band, its first cell, the cell behind its last)
  template <class Visit>
  void for_each_band(Visit visit) const {
    const std::vector<std::int64_t>& begins = cells_.begins();
    for (std::size_t band = 0; band + 1 < bands_.size(); ++band) {
      check_cancelled(run_);
      const std::int64_t cell = bands_[band], last = bands_[band + 1];
      if (begins[at(last)] > begins[at(cell)]) visit(begins[at(cell)] - begins[at(bands_.front())], cell, last);
    }
  }

  // The band that begins with `cell`, which is read while the one before is computed.
  void read_band_ahead(std::int64_t cell) {
    const auto band = std::lower_bound(bands_.begin(), bands_.end(), cell);
    if (bands_.end() - band > 1) cells_.read_ahead(range(band[0], band[1]), band_reader_);
  }

  NeighborsOut lists_from(std::int64_t first, std::int64_t rows) {
    NeighborsOut lists(lists_);
    lists.ids += first * lists_.k;
    lists.distances += first * lists_.k;
    lists.rows = rows;
    return lists;
  }

  // Finds what rows of each band look into, and joins those that look into cells of their own band.
  void join_bands() {
    const std::int64_t width = finder_.width();
    probes_.resize(ids_.size() * at(width));
    wanted_.assign(at(cells_.cells()), 0);
    for_each_band([&](std::int64_t first, std::int64_t cell, std::int64_t last) {
      const LoadedCells loaded = cells_.load(range(cell, last), run_);
      read_band_ahead(last);
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
      const PrepareHints hints{.k = lists_.k, .queries = count, .batch = count, .self = true};
      const auto prepared = graph_.ops.prepare_cells(loaded.rows, {loaded.order, loaded.begins}, graph_.params.metric, hints, run_);
      const NeighborsOut lists = lists_from(first, count);
      graph_.ops.join_cells(*prepared, rows, own.data(), probes.data(), width, lists_.k, lists, run_);
      for (std::int64_t i = 0; i < count * lists_.k; ++i) {
        if (lists.ids[i] != no_row) lists.ids[i] = RowId{loaded.ids[at(value_of(lists.ids[i]))]};
      }
    });
  }

  void search_chunk(const std::vector<std::int64_t>& chunk, const std::vector<std::int64_t>& next) {
    const std::int64_t width = finder_.width();
    const std::int64_t k = lists_.k;
    const LoadedCells loaded = cells_.load(chunk, run_);
    cells_.read_ahead(next, chunk_reader_);
    const PrepareHints hints{.k = k, .queries = std::ssize(ids_), .batch = graph_.plan.band_rows, .self = false};
    const auto prepared = graph_.ops.prepare_cells(loaded.rows, {loaded.order, loaded.begins}, graph_.params.metric, hints, run_);
    std::vector<std::uint32_t> local(at(cells_.cells()), none);
    for (std::size_t i = 0; i < chunk.size(); ++i) local[at(chunk[i])] = static_cast<std::uint32_t>(i);
    for_each_band([&](std::int64_t first, std::int64_t cell, std::int64_t last) {
      const std::int64_t count = cells_.begins()[at(last)] - cells_.begins()[at(cell)];
      std::vector<RowId> probes(at(count * width), no_row);
      parallel_for(run_, count, 1024, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          std::size_t next = at(i * width);
          for (std::int64_t j = 0; j < width; ++j) {
            const std::uint32_t probe = probes_[at((first + i) * width + j)];
            if (probe != none && local[probe] != none) probes[next++] = RowId{local[probe]};
          }
        }
      });
      if (std::all_of(probes.begin(), probes.end(), [](RowId probe) { return probe == no_row; })) return;
      const Matrix rows = cells_.rows_in(cell, last, run_);
      read_band_ahead(last);
      Neighbors found(rows.rows(), k);
      graph_.ops.nearest_in_cells(*prepared, rows, probes.data(), width, k, NeighborsOut(found), run_);
      for (RowId& id : found.ids) {
        if (id != no_row) id = RowId{loaded.ids[at(value_of(id))]};
      }
      merge_lists(lists_from(first, count), found, 0, graph_.params.metric, run_);
    });
  }

  const StoredGraph& graph_;
  const StoredCells& cells_;
  const NearCellFinder& finder_;
  std::span<const std::int64_t> bands_;
  const RunOptions& run_;
  std::vector<std::uint32_t> ids_;     // of the rows, by cell
  std::vector<std::uint32_t> probes_;  // [rows, width] cells of other bands, or `none`
  std::vector<std::uint8_t> wanted_;   // [all cells]
  Neighbors lists_;
  ReadAhead band_reader_, chunk_reader_;
};

// The lists of one pass of a block, in a mapped file.
struct StoredLists {
  Container file;
  std::span<const std::uint32_t> rows;  // ascending
  const std::uint32_t* ids;
  const float* distances;
  std::size_t next = 0;  // row that was not yet joined

  // Where `values` of the rows below `end` are that were not joined.
  template <class T>
  std::span<const std::byte> ahead(const T* values, std::int64_t end, std::int64_t k) const {
    const auto last = std::lower_bound(rows.begin() + static_cast<std::ptrdiff_t>(next), rows.end(), end) - rows.begin();
    return std::as_bytes(std::span(values + next * at(k), values + last * k));
  }
};

std::vector<StoredLists> open_lists(const StoredGraph& graph, const RunOptions& run) {
  std::vector<StoredLists> all;
  for (std::int64_t block = 0; block < graph.plan.blocks; ++block) {
    const Container file = Container::open(graph.lists_file(block));
    await_mapped({file.file().bytes});
    file.verify(run, AfterReading::release);
    for (std::int64_t pass = 0; const Section* rows = file.find_section("rows" + std::to_string(pass)); ++pass) {
      const Section& ids = file.section("ids" + std::to_string(pass), Element::u32);
      const Section& distances = file.section("distances" + std::to_string(pass), Element::f32);
      const auto k = static_cast<std::uint64_t>(graph.params.k);
      require_at(rows->element == Element::u32 && ids.rows == rows->rows && ids.cols == k && distances.rows == rows->rows &&
                     distances.cols == k,
                 file.file(), rows->offset, "holds no lists of this graph");
      all.push_back({file, {reinterpret_cast<const std::uint32_t*>(file.bytes_of(*rows).data()), rows->rows},
                     reinterpret_cast<const std::uint32_t*>(file.bytes_of(ids).data()),
                     reinterpret_cast<const float*>(file.bytes_of(distances).data())});
    }
  }
  return all;
}

RowId row_of_stored(std::uint32_t id) { return id == no_row_of_u32 ? no_row : RowId{id}; }

// Calls take(entries of the lists of some rows) for all rows in their order; an entry is of(file, its value there).
template <class T, class Values, class Of>
void for_each_list(std::vector<StoredLists>& all, std::int64_t n, std::int64_t k, Values StoredLists::*values, Of of,
                   const std::function<void(std::span<const T>)>& take, const RunOptions& run) {
  std::vector<T> batch;
  std::vector<bool> found;
  for (StoredLists& lists : all) lists.next = 0;
  for (std::int64_t begin = 0; begin < n; begin += lists_at_once(k)) {
    check_cancelled(run);
    const std::int64_t end = std::min(n, begin + lists_at_once(k));
    batch.resize(at((end - begin) * k));
    found.assign(at(end - begin), false);
    for (StoredLists& lists : all) {
      const Values in_file = lists.*values;
      await_mapped({lists.ahead(in_file, end, k)});
      for (; lists.next < lists.rows.size() && lists.rows[lists.next] < end; ++lists.next) {
        const std::int64_t place = std::int64_t{lists.rows[lists.next]} - begin;
        require_at(place >= 0 && !found[at(place)], lists.file.file(), 0, "has row ", begin + place, " out of order");
        found[at(place)] = true;
        for (std::int64_t j = 0; j < k; ++j) batch[at(place * k + j)] = of(lists, in_file[lists.next * at(k) + at(j)]);
      }
      release_mapped(lists.file.file().bytes.data(), lists.file.file().bytes.size());
    }
    const auto missing = std::find(found.begin(), found.end(), false);
    require(missing == found.end(), Fault::corrupt_file, "no file has the list of row ", begin + (missing - found.begin()));
    take(batch);
  }
}

}  // namespace

std::filesystem::path StoredGraph::shard_file(std::int64_t shard) const { return folder / join_text("shard-", shard, ".gkc"); }
std::filesystem::path StoredGraph::lists_file(std::int64_t block) const { return folder / join_text("lists-", block, ".gkc"); }

ProbeChoice StoredGraph::choice_for(const CoarseQuantizer& quantizer, const std::vector<std::int64_t>& begins, const SampledRows& sampled,
                                    std::span<const RowId> steering, std::span<const RowId> measuring, std::span<const RowId> cells,
                                    const RunOptions& run) const {
  const ProbeChooser chooser(ops, quantizer, begins, plan.band_rows, params.metric, params.k, run);
  const ProbeChoice steered = chooser.cheapest(sampled.probe_sample(steering, ProbeSample::that_steer, cells, base, run), params.recall);
  return chooser.widened(steered, sampled.probe_sample(measuring, ProbeSample::that_measure, cells, base, run), params.recall);
}

CoarseQuantizer StoredGraph::fitted(const RunOptions& run) const {
  const std::vector<std::int64_t> drawn = coarse_quantizer_sample(base.rows, plan.cells, params.seed);
  return fit_coarse_quantizer(ops, gather_mapped(base, drawn, run), params.metric, plan.cells, run);
}

void StoredGraph::fit(const RunOptions& run) const { write_quantizer(fitted(run), cells_file()); }

std::int64_t StoredGraph::measure_probes(const RunOptions& run) const {
  const CoarseQuantizer quantizer = fitted(run);
  const auto [steering, measuring] = draw_samples(base.rows, params.seed);
  std::vector<RowId> both = steering;
  both.insert(both.end(), measuring.begin(), measuring.end());
  const SampledRows sampled(*this, std::move(both), run);
  const std::vector<RowId> known = sampled.all();
  std::vector<RowId> cells(known.size());
  const CellFinder finder(ops, quantizer, quantizer.metric, regions_of_own_cell(quantizer), 1, run);
  // Some at a time: they are k times the sample.
  for (std::size_t begin = 0; begin < known.size(); begin += at(cell_batch_rows)) {
    const auto some = std::span(known).subspan(begin, std::min(at(cell_batch_rows), known.size() - begin));
    finder.nearest(gather_mapped(base, numbers_of({some.begin(), some.end()}), run), cells.data() + begin, run);
  }
  for (RowId& cell : cells) cell = own_cell(cell);
  // As if all cells had as many rows.
  std::vector<std::int64_t> begins;
  for (std::int64_t cell = 0; cell <= quantizer.cells(); ++cell) begins.push_back(base.rows * cell / quantizer.cells());
  return choice_for(quantizer, begins, sampled, steering, measuring, cells, run).width;
}

void StoredGraph::divide(std::int64_t shard, const RunOptions& run) const {
  const std::int64_t first = shard * plan.shard_rows;
  const MatrixRef rows = base.slice(first, std::min(base.rows, first + plan.shard_rows));
  await_mapped({bytes_of(rows)});
  require_usable_values(rows, params.metric, params.allow_nonfinite, "the base", run, first);
  const CoarseQuantizer quantizer = read_quantizer(cells_file());
  const CellFinder finder(ops, quantizer, quantizer.metric, regions_of_own_cell(quantizer), 1, run);
  // The task after this one, often: read while this one computes.
  ReadAhead reader;
  const std::int64_t next = std::min(base.rows, first + rows.rows);
  reader.begin({bytes_of(base.slice(next, std::min(base.rows, next + plan.shard_rows)))});
  std::vector<RowId> found(at(rows.rows));
  for (std::int64_t begin = 0; begin < rows.rows; begin += cell_batch_rows) {
    check_cancelled(run);
    finder.nearest(rows.slice(begin, std::min(rows.rows, begin + cell_batch_rows)), found.data() + begin, run);
  }
  std::vector<std::uint32_t> cells;
  for (const RowId cell : found) cells.push_back(static_cast<std::uint32_t>(value_of(own_cell(cell))));
  write_shard(rows, first, cells, quantizer.cells(), shard_file(shard));
  release_rows(rows);
}

void StoredGraph::choose(const RunOptions& run) const {
  const StoredCells cells(shard_files(*this), base, plan.most_rows_of_a_cell());
  const CoarseQuantizer quantizer = with_copies(read_quantizer(cells_file()), cells.copies());
  const auto [steer_places, measure_places] = draw_samples(base.rows, params.seed);
  StoredProbes probes;
  const std::vector<RowId> steering = cells.rows_at(steer_places);
  probes.rows = cells.rows_at(measure_places);

  std::vector<RowId> both = steering;
  both.insert(both.end(), probes.rows.begin(), probes.rows.end());
  const SampledRows sampled(*this, std::move(both), run);
  const std::vector<RowId> cells_of_all = cells.cells_of(sampled.all(), run);
  probes.truth = sampled.truth_of(probes.rows);
  probes.choice = choice_for(quantizer, cells.begins(), sampled, steering, probes.rows, cells_of_all, run);
  // All cells are all rows, whatever a sample can show.
  require(probes.choice.enough || probes.choice.width == quantizer.cells() || params.method == "ivf", Fault::unsupported, "not even ", probes.choice.width, " of ", quantizer.cells(),
          " cells a row would give the recall; --method exact compares all, --method ivf goes on all the same");
  probes.write(probes_file());
}

void StoredGraph::search(std::int64_t block, const RunOptions& run) const {
  const StoredCells cells(shard_files(*this), base, plan.most_rows_of_a_cell());
  const ProbeChoice probes = StoredProbes::read(probes_file(), base.rows, params.k).choice;
  const CoarseQuantizer quantizer = with_copies(read_quantizer(cells_file()), cells.copies());
  // Of a device's memory an eighth for the finder, the rest for the rows, as in memory.
  RunOptions finder_run = run, rows_run = run;
  finder_run.device_memory_bytes /= 8;
  rows_run.device_memory_bytes -= finder_run.device_memory_bytes;
  const NearCellFinder finder(ops, quantizer, params.metric, probes.near, probes.width, finder_run);
  // The bands that begin in the block's share of the rows.
  const std::vector<std::int64_t>& begins = cells.begins();
  const std::vector<std::int64_t> bands = bands_of(begins, plan.band_rows, probes.width, params.k);
  const auto band_from = [&](std::int64_t place) {
    const auto starts_before = [&](std::int64_t band, std::int64_t at_place) { return begins[at(band)] < at_place; };
    return at(std::lower_bound(bands.begin(), bands.end() - 1, place, starts_before) - bands.begin());
  };
  std::size_t band = band_from(base.rows * block / plan.blocks);
  const std::size_t end = block + 1 == plan.blocks ? bands.size() - 1 : band_from(base.rows * (block + 1) / plan.blocks);
  // Rows that look into many cells need more memory each than was planned: there are fewer at once.
  const std::size_t planned_row = 2 * list_bytes(1, params.k) + 16 + 4 * at(usual_probes);
  const std::size_t row = planned_row + 4 * at(probes.width) - 4 * at(usual_probes);
  const auto most_rows = static_cast<std::int64_t>(at(plan.block_rows) * planned_row / std::max(row, planned_row));
  ContainerWriter writer(lists_file(block), "gk-lists", 1);
  for (std::int64_t pass = 0; band < end; ++pass) {
    std::size_t last = band + 1;
    while (last < end && begins[at(bands[last + 1])] - begins[at(bands[band])] <= most_rows) ++last;
    BlockSearch part(*this, cells, finder, std::span(bands).subspan(band, last - band + 1), rows_run);
    part.search();
    part.write(writer, pass);
    band = last;
  }
  writer.finish();
}

void StoredGraph::join(const std::filesystem::path& output, const RunOptions& run) const {
  std::vector<StoredLists> all = open_lists(*this, run);
  GraphWriter writer(output, base.rows, params.k, params.metric, false);
  const auto id_of = [&](const StoredLists& lists, std::uint32_t stored) {
    const RowId id = row_of_stored(stored);
    require_at(value_of(id) < base.rows, lists.file.file(), 0, "names row ", value_of(id), " of ", base.rows);
    return id;
  };
  for_each_list<RowId>(
      all, base.rows, params.k, &StoredLists::ids, id_of, [&](std::span<const RowId> ids) { writer.append_ids(ids); }, run);
  for_each_list<float>(all, base.rows, params.k, &StoredLists::distances, [](const StoredLists&, float distance) { return distance; },
                       [&](std::span<const float> distances) { writer.append_distances(distances); }, run);
  writer.finish();
}

StoredGraph::Outcome StoredGraph::outcome(const RunOptions& run) const {
  const StoredProbes probes = StoredProbes::read(probes_file(), base.rows, params.k);
  Neighbors mine(std::ssize(probes.rows), params.k);
  for (const StoredLists& lists : open_lists(*this, run)) {
    for (std::size_t i = 0; i < probes.rows.size(); ++i) {
      const auto row = static_cast<std::uint32_t>(value_of(probes.rows[i]));
      const auto place = std::lower_bound(lists.rows.begin(), lists.rows.end(), row);
      if (place == lists.rows.end() || *place != row) continue;
      for (std::size_t j = 0; j < at(params.k); ++j) {
        const std::size_t from = at(place - lists.rows.begin()) * at(params.k) + j;
        mine.ids[i * at(params.k) + j] = row_of_stored(lists.ids[from]);
        mine.distances[i * at(params.k) + j] = lists.distances[from];
      }
    }
    release_mapped(lists.file.file().bytes.data(), lists.file.file().bytes.size());
  }
  const RecallSample sample(params.metric, base.rows, probes.rows, probes.truth);
  const auto gather = [&](std::span<const RowId> rows) { return gather_mapped_anyhow(base, rows, run); };
  std::vector<std::int64_t> lists(probes.rows.size());
  std::iota(lists.begin(), lists.end(), std::int64_t{0});
  return {sample.measure_sampled(mine),
          join_text("ivf: ", probes.choice.width, " of about ", plan.cells, " cells a row, from files: ", plan.shards,
                    plan.shards == 1 ? " shard, " : " shards, ", plan.blocks, plan.blocks == 1 ? " block" : " blocks"),
          data_doubts(ops, {base.rows, base.cols, base.dtype, gather}, params.metric, probes.rows, probes.truth, lists, run)};
}

}  // namespace gigaknn
