#include "index/ivf_index.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <typeinfo>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "index/id_words.hpp"
#include "index/result_room.hpp"
#include "index/scan_rows.hpp"
#include "io/validate.hpp"
#include "learn/formed_rows.hpp"
#include "ops/merge_lists.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t most_rows = 0xFFFFFFFE;  // of one part

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t first_radius_k = 2;
constexpr std::size_t least_gathered_bytes = 100;
#else
constexpr std::int64_t first_radius_k = 64;
constexpr std::size_t least_gathered_bytes = std::size_t{1} << 18;  // of rows that a filter leaves: fewer are copied whatever the budget
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// The candidates that a part has, by rank.
LargeVector<RowId> ranks_of(const LiveRows& part, const Neighbors& candidates, const RunOptions& run) {
  LargeVector<RowId> ranks(candidates.ids.size(), no_row);
  part.lists->ids().ranks();  // by this thread, once
  parallel_for(run, std::ssize(ranks), 4096, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      if (candidates.ids[at(i)] == no_row) continue;
      if (const auto rank = part.rank_of(candidates.ids[at(i)])) ranks[at(i)] = RowId{*rank};
    }
  });
  return ranks;
}

}  // namespace

IvfIndex::IvfIndex(const IvfFacts& facts, Matrix centroids, bool refines, IndexSetting setting)
    : facts_(facts), refines_(refines), setting_(setting_for(std::move(setting), refines)), ops_(setting_.ops()),
      centroids_(std::move(centroids), facts.compared_by(), setting_.device, setting_.expected_queries), scanned_(facts.compared_by()),
      state_([&] {
        State empty;
        empty.index = this;
        empty.next_id = facts.next_id;
        return std::make_shared<const State>(std::move(empty));
      }()) {}

void IvfIndex::begin_with(LiveRows part) {
  State state;
  state.rows = part.count;
  state.next_id = facts_.next_id;
  state.parts.push_back(std::move(part));
  become(std::move(state));
}

std::shared_ptr<const IvfIndex::State> IvfIndex::state() const {
  const std::lock_guard lock(state_mutex_);
  return state_;
}

std::shared_ptr<const IvfIndex::State> IvfIndex::state_at(const std::shared_ptr<const Moment>& moment) const {
  if (!moment) return state();
  require(moment->index == this, Fault::invalid_argument, "the moment is one of another index");
  return std::static_pointer_cast<const State>(moment);
}

void IvfIndex::become(State next) {
  next.index = this;
  next.version = state_->version + 1;
  auto made = std::make_shared<const State>(std::move(next));
  const std::lock_guard lock(state_mutex_);
  state_.swap(made);
}

void IvfIndex::prepare(const RunOptions& run) const {
  centroids_.prepare(run);
  for (const LiveRows& part : state()->parts) part.lists->prepare(scan(), run);
}

IndexSetting IvfIndex::setting_for(IndexSetting setting, bool refines) {
  if (!refines) setting.expected_refine = 1;
  return setting;
}

std::size_t IvfIndex::bytes_beside_lists(const IvfShape& shape, const IndexSetting& setting, int threads) {
  PrepareHints hints = setting_for(setting, shape.refines).hints();
  hints.k = std::min(hints.k, std::max<std::int64_t>(1, shape.n));
  const std::int64_t batch = std::min(hints.batch, ListCentroids::batch_of_width(hints.k));
  const std::size_t of_rows = 2 * sizeof(RowId) + 3 * sizeof(LocalRow);  // ids sorted, ranks and what sorts them
  const std::size_t of_queries =
      at(shape.width()) * sizeof(float) + at(shape.d) * size_of(shape.dtype) + at(hints.k) * (sizeof(RowId) + sizeof(float));
  const std::size_t forming = shape.form ? shape.form->bytes(0) + shape.form->applying_bytes(batch) : 0;
  const std::size_t scanning =
      shape.refines ? scan_bytes_needed(setting.ops(), shape.n, shape.d, shape.dtype, shape.metric, hints, threads) : 0;
  return at(shape.n) * of_rows + at(batch) * of_queries + forming + scanning;
}

