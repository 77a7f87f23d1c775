// Groups of rows that lie within a radius of each other, by one exact radius search a batch and a union-find whose roots are the
// smallest rows.
#include <algorithm>
#include <numeric>

#include <gigaknn/graph.hpp>

#include "core/require.hpp"
#include "io/validate.hpp"
#include "ops/blocks.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t batch_rows = 16384;  // so that what is found of a batch is small beside the base

class Groups {
 public:
  explicit Groups(std::int64_t n) : parent_(static_cast<std::size_t>(n)) { std::iota(parent_.begin(), parent_.end(), 0); }

  void join(std::int64_t a, std::int64_t b) {
    a = root(a);
    b = root(b);
    parent_[static_cast<std::size_t>(std::max(a, b))] = std::min(a, b);
  }
  std::int64_t root(std::int64_t i) {
    while (parent_[static_cast<std::size_t>(i)] != i) {
      auto& above = parent_[static_cast<std::size_t>(i)];
      above = parent_[static_cast<std::size_t>(above)];  // halves the path
      i = above;
    }
    return i;
  }

 private:
  std::vector<std::int64_t> parent_;
};

}  // namespace

DuplicateGroups find_duplicates(MatrixRef base, float radius, const DuplicateParams& params, const RunOptions& run) {
  require(!larger_is_nearer(params.metric), Fault::invalid_argument, "metric ", name_of(params.metric),
          " has no duplicates: it is no distance");
  require(radius >= 0 && radius < std::numeric_limits<float>::infinity(), Fault::invalid_argument,
          "the radius must be a finite number of at least 0, got ", radius);
  require_usable_values(base, params.metric, params.allow_nonfinite, "the base", run);
  const std::int64_t n = base.rows;
  const PrepareHints hints{.k = 1, .queries = n, .batch = std::min(n, batch_rows), .self = false};
  const BlockedBase rows(ops_of(params.device, params.shards), base, params.metric, hints,
                         static_cast<std::size_t>(n) * 2 * sizeof(RowId), run);
  Groups groups(n);
  if (run.progress) run.progress->report("dedup", 0, n);
  for (std::int64_t begin = 0; begin < n; begin += batch_rows) {
    const std::int64_t end = std::min(n, begin + batch_rows);
    {
      const Progress::Quiet quiet(run.progress);
      const RadiusNeighbors found = rows.within(base.slice(begin, end), radius, run);
      for (std::int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<std::size_t>(i - begin);
        for (std::int64_t j = found.offsets[at]; j < found.offsets[at + 1]; ++j) {
          groups.join(i, value_of(found.ids[static_cast<std::size_t>(j)]));
        }
      }
    }
    if (run.progress) run.progress->report("dedup", end, n);
  }
  DuplicateGroups result;
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(n), 0);
  for (std::int64_t i = 0; i < n; ++i) {
    result.first.push_back(RowId{groups.root(i)});
    ++sizes[static_cast<std::size_t>(value_of(result.first.back()))];
  }
  for (const std::int64_t size : sizes) {
    result.groups += size > 0;
    result.with_duplicates += size > 1;
    result.largest = std::max(result.largest, size);
  }
  return result;
}

}  // namespace gigaknn
