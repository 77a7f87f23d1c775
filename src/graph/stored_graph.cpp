#include "graph/stored_graph.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "graph/block_search.hpp"
#include "graph/byte_candidates.hpp"
#include "graph/compared_rows.hpp"
#include "graph/data_doubts.hpp"
#include "graph/graph_writer.hpp"
#include "graph/knng.hpp"
#include "graph/mapped_rows.hpp"
#include "graph/probes.hpp"
#include "graph/recall_sample.hpp"
#include "graph/stored_cells.hpp"
#include "io/mapped_file.hpp"
#include "io/validate.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t most_tried = 32;  // sampled rows at a time, whose candidates get their distances

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// probes.gkc: how cells are looked for, and the sample that measures.
struct StoredProbes {
  ProbeChoice choice;
  std::int64_t candidates = 0;  // a row; 0: the nearest are found without
  std::vector<RowId> rows;
  Neighbors truth;

  void write(const std::filesystem::path& path) const {
    ContainerWriter writer(path, "gk-probes", 2);
    const std::int64_t numbers[4] = {choice.near, choice.width, choice.enough, candidates};
    writer.add_section("probes", Element::i64, 1, 4, numbers);
    writer.add_section("sample", Element::i64, rows.size(), 1, rows.data());
    writer.add_section("true-ids", Element::i64, rows.size(), static_cast<std::uint64_t>(truth.k), truth.ids.data());
    writer.add_section("true-distances", Element::f32, rows.size(), static_cast<std::uint64_t>(truth.k), truth.distances.data());
    writer.finish();
  }
  static StoredProbes read(const std::filesystem::path& path, std::int64_t n, std::int64_t k) {
    const Container file = Container::open(path);
    file.verify();
    StoredProbes probes;
    std::int64_t numbers[4];
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
    require_at(probes.truth.k == k && numbers[0] >= 1 && numbers[1] >= 1 && (numbers[3] == 0 || numbers[3] >= std::min(k, n - 1)) &&
                   std::all_of(probes.rows.begin(), probes.rows.end(), is_row) &&
                   std::find(probes.rows.begin(), probes.rows.end(), no_row) == probes.rows.end() &&
                   std::all_of(probes.truth.ids.begin(), probes.truth.ids.end(), is_row),
               file.file(), 0, "holds no probes of this graph");
    probes.choice = {.near = numbers[0], .width = numbers[1], .enough = numbers[2] != 0};
    probes.candidates = numbers[3];
    return probes;
  }
};

// Of a device's memory an eighth for the finder, the rest for the rows, as in memory.
std::pair<RunOptions, RunOptions> shared_device(const RunOptions& run) {
  RunOptions finder = run, rows = run;
  finder.device_memory_bytes /= 8;
  rows.device_memory_bytes -= finder.device_memory_bytes;
  return {finder, rows};
}

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
  std::vector<RowId> cells;  // of all()

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
      await_mapped({bytes_of_rows(part)});
      reader.begin({bytes_of_rows(part_from(begin + graph.plan.truth_rows))});
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

  std::vector<RowId> cells_of(std::span<const RowId> some) const {
    const std::vector<RowId> known = all();
    std::vector<RowId> found;
    for (const RowId id : some) {
      found.push_back(id == no_row ? no_row : cells[at(std::lower_bound(known.begin(), known.end(), id) - known.begin())]);
    }
    return found;
  }

  Matrix rows_of(std::span<const RowId> some) const {
    std::vector<std::int64_t> places;
    for (const RowId id : some) places.push_back(place_of(id));
    return gather_rows(rows, places);
  }

  ProbeSample probe_sample(std::span<const RowId> some, std::int64_t most, MatrixRef base, const RunOptions& run) const {
    ProbeSample sample;
    sample.rows = rows_of(some);
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
                                    std::span<const RowId> steering, std::span<const RowId> measuring, double recall,
                                    const RunOptions& run) const {
  const ProbeChooser chooser(ops, quantizer, begins, plan.band_rows, params.metric, params.k, run);
  const ProbeChoice steered = chooser.cheapest(sampled.probe_sample(steering, ProbeSample::that_steer, base, run), recall);
  return chooser.widened(steered, sampled.probe_sample(measuring, ProbeSample::that_measure, base, run), recall);
}

CoarseQuantizer StoredGraph::fitted(const RunOptions& run) const {
  const std::vector<std::int64_t> drawn = coarse_quantizer_sample(base.rows, plan.cells, params.seed);
  return fit_coarse_quantizer(ops, gather_mapped(base, drawn, run), params.metric, plan.cells, run);
}

void StoredGraph::fit(const RunOptions& run) const {
  std::optional<CandidateRows> form;
  if (by_candidates()) {
    form = CandidateRows::fit(ops, gather_mapped(base, sample_of_byte_rows(base.rows, params.seed), run), params.metric, params.k, run);
  }
  write_quantizer(fitted(run), form, cells_file());
}

