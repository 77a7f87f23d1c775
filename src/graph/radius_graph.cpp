// All pairs of rows within a radius, under a budget that nobody can plan for: how many pairs there are, the search tells.
//
//   batches of all rows (spread_batches.hpp), each --within--> its lists, without the rows themselves
//   all batches --> lists in the order of the rows
//
// Where the budget is reached, the batches before tell how many pairs there are in all.
#include <gigaknn/graph.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/require.hpp"
#include "core/threads.hpp"
#include "graph/spread_batches.hpp"
#include "io/validate.hpp"
#include "ops/blocks.hpp"

namespace gigaknn {
namespace {

constexpr double held_bytes = 12;      // of a pair in the lists of a batch
constexpr double joined_bytes = 24;    // of a pair there and in the lists of all rows

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Lists of rows first, first + step, ...
struct Batch {
  std::int64_t first = 0;
  std::int64_t step = 1;
  RadiusNeighbors lists;
};

class RadiusGraph {
 public:
  RadiusGraph(MatrixRef base, float radius, const RadiusGraphParams& params, const RunOptions& run)
      : base_(base), radius_(radius), run_(run), ops_(ops_of(params.device, params.shards)), offset_bytes_(at(base.rows + 1) * 16),
        rows_(ops_, base, params.metric, hints(), offset_bytes_ + run.memory_bytes / 2, run),
        // Where the base is not whole each batch prepares all blocks anew.
        spread_(base.rows, rows_.whole() ? SpreadBatches::batch_rows : base.rows, base.rows,
                [this](std::int64_t first, std::int64_t step, std::int64_t rows) { return search(first, step, rows); }) {
    if (run.memory_bytes == 0) return;
    const std::size_t search = ops_.bytes_needed(rows_.block_rows(), base.cols, base.dtype, params.metric, hints(), threads_of(run));
    room_ = std::max(0.0, static_cast<double>(run.memory_bytes) - static_cast<double>(offset_bytes_ + search));
  }

  RadiusNeighbors build() {
    if (run_.progress) run_.progress->report("search", 0, base_.rows);
    spread_.run([this] { return (room_ - static_cast<double>(pairs_) * held_bytes) / 2 / SpreadBatches::searched_bytes; });
    return join();
  }

 private:
  PrepareHints hints() const { return {.k = 1, .queries = base_.rows, .batch = std::min(base_.rows, SpreadBatches::batch_rows), .self = false}; }

  std::int64_t search(std::int64_t first, std::int64_t step, std::int64_t rows) {
    const std::int64_t before = pairs_;
    MatrixRef queries = base_;
    queries.data = base_.row_bytes(first);
    queries.rows = rows;
    queries.stride_bytes *= step;
    {
      const Progress::Quiet quiet(run_.progress);
      keep(rows_.within(queries, radius_, run_), first, step);
    }
    seen_ += rows;
    if (static_cast<double>(pairs_) * joined_bytes > room_) refuse();
    if (run_.progress) run_.progress->report("search", seen_, base_.rows);
    return pairs_ - before;
  }

  // What was found, without the rows themselves.
  void keep(const RadiusNeighbors& found, std::int64_t first, std::int64_t step) {
    Batch batch{first, step, {}};
    batch.lists.offsets.push_back(0);
    batch.lists.ids.reserve(found.ids.size());
    batch.lists.distances.reserve(found.ids.size());
    for (std::size_t i = 0; i + 1 < found.offsets.size(); ++i) {
      const RowId self{first + static_cast<std::int64_t>(i) * step};
      for (auto j = at(found.offsets[i]); j < at(found.offsets[i + 1]); ++j) {
        if (found.ids[j] == self) continue;
        batch.lists.ids.push_back(found.ids[j]);
        batch.lists.distances.push_back(found.distances[j]);
      }
      batch.lists.offsets.push_back(std::ssize(batch.lists.ids));
    }
    pairs_ += std::ssize(batch.lists.ids);
    batches_.push_back(std::move(batch));
  }

  // Both rows of a pair list it.
  [[noreturn]] void refuse() const {
    const double entries = static_cast<double>(pairs_) / static_cast<double>(seen_) * static_cast<double>(base_.rows);
    const double needed = static_cast<double>(run_.memory_bytes) - room_ + entries * joined_bytes;
    fail(Fault::out_of_memory, "a budget of ", run_.memory_bytes, " bytes is too small: ", seen_ < base_.rows ? "about " : "",
         std::llround(entries / 2), " pairs of rows are within ", radius_, " of each other, which takes about ", std::llround(needed),
         " bytes");
  }

  RadiusNeighbors join() const {
    RadiusNeighbors all;
    all.offsets.assign(at(base_.rows + 1), 0);
    for (const Batch& batch : batches_) {
      const std::vector<std::int64_t>& offsets = batch.lists.offsets;
      for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
        all.offsets[at(batch.first + static_cast<std::int64_t>(i) * batch.step + 1)] = offsets[i + 1] - offsets[i];
      }
    }
    for (std::size_t row = 1; row < all.offsets.size(); ++row) all.offsets[row] += all.offsets[row - 1];
    all.ids.resize(at(pairs_));
    all.distances.resize(at(pairs_));
    for (const Batch& batch : batches_) {
      const RadiusNeighbors& lists = batch.lists;
      for (std::size_t i = 0; i + 1 < lists.offsets.size(); ++i) {
        const std::int64_t to = all.offsets[at(batch.first + static_cast<std::int64_t>(i) * batch.step)];
        std::copy(lists.ids.begin() + lists.offsets[i], lists.ids.begin() + lists.offsets[i + 1], all.ids.begin() + to);
        std::copy(lists.distances.begin() + lists.offsets[i], lists.distances.begin() + lists.offsets[i + 1], all.distances.begin() + to);
      }
    }
    return all;
  }

  MatrixRef base_;
  float radius_;
  const RunOptions& run_;
  const Ops& ops_;
  std::size_t offset_bytes_;
  BlockedBase rows_;
  SpreadBatches spread_;
  double room_ = std::numeric_limits<double>::infinity();  // bytes that pairs may take
  std::int64_t seen_ = 0;                                  // rows whose lists were found
  std::int64_t pairs_ = 0;                                 // entries of these
  std::vector<Batch> batches_;
};

}  // namespace

RadiusNeighbors radius_graph(MatrixRef base, float radius, const RadiusGraphParams& params, const RunOptions& run) {
  require(std::isfinite(radius), Fault::invalid_argument, "the radius must be a finite number, got ", radius);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  return RadiusGraph(base, radius, params, run).build();
}

}  // namespace gigaknn
