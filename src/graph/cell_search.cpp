#include "graph/cell_search.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t most_by_themselves = 16;  // rows; so few are compared with all others before cells of these are made
constexpr std::int64_t others_at_once = std::int64_t{1} << 12;  // of all rows, that one row is compared with
constexpr std::int64_t proving_at_once = std::int64_t{1} << 18;  // neighbours among reduced rows
constexpr std::int64_t most_noted = 32;  // cells near a row, when it looks for its own among all
constexpr std::int64_t most_noting_rows = std::int64_t{1} << 18;  // more look for their own in some regions, or take more memory than time
constexpr std::int64_t truth_probes_at_once = std::int64_t{1} << 22;  // 32 MiB

constexpr std::uint16_t no_noted = 0xFFFF;
static_assert(most_cells_compared < no_noted);

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t cell_count(std::int64_t n) { return std::max<std::int64_t>(1, n / rows_a_cell); }

// All rows, as one is compared with them: parts of so many, each for a thread.
struct PartsOfAll {
  PartsOfAll(std::int64_t n, std::int64_t k) : rows(std::max(others_at_once, 2 * k)), count((n + rows - 1) / rows) {}
  std::int64_t rows, count;
};

}  // namespace

CellSearch::CellSearch(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, std::uint64_t seed, bool reduce,
                       const RunOptions& run)
    : ops_(ops), base_(base), metric_(metric), k_(k), seed_(seed), run_(run), finder_run_(run), cells_run_(run), n_(base.rows),
      near_(base), near_metric_(metric) {
  // What the host needs was counted as a whole.
  finder_run_.memory_bytes = cells_run_.memory_bytes = 0;
  const Progress::Quiet quiet(run_.progress);
  if (reduce) reduced_ = ReducedBase::make(ops, base, metric, k, seed, cells_run_);
  // Of a device's memory an eighth for each of two finders, the rest for the rows.
  finder_run_.device_memory_bytes /= 8;
  cells_run_.device_memory_bytes -= 2 * finder_run_.device_memory_bytes;
  if (reduced_) {
    near_ = reduced_->rows();
    near_metric_ = Metric::l2;
  }
  divide(seed);
  split_large_cells();
  if (reduced_ && reduced_->proves()) {
    prepare_candidates();
  } else {
    prepare();
  }
}

// Of cells and candidates one is in memory.
void CellSearch::prepare() {
  candidates_.reset();
  compared_.reset();
  const PrepareHints hints{.k = k_, .queries = n_, .batch = std::min(n_, band_rows()), .self = true};
  cells_ = ops_.prepare_cells(base_, {order_, begins_}, metric_, hints, cells_run_);
}

// Cells, and the order of the rows by them.
void CellSearch::divide(std::uint64_t seed) {
  quantizer_ = fit_coarse_quantizer(ops_, near_, near_metric_, cell_count(n_), seed, finder_run_);
  quantizer_.seven_bits = reduced();
  cell_of_.resize(at(n_));
  // Where all cells are compared, and as a search will compare them, what else is near costs nothing.
  const std::int64_t regions = regions_of_own_cell(quantizer_);
  const bool compares_alike = quantizer_.cells() <= most_cells_compared && near_metric_ != Metric::inner_product;
  if (compares_alike && n_ <= most_noting_rows) noted_width_ = std::min(most_noted, quantizer_.cells());
  noted_.resize(at(n_ * noted_width_));
  const std::int64_t width = std::max<std::int64_t>(1, noted_width_);
  const CellFinder finder(ops_, quantizer_, quantizer_.metric, regions, width, finder_run_);
  std::vector<RowId> found;
  for (std::int64_t begin = 0; begin < n_; begin += cell_batch_rows) {
    const std::int64_t end = std::min(n_, begin + cell_batch_rows);
    found.resize(at((end - begin) * width));
    finder.nearest(near_.slice(begin, end), found.data(), run_);
    // Rows that are far from everything have no cell of their own: any will do, no query finds them.
    for (std::int64_t i = begin; i < end; ++i) {
      cell_of_[at(i)] = static_cast<std::uint32_t>(std::max<std::int64_t>(0, value_of(found[at((i - begin) * width)])));
    }
    if (noted_width_ == 0) continue;
    std::transform(found.begin(), found.end(), noted_.begin() + begin * width,
                   [](RowId cell) { return cell == no_row ? no_noted : static_cast<std::uint16_t>(value_of(cell)); });
  }
  begins_.assign(at(quantizer_.cells() + 1), 0);
  for (const std::uint32_t cell : cell_of_) ++begins_[cell + 1];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  order_.resize(at(n_));
  std::vector<std::int64_t> next(begins_.begin(), begins_.end() - 1);
  for (std::size_t row = 0; row < cell_of_.size(); ++row) order_[at(next[cell_of_[row]]++)] = static_cast<LocalRow>(row);
}