std::int64_t StoredGraph::measure_probes(const RunOptions& run) const {
  const CoarseQuantizer quantizer = fitted(run);
  const auto [steering, measuring] = draw_samples(base.rows, params.seed);
  std::vector<RowId> both = steering;
  both.insert(both.end(), measuring.begin(), measuring.end());
  SampledRows sampled(*this, std::move(both), run);
  const std::vector<RowId> known = sampled.all();
  sampled.cells.resize(known.size());
  const CellFinder finder(ops, quantizer, quantizer.metric, regions_of_own_cell(quantizer), 1, run);
  // Some at a time: they are k times the sample.
  for (std::size_t begin = 0; begin < known.size(); begin += at(cell_batch_rows)) {
    const auto some = std::span(known).subspan(begin, std::min(at(cell_batch_rows), known.size() - begin));
    finder.nearest(gather_mapped(base, numbers_of({some.begin(), some.end()}), run), sampled.cells.data() + begin, run);
  }
  for (RowId& cell : sampled.cells) cell = own_cell(cell);
  // As if all cells had as many rows.
  std::vector<std::int64_t> begins;
  for (std::int64_t cell = 0; cell <= quantizer.cells(); ++cell) begins.push_back(base.rows * cell / quantizer.cells());
  return choice_for(quantizer, begins, sampled, steering, measuring, params.recall, run).width;
}

void StoredGraph::divide(std::int64_t shard, const RunOptions& run) const {
  const std::int64_t first = shard * plan.shard_rows;
  const MatrixRef rows = base.slice(first, std::min(base.rows, first + plan.shard_rows));
  await_mapped({bytes_of_rows(rows)});
  require_usable_values(rows, params.metric, params.allow_nonfinite, "the base", run, first);
  const CoarseQuantizer quantizer = read_quantizer(cells_file());
  const CellFinder finder(ops, quantizer, quantizer.metric, regions_of_own_cell(quantizer), 1, run);
  // The task after this one, often: read while this one computes.
  ReadAhead reader;
  const std::int64_t next = std::min(base.rows, first + rows.rows);
  reader.begin({bytes_of_rows(base.slice(next, std::min(base.rows, next + plan.shard_rows)))});
  std::vector<RowId> found(at(rows.rows));
  for (std::int64_t begin = 0; begin < rows.rows; begin += cell_batch_rows) {
    check_cancelled(run);
    finder.nearest(rows.slice(begin, std::min(rows.rows, begin + cell_batch_rows)), found.data() + begin, run);
  }
  std::vector<std::uint32_t> cells;
  for (const RowId cell : found) cells.push_back(static_cast<std::uint32_t>(value_of(own_cell(cell))));
  const std::optional<CandidateRows> form = by_candidates() ? read_candidate_rows(cells_file(), base.cols) : std::nullopt;
  write_shard(ops, rows, first, cells, quantizer.cells(), form, shard_file(shard), run);
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
  SampledRows sampled(*this, std::move(both), run);
  sampled.cells = cells.cells_of(sampled.all(), run);
  probes.truth = sampled.truth_of(probes.rows);
  std::optional<CandidateRows> form;
  if (by_candidates() && cells.have(RowForm::candidates)) form = read_candidate_rows(cells_file(), base.cols);
  const double recall = params.recall + (form ? missed_by_candidates(params.recall, form->reduced.has_value()) : 0);
  probes.choice = choice_for(quantizer, cells.begins(), sampled, steering, probes.rows, recall, run);
  // All cells are all rows, whatever a sample can show.
  require(probes.choice.enough || probes.choice.width == quantizer.cells() || params.method == "ivf", Fault::unsupported, "not even ",
          probes.choice.width, " of ", quantizer.cells(),
          " cells a row would give the recall; --method exact compares all, --method ivf takes that");
  if (form) probes.candidates = candidates_for(*form, cells, quantizer, sampled, {steering, probes.rows}, probes.choice, run);
  probes.write(probes_file());
}

// As CellSearch::find_by_candidates. 0: the most for which there is room do not do, or the search is sooner done without.
std::int64_t StoredGraph::candidates_for(const CandidateRows& form, const StoredCells& cells, const CoarseQuantizer& quantizer,
                                         const SampledRows& sampled, const std::vector<std::vector<RowId>>& samples,
                                         const ProbeChoice& choice, const RunOptions& run) const {
  const bool reduced = form.reduced.has_value();
  if (!reduced && choice.width < least_probes_of_candidates) return 0;
  const auto [finder_run, rows_run] = shared_device(run);
  const NearCellFinder finder(ops, quantizer, params.metric, choice.near, choice.width, finder_run);
  std::int64_t fewest = std::min(params.k, base.rows - 1);
  for (const std::vector<RowId>& rows : samples) {
    const Matrix asking = sampled.rows_of(rows);
    const std::vector<RowId> own = sampled.cells_of(rows);
    std::vector<RowId> all(rows.size()), looked(rows.size() * at(choice.width));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = RowId{static_cast<std::int64_t>(i)};
    finder.nearest(asking, all, own.data(), looked.data(), finder_run);
    const Neighbors truth = sampled.truth_of(rows);
    const std::vector<RowId> cells_of_truth = sampled.cells_of(truth.ids);
    const SampledCells probes(own, looked, cells_of_truth);
    const Neighbors lists = nearest_in_files(ops, cells, plan, StoredSearch::of(*this, plan.candidates, &form), form.encode(ops, asking, run),
                                             rows, probes.cells, probes.width, rows_run);
    const std::vector<std::int64_t> found = found_by_width(rows, truth, lists, run);
    fewest = std::max(fewest, fewest_candidates(found, wanted_of_candidates(cells_of_truth, missed_by_candidates(params.recall, reduced))));
  }
  return fewest > plan.candidates ? 0 : fewest;
}

