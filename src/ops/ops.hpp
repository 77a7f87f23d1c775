// The waist: what a method may ask of a device. Above it nobody knows what a GPU is; below it nobody knows
// what an index is.
//
//   base MatrixRef [n, d] --prepare--> PreparedRows (owned by the device: norms, packed codes, bounds)
//   queries MatrixRef [q, d] + PreparedRows --nearest_rows--> NeighborsOut ids, distances [q, k]
//   PreparedRows --self_nearest--> NeighborsOut [n, k], row i without i itself
//
// Contracts that hold for every op:
//   - Values are the canonical distances of metric.hpp; the order is value, then id; NaN is farthest.
//   - Lists shorter than k end in no_row beside +inf (inner_product: -inf).
//   - Results are the same bits on every device, instruction set, thread count and tile size.
//   - A cancelled call throws Error: cancelled; its outputs are then unspecified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

#include "core/neighbor.hpp"
#include "ops/assignment.hpp"
#include "ops/cell_rows.hpp"
#include "ops/growing_graph.hpp"
#include "ops/neighbors_out.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn {

/// A base in the form a device searches fastest. Opaque; lives in `space()`; borrows the matrix it was
/// made from, which must outlive it. Made and used by one device only.
class PreparedRows {
 public:
  virtual ~PreparedRows() = default;
  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
  virtual DType dtype() const = 0;
  virtual Metric metric() const = 0;
  virtual MemorySpace space() const = 0;
  virtual std::size_t bytes() const = 0;  ///< what it allocated
  /// One line for people: which filter was chosen and why ("int8, 96 of 784 dims, 0.9 % survive").
  virtual std::string description() const = 0;
};

/// A base in cells, as a coarse quantizer divides it (inverted lists). Opaque; lives on the device; borrows the matrix it was
/// made from, which must outlive it.
class PreparedCells {
 public:
  virtual ~PreparedCells() = default;
  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
  virtual DType dtype() const = 0;
  virtual Metric metric() const = 0;
  virtual std::int64_t cells() const = 0;
  virtual std::size_t bytes() const = 0;  ///< what it allocated
  virtual std::string description() const = 0;
};

/// Product codes in cells, in the form that a device searches. Opaque; lives on the device; borrows what `ProductCodes` shows, which must
/// outlive it.
class PreparedCodes {
 public:
  virtual ~PreparedCodes() = default;
  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
  virtual std::int64_t cells() const = 0;
  virtual Metric metric() const = 0;
  virtual std::size_t bytes() const = 0;  ///< what it allocated
  virtual std::string description() const = 0;
};

/// The largest u8 that a CPU without 8-bit products multiplies as it is.
inline constexpr std::uint8_t most_seven_bits = 126;

/// What a preparation is tuned for, and what it may count on; no result depends on it.
struct PrepareHints {
  std::int64_t k = 10;
  std::int64_t queries = 10000;   ///< rows that will be searched in all
  std::int64_t batch = 10000;     ///< rows of one call
  bool self = false;              ///< the base will be searched with itself; cells will be joined
  bool seven_bits = false;        ///< of cells of u8: no element of rows or queries is above `most_seven_bits`; a CPU refuses others
  bool few = false;               ///< rows are few beside the neighbours that `nearest_set` finds, as centroids are
};

/// The first rows with values that not every metric can use; -1: there are none.
struct UnusableRows {
  std::int64_t nonfinite = -1;  ///< NaN or infinity
  std::int64_t negative = -1;   ///< below zero; -0 is not
};

/// How a list of the k nearest is written: nearest first, or, which may cost less, by id with unspecified distances.
enum class ListOrder { by_distance, by_id };

/// Rows that an op reads again and again, where its device reads them quickest.
struct KeptRows {
  MatrixRef rows;                                ///< in a GPU's memory (MatrixRef::space), or the host's themselves
  std::size_t bytes = 0;                         ///< of the device's memory, which is taken while `owner` lives
  std::shared_ptr<const void> owner = nullptr;
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual std::string name() const = 0;  ///< "cpu", "emulated", "cuda:0"
  virtual std::string isa() const = 0;   ///< "avx512vnni", "avx2", "generic"; or the GPU's name