std::string IvfIndex::description() const {
  std::string form;
  if (facts_.form) {
    if (facts_.form->unit) form += "rows of length 1, ";
    form += facts_.form->linear.turns() ? join_text(cols(), " dimensions transformed into ", facts_.width())
                                        : join_text("all ", cols(), " dimensions");
    if (facts_.form->quantizes()) {
      form += join_text(", ", 8 * size_of(facts_.form->dtype), facts_.form->dtype == DType::bf16 ? " bits of bfloat16 each" : " bits each");
    }
    form += ", in ";
  }
  return join_text(form, lists_description(), refines_ ? ", full vectors behind them" : "");
}

std::string IvfIndex::parts_description(const std::string& unprepared) const {
  const auto state = this->state();
  const std::string in = state->parts.size() > 1 ? join_text(" in ", state->parts.size(), " parts") : std::string();
  const std::string prepared = state->parts.empty() ? std::string() : state->parts.front().lists->description();
  const std::string& of = prepared.empty() ? unprepared : prepared;
  return of.empty() ? in : in + " of " + of;
}

// ---- searching

void IvfIndex::require_search(MatrixRef queries, std::int64_t k, std::int64_t refine, const RunOptions& run) const {
  require_lists(queries.rows, k, run);
  require(refine >= 0, Fault::invalid_argument, "refine must be >= 0, got ", refine);
  require_queries_for(facts_, queries, run);
}

IvfIndex::Scope IvfIndex::scope_of(const SearchParams& params, std::int64_t nprobe) const {
  require(nprobe >= 1, Fault::invalid_argument, "nprobe must be >= 1, got ", nprobe);
  Scope scope;
  scope.state = state_at(params.moment);
  scope.width = centroids_.width_of(nprobe);
  const IdSet* const only = params.only;
  if (!only) return scope;
  require_bits_for(*only, scope.state->next_id);
  for (const LiveRows& part : scope.state->parts) {
    scope.words.push_back(id_words(*only, part.lists->ids()));
    for (std::size_t word = 0; part.live && word < scope.words.back().size(); ++word) scope.words.back()[word] &= (*part.live)[word];
    scope.allowed += count_of(scope.words.back());
  }
  return scope;
}

IvfIndex::Scope IvfIndex::gathered_scope(const SearchParams& params, bool refine, const RunOptions& run) const {
  Scope scope = scope_of(params, params.nprobe);
  if (!params.only || !centroids_.gathering_pays(scope.allowed, scope.state->rows, scope.width)) return scope;
  const auto& parts = scope.state->parts;
  if (scope.allowed > 0) {
    const InvertedLists& lists = *parts.front().lists;
    const std::size_t listed = at(lists.cols()) * size_of(lists.dtype()), full = at(facts_.cols) * size_of(facts_.dtype);
    const std::size_t searching = searching_bytes_needed(threads_of(run));
    const std::size_t room = run.memory_bytes > searching ? run.memory_bytes - searching : 0;
    const auto fits = [&](std::size_t row_bytes) {  // a copy, and what is prepared of it; ids with what sorts them
      return run.memory_bytes == 0 || at(scope.allowed) * (2 * row_bytes + 4 * sizeof(RowId)) <= std::max(room, least_gathered_bytes);
    };
    const std::size_t read_by_look = at(scope.state->rows / centroids_.lists() * scope.width) * listed;
    scope.by_full = refine && fits(full) && at(scope.allowed) * full <= std::max(read_by_look, least_gathered_bytes);
    if (!scope.by_full && !fits(listed)) return scope;
  }
  scope.narrow = true;
  if (scope.allowed > 0) {
    scope.few.push_back(scope.by_full ? gathered_full(parts, scope.words, scope.allowed, run)
                                      : gathered(parts, scope.words, scope.allowed, run));
    const auto begins = scope.few.front().lists->begins();
    for (std::size_t list = 0; list + 1 < begins.size(); ++list) {
      if (begins[list] < begins[list + 1]) scope.few_lists.push_back(RowId{static_cast<std::int64_t>(list)});
    }
  }
  scope.width = std::max<std::int64_t>(1, std::ssize(scope.few_lists));
  scope.words.clear();
  return scope;
}

