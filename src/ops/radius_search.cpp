#include "ops/radius_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/gather.hpp"
#include "core/require.hpp"

namespace gigaknn {
namespace {

constexpr double held_bytes = 12;    // of an entry in the lists of a batch
constexpr double joined_bytes = 24;  // of an entry there and in the lists of all queries

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Of a batch, whose offsets in each block take an eighth of a budget at the most.
std::int64_t most_queries(const BlockedBase& rows, std::int64_t queries, const RunOptions& run) {
  if (run.memory_bytes == 0) return queries;
  const std::int64_t blocks = (rows.rows() + rows.block_rows() - 1) / rows.block_rows();
  const auto most = static_cast<std::int64_t>(run.memory_bytes / 8 / (at(blocks) * sizeof(std::int64_t)));
  return std::min(queries, std::max(SpreadBatches::batch_rows, most));
}

}  // namespace

RadiusSearch::RadiusSearch(const BlockedBase& rows, MatrixRef queries, float radius, bool self, std::size_t others, double share,
                           const RunOptions& run)
    : rows_(rows), queries_(queries), radius_(radius), self_(self), run_(run),
      // Where the base is not whole each batch prepares all blocks anew.
      spread_(queries.rows, rows.whole() ? SpreadBatches::batch_rows : most_queries(rows, queries.rows, run), rows.rows(),
              static_cast<double>(at(queries.cols) * size_of(queries.dtype)) / SpreadBatches::searched_bytes,
              [this](std::span<const std::int64_t> some) { return search(some); }),
      share_(share), others_(static_cast<double>(others + offset_bytes(queries.rows))),
      room_(run.memory_bytes == 0 ? std::numeric_limits<double>::infinity()
                                  : std::max(0.0, static_cast<double>(run.memory_bytes) * share - others_)) {}

RadiusNeighbors RadiusSearch::run() {
  if (run_.progress) run_.progress->report("search", 0, queries_.rows);
  spread_.run([this] { return (room_ - static_cast<double>(found_) * held_bytes) / 2 / SpreadBatches::searched_bytes; });
  return join();
}

std::int64_t RadiusSearch::search(std::span<const std::int64_t> queries) {
  const std::int64_t before = found_;
  {
    const Progress::Quiet quiet(run_.progress);
    keep(rows_.within(gather_rows(queries_, queries, run_), radius_, run_), queries);
  }
  seen_ += std::ssize(queries);
  if (static_cast<double>(found_) * joined_bytes > room_) refuse();
  if (run_.progress) run_.progress->report("search", seen_, queries_.rows);
  return found_ - before;
}

void RadiusSearch::keep(RadiusNeighbors found, std::span<const std::int64_t> queries) {
  Batch batch{{queries.begin(), queries.end()}, {}};
  batch.lists.offsets.push_back(0);
  batch.lists.ids.reserve(found.ids.size());
  batch.lists.distances.reserve(found.ids.size());
  for (std::size_t i = 0; i + 1 < found.offsets.size(); ++i) {
    const RowId self = self_ ? RowId{queries[i]} : no_row;
    for (auto j = at(found.offsets[i]); j < at(found.offsets[i + 1]); ++j) {
      if (found.ids[j] == self) continue;
      batch.lists.ids.push_back(found.ids[j]);
      batch.lists.distances.push_back(found.distances[j]);
    }
    batch.lists.offsets.push_back(std::ssize(batch.lists.ids));
  }
  found_ += std::ssize(batch.lists.ids);
  batches_.push_back(std::move(batch));
}

void RadiusSearch::refuse() const {
  const double entries = static_cast<double>(found_) / static_cast<double>(seen_) * static_cast<double>(queries_.rows);
  const double needed = (others_ + entries * joined_bytes) / share_;
  const char* const about = seen_ < queries_.rows ? "about " : "";
  // Both rows of a pair list it.
  const std::string what = self_ ? join_text(about, std::llround(entries / 2), " pairs of rows are within ", radius_, " of each other, which takes")
                                 : join_text(about, std::llround(entries), " rows are within ", radius_, " of the queries, which takes");
  fail(Fault::out_of_memory, "a budget of ", run_.memory_bytes, " bytes is too small: ", what, " about ", std::llround(needed), " bytes");
}

RadiusNeighbors RadiusSearch::join() const {
  RadiusNeighbors all;
  all.offsets.assign(at(queries_.rows + 1), 0);
  for (const Batch& batch : batches_) {
    const std::vector<std::int64_t>& offsets = batch.lists.offsets;
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      all.offsets[at(batch.queries[i] + 1)] = offsets[i + 1] - offsets[i];
    }
  }
  for (std::size_t row = 1; row < all.offsets.size(); ++row) all.offsets[row] += all.offsets[row - 1];
  all.ids.resize(at(found_));
  all.distances.resize(at(found_));
  for (const Batch& batch : batches_) {
    const RadiusNeighbors& lists = batch.lists;
    for (std::size_t i = 0; i + 1 < lists.offsets.size(); ++i) {
      const std::int64_t to = all.offsets[at(batch.queries[i])];
      std::copy(lists.ids.begin() + lists.offsets[i], lists.ids.begin() + lists.offsets[i + 1], all.ids.begin() + to);
      std::copy(lists.distances.begin() + lists.offsets[i], lists.distances.begin() + lists.offsets[i + 1], all.distances.begin() + to);
    }
  }
  return all;
}

}  // namespace gigaknn
