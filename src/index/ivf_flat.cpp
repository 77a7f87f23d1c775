#include "index/ivf_flat.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "index/id_words.hpp"
#include "io/validate.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t first_radius_k = 2;
#else
constexpr std::int64_t first_radius_k = 64;
#endif
constexpr std::int64_t most_rows = 0xFFFFFFFE;  // of one part

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The rows that masks leave, in one list.
LiveRows gathered(std::span<const LiveRows> parts, const std::vector<std::vector<std::uint64_t>>& words, std::int64_t count, const RunOptions& run) {
  const MatrixRef like = parts.front().lists->rows();
  const auto owned = std::make_shared<OwnedRows>();
  owned->rows = Matrix(count, like.cols, like.dtype);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    const RowIds& ids = parts[p].lists->ids();
    const std::vector<LocalRow> ranks = ranks_in(words[p]);
    const Matrix some = gather_rows(parts[p].lists->rows(), ids.rows_of(ranks), run);
    if (some.rows() > 0) std::memcpy(owned->rows.row<std::byte>(std::ssize(owned->ids)), some.ref().data, at(some.rows() * some.ref().stride_bytes));
    for (const LocalRow rank : ranks) owned->ids.push_back(ids.of_rank(rank));
  }
  return {std::make_shared<ListRows>(owned->rows, std::vector<LocalRow>(), std::vector<std::int64_t>{0, count}, RowIds(owned->ids, owned), owned),
          nullptr, count};
}

}  // namespace

IvfFlatIndex::IvfFlatIndex(const IvfFacts& facts, Matrix centroids, std::shared_ptr<const ListRows> lists, IndexSetting setting)
    : facts_(facts), setting_(std::move(setting)), ops_(ops_of(setting_.device)),
      centroids_(std::move(centroids), facts.metric, setting_.device, setting_.expected_queries) {
  State state{.parts = {}, .rows = lists ? lists->rows().rows : 0, .next_id = facts.next_id};
  if (lists) state.parts.push_back({std::move(lists), nullptr, state.rows});
  become(std::move(state));
}

std::size_t IvfFlatIndex::bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t lists, const IndexSetting& setting,
                                       int threads) {
  const PrepareHints hints = setting.hints();
  const std::size_t of_rows = sizeof(std::int64_t) + 2 * sizeof(LocalRow) + sizeof(RowId);  // their order, ids and ranks
  return at(n) * of_rows + at(lists + 1) * 16 + ops_of(setting.device).cell_bytes_needed(n, d, dtype, metric, lists, hints, threads) +
         ListCentroids::bytes_needed(lists, d, dtype, metric, setting.device, setting.expected_queries, threads);
}

std::shared_ptr<const IvfFlatIndex::State> IvfFlatIndex::state() const {
  const std::lock_guard lock(state_mutex_);
  return state_;
}

void IvfFlatIndex::become(State next) {
  auto made = std::make_shared<const State>(std::move(next));
  const std::lock_guard lock(state_mutex_);
  state_.swap(made);
}

void IvfFlatIndex::prepare(const RunOptions& run) const {
  centroids_.prepare(run);
  for (const LiveRows& part : state()->parts) part.lists->prepared(ops_, facts_.metric, setting_.hints(), run);
}

std::string IvfFlatIndex::description() const {
  const auto state = this->state();
  std::string text = join_text(centroids_.lists(), " inverted lists");
  if (state->parts.size() > 1) text += join_text(" in ", state->parts.size(), " parts");
  const std::string of = state->parts.empty() ? std::string() : state->parts.front().lists->description();
  return of.empty() ? text : text + " of " + of;
}

// ---- searching

void IvfFlatIndex::check(MatrixRef queries, const SearchParams& params, const RunOptions& run) const {
  require(params.nprobe >= 1, Fault::invalid_argument, "nprobe must be >= 1, got ", params.nprobe);
  require_queries_for(facts_, queries, run);
}

IvfFlatIndex::Scope IvfFlatIndex::scope_of(const SearchParams& params, const RunOptions& run) const {
  Scope scope{.state = state(), .words = {}, .narrow = false, .width = centroids_.width_of(params.nprobe)};
  const State& state = *scope.state;
  if (!params.only) return scope;
  require_bits_for(*params.only, state.next_id);
  std::int64_t allowed = 0;
  for (const LiveRows& part : state.parts) {
    scope.words.push_back(id_words(*params.only, part.lists->ids()));
    for (std::size_t word = 0; part.live && word < scope.words.back().size(); ++word) scope.words.back()[word] &= (*part.live)[word];
    allowed += count_of(scope.words.back());
  }
  if (!centroids_.gathering_pays(allowed, state.rows, scope.width)) return scope;
  State narrow{.parts = {}, .rows = allowed, .next_id = state.next_id};
  if (allowed > 0) narrow.parts.push_back(gathered(state.parts, scope.words, allowed, run));
  return {.state = std::make_shared<const State>(std::move(narrow)), .words = {}, .narrow = true, .width = 1};
}