void CellSearch::split_large_cells() {
  std::vector<std::int64_t> copies, begins = {0};
  for (std::size_t c = 0; c + 1 < begins_.size(); ++c) {
    const std::int64_t begin = begins_[c];
    const std::int64_t rows = begins_[c + 1] - begin;
    const std::int64_t pieces = std::max<std::int64_t>(1, (rows + most_rows_of_a_cell - 1) / most_rows_of_a_cell);
    copies.push_back(pieces);
    for (std::int64_t piece = 1; piece <= pieces; ++piece) begins.push_back(begin + rows * piece / pieces);
  }
  if (std::ssize(begins) == std::ssize(begins_)) return;
  quantizer_ = with_copies(quantizer_, copies);
  noted_width_ = 0;
  noted_ = {};
  begins_ = std::move(begins);
  for (std::size_t c = 0; c + 1 < begins_.size(); ++c) {
    for (std::int64_t i = begins_[c]; i < begins_[c + 1]; ++i) {
      cell_of_[order_[at(i)]] = static_cast<std::uint32_t>(c);
    }
  }
}

std::pair<std::vector<RowId>, std::vector<RowId>> CellSearch::draw_samples(std::uint64_t seed) const {
  auto samples = gigaknn::draw_samples(n_, seed);
  for (RowId& place : samples.first) place = RowId{order_[at(value_of(place))]};
  for (RowId& place : samples.second) place = RowId{order_[at(value_of(place))]};
  return samples;
}

namespace {

// `probes` [cells]: each cell once, those that are named first, in their order.
void name_all(std::span<RowId> probes) {
  std::vector<bool> named(probes.size());
  for (const RowId cell : probes) {
    if (cell != no_row) named[at(value_of(cell))] = true;
  }
  std::int64_t next = 0;
  for (RowId& cell : probes) {
    if (cell != no_row) continue;
    while (named[at(next)]) ++next;
    cell = RowId{next++};
  }
}

}  // namespace

Neighbors CellSearch::truth_of(std::span<const RowId> rows, std::int64_t k) {
  if (cells_) return nearest_in_all(*cells_, base_, rows, k);
  const Progress::Quiet quiet(run_.progress);
  Neighbors nearest(std::ssize(rows), k);
  std::vector<std::int64_t> open(rows.size());  // places of those that are not known yet
  std::iota(open.begin(), open.end(), 0);
  const auto search_open = [&](std::int64_t at_once, auto&& search_some) {
    std::vector<std::int64_t> left;
    for (std::span<const std::int64_t> todo = open; !todo.empty(); todo = todo.subspan(std::min(todo.size(), at(at_once)))) {
      const auto places = todo.first(std::min(todo.size(), at(at_once)));
      std::vector<RowId> some;
      for (const std::int64_t place : places) some.push_back(rows[at(place)]);
      Neighbors found(std::ssize(some), k);
      for (const std::size_t unproven : search_some(some, found)) left.push_back(places[unproven]);
      for (std::size_t i = 0; i < places.size(); ++i) {
        std::copy_n(found.ids.begin() + static_cast<std::int64_t>(i) * k, k, nearest.ids.begin() + places[i] * k);
        std::copy_n(found.distances.begin() + static_cast<std::int64_t>(i) * k, k, nearest.distances.begin() + places[i] * k);
      }
    }
    open = std::move(left);
  };
  // Few neighbours prove what is nearest to most rows, more what is nearest to most others.
  for (const int pass : {0, 1}) {
    const std::int64_t proving = reduced_->proving(k, pass);
    search_open(std::max<std::int64_t>(1, proving_at_once / proving), [&](std::span<const RowId> some, Neighbors& found) {
      const Neighbors among = nearest_in_all(candidates_->cells(), reduced_->rows(), some, proving);
      return reduced_->prove(ops_, some, among, NeighborsOut(found), candidates_->run_beside());
    });
  }
  if (std::ssize(open) > most_by_themselves) prepare();
  search_open(most_sampled, [&](std::span<const RowId> some, Neighbors& found) {
    found = cells_ ? nearest_in_all(*cells_, base_, some, k) : nearest_of_all(some, k);
    return std::vector<std::size_t>();
  });
  return nearest;
}

