// k-NN graphs: building, files, paths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <optional>
#include <string>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>
#include <gigaknn/recall.hpp>

namespace gigaknn {

/// Which rows may be neighbours, by the labels of both.
enum class Only : std::uint8_t { same, other };

/// A k-NN graph: row i of `lists` holds the k nearest other rows of i, nearest first, ties by id.
struct KnnGraph {
  Metric metric = Metric::l2;
  bool exact = false;  ///< true: proven to hold the k nearest of all other rows
  std::optional<Only> only;  ///< of build_grouped_graph, where some pairs were not allowed; such a graph is not extended, merged or reduced
  std::string method;  ///< one line for people: how it was built; not part of the file
  Recall recall;       ///< measured while it was built, 1 where exact; not part of the file
  Neighbors lists;     ///< [n, k]; of one that is not marked exact, `no_row` may fill the end of a list
  std::vector<std::string> doubts;  ///< what data_doubts found when it was built; not part of the file
};

struct GraphParams {
  std::int64_t k = 10;
  Metric metric = Metric::l2;
  /// "exact"; "ivf": each row is compared with the rows of the cells nearest to it (docs/graphs.md); "nn-descent": with few of them, and
  /// then with neighbours of its neighbours; "gnnd": that, begun with random rows (GNND: Wang, Zhao, Zeng 2021), which is for GPUs. Each
  /// gives the same graph on every device. "auto": exact where `recall` is 1, exact costs no more, or cells do not fit the budgets,
  /// otherwise ivf; on a GPU without budgets, from 100,000 rows on, exact or gnnd.
  std::string method = "auto";
  double recall = 1;  ///< share of the true neighbours that an approximate graph is to have
  std::uint64_t seed = 0;  ///< of all that is drawn: same input, parameters and seed give the same graph
  std::string device = "cpu";           ///< or several: device.hpp
  int shards = 1;                       ///< several GPUs: parts of the base that each group of them holds
  bool allow_nonfinite = false;
};

/// Builds the k-NN graph of `base` [n, d], self excluded. An approximate one comes with its recall, measured on rows that
/// had no part in how it was built but that they could ask for more; it may turn out below what was asked. Throws Error: invalid_argument
/// (k < 1 or k > n - 1, unknown method, a recall outside (0, 1], of 1 by a method that approximates, no columns), invalid_data,
/// out_of_memory, cancelled.
KnnGraph build_graph(MatrixRef base, const GraphParams& params, const RunOptions& run = {});

/// What of the `base` [n, d] makes neighbours say little, a line each for people: lists that copies of the row fill, constant rows, a
/// metric by which many are as near as the last neighbour, or the nearest row is hardly nearer than a random one, or one row is a neighbour
/// of a tenth of all. By a sample of at most 2,048 rows; empty where it finds nothing, and of rows in the memory of a GPU. Throws Error:
/// invalid_argument (the graph is of another number of rows), cancelled.
std::vector<std::string> data_doubts(const KnnGraph& graph, MatrixRef base, const RunOptions& run = {});

/// Builds the graph of `base` [n, d] in which a row's neighbours are of its own label (`same`), or of other labels alone (`other`): the k
/// nearest of those, exactly; where there are fewer, `no_row` fills the end of the list. `labels` [n] are any numbers.
///
/// What an exact graph is marked as, its readers take for the neighbours among all rows: so this one is marked only if every pair was
/// allowed. Its recall, of what was asked, is 1. Takes `params` as build_graph, methods "auto" and "exact" with a recall of 1.
/// Throws as build_graph, and invalid_argument where there is not one label for each row.
KnnGraph build_grouped_graph(MatrixRef base, const std::vector<std::int64_t>& labels, Only only, const GraphParams& params,
                             const RunOptions& run = {});

struct RadiusGraphParams {
  Metric metric = Metric::l2;
  std::string device = "cpu";  ///< or several: device.hpp
  int shards = 1;
  bool allow_nonfinite = false;  ///< true: rows with NaN or infinity have no neighbours, and are none
};

/// All pairs of rows of `base` [n, d] at most `radius` apart (squared for l2; inner_product: of at least this product): row i lists all
/// such rows but itself, nearest first, ties by id. What the pairs take is not known before: a budget they do not fit is refused when
/// it is reached, with the number of pairs that there are, by the rows that were searched so far.
/// Throws Error: invalid_argument (a radius that is not finite, no columns), invalid_data, out_of_memory, cancelled.
RadiusNeighbors radius_graph(MatrixRef base, float radius, const RadiusGraphParams& params = {}, const RunOptions& run = {});

/// Writes a `.knng` container: to a temporary name, synced, renamed. Throws Error: io, cancelled.
void save_graph(const KnnGraph& graph, const std::filesystem::path& path, const RunOptions& run = {});
/// Reads a `.knng`; checksums are verified. Throws Error: io, corrupt_file, cancelled.
KnnGraph load_graph(const std::filesystem::path& path, const RunOptions& run = {});

/// What `check_graph` found; all zero for a sound graph.
struct GraphFaults {
  std::int64_t unsorted = 0;      ///< lists out of the total order
  std::int64_t duplicates = 0;    ///< ids that stand twice in a list
  std::int64_t self = 0;          ///< rows that name themselves
  std::int64_t out_of_range = 0;  ///< ids outside [0, n)
  /// Entries that no neighbour fills, at the end of lists of a graph not marked exact: no fault. Elsewhere they are out of range.
  std::int64_t missing = 0;
  bool sound() const { return unsorted + duplicates + self + out_of_range == 0; }
};
/// Throws Error: cancelled.
GraphFaults check_graph(const KnnGraph& graph, const RunOptions& run = {});

/// How graphs are merged, and what changed ones are.
struct MergeParams {
  /// "exact": rows of one set are compared with all of the other; exact where both graphs are. "ivf": with those of the cells near them,
  /// as in a build. "nn-descent": with neighbours of neighbours across the two (GGM; docs/graphs.md), and, where that stays below the
  /// recall, with cells as well, if memory holds them. "auto": exact where `recall` is 1 or few rows are added, otherwise ivf where cells
  /// do, else as nn-descent begins.
  std::string method = "auto";
  double recall = 1;  ///< share of the true neighbours that an approximate graph is to have; KnnGraph::recall says what it has
  std::uint64_t seed = 0;
  std::string device = "cpu";  ///< or several: device.hpp
  int shards = 1;
  bool allow_nonfinite = false;
};
struct ChangedGraph {
  KnnGraph graph;
  std::int64_t changed = 0;  ///< lists of the (first) old graph that have other rows than before
};

/// Merges the graphs of two sets of rows into that of both: rows of `b` come after those of `a`. `b` may have shorter lists, where it
/// has too few rows. Exact graphs merged exactly are what build_graph makes of both sets together, bit for bit.
/// Throws Error: invalid_argument (metrics, k, dimensions or types disagree; a graph that is not one of its base, as far as a sample
/// of its distances tells), unsupported (a graph by labels), invalid_data, out_of_memory, cancelled.
ChangedGraph merge_graphs(const KnnGraph& a, MatrixRef base_a, const KnnGraph& b, MatrixRef base_b, const MergeParams& params = {},
                          const RunOptions& run = {});
/// Adds rows to a graph: builds that of `added` and merges them. Throws as merge_graphs.
ChangedGraph extend_graph(const KnnGraph& graph, MatrixRef base, MatrixRef added, const MergeParams& params = {},
                          const RunOptions& run = {});

struct ReducedGraph {
  KnnGraph graph;
  std::int64_t changed = 0;        ///< lists that named a removed row, and so were found anew
  LargeVector<RowId> new_id;       ///< [n] of each old row; `no_row`: removed
};
/// Takes rows out of a graph of `base`; the others move up. Lists that named them are found anew by comparison with all that is left, so
/// an exact graph stays exact. Throws as merge_graphs, and invalid_argument where fewer than k + 1 rows would be left.
ReducedGraph remove_rows(const KnnGraph& graph, MatrixRef base, std::span<const RowId> removed, const MergeParams& params = {},
                         const RunOptions& run = {});

struct DuplicateParams {
  Metric metric = Metric::l2;
  std::string device = "cpu";  ///< or several: device.hpp
  int shards = 1;
  bool allow_nonfinite = false;  ///< true: rows with NaN or infinity are groups of their own, not refused
};

/// Rows in groups: each has a chain to every other of its group whose steps are at most the radius long.
struct DuplicateGroups {
  LargeVector<RowId> first;          ///< [n] the smallest row of its group
  std::int64_t groups = 0;           ///< of one row or more: what would be left
  std::int64_t with_duplicates = 0;  ///< of two rows or more
  std::int64_t largest = 0;          ///< rows of the largest group
};
/// Groups the (near-)duplicates of `base` [n, d]: exactly, by a search within `radius` of every row; squared for l2. A row may find all
/// others, so `run.memory_bytes` must have 68 bytes for each besides what a search takes.
/// Throws Error: invalid_argument (a radius below 0 or not finite, inner_product, no columns), invalid_data, out_of_memory, cancelled.
DuplicateGroups find_duplicates(MatrixRef base, float radius, const DuplicateParams& params = {}, const RunOptions& run = {});

/// A path and its cost. `rows` is empty where no path exists.
struct Path {
  std::vector<RowId> rows;
  std::vector<float> steps;   ///< distance of each step, [rows.size() - 1]
  float largest_step = 0;
};

/// The path from `from` to `to` whose largest step is smallest (Johnson et al. 2017, section 6.6); among
/// those the one of fewest steps, then of the lexicographically smallest rows.
/// Edges count both ways, unless `directed`. Metrics where larger is nearer have no path: invalid_argument.
Path smooth_path(const KnnGraph& graph, RowId from, RowId to, bool directed = false, const RunOptions& run = {});

/// Number of connected components with edges both ways, and the in-degree of each row.
struct GraphShape {
  std::int64_t components = 0;
  std::int64_t largest_component = 0;
  std::vector<std::int64_t> in_degree;  ///< [n]
};
GraphShape shape_of(const KnnGraph& graph, const RunOptions& run = {});

}  // namespace gigaknn