template <class Take>
void IvfFlatIndex::for_batches(const Scope& scope, MatrixRef queries, const RunOptions& run, const Take& take) const {
  const std::int64_t most = centroids_.batch_of_width(scope.width);
  for (std::int64_t begin = 0; begin < queries.rows; begin += most) {
    const std::int64_t end = std::min(queries.rows, begin + most);
    if (!scope.narrow) {
      take(centroids_.probe(queries, begin, end, scope.width, run));
      continue;
    }
    take(ProbingBatch::of_one_list(queries, begin, end, run));
  }
}

void IvfFlatIndex::search_batch(const Scope& scope, const ProbingBatch& batch, std::int64_t k, Neighbors& found, const RunOptions& run) const {
  const auto& parts = scope.state->parts;
  if (parts.size() != 1) clear_lists(NeighborsOut(found), facts_.metric);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    Neighbors of_part;
    if (parts.size() > 1) of_part = Neighbors(batch.queries.rows(), k);
    Neighbors& to = parts.size() > 1 ? of_part : found;
    const PreparedCells& cells = parts[p].lists->prepared(ops_, facts_.metric, setting_.hints(), run);
    ops_.nearest_in_cells(cells, batch.queries, batch.probes.data(), batch.width, k, NeighborsOut(to), run, nullptr, scope.mask(p));
    parts[p].lists->ids().name(to.ids);
    if (parts.size() > 1) merge_lists(NeighborsOut(found), of_part, 0, facts_.metric, run);
  }
}

Neighbors IvfFlatIndex::search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const {
  require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
  check(queries, params, run);
  const Scope scope = scope_of(params, run);
  Neighbors result(queries.rows, k);
  for_batches(scope, queries, run, [&](const ProbingBatch& batch) {
    Neighbors found(batch.queries.rows(), k);
    search_batch(scope, batch, k, found, run);
    batch.put(found, 0, result);
  });
  return result;
}

// Longer and longer lists, for the queries whose lists are not long enough.
RadiusNeighbors IvfFlatIndex::search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const {
  require(!std::isnan(radius), Fault::invalid_argument, "the radius must be a number, got ", radius);
  check(queries, params, run);
  const Scope scope = scope_of(params, run);
  const std::int64_t most = std::max<std::int64_t>(1, scope.state->rows);
  const bool similarity = facts_.metric == Metric::inner_product;
  const auto within = [&](float distance) { return similarity ? distance >= radius : distance <= radius; };
  std::vector<std::vector<std::pair<RowId, float>>> lists(at(queries.rows));
  for_batches(scope, queries, run, [&](ProbingBatch batch) {
    for (std::int64_t k = std::min(first_radius_k, most); batch.queries.rows() > 0; k = std::min(2 * k, most)) {
      Neighbors found(batch.queries.rows(), k);
      search_batch(scope, batch, k, found, run);
      std::vector<std::int64_t> unfinished;
      for (std::int64_t i = 0; i < batch.queries.rows(); ++i) {
        auto& list = lists[at(batch.rows[at(i)])];
        list.clear();
        std::int64_t j = 0;
        for (; j < k && found.ids[at(i * k + j)] != no_row && within(found.distances[at(i * k + j)]); ++j) {
          list.emplace_back(found.ids[at(i * k + j)], found.distances[at(i * k + j)]);
        }
        if (j == k && k < most) unfinished.push_back(i);
      }
      batch = batch.some(unfinished);
    }
  });
  RadiusNeighbors result;
  result.offsets.push_back(0);
  for (const auto& list : lists) {
    for (const auto& [id, distance] : list) {
      result.ids.push_back(id);
      result.distances.push_back(distance);
    }
    result.offsets.push_back(std::ssize(result.ids));
  }
  return result;
}

// ---- changing

