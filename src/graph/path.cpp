// Smooth paths (Johnson et al. 2017, section 6.6), and the next best ones.
//
//   all paths --> the best, P --> all others, in classes by the row after which they leave P --> the best of each class, ...
//
// Yen's algorithm (1971) with Lawler's partition (1972): no path is in two classes. Costs are (largest step, steps, rows), which the
// rest of a path beyond a prefix does not reorder, so the best of a class is one search from the row where it leaves, past the rows
// before it, under the limit that its parent needed at least.
#include <gigaknn/path.hpp>

#include <algorithm>
#include <compare>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "core/require.hpp"
#include "graph/knng.hpp"
#include "graph/lists_view.hpp"
#include "graph/path_search.hpp"

namespace gigaknn {
namespace {

using Rows = std::vector<std::int64_t>;

// All paths that begin with the first rows of one that was found, up to `leaves_at`, and go on to none of `closed`; the best of them.
struct Candidate {
  std::size_t parent = 0;  // its place among those found
  std::size_t leaves_at = 0;
  Rows closed;
  Cost limit = 0;      // of the best; where it is not known, none of the class stays below
  bool known = false;
  Rows rest;           // of the best, from the row after `leaves_at` on

  std::size_t steps() const { return leaves_at + rest.size(); }
};

class BestPaths {
 public:
  BestPaths(PathSearch& search, std::int64_t from, std::int64_t to, std::size_t count)
      : search_(search), to_(to), wanted_(count), found_{Rows{from}}, candidates_(Before{this}) {}

  std::vector<Rows> find() {
    add({});
    while (wanted_ > 0 && !candidates_.empty()) {
      Candidate best = std::move(candidates_.extract(candidates_.begin()).value());
      if (!best.known) {
        solve(std::move(best));
        continue;
      }
      --known_;
      found_.push_back(rows_of(best));
      if (--wanted_ > 0) divide(best);
    }
    return {found_.begin() + 1, found_.end()};
  }

 private:
  // The order of paths. A class whose best is not known stands before all known ones of its limit: it may hold a better one.
  struct Before {
    const BestPaths* all;
    bool operator()(const Candidate& a, const Candidate& b) const {
      const std::size_t steps_a = a.known ? a.steps() : 0;
      const std::size_t steps_b = b.known ? b.steps() : 0;
      const auto by_cost = std::tie(a.limit, steps_a) <=> std::tie(b.limit, steps_b);
      if (by_cost != 0) return by_cost < 0;
      if (!a.known) return std::tie(a.parent, a.leaves_at) < std::tie(b.parent, b.leaves_at);
      return all->rows_of(a) < all->rows_of(b);
    }
  };

  // Most classes hold a path within the limit of their parent; the others wait until those are used up.
  void add(Candidate candidate) {
    if (auto rest = walk(candidate)) {
      candidate.rest = std::move(*rest);
      candidate.known = true;
    } else {
      ++candidate.limit;
    }
    keep(std::move(candidate));
  }

  void solve(Candidate candidate) {
    const Rows& parent = found_[candidate.parent];
    const auto limit = search_.smallest_limit(parent[candidate.leaves_at], to_, candidate.limit, closed_of(candidate));
    if (!limit) return;
    candidate.limit = *limit;
    if (auto rest = walk(candidate)) {
      candidate.rest = std::move(*rest);
      candidate.known = true;
      keep(std::move(candidate));
    }
  }

  // Nothing behind as many known paths as are wanted will be asked for.
  void keep(Candidate candidate) {
    known_ += candidate.known;
    candidates_.insert(std::move(candidate));
    while (known_ >= wanted_) {
      const auto last = std::prev(candidates_.end());
      if (last->known && known_ == wanted_) break;
      known_ -= last->known;
      candidates_.erase(last);
    }
  }

  // The other paths of the class of `best`, by the row after which they leave it.
  void divide(const Candidate& best) {
    const std::size_t parent = found_.size() - 1;
    for (std::size_t i = best.leaves_at; i + 1 < found_[parent].size(); ++i) {
      Candidate other{.parent = parent, .leaves_at = i, .closed = {found_[parent][i + 1]}, .limit = best.limit, .rest = {}};
      if (i == best.leaves_at) other.closed.insert(other.closed.end(), best.closed.begin(), best.closed.end());
      add(std::move(other));
    }
  }

  // The best path of the class within its limit, from the row after `leaves_at` on. None is as good as none that is wanted.
  std::optional<Rows> walk(const Candidate& candidate) {
    std::size_t most_steps = std::numeric_limits<std::size_t>::max();
    if (known_ == wanted_ && candidates_.rbegin()->limit <= candidate.limit) {
      const std::size_t steps = candidates_.rbegin()->steps();
      if (candidates_.rbegin()->limit < candidate.limit || steps <= candidate.leaves_at) return std::nullopt;
      most_steps = steps - candidate.leaves_at;
    }
    auto rows = search_.walk_within(found_[candidate.parent][candidate.leaves_at], to_, candidate.limit, closed_of(candidate), most_steps);
    if (rows) rows->erase(rows->begin());
    return rows;
  }