ProbingBatch IvfIndex::probe(const Scope& scope, MatrixRef queries, std::int64_t begin, std::int64_t end, const RunOptions& run) const {
  return scope.narrow ? ProbingBatch::of_lists(queries, begin, end, scope.few_lists, run)
                      : centroids_.probe(queries, begin, end, scope.width, run);
}

Neighbors IvfIndex::nearest_in_lists(const Scope& scope, const ProbingBatch& batch, std::int64_t k, const RunOptions& run) const {
  const auto parts = scope.parts();
  Neighbors found(batch.queries.rows(), k);
  const ListScan scan = this->scan(scope.by_full);
  if (parts.size() != 1) clear_lists(NeighborsOut(found), scan.metric);
  for (std::size_t p = 0; p < parts.size(); ++p) {
    Neighbors of_part;
    if (parts.size() > 1) of_part = Neighbors(batch.queries.rows(), k);
    Neighbors& to = parts.size() > 1 ? of_part : found;
    parts[p].lists->nearest(scan, batch, k, NeighborsOut(to), scope.narrow ? RowMask{} : scope.mask(p), true, run);
    parts[p].lists->ids().name(to.ids);
    if (parts.size() > 1) merge_lists(NeighborsOut(found), of_part, 0, scan.metric, run);
  }
  return found;
}

Neighbors IvfIndex::nearest_by_full(const Scope& scope, const ProbingBatch& batch, MatrixRef full, std::int64_t candidates, std::int64_t k,
                                    const RunOptions& run) const {
  const auto& parts = scope.state->parts;
  const bool in_one = parts.size() == 1 && !scope.narrow;  // then candidates are called by the ranks by which full vectors stand
  Neighbors near;
  if (in_one) {
    near = Neighbors(batch.queries.rows(), candidates);
    parts.front().lists->nearest(scan(), batch, candidates, NeighborsOut(near), scope.mask(0), false, run);
  } else {
    near = nearest_in_lists(scope, batch, candidates, run);
  }
  Neighbors result(full.rows, k);
  clear_lists(NeighborsOut(result), facts_.metric);
  for (const LiveRows& part : parts) {
    const LargeVector<RowId> ranks = in_one ? std::move(near.ids) : ranks_of(part, near, run);
    Neighbors of_part(full.rows, k);
    ops_.nearest_among(full, part.full.rows, facts_.metric, ranks.data(), candidates, k, NeighborsOut(of_part), run);
    part.lists->ids().name(of_part.ids);
    merge_lists(NeighborsOut(result), of_part, 0, facts_.metric, run);
  }
  return result;
}

FormedQueries IvfIndex::listed_queries(MatrixRef queries, const RunOptions& run) const {
  if (facts_.form) return facts_.form->apply_to_queries(ops_, queries, facts_.metric, run);
  std::optional<Matrix> listed = compared_form_of(queries, run);
  return {listed ? std::move(*listed) : Matrix(), {}};
}

void IvfIndex::show(Neighbors& found, std::int64_t first, std::span<const double> factors) const {
  for (std::int64_t i = 0; i < std::ssize(factors); ++i) {
    const double factor = factors[at(i)];
    for (std::int64_t j = (first + i) * found.k; j < (first + i + 1) * found.k; ++j) {
      if (found.ids[at(j)] == no_row) continue;
      float& distance = found.distances[at(j)];
      if (std::isnan(factor)) {  // a query that has no direction
        found.ids[at(j)] = no_row;
        distance = std::numeric_limits<float>::infinity();
      } else {
        distance = RowForm::shown(distance, factor, facts_.metric, facts_.listed_dtype());
      }
    }
  }
}