IvfFlatIndex::State IvfFlatIndex::without(const State& state, std::span<const RowId> ids) {
  std::vector<RowId> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  State next{.parts = {}, .rows = state.rows - std::ssize(sorted), .next_id = state.next_id};
  std::vector<bool> gone(sorted.size());
  for (const LiveRows& part : state.parts) {
    const RowIds& known = part.lists->ids();
    std::vector<std::uint64_t> live;
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const auto rank = known.rank_of(sorted[i]);
      if (gone[i] || !rank || !part.mask().has(*rank)) continue;
      if (live.empty()) live = part.live ? *part.live : std::vector<std::uint64_t>(RowMask::words_for(known.count()), ~std::uint64_t{0});
      live[*rank / 64] &= ~(std::uint64_t{1} << (*rank % 64));
      gone[i] = true;
    }
    if (live.empty()) {
      next.parts.push_back(part);
      continue;
    }
    if (known.count() % 64 != 0) live.back() &= (std::uint64_t{1} << (known.count() % 64)) - 1;
    const std::int64_t count = count_of(live);
    if (count > 0) next.parts.push_back({part.lists, std::make_shared<const std::vector<std::uint64_t>>(std::move(live)), count});
  }
  const auto missing = std::find(gone.begin(), gone.end(), false);
  require(missing == gone.end(), Fault::invalid_argument, "id ", missing == gone.end() ? 0 : value_of(sorted[at(missing - gone.begin())]),
          " is not in the index");
  return next;
}

// The state with rows that are borrowed, as a part of their own.
IvfFlatIndex::State IvfFlatIndex::with(MatrixRef rows, std::span<const RowId> ids, bool replace, const RunOptions& run) const {
  State next = *state();
  require(rows.cols == facts_.cols && rows.dtype == facts_.dtype, Fault::invalid_argument, "rows are ", rows.cols, " x ", name_of(rows.dtype),
          ", the index ", facts_.cols, " x ", name_of(facts_.dtype));
  require(ids.empty() || std::ssize(ids) == rows.rows, Fault::invalid_argument, ids.size(), " ids are not those of ", rows.rows, " rows");
  if (rows.rows == 0) return next;
  require(next.rows + rows.rows <= most_rows, Fault::unsupported, "an inverted file has at most ", most_rows, " rows, got ", next.rows + rows.rows);
  require_usable_values(rows, facts_.metric, facts_.allow_nonfinite, "the rows", run);
  RowIds called = ids.empty() ? RowIds(next.next_id, rows.rows) : RowIds(ids, nullptr);
  called.require_sound();
  std::vector<RowId> known;
  for (std::int64_t i = 0; i < rows.rows && !ids.empty(); ++i) {
    const auto is_here = [&](const LiveRows& part) {
      const auto rank = part.lists->ids().rank_of(ids[at(i)]);
      return rank && part.mask().has(*rank);
    };
    if (std::any_of(next.parts.begin(), next.parts.end(), is_here)) known.push_back(ids[at(i)]);
  }
  require(replace || known.empty(), Fault::invalid_data, "id ", known.empty() ? 0 : value_of(known.front()), " is in the index already");
  next = without(next, known);
  next.next_id = std::max(next.next_id, value_of(called.largest()) + 1);
  auto division = centroids_.divide(rows, run);
  next.parts.push_back({std::make_shared<ListRows>(rows, std::move(division.order), std::move(division.begins), std::move(called)), nullptr, rows.rows});
  next.rows += rows.rows;
  return next;
}

void IvfFlatIndex::take_in(MatrixRef rows, std::span<const RowId> ids, bool replace, const RunOptions& run) {
  const std::lock_guard lock(changing_);
  State next = with(rows, ids, replace, run);
  if (rows.rows == 0) return;
  // The rows are copied here, alone or with those of parts that are not much larger.
  std::size_t first = next.parts.size() - 1;
  std::int64_t count = next.parts.back().count;
  while (first > 0 && 2 * count >= next.parts[first - 1].count) count += next.parts[--first].count;
  auto whole = merged(std::span(next.parts).subspan(first), run);
  next.parts.resize(first);
  next.parts.push_back({std::move(whole), nullptr, count});
  become(std::move(next));
}

void IvfFlatIndex::add(MatrixRef rows, std::span<const RowId> ids, const RunOptions& run) { take_in(rows, ids, false, run); }

void IvfFlatIndex::update(MatrixRef rows, std::span<const RowId> ids, const RunOptions& run) {
  require(!ids.empty() || rows.rows == 0, Fault::invalid_argument, "an update needs the ids of its ", rows.rows, " rows");
  take_in(rows, ids, true, run);
}