  Closed closed_of(const Candidate& candidate) const {
    return {.rows = std::span(found_[candidate.parent]).first(candidate.leaves_at), .first_steps = candidate.closed};
  }
  Rows rows_of(const Candidate& candidate) const {
    const Rows& parent = found_[candidate.parent];
    Rows rows(parent.begin(), parent.begin() + static_cast<std::ptrdiff_t>(candidate.leaves_at) + 1);
    rows.insert(rows.end(), candidate.rest.begin(), candidate.rest.end());
    return rows;
  }

  PathSearch& search_;
  std::int64_t to_;
  std::size_t wanted_;       // paths still to be found
  std::size_t known_ = 0;    // candidates that are
  std::vector<Rows> found_;  // the first is `from` alone, where all paths begin
  std::set<Candidate, Before> candidates_;
};

Path path_of(PathSearch& search, const Rows& rows) {
  Path path;
  Cost largest = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    path.rows.push_back(RowId{rows[i]});
    if (i == 0) continue;
    const Cost cost = search.step_cost(rows[i - 1], rows[i]);
    largest = std::max(largest, cost);
    path.steps.push_back(key_of_bits(cost));
  }
  if (!path.steps.empty()) path.largest_step = key_of_bits(largest);
  return path;
}

std::unique_ptr<PathSearch> make_search(ListsView lists, Metric metric, bool directed) {
  require(!larger_is_nearer(metric), Fault::invalid_argument, "metric ", name_of(metric),
          " has no smooth path: its larger values are nearer and cannot be steps");
  return std::make_unique<PathSearch>(std::move(lists), directed);
}

void require_row(const char* name, RowId row, std::int64_t n) {
  require(value_of(row) >= 0 && value_of(row) < n, Fault::invalid_argument, name, " is row ",
          value_of(row), ", which must be in [0, ", n, ")");
}

void require_ends(const PathSearch& search, RowId from, RowId to) {
  require_row("from", from, search.rows());
  require_row("to", to, search.rows());
}

}  // namespace

MappedGraph::MappedGraph(const std::filesystem::path& path) : file_(std::make_shared<const KnngFile>(open_knng(path))) {}
std::int64_t MappedGraph::rows() const { return file_->n; }
std::int64_t MappedGraph::k() const { return file_->k; }
Metric MappedGraph::metric() const { return file_->metric; }
bool MappedGraph::exact() const { return file_->exact; }

PathFinder::PathFinder(const KnnGraph& graph, bool directed) : search_(make_search(ListsView(graph), graph.metric, directed)) {}
PathFinder::PathFinder(const MappedGraph& graph, bool directed)
    : file_(graph.file_), search_(make_search(ListsView(*file_), graph.metric(), directed)) {}
PathFinder::~PathFinder() = default;
PathFinder::PathFinder(PathFinder&&) noexcept = default;
PathFinder& PathFinder::operator=(PathFinder&&) noexcept = default;

Path PathFinder::path(RowId from, RowId to, const RunOptions& run) {
  std::vector<Path> paths = this->paths(from, to, 1, run);
  return paths.empty() ? Path() : std::move(paths.front());
}

std::vector<Path> PathFinder::paths(RowId from, RowId to, std::int64_t count, const RunOptions& run) {
  require_ends(*search_, from, to);
  const PathSearch::Watched watched(*search_, run);
  require(count >= 1, Fault::invalid_argument, "count must be >= 1, got ", count);
  BestPaths best(*search_, value_of(from), value_of(to), static_cast<std::size_t>(count));
  std::vector<Path> paths;
  for (const Rows& rows : best.find()) paths.push_back(path_of(*search_, rows));
  return paths;
}

PathEnds PathFinder::ends(RowId from, RowId to, const RunOptions& run) {
  require_ends(*search_, from, to);
  const PathSearch::Watched watched(*search_, run);
  if (search_->directed()) {
    return {.from_rows = search_->count_reachable(value_of(from), false), .to_rows = search_->count_reachable(value_of(to), true)};
  }
  const auto [from_rows, to_rows] = search_->component_sizes(value_of(from), value_of(to));
  return {.from_rows = from_rows, .to_rows = to_rows};
}

Path smooth_path(const KnnGraph& graph, RowId from, RowId to, bool directed, const RunOptions& run) {
  return PathFinder(graph, directed).path(from, to, run);
}
Path smooth_path(const MappedGraph& graph, RowId from, RowId to, bool directed, const RunOptions& run) {
  return PathFinder(graph, directed).path(from, to, run);
}
std::vector<Path> smooth_paths(const KnnGraph& graph, RowId from, RowId to, std::int64_t count, bool directed, const RunOptions& run) {
  return PathFinder(graph, directed).paths(from, to, count, run);
}
std::vector<Path> smooth_paths(const MappedGraph& graph, RowId from, RowId to, std::int64_t count, bool directed, const RunOptions& run) {
  return PathFinder(graph, directed).paths(from, to, count, run);
}
PathEnds path_ends(const KnnGraph& graph, RowId from, RowId to, bool directed, const RunOptions& run) {
  return PathFinder(graph, directed).ends(from, to, run);
}
PathEnds path_ends(const MappedGraph& graph, RowId from, RowId to, bool directed, const RunOptions& run) {
  return PathFinder(graph, directed).ends(from, to, run);
}

}  // namespace gigaknn