// As RecallSample::found_by_width, of some rows at a time, whose vectors are read.
std::vector<std::int64_t> StoredGraph::found_by_width(std::span<const RowId> rows, const Neighbors& truth, const Neighbors& lists,
                                                      const RunOptions& run) const {
  std::vector<std::int64_t> found(at(lists.k + 1));
  const std::int64_t at_once = std::clamp<std::int64_t>(plan.gathered_rows / (lists.k + 1), 1, most_tried);
  for (std::int64_t first = 0; first < std::ssize(rows); first += at_once) {
    const std::int64_t count = std::min(at_once, std::ssize(rows) - first);
    std::vector<RowId> named(rows.begin() + first, rows.begin() + first + count);
    std::copy_if(lists.ids.begin() + first * lists.k, lists.ids.begin() + (first + count) * lists.k, std::back_inserter(named),
                 [](RowId id) { return id != no_row; });
    std::sort(named.begin(), named.end());
    named.erase(std::unique(named.begin(), named.end()), named.end());
    const auto here = [&](RowId id) {
      return id == no_row ? no_row : RowId{std::lower_bound(named.begin(), named.end(), id) - named.begin()};
    };
    std::vector<RowId> some, entries;
    for (std::int64_t i = first; i < first + count; ++i) some.push_back(here(rows[at(i)]));
    for (std::int64_t i = first * lists.k; i < (first + count) * lists.k; ++i) entries.push_back(here(lists.ids[at(i)]));
    Neighbors true_of_some(count, truth.k);
    std::copy_n(truth.ids.begin() + first * truth.k, count * truth.k, true_of_some.ids.begin());
    std::copy_n(truth.distances.begin() + first * truth.k, count * truth.k, true_of_some.distances.begin());
    const RecallSample sample(params.metric, base.rows, std::move(some), std::move(true_of_some));
    const std::vector<std::int64_t> more = sample.found_by_width(ops, gather_mapped(base, numbers_of(named), run), entries, lists.k, run);
    for (std::size_t i = 0; i < found.size(); ++i) found[i] += more[i];
  }
  return found;
}

void StoredGraph::search(std::int64_t block, const RunOptions& run) const {
  const StoredCells cells(shard_files(*this), base, plan.most_rows_of_a_cell());
  const StoredProbes stored = StoredProbes::read(probes_file(), base.rows, params.k);
  const ProbeChoice& probes = stored.choice;
  std::optional<CandidateRows> form;
  if (stored.candidates > 0) form = read_candidate_rows(cells_file(), base.cols);
  require(stored.candidates == 0 || (form && cells.have(RowForm::candidates)), Fault::corrupt_file, printable(folder.string()),
          ": rows are to have candidates, and its files have none");
  const StoredSearch search = StoredSearch::of(*this, stored.candidates, form ? &*form : nullptr);
  const CoarseQuantizer quantizer = with_copies(read_quantizer(cells_file()), cells.copies());
  const auto [finder_run, rows_run] = shared_device(run);
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
  const std::size_t planned_row = form ? candidate_row_bytes(params.k, plan.candidates) : block_row_bytes(params.k, usual_probes);
  const std::size_t row = block_row_bytes(search.width, probes.width);
  const auto most_rows = static_cast<std::int64_t>(at(form ? plan.byte_block_rows : plan.block_rows) * planned_row / std::max(row, planned_row));
  ContainerWriter writer(lists_file(block), "gk-lists", 1);
  for (std::int64_t pass = 0; band < end; ++pass) {
    std::size_t last = band + 1;
    while (last < end && begins[at(bands[last + 1])] - begins[at(bands[band])] <= most_rows) ++last;
    BlockSearch part(*this, cells, finder, search, std::span(bands).subspan(band, last - band + 1), rows_run);
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

std::string StoredGraph::candidates_text(std::int64_t candidates) const {
  if (candidates == 0) return "";
  const std::optional<CandidateRows> form = read_candidate_rows(cells_file(), base.cols);
  const std::string where = form && form->reduced ? join_text(" in ", form->reduced->dims(), " dimensions, ") : ", ";
  return join_text(candidates, " candidates as bytes", where);
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
          join_text("ivf: ", probes.choice.width, " of about ", plan.cells, " cells a row, ",
                    candidates_text(probes.candidates), "from files: ", plan.shards,
                    plan.shards == 1 ? " shard, " : " shards, ", plan.blocks, plan.blocks == 1 ? " block" : " blocks"),
          data_doubts(ops, {base.rows, base.cols, base.dtype, gather}, params.metric, probes.rows, probes.truth, lists, run)};
}

}  // namespace gigaknn
