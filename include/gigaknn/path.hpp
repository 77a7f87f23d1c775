// Smooth paths: in a graph in memory or in a file that stays one, one path or the several best, and how far unconnected rows are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include <gigaknn/graph.hpp>
#include <gigaknn/ids.hpp>
#include <gigaknn/metric.hpp>

namespace gigaknn {

struct KnngFile;
class PathSearch;

/// A `.knng` that is mapped and not loaded. Header and shapes are checked when it is opened, contents when they are first looked at:
/// ids against n, blocks against their checksums. Copies share the map.
class MappedGraph {
 public:
  /// Throws Error: io, corrupt_file, unsupported (a later version).
  explicit MappedGraph(const std::filesystem::path& path);

  std::int64_t rows() const;
  std::int64_t k() const;
  Metric metric() const;
  bool exact() const;

 private:
  friend class PathFinder;
  std::shared_ptr<const KnngFile> file_;
};

/// How many rows two rows are connected with, themselves included.
struct PathEnds {
  std::int64_t from_rows = 0;  ///< size of the component of `from`; directed: rows that can be reached from it
  std::int64_t to_rows = 0;    ///< size of the component of `to`; directed: rows from which it can be reached
};

/// Finds paths in one graph. Edges count both ways, unless `directed`.
///
/// Memory: 4 bytes a row, and 16 for each row that a search reaches. Edges both ways also need an index of all lists by the rows
/// they name, made at the first search: 8 bytes a row and 4 an entry (8 in graphs of more than 2^32 entries). A mapped graph's
/// pages come on top, which the system may drop at any time; one that is directed is read only where a search goes.
///
/// Calls must not run concurrently. A search costs n k log n at most, n k the rows and entries within the limit that the path needs.
class PathFinder {
 public:
  /// Borrows `graph`. Throws Error: invalid_argument for metrics where larger is nearer, which have no path.
  explicit PathFinder(const KnnGraph& graph, bool directed = false);
  explicit PathFinder(const MappedGraph& graph, bool directed = false);
  ~PathFinder();
  PathFinder(PathFinder&&) noexcept;
  PathFinder& operator=(PathFinder&&) noexcept;

  /// The path whose largest step is smallest (Johnson et al. 2017, section 6.6); among those the one of fewest steps, then of the
  /// lexicographically smallest rows. Empty where the rows are not connected.
  /// All calls throw Error: invalid_argument (no such row), invalid_data or corrupt_file (the graph lists a row it does not have),
  /// cancelled.
  Path path(RowId from, RowId to, const RunOptions& run = {});

  /// The `count` best different paths in that order, none of which visits a row twice; fewer where there are no more (Yen 1971).
  /// Costs a search for each row of each path.
  std::vector<Path> paths(RowId from, RowId to, std::int64_t count, const RunOptions& run = {});

  /// Why there is no path. Reads all lists; 16 bytes a row, directed what the index needs.
  PathEnds ends(RowId from, RowId to, const RunOptions& run = {});

 private:
  std::shared_ptr<const KnngFile> file_;  ///< of a mapped graph
  std::unique_ptr<PathSearch> search_;
};

/// As `smooth_path` of a graph in memory (graph.hpp), and as PathFinder's calls.
Path smooth_path(const MappedGraph& graph, RowId from, RowId to, bool directed = false, const RunOptions& run = {});
std::vector<Path> smooth_paths(const KnnGraph& graph, RowId from, RowId to, std::int64_t count, bool directed = false,
                               const RunOptions& run = {});
std::vector<Path> smooth_paths(const MappedGraph& graph, RowId from, RowId to, std::int64_t count, bool directed = false,
                               const RunOptions& run = {});
PathEnds path_ends(const KnnGraph& graph, RowId from, RowId to, bool directed = false, const RunOptions& run = {});
PathEnds path_ends(const MappedGraph& graph, RowId from, RowId to, bool directed = false, const RunOptions& run = {});

}  // namespace gigaknn