  /// Prepares `base` [n, d], 1 <= n < 2^32 - 1, for searches by `metric`.
  /// Rows with NaN or infinity, and zero rows under cosine, are farthest from everything.
  /// Throws Error: invalid_argument, unsupported (dtype under metric), out_of_memory.
  virtual std::unique_ptr<PreparedRows> prepare(MatrixRef base, Metric metric, const PrepareHints& hints,
                                                const RunOptions& run) const = 0;

  /// The most bytes that `prepare` and one later call of `nearest_rows` or `self_nearest` allocate for
  /// [n, d] `dtype` rows, results not counted.
  virtual std::size_t bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric,
                                   const PrepareHints& hints, int threads) const = 0;
  /// The same of the device's own memory; 0 where that is the host's.
  virtual std::size_t device_bytes_needed(std::int64_t, std::int64_t, DType, Metric, const PrepareHints&) const {
    return 0;
  }
  /// Where prepared rows live. What is not the host's is copied there, beside a search of other rows if need be.
  virtual MemorySpace space() const { return MemorySpace::host; }
  /// Bytes that the device has free; 0: not known, or they are the host's.
  virtual std::size_t device_memory() const { return 0; }

  /// Of rows in the memory of a GPU, which `prepare`, `nearest_rows` and `within_radius` of that device, or of others of its kind, take as
  /// they take the host's (MatrixRef::space). Throws Error: unsupported where the device reads the host's only.
  virtual UnusableRows unusable_rows(MatrixRef rows) const;

  /// The k nearest rows of `base` for each query [q, d]. `first_self` >= 0: query i is row first_self + i
  /// of the base and does not count as its own neighbour.
  virtual void nearest_rows(const PreparedRows& base, MatrixRef queries, std::int64_t k, NeighborsOut out,
                            const RunOptions& run, std::int64_t first_self = -1) const = 0;

  /// Which rows these are, where distances are not needed: as `nearest_rows`, about the nearest first; their order, nothing else, may
  /// differ from device to device.
  ///
  ///   ids  [q, k]
  virtual void nearest_set(const PreparedRows& base, MatrixRef queries, std::int64_t k, RowId* ids, const RunOptions& run) const;

  /// The nearest row of each query, asked once; rounds of k-means: `start_assignment`. As `nearest_rows` with k = 1, which devices are
  /// quickest at when `base` was prepared for it (PrepareHints::k).
  ///
  ///   ids, distances  [q]
  void nearest_one(const PreparedRows& base, MatrixRef queries, RowId* ids, float* distances, const RunOptions& run) const {
    NeighborsOut out;
    out.ids = ids;
    out.distances = distances;
    out.rows = queries.rows;
    out.k = 1;
    nearest_rows(base, queries, 1, out, run);
  }

  /// The nearest centroid of each row, of any type of vectors, some of which are widened at a time where the centroids are floats. Rows
  /// without one at a finite distance have `no_row` and infinity.
  ///
  ///   labels, distances  [n]
  void label_rows(const PreparedRows& centroids, MatrixRef rows, RowId* labels, float* distances, const RunOptions& run) const;
  /// How centroids are prepared that so many rows are labelled by.
  static PrepareHints hints_to_label(std::int64_t rows) { return {.k = 1, .queries = rows, .batch = rows, .self = false}; }

  /// The k nearest other rows of every row; where it pays, each pair is looked at once.
  virtual void self_nearest(const PreparedRows& base, std::int64_t k, NeighborsOut out,
                            const RunOptions& run) const = 0;

  /// Prepares `base` [n, d] for searches of some of its cells. Rows that are farthest from everything (see `prepare`) are found by no
  /// query, and find none. Throws as `prepare`.
  virtual std::unique_ptr<PreparedCells> prepare_cells(MatrixRef base, const CellRows& cells, Metric metric, const PrepareHints& hints,
                                                       const RunOptions& run) const = 0;
  /// The most that `prepare_cells` and one call of `nearest_in_cells` allocate, of the host's memory; of `join_cells` for `self`. Grows
  /// with `threads`, of which 0 leave what is kept between calls.
  virtual std::size_t cell_bytes_needed(std::int64_t n, std::int64_t d, DType dtype, Metric metric, std::int64_t cells,
                                        const PrepareHints& hints, int threads) const = 0;

  /// The k nearest rows to each query of those in its cells: exact among them (IVF; Jégou, Douze, Schmid 2011, section IV).
  ///
  ///   queries  [q, d]      quickest where neighbouring queries have cells in common
  ///   probes   [q, width]  cells in [0, cells), or `no_row`; the nearest first, each once
  ///   self     [q]         the name of the row that the query is, which is not its neighbour, or `no_row`; null: none is any
  ///   allowed  [n]         by name: the others are as if they were not there
  virtual void nearest_in_cells(const PreparedCells& base, MatrixRef queries, const RowId* probes, std::int64_t width,
                                std::int64_t k, NeighborsOut out, const RunOptions& run,
                                const RowId* self = nullptr, RowMask allowed = {}) const = 0;

  /// The same for some rows of the base, which also find each other the other way round: list i has the k nearest of the rows in
  /// the cell of rows[i], of those in its probes, and of those of `rows` whose probes have the cell of rows[i].
  ///
  ///   base                 of cells without names
  ///   rows    [q]          each once; quickest where they are all the rows of cells that follow each other
  ///   own     [q]          the cell each stands in, which is the caller's to know
  ///   probes  [q, width]   as above; whether its own is among them makes no difference
  virtual void join_cells(const PreparedCells& base, std::span<const RowId> rows, const RowId* own, const RowId* probes,
                          std::int64_t width, std::int64_t k, NeighborsOut out, const RunOptions& run) const = 0;

  /// A graph of `rows` [n, d], 1 <= n <= 2^31 - 1, with empty lists, to be grown on this device.
  /// Throws as `prepare`.
  virtual std::unique_ptr<GrowingGraph> grow_graph(MatrixRef rows, Metric metric, const GrowthParams& params,
                                                   const RunOptions& run) const = 0;
  /// The most bytes that it and one call of its steps allocate, of the host's memory and of the device's own.
  virtual std::size_t growth_bytes_needed(std::int64_t n, std::int64_t d, const GrowthParams& params, int threads) const = 0;
  virtual std::size_t growth_device_bytes_needed(std::int64_t, std::int64_t, DType, const GrowthParams&) const { return 0; }
  /// Entries that a list has at most while it grows.
  virtual std::int64_t most_growing_list() const { return std::numeric_limits<std::int64_t>::max(); }

  /// All rows with value <= radius (inner_product: >= radius), nearest first.
  virtual RadiusNeighbors within_radius(const PreparedRows& base, MatrixRef queries, float radius,
                                        const RunOptions& run) const = 0;

  /// Canonical distances of each query to some rows of `base`; +inf beside no_row.
  ///
  ///   ids, out  [q, width]
  virtual void pair_distances(MatrixRef queries, MatrixRef base, Metric metric, const RowId* ids, std::int64_t width, float* out,
                              const RunOptions& run) const = 0;

  /// For k-means: a copy of `rows` [n, d] as `centroids`, f32 or the rows' own type, in the device's own memory, which `nearest_rows`,
  /// `start_assignment` and `sum_by_label` take in their place; or the rows themselves, where those are as near, or where
  /// `run.device_memory_bytes`, or else what is free, has no room for a copy beside what these need for `clusters` centroids.
  virtual KeptRows keep_rows(MatrixRef rows, Metric metric, DType centroids, std::int64_t clusters, const RunOptions& run) const;
  /// k-means' first step while the centroids move; of `clusters` centroids of type `centroids`: f32, or the rows' own.
  /// Borrows `rows` [n, d]. Throws as `prepare`.
  virtual std::unique_ptr<Assignment> start_assignment(MatrixRef rows, Metric metric, DType centroids, std::int64_t clusters,
                                                       const RunOptions& run) const;
  /// The most bytes that it and a call of it allocate, of the host's memory.
  virtual std::size_t assignment_bytes_needed(std::int64_t n, std::int64_t d, Metric metric, std::int64_t clusters, int threads) const;

  /// The second step of k-means: sums[l] is the sum of the rows whose label is l, counts[l] their number.
  ///
  ///   rows     [n, d]           f32, f16, bf16, u8 or i8
  ///   weights  [n]              float64, by which each element is multiplied first; null: all 1
  ///   labels   [n]              in [0, `label_count`), or `no_row`: the row counts nowhere
  ///   sums     [label_count, d] float64, zero where no row is; added in the order of label_runs.hpp
  ///   counts   [label_count]
  virtual void sum_by_label(MatrixRef rows, const double* weights, const RowId* labels, std::int64_t label_count, double* sums,
                            std::int64_t* counts, const RunOptions& run) const = 0;
  /// The most bytes of the host's memory that copies of rows [n, d] and their sums take; of what every call takes, the labels in order,
  /// plans know.
  virtual std::size_t copies_to_sum_bytes(std::int64_t, std::int64_t) const { return 0; }

  /// Canonical inner products of rows [n, d] with directions [r, d], both f32 or both i8: out [n, r].
  virtual void products(MatrixRef rows, MatrixRef directions, float* out, const RunOptions& run) const = 0;

  /// The number of the codeword that is nearest to each part of each row by l2, the smaller one of equally near ones: exactly.
  ///
  ///   rows       [n, m * part_dims]    f32
  ///   codewords  [m * words, part_dims]  f32, finite; 1 to 256 words
  ///   codes      [n, m]                of a part with NaN or infinity: any of the words'
  virtual void encode_products(MatrixRef rows, MatrixRef codewords, std::uint8_t* codes, const RunOptions& run) const = 0;

  /// Prepares codes for searches of some of their cells, by l2, euclidean or inner_product. Throws as `prepare`.
  virtual std::unique_ptr<PreparedCodes> prepare_codes(const ProductCodes& codes, Metric metric, const PrepareHints& hints,
                                                       const RunOptions& run) const = 0;
  /// The most that it and one call of `nearest_in_codes` allocate, of the host's memory.
  virtual std::size_t code_bytes_needed(std::int64_t n, const CodeShape& shape, Metric metric, std::int64_t cells,
                                        const PrepareHints& hints, int threads) const = 0;
  /// As `nearest_in_cells` of the decoded rows, bit for bit, with distances shifted where rows have a shift; queries are f32.
  virtual void nearest_in_codes(const PreparedCodes& base, MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k,
                                NeighborsOut out, const RunOptions& run, RowMask allowed = {},
                                ListOrder order = ListOrder::by_distance) const = 0;

  /// The k nearest to each query of some rows of `base`: re-ranking. What is farthest from everything is not among them.
  ///
  ///   candidates  [q, width]  in [0, rows), each of a query once, or `no_row`
  virtual void nearest_among(MatrixRef queries, MatrixRef base, Metric metric, const RowId* candidates, std::int64_t width, std::int64_t k,
                             NeighborsOut out, const RunOptions& run) const;

  /// The k smallest of each row of values, smallest first; of equal ones the smaller column, NaN last.
  ///
  ///   values  [rows, columns]  f32, columns < 2^31
  ///   out     [rows, k]        columns as ids, and their values; rows shorter than k end in no_row beside +inf
  virtual void select_k(MatrixRef values, std::int64_t k, NeighborsOut out, const RunOptions& run) const = 0;
};

/// The ops of a device, or of several as one. `shards` > 1: each holds that part of the base (several.hpp).
/// Throws Error: device where there is none of that name (with the list of names), invalid_argument.
const Ops& ops_of(const std::string& device, int shards = 1);
/// "cpu", and "cpu:" with each instruction set that this build and machine have.
std::vector<std::string> cpu_devices();
/// The number of the one GPU that `device` means. Throws Error: device where it means none, or several.
int gpu_number_of(const std::string& device);

}  // namespace gigaknn
