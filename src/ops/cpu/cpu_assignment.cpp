#include "ops/cpu/cpu_assignment.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/gather.hpp"
#include "core/threads.hpp"
#include "ops/canonical.hpp"
#include "ops/requests.hpp"

namespace gigaknn::cpu {
namespace {

#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t least_coded_clusters = 8;
constexpr std::int64_t least_coded_products = 1;
constexpr std::int64_t most_task_rows = 10;
#else
constexpr std::int64_t least_coded_clusters = 16;
constexpr std::int64_t least_coded_products = 8193;  // of a row: fewer take less time in float32 than codes' thresholds do
constexpr std::int64_t most_task_rows = CodeFilter::most_block_queries;
#endif
constexpr std::int64_t widened_elements = std::int64_t{1} << 17;  // of a task: half a megabyte
constexpr std::int64_t prefetch_distance = 8;  // rows between the prefetch of one and its use: their order is not that of memory
constexpr int fitting_rounds = 2;  // the first centroids are rows; what moves later are means, which spread less
constexpr double most_moved = 0.9;  // beyond, comparing with all is as quick

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

/// Centroids that rows are compared with: all, or those that moved.
struct CpuAssignment::Candidates {
  Matrix gathered;
  RowFacts facts;
  std::vector<LocalRow> ids;  // none: all
  std::unique_ptr<CodeFilter> filter;  // one of the two
  std::unique_ptr<Exhaustive> exhaustive;

