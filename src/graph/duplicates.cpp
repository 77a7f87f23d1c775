// Groups of rows that lie within a radius of each other: rows that hold the same at once, the first of each by exact radius searches, in a
// union-find whose roots are the smallest rows.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <string_view>
#include <utility>

#include <gigaknn/graph.hpp>

#include "core/gather.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"
#include "core/usual_floats.hpp"
#include "io/validate.hpp"
#include "ops/blocks.hpp"
#include "ops/spread_batches.hpp"

namespace gigaknn {
namespace {

constexpr std::size_t unbudgeted_bytes = std::size_t{1} << 30;  // of what a batch finds, where there is no budget
constexpr std::int64_t compared_pairs = 4096;                   // at a time

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class Groups {
 public:
  explicit Groups(std::int64_t n) : parent_(at(n)) { std::iota(parent_.begin(), parent_.end(), 0); }

  void join(std::int64_t a, std::int64_t b) {
    a = root(a);
    b = root(b);
    parent_[at(std::max(a, b))] = std::min(a, b);
  }
  std::int64_t root(std::int64_t i) {
    while (parent_[at(i)] != i) {
      auto& above = parent_[at(i)];
      above = parent_[at(above)];  // halves the path
      i = above;
    }
    return i;
  }

 private:
  std::vector<std::int64_t> parent_;
};

// Joins rows to the first that holds the same, if the metric finds them within the radius of it (no number is near itself); returns the
// others, ascending: whom these find, their like find too.
std::vector<std::int64_t> join_same(const Ops& ops, MatrixRef base, Metric metric, float radius, Groups& groups, const RunOptions& run) {
  const std::size_t row_bytes = at(base.cols) * size_of(base.dtype);
  const auto content = [&](std::int64_t row) { return std::string_view(reinterpret_cast<const char*>(base.row_bytes(row)), row_bytes); };
  std::vector<std::pair<std::size_t, std::int64_t>> hashes(at(base.rows));
  parallel_for(run, base.rows, 4096, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) hashes[at(i)] = {std::hash<std::string_view>()(content(i)), i};
  });
  std::sort(hashes.begin(), hashes.end());
  std::vector<bool> joined(at(base.rows));
  std::vector<std::int64_t> first, same;  // pairs
  std::vector<RowId> ids;
  std::vector<float> distances;
  const auto compare = [&] {
    ids.clear();
    for (const std::int64_t row : same) ids.push_back(RowId{row});
    distances.resize(ids.size());
    ops.pair_distances(gather_rows(base, first), base, metric, ids.data(), 1, distances.data(), run);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (!(distances[i] <= radius)) continue;
      groups.join(first[i], same[i]);
      joined[at(same[i])] = true;
    }
    first.clear();
    same.clear();
  };
  std::size_t leader = 0;  // of rows with one hash, which hold the same but by a rare chance: then the later ones stand for themselves
  for (std::size_t i = 1; i < hashes.size(); ++i) {
    if (hashes[i].first != hashes[leader].first) {
      leader = i;
      continue;
    }
    if (content(hashes[i].second) != content(hashes[leader].second)) continue;
    first.push_back(hashes[leader].second);
    same.push_back(hashes[i].second);
    if (std::ssize(same) == compared_pairs) compare();
  }
  if (!same.empty()) compare();
  std::vector<std::int64_t> others;
  for (std::int64_t row = 0; row < base.rows; ++row) {
    if (!joined[at(row)]) others.push_back(row);
  }
  return others;
}

}  // namespace

DuplicateGroups find_duplicates(MatrixRef base, float radius, const DuplicateParams& params, const RunOptions& run) {
  const UsualFloats floats;
  require(!larger_is_nearer(params.metric), Fault::invalid_argument, "metric ", name_of(params.metric),
          " has no duplicates: it is no distance");
  require(radius >= 0 && radius < std::numeric_limits<float>::infinity(), Fault::invalid_argument,
          "the radius must be a finite number of at least 0, got ", radius);
  const std::int64_t n = base.rows;
  // Who leads each row, with the hashes of all and then who are leaders; and, later, what a row finds, which may be all others.
  const std::size_t least = at(n) * std::max<std::size_t>(at(4) * sizeof(std::int64_t) + 1, 2 * sizeof(std::int64_t) + static_cast<std::size_t>(SpreadBatches::searched_bytes));
  require(run.memory_bytes == 0 || least <= run.memory_bytes, Fault::out_of_memory, "a budget of ", run.memory_bytes,
          " bytes is too small: the duplicates of ", n, " rows need more than ", least);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  const Ops& ops = ops_of(params.device, params.shards);
  Groups groups(n);
  if (run.progress) run.progress->report("dedup", 0, n);
  const std::vector<std::int64_t> leaders = join_same(ops, base, params.metric, radius, groups, run);
  const std::int64_t queries = std::ssize(leaders), batch = std::min(queries, SpreadBatches::batch_rows);
  // Who leads each row, and who are leaders; a batch of these. A row may find all others.
  const std::size_t row_bytes = at(base.cols) * size_of(base.dtype);
  const std::size_t held = at(n) * 2 * sizeof(std::int64_t) + at(batch) * row_bytes;
  const std::size_t room = run.memory_bytes == 0 ? unbudgeted_bytes
                                                 : std::max(run.memory_bytes / 4, at(n) * static_cast<std::size_t>(SpreadBatches::searched_bytes));
  const PrepareHints hints{.k = 1, .queries = queries, .batch = batch, .self = false};
  const BlockedBase rows(ops, base, params.metric, hints, held + (run.memory_bytes == 0 ? 0 : room), run);
  std::int64_t seen = 0;
  const auto search = [&](std::span<const std::int64_t> places) {
    std::vector<std::int64_t> some;
    for (const std::int64_t place : places) some.push_back(leaders[at(place)]);
    const Progress::Quiet quiet(run.progress);
    const RadiusNeighbors found = rows.within(gather_rows(base, some, run), radius, run);
    for (std::size_t i = 0; i < some.size(); ++i) {
      for (std::int64_t j = found.offsets[i]; j < found.offsets[i + 1]; ++j) groups.join(some[i], value_of(found.ids[at(j)]));
    }
    return std::ssize(found.ids);
  };
  // Where the base is not whole each batch prepares all blocks anew: batches are as large as half of the room for what they find, a copy of
  // their rows and their offsets in each block.
  const std::int64_t blocks = (n + rows.block_rows() - 1) / rows.block_rows();
  const auto most = static_cast<std::int64_t>(room / 2 / (row_bytes + at(blocks + 2) * sizeof(std::int64_t)));
  SpreadBatches batches(queries, rows.whole() ? batch : std::max(batch, most), n, 0, [&](std::span<const std::int64_t> places) {
    const std::int64_t entries = search(places);
    if (run.progress) run.progress->report("dedup", n - queries + (seen += std::ssize(places)), n);
    return entries;
  });
  batches.run([&] { return static_cast<double>(rows.whole() ? room : room / 2) / SpreadBatches::searched_bytes; });
  DuplicateGroups result;
  std::vector<std::int64_t> sizes(at(n), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    result.first.push_back(RowId{groups.root(i)});
    ++sizes[at(value_of(result.first.back()))];
  }
  for (const std::int64_t size : sizes) {
    result.groups += size > 0;
    result.with_duplicates += size > 1;
    result.largest = std::max(result.largest, size);
  }
  return result;
}

}  // namespace gigaknn