// Queries that are searched for at once: what they hold beside the result, candidates and the lists that are looked into above all, fits
// what the budget leaves.
std::int64_t IvfIndex::batch_within(const RunOptions& run, const Scope& scope, std::int64_t queries, std::int64_t k, std::int64_t candidates) const {
  const std::int64_t width = scope.width;
  const std::int64_t most = ListCentroids::batch_of_width(std::max(width, candidates));
  if (run.memory_bytes == 0) return most;
  const std::size_t parts = scope.state->parts.size();
  // Lists of candidates and their ranks, of one part and merged; lists looked into, twice; the query as it is, as it is compared, in order.
  const std::size_t a_query = list_bytes(1, candidates) * (parts > 1 ? 3 : 2) + at(candidates) * sizeof(RowId) + list_bytes(1, k) * 2 +
                              list_bytes(1, width) * 2 + at(facts_.cols) * size_of(facts_.dtype) + at(facts_.width()) * 3 * sizeof(float);
  const std::size_t result = list_bytes(queries, k);
  const std::size_t room = run.memory_bytes > result ? run.memory_bytes - result : 0;
  require(a_query <= room, Fault::out_of_memory, "a budget of ", run.memory_bytes, " bytes is too small: the results take ", result,
          ", and the search of one query ", a_query);
  return std::min(most, static_cast<std::int64_t>(room / a_query));
}

Neighbors IvfIndex::search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const {
  const UsualFloats floats;
  require_search(queries, k, params.refine, run);
  const Scope scope = gathered_scope(params, refines_ && params.refine > 0, run);
  const bool refine = refines_ && params.refine > 0 && !scope.by_full;
  const std::int64_t candidates = refine ? candidates_of(k, params.refine, scope.state->rows) : k;
  const std::int64_t most = batch_within(run, scope, queries.rows, k, candidates);
  Neighbors result(queries.rows, k);
  for (std::int64_t begin = 0; begin < queries.rows; begin += most) {
    const MatrixRef some = queries.slice(begin, std::min(queries.rows, begin + most));
    const FormedQueries listed = scope.by_full ? FormedQueries() : listed_queries(some, run);
    const ProbingBatch batch = probe(scope, listed.rows.rows() > 0 ? listed.rows.ref() : some, 0, some.rows, run);
    const Neighbors found = refine ? nearest_by_full(scope, batch, gather_rows(some, batch.rows, run), candidates, k, run)
                                   : nearest_in_lists(scope, batch, k, run);
    batch.put(found, begin, result);
    if (!refine) show(result, begin, listed.factor);
  }
  return result;
}

