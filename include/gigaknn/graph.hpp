// k-NN graphs: building, files, paths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

/// A k-NN graph: row i of `lists` holds the k nearest other rows of i, nearest first, ties by id.
struct KnnGraph {
  Metric metric = Metric::l2;
  bool exact = false;  ///< true: proven exact
  std::string method;  ///< one line for people: how it was built; not part of the file
  Neighbors lists;     ///< [n, k]
};

struct GraphParams {
  std::int64_t k = 10;
  Metric metric = Metric::l2;
  std::string method = "auto";  ///< "auto" or "exact"
  std::string device = "cpu";           ///< or several: device.hpp
  int shards = 1;                       ///< several GPUs: parts of the base that each group of them holds
  bool allow_nonfinite = false;
};

/// Builds the k-NN graph of `base` [n, d], self excluded. Throws Error: invalid_argument (k < 1 or
/// k > n - 1, unknown method), invalid_data, out_of_memory, cancelled.
KnnGraph build_graph(MatrixRef base, const GraphParams& params, const RunOptions& run = {});

/// Writes a `.knng` container: to a temporary name, synced, renamed. Throws Error: io.
void save_graph(const KnnGraph& graph, const std::filesystem::path& path);
/// Reads a `.knng`; checksums are verified. Throws Error: io, corrupt_file.
KnnGraph load_graph(const std::filesystem::path& path);

/// What `check_graph` found; all zero for a sound graph.
struct GraphFaults {
  std::int64_t unsorted = 0;      ///< lists out of the total order
  std::int64_t duplicates = 0;    ///< ids that stand twice in a list
  std::int64_t self = 0;          ///< rows that name themselves
  std::int64_t out_of_range = 0;  ///< ids outside [0, n)
  bool sound() const { return unsorted + duplicates + self + out_of_range == 0; }
};
GraphFaults check_graph(const KnnGraph& graph);

/// A path and its cost. `rows` is empty where no path exists.
struct Path {
  std::vector<RowId> rows;
  std::vector<float> steps;   ///< distance of each step, [rows.size() - 1]
  float largest_step = 0;
};

/// The path from `from` to `to` whose largest step is smallest (Johnson et al. 2017, section 6.6); among
/// those the one of fewest steps, then of the lexicographically smallest rows.
/// Edges count both ways, unless `directed`. Metrics where larger is nearer have no path: invalid_argument.
Path smooth_path(const KnnGraph& graph, RowId from, RowId to, bool directed = false);

/// Number of connected components with edges both ways, and the in-degree of each row.
struct GraphShape {
  std::int64_t components = 0;
  std::int64_t largest_component = 0;
  std::vector<std::int64_t> in_degree;  ///< [n]
};
GraphShape shape_of(const KnnGraph& graph);

}  // namespace gigaknn