// Each row with all others: the nearest of each part of these, and of them the nearest.
Neighbors CellSearch::nearest_of_all(std::span<const RowId> rows, std::int64_t k) const {
  const PartsOfAll parts(n_, k);
  const RunOptions& run = candidates_->run_beside();
  Neighbors nearest(std::ssize(rows), k), of_parts(parts.count, k);
  std::vector<RowId> others(at(parts.count * parts.rows), no_row);
  for (std::int64_t i = 0; i < nearest.queries; ++i) {
    for (std::int64_t row = 0; row < n_; ++row) others[at(row)] = RowId{row} == rows[at(i)] ? no_row : RowId{row};
    const Matrix asking = gather_rows(base_, std::vector<RowId>(at(parts.count), rows[at(i)]), run);
    ops_.nearest_among(asking, base_, metric_, others.data(), parts.rows, k, NeighborsOut(of_parts), run);
    NeighborsOut out(nearest);
    out.ids += i * k;
    out.distances += i * k;
    out.rows = 1;
    ops_.nearest_among(asking.ref().slice(0, 1), base_, metric_, of_parts.ids.data(), parts.count * k, k, out, run);
  }
  return nearest;
}

// Of `prepared_rows`, which stand in `cells`.
Neighbors CellSearch::nearest_in_all(const PreparedCells& prepared, MatrixRef prepared_rows, std::span<const RowId> rows,
                                     std::int64_t k) const {
  const Progress::Quiet quiet(run_.progress);
  const std::int64_t cells = quantizer_.cells();
  const std::int64_t batch = std::max<std::int64_t>(1, truth_probes_at_once / cells);
  const CellFinder finder(ops_, quantizer_, near_metric_, quantizer_.regions.rows(), cells, finder_run_);
  Neighbors nearest(std::ssize(rows), k);
  std::vector<RowId> probes;
  for (std::int64_t begin = 0; begin < nearest.queries; begin += batch) {
    const std::int64_t count = std::min(batch, nearest.queries - begin);
    const auto part = rows.subspan(at(begin), at(count));
    probes.resize(at(count * cells));
    finder.nearest(near_, part, probes.data(), run_);
    // Cells whose centroids are too far for float32 are none to find, and their rows may be near all the same.
    for (std::int64_t i = 0; i < count; ++i) name_all(std::span(probes).subspan(at(i * cells), at(cells)));
    NeighborsOut out(nearest);
    out.ids += begin * k;
    out.distances += begin * k;
    out.rows = count;
    ops_.nearest_in_cells(prepared, gather_rows(prepared_rows, part, run_), probes.data(), cells, k, out, run_, part.data());
  }
  return nearest;
}

MatrixRef CellSearch::bytes() const { return reduced_ ? near_ : compared_->rows(); }

void CellSearch::prepare_candidates() {
  const Metric of_bytes = reduced_ ? near_metric_ : compared_->metric();
  candidates_.emplace(ops_, base_, metric_, bytes(), of_bytes, CellRows{order_, begins_}, k_, band_rows(), cells_run_);
}

void CellSearch::find_by_candidates(const RecallSample& steer, const RecallSample& measure, double recall) {
  if (!reduced_ && probes() < least_probes_of_candidates) return;
  const Progress::Quiet quiet(run_.progress);
  if (!candidates_) {
    cells_.reset();
    if (!reduced_) compared_ = compared_rows(base_, {}, metric_, most_seven_bits, seed_, cells_run_);
    prepare_candidates();
  }
  if (!find_by(steer, recall) || !find_by(measure, recall)) prepare();
}

// Of what a sample's rows should find, candidates may miss some.
bool CellSearch::find_by(const RecallSample& sample, double recall) {
  const auto& rows = sample.rows();
  const auto cells_of = [&](std::span<const RowId> some) {
    std::vector<RowId> cells;
    for (const RowId row : some) cells.push_back(row == no_row ? no_row : RowId{cell_of_[at(value_of(row))]});
    return cells;
  };
  const std::vector<RowId> own = cells_of(rows);
  std::vector<RowId> looked(rows.size() * at(probes()));
  find_probes(rows, own, looked);
  const std::vector<RowId> of_truth = cells_of(sample.wanted());
  const SampledCells probes(own, looked, of_truth);
  Neighbors lists(std::ssize(rows), ByteCandidates::most(k_, n_));
  ops_.nearest_in_cells(candidates_->cells(), gather_rows(bytes(), rows, run_), probes.cells.data(), probes.width, lists.k, NeighborsOut(lists), run_,
                        rows.data());
  return candidates_->widen(sample, lists, wanted_of_candidates(of_truth, missed_by_candidates(recall, reduced())));
}