RadiusNeighbors IvfIndex::search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run) const {
  const UsualFloats floats;
  require(!std::isnan(radius), Fault::invalid_argument, "the radius must be a number, got ", radius);
  require_search(queries, 1, params.refine, run);
  const Scope scope = gathered_scope(params, refines_ && params.refine > 0, run);
  const bool refine = refines_ && params.refine > 0 && !scope.by_full;
  const std::int64_t most = std::max<std::int64_t>(1, scope.state->rows);
  const bool similarity = facts_.metric == Metric::inner_product;
  const auto within = [&](float distance) { return similarity ? distance >= radius : distance <= radius; };
  RadiusNeighbors result;
  result.offsets.push_back(0);
  std::vector<std::vector<std::pair<RowId, float>>> lists;  // of a batch
  std::int64_t listed_entries = 0;                          // of these
  // What is found is not known before: it may take half of a budget. Vectors double while they grow.
  const auto require_room = [&] {
    constexpr std::size_t result_bytes = 2 * (sizeof(RowId) + sizeof(float)), list_bytes = 2 * sizeof(std::pair<RowId, float>);
    const std::size_t bytes = result.ids.size() * result_bytes + at(listed_entries) * list_bytes;
    require(run.memory_bytes == 0 || bytes <= run.memory_bytes / 2, Fault::out_of_memory, "a budget of ", run.memory_bytes,
            " bytes is too small: what is within ", radius, " of the first ", result.offsets.size() - 1 + lists.size(), " of ", queries.rows,
            " queries takes more than half of it");
  };
  // The lists of a batch's queries, k at the most; those that may go on are left.
  const auto look = [&](const ProbingBatch& batch, const FormedQueries& listed, MatrixRef some, std::int64_t k) {
    Neighbors found =
        refine ? nearest_by_full(scope, batch, gather_rows(some, batch.rows, run), k, k, run) : nearest_in_lists(scope, batch, k, run);
    std::vector<double> factors;
    for (std::int64_t i = 0; !refine && !listed.factor.empty() && i < batch.queries.rows(); ++i) {
      factors.push_back(listed.factor[at(batch.rows[at(i)])]);
    }
    show(found, 0, factors);
    std::vector<std::int64_t> unfinished;
    for (std::int64_t i = 0; i < batch.queries.rows(); ++i) {
      auto& list = lists[at(batch.rows[at(i)])];
      listed_entries -= std::ssize(list);
      list.clear();
      std::int64_t j = 0;
      for (; j < k && found.ids[at(i * k + j)] != no_row && within(found.distances[at(i * k + j)]); ++j) {
        list.emplace_back(found.ids[at(i * k + j)], found.distances[at(i * k + j)]);
      }
      listed_entries += j;
      // A search for one more would compare `refine` times so many, and find that one too far.
      if ((j == k || (refine && j + 1 > k / params.refine)) && k < most) unfinished.push_back(i);
    }
    require_room();
    return batch.some(unfinished);
  };
  const std::int64_t batch_rows = ListCentroids::batch_of_width(scope.width);
  for (std::int64_t begin = 0; begin < queries.rows; begin += batch_rows) {
    const MatrixRef some = queries.slice(begin, std::min(queries.rows, begin + batch_rows));
    const FormedQueries listed = scope.by_full ? FormedQueries() : listed_queries(some, run);
    lists.assign(at(some.rows), {});
    // Longer and longer lists for the queries that need them, of fewer and fewer at a time.
    std::vector<ProbingBatch> left;
    left.push_back(probe(scope, listed.rows.rows() > 0 ? listed.rows.ref() : some, 0, some.rows, run));
    for (std::int64_t k = std::min(first_radius_k, most); !left.empty(); k = std::min(2 * k, most)) {
      std::vector<ProbingBatch> longer;
      for (const ProbingBatch& batch : left) {
        const std::int64_t count = batch.queries.rows(), step = ListCentroids::batch_of_width(std::max(scope.width, k));
        for (std::int64_t first = 0; first < count; first += step) {
          std::vector<std::int64_t> turn(at(std::min(count, first + step) - first));
          std::iota(turn.begin(), turn.end(), first);
          ProbingBatch rest = count <= step ? look(batch, listed, some, k) : look(batch.some(turn), listed, some, k);
          if (rest.queries.rows() > 0) longer.push_back(std::move(rest));
        }
      }
      left = std::move(longer);
    }
    for (auto& list : lists) {
      for (const auto& [id, distance] : list) {
        result.ids.push_back(id);
        result.distances.push_back(distance);
      }
      listed_entries -= std::ssize(list);
      list = {};
      result.offsets.push_back(std::ssize(result.ids));
    }
    lists.clear();
  }
  return result;
}

Neighbors IvfIndex::search_all(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run) const {
  const UsualFloats floats;
  require(refines_, Fault::unsupported, "an index without full vectors cannot be searched exactly");
  require_search(queries, k, 1, run);
  const Scope scope = scope_of(params, std::numeric_limits<std::int64_t>::max());
  Neighbors result(queries.rows, k);
  clear_lists(NeighborsOut(result), facts_.metric);
  for (std::size_t p = 0; p < scope.state->parts.size(); ++p) {
    const LiveRows& part = scope.state->parts[p];
    part.full.look(run);
    Neighbors found = scan_rows(ops_, part.full.rows, facts_.metric, queries, k, scope.mask(p).words, run);
    part.lists->ids().name(found.ids);
    merge_lists(NeighborsOut(result), found, 0, facts_.metric, run);
  }
  return result;
}

// ---- changing

LiveRows IvfIndex::part_of(MatrixRef rows, RowIds ids, const RunOptions& run) const {
  const auto formed = facts_.form ? std::make_shared<const FormedRows>(rows, facts_.form.get(), ops_) : nullptr;
  ListDivision division;
  if (formed) {
    std::vector<RowId> lists;
    lists.reserve(at(rows.rows));
    {
      const ListFinder finder = centroids_.finder(rows.rows, run);
      const auto take = [&](MatrixRef some, std::int64_t) {
        const std::vector<RowId> theirs = finder.lists_of(some, run);
        lists.insert(lists.end(), theirs.begin(), theirs.end());
      };
      formed->in_turns("divide", take, run);
    }
    division = divide_rows(lists, centroids_.lists());
  } else {
    division = centroids_.divide(rows, run);
  }
  FullRows full = full_behind(rows, ids);
  return {std::make_shared<ListRows>(rows, std::move(division.order), std::move(division.begins), std::move(ids)), nullptr, rows.rows,
          std::move(full), formed};
}