void IvfFlatIndex::remove(std::span<const RowId> ids) {
  const std::lock_guard lock(changing_);
  become(without(*state(), ids));
}

std::optional<IvfFlatIndex::Place> IvfFlatIndex::place_of(const State& state, RowId id) {
  for (const LiveRows& part : state.parts) {
    const auto rank = part.lists->ids().rank_of(id);
    if (rank && part.mask().has(*rank)) return Place{&part, *rank};
  }
  return std::nullopt;
}

Matrix IvfFlatIndex::reconstruct(std::span<const RowId> ids) const {
  const auto state = this->state();
  Matrix rows(std::ssize(ids), facts_.cols, facts_.dtype);
  const std::size_t row_bytes = at(facts_.cols) * size_of(facts_.dtype);
  for (std::int64_t i = 0; i < std::ssize(ids); ++i) {
    const auto place = place_of(*state, ids[at(i)]);
    require(place.has_value(), Fault::invalid_argument, "id ", value_of(ids[at(i)]), " is not in the index");
    const ListRows& lists = *place->part->lists;
    std::memcpy(rows.row<std::byte>(i), lists.rows().row_bytes(lists.ids().rows_of({&place->rank, 1}).front()), row_bytes);
  }
  return rows;
}

std::vector<RowId> IvfFlatIndex::held_out() const {
  const auto state = this->state();
  std::vector<RowId> ids;
  std::copy_if(facts_.held_out.begin(), facts_.held_out.end(), std::back_inserter(ids), [&](RowId id) { return place_of(*state, id).has_value(); });
  return ids;
}

// ---- files

void IvfFlatIndex::save(const std::filesystem::path& path, const RunOptions& run) const {
  const auto state = this->state();
  IvfFacts facts = facts_;
  facts.next_id = state->next_id;
  write_ivf_flat(facts, centroids_.centroids(), state->parts, path, run);
}

void IvfFlatIndex::save_with(MatrixRef rows, std::span<const RowId> ids, bool replace, const std::filesystem::path& path, const RunOptions& run) const {
  const State state = with(rows, ids, replace, run);
  IvfFacts facts = facts_;
  facts.next_id = state.next_id;
  write_ivf_flat(facts, centroids_.centroids(), state.parts, path, run);
}

void IvfFlatIndex::save_merged(std::span<const IvfFlatIndex* const> indexes, const std::filesystem::path& path, const RunOptions& run) {
  const IvfFlatIndex& like = *indexes.front();
  IvfFacts facts = like.facts_;
  facts.curve.reset();  // of one of them
  std::vector<LiveRows> parts;
  std::vector<RowId> ids;
  std::int64_t rows = 0;
  for (const IvfFlatIndex* index : indexes) rows += index->rows();
  ids.reserve(at(rows));
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    const IvfFlatIndex& index = *indexes[i];
    require(index.facts_.metric == facts.metric && index.facts_.dtype == facts.dtype && index.facts_.cols == facts.cols, Fault::invalid_argument,
            "index ", i, " is of ", index.facts_.cols, " x ", name_of(index.facts_.dtype), " by ", name_of(index.facts_.metric), ", the first of ",
            facts.cols, " x ", name_of(facts.dtype), " by ", name_of(facts.metric));
    const MatrixRef mine = index.centroids_.centroids(), first = like.centroids_.centroids();
    require(mine.rows == first.rows && std::memcmp(mine.data, first.data, at(mine.rows * mine.stride_bytes)) == 0, Fault::invalid_argument,
            "index ", i, " has other lists than the first");
    const auto state = index.state();
    facts.next_id = std::max(facts.next_id, state->next_id);
    facts.allow_nonfinite = facts.allow_nonfinite || index.facts_.allow_nonfinite;
    for (const LiveRows& part : state->parts) {
      parts.push_back(part);
      part.lists->ids().ranks();  // sound
      for (std::int64_t row = 0; row < part.lists->rows().rows; ++row) {
        if (part.has(static_cast<LocalRow>(row))) ids.push_back(part.lists->ids().of_row(row));
      }
    }
  }
  require(std::ssize(ids) <= most_rows, Fault::unsupported, "an inverted file has at most ", most_rows, " rows, got ", ids.size());
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  require(twice == ids.end(), Fault::invalid_argument, "id ", twice == ids.end() ? 0 : value_of(*twice), " is in two of the indexes");
  write_ivf_flat(facts, like.centroids_.centroids(), parts, path, run);
}

}  // namespace gigaknn