ProbeChooser CellSearch::chooser(const RecallSample& sample) const {
  return {ops_, quantizer_, begins_, band_rows(), near_metric_, sample.truth().k, finder_run_};
}

bool CellSearch::choose_probes(const RecallSample& steer, double recall) {
  const Progress::Quiet quiet(run_.progress);
  finder_.reset();  // the chooser has two
  look_into(chooser(steer).cheapest(probe_sample(steer, ProbeSample::that_steer), recall));
  return probes_.enough;
}

void CellSearch::widen_probes(const RecallSample& measure, double recall) {
  const Progress::Quiet quiet(run_.progress);
  finder_.reset();
  look_into(chooser(measure).widened(probes_, probe_sample(measure, ProbeSample::that_measure), recall));
}

void CellSearch::look_into(const ProbeChoice& probes) {
  probes_ = probes;
  finder_.emplace(ops_, quantizer_, near_metric_, probes.near, probes.width, finder_run_);
}

ProbeSample CellSearch::probe_sample(const RecallSample& sample, std::int64_t most) const {
  const auto cells_of = [&](std::span<const RowId> rows) {
    std::vector<RowId> cells;
    for (const RowId row : rows) cells.push_back(RowId{cell_of_[at(value_of(row))]});
    return cells;
  };
  ProbeSample probes;
  probes.rows = gather_rows(near_, sample.rows(), run_);
  probes.cells = cells_of(sample.rows());
  std::vector<RowId> neighbors;
  for (const std::size_t entry : sampled_neighbors(sample.truth(), most, probes.begins)) neighbors.push_back(sample.truth().ids[entry]);
  probes.neighbors = gather_rows(near_, neighbors, run_);
  probes.neighbor_cells = cells_of(neighbors);
  return probes;
}

std::int64_t CellSearch::band_rows() const { return usual_band_rows(n_, base_.cols, base_.dtype); }

double CellSearch::cost_share() const {
  return static_cast<double>(finder_->width()) * rows_a_cell / static_cast<double>(n_);
}

// The cells [rows, width] that rows look into: noted, where so many were.
void CellSearch::find_probes(std::span<const RowId> rows, std::span<const RowId> own, std::span<RowId> cells) const {
  const std::int64_t width = finder_->width();
  if (width > noted_width_) return finder_->nearest(near_, rows, own.data(), cells.data(), finder_run_);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint16_t* noted = noted_.data() + value_of(rows[i]) * noted_width_;
    std::transform(noted, noted + width, cells.begin() + static_cast<std::int64_t>(i) * width,
                   [](std::uint16_t cell) { return cell == no_noted ? no_row : RowId{cell}; });
  }
}

void CellSearch::search(std::int64_t k, const std::function<void(std::int64_t, std::span<const RowId>, Neighbors&)>& take) const {
  const std::int64_t width = finder_->width();
  const std::vector<std::int64_t> bands = bands_of(begins_, band_rows(), width, k);
  std::vector<RowId> rows, own, cells;
  if (run_.progress) run_.progress->report("graph", 0, n_);
  for (std::size_t band = 0; band + 1 < bands.size(); ++band) {
    const std::int64_t begin = begins_[at(bands[band])];
    const std::int64_t count = begins_[at(bands[band + 1])] - begin;
    if (count == 0) continue;
    {
      const Progress::Quiet quiet(run_.progress);
      rows.clear();
      own.clear();
      for (std::int64_t cell = bands[band]; cell < bands[band + 1]; ++cell) {
        for (std::int64_t place = begins_[at(cell)]; place < begins_[at(cell + 1)]; ++place) {
          rows.push_back(RowId{order_[at(place)]});
          own.push_back(RowId{cell});
        }
      }
      cells.resize(at(count * width));
      find_probes(rows, own, cells);
      Neighbors found(count, k);
      if (!cells_) {
        candidates_->join(rows, own.data(), cells.data(), width, NeighborsOut(found));
      } else {
        ops_.join_cells(*cells_, rows, own.data(), cells.data(), width, k, NeighborsOut(found), run_);
      }
      take(begin, rows, found);
    }
    if (run_.progress) run_.progress->report("graph", begin + count, n_);
  }
}