std::size_t IvfIndex::part_bytes_needed(std::int64_t n, const RunOptions& run) const {
  if (!facts_.form) return centroids_.dividing_bytes_needed(n, run);
  const FormShape form = *form_shape();
  const FormedRowsShape rows{n, facts_.cols, facts_.dtype, &form};
  const std::int64_t turn = rows.turn_rows();
  const std::size_t dividing = at(n) * sizeof(RowId) + rows.turn_bytes() + centroids_.dividing_bytes_needed(turn, run);
  const std::size_t divided = at(n) * (sizeof(RowId) + sizeof(LocalRow));
  return std::max(dividing, divided + at(turn) * sizeof(LocalRow) + rows.gathering_bytes(turn));
}

IvfIndex::State IvfIndex::without(const State& state, std::span<const RowId> ids) {
  std::vector<RowId> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  State next;
  next.rows = state.rows - std::ssize(sorted);
  next.next_id = state.next_id;
  std::vector<bool> gone(sorted.size());
  for (const LiveRows& part : state.parts) {
    const std::int64_t known = part.lists->ids().count();
    std::vector<std::uint64_t> live;
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      const auto rank = gone[i] ? std::nullopt : part.rank_of(sorted[i]);
      if (!rank) continue;
      if (live.empty()) live = part.live ? *part.live : std::vector<std::uint64_t>(RowMask::words_for(known), ~std::uint64_t{0});
      live[*rank / 64] &= ~(std::uint64_t{1} << (*rank % 64));
      gone[i] = true;
    }
    if (live.empty()) {
      next.parts.push_back(part);
      continue;
    }
    if (known % 64 != 0) live.back() &= (std::uint64_t{1} << (known % 64)) - 1;
    const std::int64_t count = count_of(live);
    if (count == 0) continue;
    next.parts.push_back(part);
    next.parts.back().live = std::make_shared<const std::vector<std::uint64_t>>(std::move(live));
    next.parts.back().count = count;
  }
  const auto missing = std::find(gone.begin(), gone.end(), false);
  require(missing == gone.end(), Fault::invalid_argument, "id ", missing == gone.end() ? 0 : value_of(sorted[at(missing - gone.begin())]),
          " is not in the index");
  return next;
}

// The state with rows that are borrowed, as a part of their own.
IvfIndex::State IvfIndex::with(MatrixRef rows, std::span<const RowId> ids, bool replace, const RunOptions& run) const {
  State next = *state();
  require(rows.cols == facts_.cols && rows.dtype == facts_.dtype, Fault::invalid_argument, "rows are ", rows.cols, " x ",
          name_of(rows.dtype), ", the index ", facts_.cols, " x ", name_of(facts_.dtype));
  require(ids.empty() || std::ssize(ids) == rows.rows, Fault::invalid_argument, ids.size(), " ids are not those of ", rows.rows, " rows");
  if (rows.rows == 0) return next;
  require_usable_values(rows, facts_.metric, facts_.allow_nonfinite, "the rows", run);
  if (facts_.form && facts_.form->unit) require_directions(rows, "the rows", run);
  // A file says what the next id is, which may be wrong.
  for (std::size_t p = 0; ids.empty() && p < next.parts.size(); ++p) {
    const RowIds& there = next.parts[p].lists->ids();
    there.look();
    for (std::int64_t row = 0; row < there.count(); ++row) {
      require(value_of(there.of_row(row)) < next.next_id, Fault::corrupt_file, "id ", value_of(there.of_row(row)),
              " is not below the next id, ", next.next_id);
    }
  }
  require(!ids.empty() || next.next_id + rows.rows - 1 <= RowIds::most_id, Fault::invalid_argument, "the next id would be ", next.next_id,
          ", since a larger one than any was given before, and none is above ", RowIds::most_id, "; give ids to these rows");
  RowIds called = ids.empty() ? RowIds(next.next_id, rows.rows) : RowIds(ids, nullptr);
  called.require_sound();
  std::vector<RowId> known;
  for (const RowId id : ids) {
    if (place_of(next, id)) known.push_back(id);
  }
  require(replace || known.empty(), Fault::invalid_data, "id ", known.empty() ? 0 : value_of(known.front()), " is in the index already");
  next = without(next, known);
  require(next.rows + rows.rows <= most_rows, Fault::unsupported, "an inverted file has at most ", most_rows, " rows, got ",
          next.rows + rows.rows);
  next.next_id = std::max(next.next_id, value_of(called.largest()) + 1);
  next.parts.push_back(part_of(rows, std::move(called), run));
  next.rows += rows.rows;
  return next;
}