  Candidates(const CpuAssignment& owner, MatrixRef centroids, std::vector<LocalRow> some, const RunOptions& run) : ids(std::move(some)) {
    if (!ids.empty()) {
      gathered = gather_rows(centroids, ids);
      centroids = gathered;
    }
    facts = owner.pair_.facts_of(centroids, run);
    if (owner.space_) {
      filter = std::make_unique<CodeFilter>(owner.space_, centroids, facts, owner.pair_, *owner.codes_, 1, run);
    } else {
      exhaustive = std::make_unique<Exhaustive>(centroids, facts, owner.pair_, *owner.floats_);
    }
  }
  // A neighbour among all centroids as it orders among these.
  PackedNeighbor among(PackedNeighbor neighbor) const {
    if (ids.empty() || neighbor == no_neighbor) return neighbor;
    const auto place = std::lower_bound(ids.begin(), ids.end(), row_of(neighbor));
    return (neighbor >> 32 << 32) | static_cast<std::uint64_t>(place - ids.begin());
  }
  PackedNeighbor among_all(PackedNeighbor neighbor) const {
    return ids.empty() ? neighbor : (neighbor >> 32 << 32) | ids[row_of(neighbor)];
  }
};

std::size_t CpuAssignment::bytes_needed(Metric metric, std::int64_t n, std::int64_t d, std::int64_t clusters, int threads) {
  const bool codes = has_code_form(metric);
  const std::int64_t code = codes ? most_code_bytes(metric, d) : 0;
  const std::int64_t a_row = code + 22 + 8 + 1 + 4 * 4 + 9;
  const std::int64_t a_task = most_task_rows * (code + 160) + std::max(widened_elements, most_task_rows * d) * 4;
  return (codes ? 2 * CodeFilter::bytes_needed(metric, clusters, d, threads) : 0) +
         at(n * a_row + threads * a_task + 3 * clusters * (d * 4 + 32));
}

CpuAssignment::CpuAssignment(MatrixRef rows, const PairDistance& pair, std::int64_t clusters, const CodeKernels* codes,
                             const FloatKernels& floats, const RunOptions& run)
    : rows_(rows), pair_(pair), facts_(PairDistance(pair.kernels(), pair.metric(), rows.dtype, rows.cols).facts_of(rows, run)),
      clusters_(clusters), codes_(clusters < least_coded_clusters || clusters * rows.cols < least_coded_products ? nullptr : codes),
      floats_(&floats), nearest_(at(rows.rows), no_neighbor), farther_(at(rows.rows), 1) {
  order_rows();
}

void CpuAssignment::order_rows() {
  order_.clear();
  order_.reserve(at(rows_.rows - facts_.far_count));
  for (std::int64_t i = 0; i < rows_.rows; ++i) {
    if (!facts_.far[at(i)]) order_.push_back(static_cast<LocalRow>(i));
  }
  if (!space_) return;
  std::stable_sort(order_.begin(), order_.end(), [&](LocalRow a, LocalRow b) { return coded_.regions[a] < coded_.regions[b]; });
}

const void* CpuAssignment::readable(std::int64_t i, float* widened) const {
  if (rows_.dtype == pair_.dtype()) return pair_.readable(rows_.row_bytes(i), widened);
  widen_row(pair_.kernels(), rows_.dtype, rows_.row_bytes(i), widened, pair_.d());
  return widened;
}

void CpuAssignment::prefetch(LocalRow row) const {
  const std::byte* const bytes = rows_.row_bytes(row);
  for (std::int64_t i = 0; i < rows_.cols * static_cast<std::int64_t>(size_of(rows_.dtype)); i += 64) __builtin_prefetch(bytes + i);
}

void CpuAssignment::encode_rows(MatrixRef centroids, const RowFacts& facts, const RunOptions& run) {
  coded_ = {};
  space_ = fit_codes({centroids, facts, pair_, *codes_, *floats_, 1}, run);
  if (space_) {
    coded_.resize(rows_.rows, space_->stride());
    parallel_for(run, rows_.rows, 1024, [&](std::int64_t begin, std::int64_t end, int) {
      space_->encode(rows_, facts_, begin, end, true, coded_, begin);
    });
  }
  order_rows();
}

std::vector<std::uint8_t> CpuAssignment::moved_since(MatrixRef centroids) const {
  std::vector<std::uint8_t> moved(at(centroids.rows), 1);
  for (std::int64_t c = 0; c < last_.rows(); ++c) {
    moved[at(c)] = std::memcmp(centroids.row_bytes(c), last_.row<std::byte>(c), at(centroids.cols) * size_of(centroids.dtype)) != 0;
  }
  return moved;
}

// The distance of each row to the centroid it had, and whether that became larger.
void CpuAssignment::measure_own(MatrixRef centroids, const RowFacts& facts, const std::vector<std::uint8_t>& moved,
                                const RunOptions& run) {
  const Scorer scorer(centroids, facts, pair_);
  const auto is_measured = [&](LocalRow row) { return nearest_[row] != no_neighbor && moved[row_of(nearest_[row])]; };
  parallel_for(run, std::ssize(order_), 256, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> widened(at(pair_.d())), scratch(widened);
    for (std::int64_t i = begin; i < end; ++i) {
      const LocalRow row = order_[at(i)];
      if (i + prefetch_distance < end && is_measured(order_[at(i + prefetch_distance)])) prefetch(order_[at(i + prefetch_distance)]);
      const PackedNeighbor before = nearest_[row];
      farther_[row] = before == no_neighbor;
      if (!is_measured(row)) continue;
      const ScoredQuery query = scorer.query(readable(row, widened.data()), squared_norm(row));
      nearest_[row] = facts.far[row_of(before)] ? no_neighbor : scorer.score(query, row_of(before), no_neighbor, scratch.data());
      farther_[row] = nearest_[row] > before;
    }
  });
}

void CpuAssignment::assign(MatrixRef centroids, RowId* labels, float* distances, const RunOptions& run) {
  require_centroids(centroids, clusters_, rows_.cols, pair_.dtype());
  const RowFacts facts = pair_.facts_of(centroids, run);
  if (codes_ && rounds_ < fitting_rounds) encode_rows(centroids, facts, run);
  ++rounds_;
  const std::vector<std::uint8_t> moved = moved_since(centroids);
  last_ = {};  // a round that ends early is no guide to the next
  measure_own(centroids, facts, moved, run);

  std::vector<LocalRow> moving;
  for (std::int64_t c = 0; c < clusters_; ++c) {
    if (moved[at(c)]) moving.push_back(static_cast<LocalRow>(c));
  }
  const bool apart = static_cast<double>(moving.size()) <= most_moved * static_cast<double>(clusters_);
  std::vector<LocalRow> farther, others;
  farther.reserve(order_.size());
  others.reserve(apart ? order_.size() : 0);
  for (const LocalRow row : order_) (farther_[row] || !apart ? farther : others).push_back(row);
  std::unique_ptr<Candidates> all, some;
  if (!farther.empty()) all = std::make_unique<Candidates>(*this, centroids, std::vector<LocalRow>(), run);
  if (!others.empty() && !moving.empty()) some = std::make_unique<Candidates>(*this, centroids, std::move(moving), run);
  std::vector<Task> tasks;
  const std::int64_t most = !copies() ? most_task_rows : std::clamp<std::int64_t>(widened_elements / rows_.cols, 1, most_task_rows);
  const auto divide = [&](const Candidates* candidates, const std::vector<LocalRow>& rows) {
    if (!candidates) return;
    for (std::int64_t begin = 0; begin < std::ssize(rows); begin += most) {
      tasks.push_back({candidates, rows.data() + begin, std::min(most, std::ssize(rows) - begin)});
    }
  };
  divide(all.get(), farther);
  divide(some.get(), others);
  std::atomic<std::int64_t> done{0};
  parallel_for(run, std::ssize(tasks), 1, [&](std::int64_t task, std::int64_t, int) {
    search(tasks[at(task)], run);
    if (run.progress) run.progress->report("assign", ++done, std::ssize(tasks));
  });

  for (std::int64_t i = 0; i < rows_.rows; ++i) {
    const PackedNeighbor found = nearest_[at(i)];
    const float distance = found == no_neighbor ? NAN : value_of_key(pair_.metric(), key_of(found));
    labels[i] = std::isfinite(distance) ? RowId{row_of(found)} : no_row;
    distances[i] = std::isfinite(distance) ? distance : std::numeric_limits<float>::infinity();
  }
  last_ = Matrix(clusters_, centroids.cols, centroids.dtype);
  for (std::int64_t c = 0; c < clusters_; ++c) std::memcpy(last_.row<std::byte>(c), centroids.row_bytes(c), at(last_.ref().stride_bytes));
}

void CpuAssignment::search(const Task& task, const RunOptions& run) {
  TopK lists(task.count, 1);
  for (std::int64_t i = 0; i < task.count; ++i) {
    const PackedNeighbor known = task.candidates->among(nearest_[task.rows[i]]);
    if (known != no_neighbor) lists.push(i, known);
  }
  if (space_) {
    search_by_codes(task, lists, run);
  } else {
    search_in_floats(task, lists, run);
  }
  for (std::int64_t i = 0; i < task.count; ++i) {
    PackedNeighbor& nearest = nearest_[task.rows[i]];
    std::int64_t count = 0;
    const PackedNeighbor found = *lists.finish(i, count);
    if (count == 1 && found != task.candidates->among(nearest)) nearest = task.candidates->among_all(found);
  }
}

void CpuAssignment::search_by_codes(const Task& task, TopK& lists, const RunOptions& run) const {
  const CodeFilter& filter = *task.candidates->filter;
  std::vector<float> widened(at(copies() ? task.count * pair_.d() : 0));
  CodedQueries queries;
  queries.count = task.count;
  queries.coded.resize(task.count, space_->stride());
  queries.scratch.resize(at(pair_.d()));
  std::vector<PackedNeighbor> bounds;
  for (std::int64_t i = 0; i < task.count; ++i) {
    const LocalRow row = task.rows[i];
    if (i + prefetch_distance < task.count) {
      const LocalRow next = task.rows[i + prefetch_distance];
      prefetch(next);
      __builtin_prefetch(coded_.codes.data() + std::int64_t{next} * coded_.stride);
    }
    queries.coded.copy_row(coded_, row, i);
    queries.query.push_back(i);
    queries.list.push_back(i);
    queries.scored.push_back(filter.scorer().query(readable(row, copies() ? widened.data() + i * pair_.d() : nullptr), squared_norm(row)));
    bounds.push_back(lists.bound(i));
  }
  const auto block = filter.start(std::move(queries), std::move(bounds), 1);
  filter.nearest(*block, 0, 1, lists, run);
}

void CpuAssignment::search_in_floats(const Task& task, TopK& lists, const RunOptions& run) const {
  Matrix queries(task.count, rows_.cols, pair_.dtype());
  RowFacts facts;
  facts.far.assign(at(task.count), 0);
  for (std::int64_t i = 0; i < task.count; ++i) {
    const LocalRow row = task.rows[i];
    if (rows_.dtype == pair_.dtype()) {
      std::memcpy(queries.row<std::byte>(i), rows_.row_bytes(row), at(queries.ref().stride_bytes));
    } else {
      readable(row, queries.row<float>(i));
    }
    if (!facts_.squared_norms.empty()) facts.squared_norms.push_back(facts_.squared_norms[row]);
  }
  task.candidates->exhaustive->nearest(queries, facts, -1, 0, task.count, 0, 1, lists, run);
}

}  // namespace gigaknn::cpu