void CellSearch::search_into(Neighbors& lists) const {
  const std::int64_t k = lists.k;
  const bool empty = std::all_of(lists.ids.begin(), lists.ids.end(), [](RowId id) { return id == no_row; });
  search(k, [&](std::int64_t, std::span<const RowId> rows, Neighbors& found) {
    const auto for_each_list = [&](auto&& visit) {
      parallel_for(run_, found.queries, 1024, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) visit(i * k, value_of(rows[at(i)]) * k);
      });
    };
    if (!empty) {
      Neighbors old(found.queries, k);
      for_each_list([&](std::int64_t mine, std::int64_t list) {
        std::copy_n(lists.ids.begin() + list, k, old.ids.begin() + mine);
        std::copy_n(lists.distances.begin() + list, k, old.distances.begin() + mine);
      });
      merge_lists(NeighborsOut(found), old, 0, metric_, run_);
    }
    for_each_list([&](std::int64_t mine, std::int64_t list) {
      std::copy_n(found.ids.begin() + mine, k, lists.ids.begin() + list);
      std::copy_n(found.distances.begin() + mine, k, lists.distances.begin() + list);
    });
  });
}

std::string CellSearch::description() const {
  return join_text(probes(), " of ", cells(), " cells a row, ", cells_ ? cells_->description() : candidates_->description());
}

std::size_t CellSearch::bytes_needed(const Ops& ops, MatrixRef base, Metric metric, std::int64_t k, bool candidates,
                                     int threads) {
  const std::int64_t n = base.rows;
  const std::int64_t fitted = cell_count(n);
  const std::int64_t cells = fitted + n / most_rows_of_a_cell;  // after large ones are split
  const DType dtype = base.dtype;
  const std::int64_t band = std::min(n, usual_band_rows(n, base.cols, dtype));
  const PrepareHints hints{.k = k, .queries = n, .batch = band, .self = true};
  // Probes of all cells, of a sample, or of a batch; some of the sample's neighbours.
  const std::int64_t entries = std::max(finder_entries, std::min(std::max(truth_probes_at_once, cells), std::min(n, most_sampled) * cells));
  const std::size_t sampled = at(most_sampled * (ProbeSample::that_steer + ProbeSample::that_measure)) * at(base.cols) * size_of(dtype);
  const std::size_t in_cells = ops.cell_bytes_needed(n, base.cols, dtype, metric, cells, hints, threads);
  const bool as_bytes = candidates && ByteCandidates::exist(dtype, metric);
  const bool reduced = candidates && ReducedBase::may_exist(base.cols, metric);
  const PartsOfAll parts(n, k);
  const std::size_t proving = ReducedBase::proving_bytes(base, k, proving_at_once) + at(parts.count * parts.rows) * sizeof(RowId) +
                              at(parts.count * base.cols) * size_of(dtype) + list_bytes(parts.count, k);
  const auto by_candidates = [&](std::int64_t dims) {
    return ByteCandidates::bytes_needed(ops, base, metric, dims, cells, k, band, threads);
  };
  const std::size_t in_bytes = std::max(as_bytes ? compared_rows_bytes(base, metric) + by_candidates(base.cols) : 0,
                                        reduced ? by_candidates(ReducedBase::most_dims(base.cols)) + proving : 0);
  const std::size_t searching = finding_bytes(ops, n, base.cols, dtype, metric, cells, 2, threads) +
                                batch_bytes(n, base.cols, dtype, cells, entries) + std::max(sampled, band_bytes(band, k)) +
                                std::max(in_cells, in_bytes);
  // Before rows are searched, the sample that cells are fitted to; always, the order of the rows, the cell of each and those near it.
  const std::size_t noted = n <= most_noting_rows ? at(n * most_noted) * sizeof(std::uint16_t) : 0;
  const std::size_t fitting = std::max(coarse_quantizer_bytes(ops, n, base.cols, dtype, fitted),
                                       reduced ? ReducedBase::making_bytes(ops, base, k, threads) : 0);
  return (reduced ? ReducedBase::kept_bytes(base) : 0) + at(n) * 8 + noted + at(cells) * 24 + std::max(fitting, searching);
}

}  // namespace gigaknn