void IvfIndex::take_in(MatrixRef rows, std::span<const RowId> ids, bool replace, const RunOptions& run) {
  const UsualFloats floats;
  changing_.lock(run);
  const std::lock_guard lock(changing_, std::adopt_lock);
  State next = with(rows, ids, replace, run);
  if (rows.rows == 0) return;
  // The rows are copied here, alone or with those of parts that are not much larger.
  std::size_t first = next.parts.size() - 1;
  std::int64_t count = next.parts.back().count;
  while (first > 0 && 2 * count >= next.parts[first - 1].count) count += next.parts[--first].count;
  LiveRows whole = merged(std::span(next.parts).subspan(first), run);
  next.parts.resize(first);
  next.parts.push_back(std::move(whole));
  become(std::move(next));
}

void IvfIndex::add(MatrixRef rows, std::span<const RowId> ids, const RunOptions& run) { take_in(rows, ids, false, run); }

void IvfIndex::update(MatrixRef rows, std::span<const RowId> ids, const RunOptions& run) {
  const UsualFloats floats;
  require(!ids.empty() || rows.rows == 0, Fault::invalid_argument, "an update needs the ids of its ", rows.rows, " rows");
  take_in(rows, ids, true, run);
}

void IvfIndex::remove(std::span<const RowId> ids) {
  const std::lock_guard lock(changing_);
  become(without(*state(), ids));
}

std::optional<RowsById::Place> IvfIndex::place_of(const State& state, RowId id) {
  for (const LiveRows& part : state.parts) {
    if (const auto rank = part.rank_of(id)) return RowsById::Place{&part, *rank};
  }
  return std::nullopt;
}

Matrix IvfIndex::reconstruct(std::span<const RowId> ids) const {
  const UsualFloats floats;
  const auto state = this->state();
  const bool decodes = !keeps_rows();
  Matrix rows(std::ssize(ids), decodes ? facts_.width() : facts_.cols, decodes ? DType::f32 : facts_.dtype);
  for (std::int64_t i = 0; i < std::ssize(ids); ++i) {
    const auto place = place_of(*state, ids[at(i)]);
    require(place.has_value(), Fault::invalid_argument, "id ", value_of(ids[at(i)]), " is not in the index");
    const LiveRows& part = *place->part;
    if (decodes) {
      part.lists->decode_row(part.lists->ids().rows_of({&place->rank, 1}).front(), rows.row<float>(i));
    } else if (part.full.any()) {
      std::memcpy(rows.row<std::byte>(i), part.full.of_rank(place->rank), at(facts_.cols) * size_of(facts_.dtype));
    } else {
      part.lists->copy_row(part.lists->ids().rows_of({&place->rank, 1}).front(), rows.row<std::byte>(i));
    }
  }
  if (!decodes || !facts_.form) return rows;
  std::call_once(lengths_found_, [&] { squares_ = facts_.form->linear.squared_lengths(); });
  return facts_.form->undo(rows, squares_);
}

std::vector<RowId> IvfIndex::ids_at(const std::shared_ptr<const Moment>& moment) const {
  const auto state = state_at(moment);
  std::vector<RowId> ids(at(state->rows));
  RowsById next(state->parts);
  for (RowId& id : ids) {
    const RowsById::Place place = next.next();
    id = place.part->lists->ids().of_rank(place.rank);
  }
  return ids;
}

std::vector<RowId> IvfIndex::held_out() const {
  const auto state = this->state();
  std::vector<RowId> ids;
  std::copy_if(facts_.held_out.begin(), facts_.held_out.end(), std::back_inserter(ids),
               [&](RowId id) { return place_of(*state, id).has_value(); });
  return ids;
}

// ---- files

void IvfIndex::save(const std::filesystem::path& path, const RunOptions& run) const {
  const auto state = this->state();
  IvfFacts facts = facts_;
  facts.next_id = state->next_id;
  write(facts, state->parts, path, run);
}

void IvfIndex::save_with(MatrixRef rows, std::span<const RowId> ids, bool replace, const std::filesystem::path& path, const RunOptions& run,
                         const RunOptions& writing) const {
  const State state = with(rows, ids, replace, run);
  IvfFacts facts = facts_;
  facts.next_id = state.next_id;
  write(facts, state.parts, path, writing);
}

bool IvfIndex::same_values(MatrixRef a, MatrixRef b) {
  if (a.rows != b.rows || a.cols != b.cols) return false;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    if (std::memcmp(a.row_bytes(row), b.row_bytes(row), at(a.cols) * size_of(a.dtype)) != 0) return false;
  }
  return true;
}

void IvfIndex::require_like(const IvfIndex& first, std::size_t number) const {
  require(kind() == first.kind(), Fault::invalid_argument, "index ", number, " is an ", kind(), ", the first an ", first.kind());
  require(metric() == first.metric() && dtype() == first.dtype() && cols() == first.cols(), Fault::invalid_argument, "index ", number,
          " is of ", cols(), " x ", name_of(dtype()), " by ", name_of(metric()), ", the first of ", first.cols(), " x ",
          name_of(first.dtype()), " by ", name_of(first.metric()));
  const char* other = same_values(centroids_.centroids(), first.centroids_.centroids()) ? nullptr : "other lists";
  if (typeid(*this) != typeid(first)) other = "other rows in its lists";  // of transformed rows: codes, and not
  const RowForm *form = facts_.form.get(), *form_of_first = first.facts_.form.get();
  if (form && form_of_first ? !(*form == *form_of_first) : form != form_of_first) other = "another transform";
  if (!other) other = other_fit_than(first);
  require(!other, Fault::invalid_argument, "index ", number, " has ", other ? other : "", " than the first");
  require(keeps_rows() == first.keeps_rows(), Fault::invalid_argument, "index ", number, " and the first do not both keep full vectors");
}

void IvfIndex::save_merged(std::span<const IvfIndex* const> indexes, const std::filesystem::path& path, const RunOptions& run) {
  const IvfIndex& like = *indexes.front();
  IvfFacts facts = like.facts_;
  facts.curve.reset();  // of one of them
  std::vector<LiveRows> parts;
  std::vector<RowId> ids;
  std::int64_t rows = 0;
  for (const IvfIndex* index : indexes) rows += index->rows();
  ids.reserve(at(rows));
  for (std::size_t i = 0; i < indexes.size(); ++i) {
    const IvfIndex& index = *indexes[i];
    index.require_like(like, i);
    const auto state = index.state();
    facts.next_id = std::max(facts.next_id, state->next_id);
    std::vector<RowId> strangers;
    std::set_union(facts.held_out.begin(), facts.held_out.end(), index.facts_.held_out.begin(), index.facts_.held_out.end(),
                   std::back_inserter(strangers));
    facts.held_out = std::move(strangers);
    facts.allow_nonfinite = facts.allow_nonfinite || index.facts_.allow_nonfinite;
    for (const LiveRows& part : state->parts) {
      parts.push_back(part);
      part.lists->ids().ranks();  // sound
      for (std::int64_t row = 0; row < part.lists->ids().count(); ++row) {
        if (part.has(static_cast<LocalRow>(row))) ids.push_back(part.lists->ids().of_row(row));
      }
    }
  }
  require(std::ssize(ids) <= most_rows, Fault::unsupported, "an inverted file has at most ", most_rows, " rows, got ", ids.size());
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  require(twice == ids.end(), Fault::invalid_argument, "id ", twice == ids.end() ? 0 : value_of(*twice), " is in two of the indexes");
  like.write(facts, parts, path, run);
}

}  // namespace gigaknn
