// Indexes: a base, prepared once on a device, that answers searches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <gigaknn/graph.hpp>
#include <gigaknn/id_set.hpp>
#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

struct FlatParams {
  Metric metric = Metric::l2;
  std::string device = "cpu";           ///< or several: device.hpp
  int shards = 1;                       ///< several GPUs: parts of the base that each group of them holds
  std::int64_t expected_k = 10;         ///< what the preparation is tuned for; any k works
  std::int64_t expected_queries = 10000;  ///< few queries do not repay a long preparation
  bool allow_nonfinite = false;         ///< true: rows with NaN or infinity are farthest, not refused
  bool within_radius = false;           ///< searches will be within a radius: half of a budget is left to what they find
};

struct IvfFlatParams {
  Metric metric = Metric::l2;           ///< any but those of packed bits
  std::int64_t lists = 0;               ///< inverted lists; 0: 4 sqrt(n)
  int iterations = 10;                  ///< of k-means
  std::uint64_t seed = 0;
  std::int64_t held_out = 0;            ///< rows, drawn by seed, that centroids are not fitted to: Index::held_out
  std::span<const RowId> ids = {};      ///< [n] what rows are called, each >= 0 and once; empty: their numbers. Copied
  std::string device = "cpu";
  std::int64_t expected_k = 10;         ///< as above
  std::int64_t expected_queries = 10000;
  bool allow_nonfinite = false;
};

struct IvfPqParams {
  Metric metric = Metric::l2;           ///< l2, euclidean, inner_product or cosine
  std::int64_t lists = 0;               ///< as above
  std::int64_t code_bytes = 16;         ///< of a row's code: at most 32768, of 6 bits a multiple of 3 to 24576, of 4 bits to 16384
  int code_bits = 8;                    ///< of each part of a row, of which there are 1 to d: 8; 6, which AVX-512 scans sooner; or 4, which AVX2 and NEON do
  int rabitq_bits = 0;                  ///< 1 to 8: codes of RaBitQ, so many bits a dimension and 8 bytes, in place of product codes; of rows that were rotated at random, as IndexParams::recipe does
  bool refine = true;                   ///< full vectors are kept behind the codes: the base, which must then outlive the index
  int iterations = 10;                  ///< of k-means
  int codeword_iterations = 20;         ///< of that of the codewords
  std::uint64_t seed = 0;
  std::int64_t held_out = 0;            ///< as above
  std::span<const RowId> ids = {};      ///< as above; then rows that are kept are copied
  std::string device = "cpu";
  std::int64_t expected_k = 10;
  std::int64_t expected_queries = 10000;
};

struct IvfSqParams {
  Metric metric = Metric::l2;           ///< l2, euclidean, inner_product or cosine
  std::int64_t lists = 0;               ///< as above
  bool reduce = true;                   ///< false: all dimensions are kept, as they stand
  std::int64_t dims = 48;               ///< that are kept otherwise: those of most variance (PCA)
  DType dtype = DType::i8;              ///< a byte a dimension, by one step for all; or f16, or bf16
  bool refine = true;                   ///< full vectors are kept behind them: the base, which must then outlive the index
  int iterations = 10;                  ///< of k-means
  std::uint64_t seed = 0;
  std::int64_t held_out = 0;            ///< as above
  std::span<const RowId> ids = {};      ///< as above; then rows are copied
  std::string device = "cpu";
  std::int64_t expected_k = 10;
  std::int64_t expected_queries = 10000;
};

class Index;

/// What an index that changes was at one time (Index::moment). It keeps what the index copied of its rows then; the index, and a base that
/// it borrows, must outlive it.
struct Moment {
  const Index* index = nullptr;
  std::int64_t version = 0;  ///< another after each change
};

/// What one search gives for its recall, and what it may find.
struct SearchParams {
  std::int64_t nprobe = 16;     ///< inverted lists that a query looks into; all, where there are fewer
  std::int64_t refine = 4;      ///< of codes: so many times k candidates are compared by full vectors, where there are some; 0: none
  const IdSet* only = nullptr;  ///< rows that count; null: all. Where they are no more than `nprobe` lists hold on average, and than half of all, each query is compared with all of them, whatever lists they stand in
  std::shared_ptr<const Moment> moment = nullptr;  ///< of this index: its rows as they were then; null: as they are
};

/// An index of any kind on any device. Const calls may run concurrently, also beside a change: each sees the index as it was before or
/// after the whole of it. A change that throws has changed nothing.
class Index {
 public:
  virtual ~Index() = default;

  virtual std::int64_t rows() const = 0;
  virtual std::int64_t cols() const = 0;
  virtual DType dtype() const = 0;
  virtual Metric metric() const = 0;
  virtual std::int64_t lists() const { return 0; }  ///< inverted lists; 0: every row is looked at
  virtual std::string_view kind() const = 0;        ///< "flat", "ivf_flat", "ivf_pq", "ivf_sq" or "ivf_transformed"
  virtual bool keeps_rows() const { return true; }  ///< full vectors, its own or the caller's; otherwise distances are to what codes stand for
  virtual bool takes_nonfinite() const { return false; }  ///< rows and queries with NaN or infinity are farthest, not refused
  virtual bool refines() const { return false; }    ///< candidates are compared by full vectors: SearchParams::refine
  /// Whether what is found has the distances of rows, not of what stands for them.
  bool finds_distances_of_rows(const SearchParams& params) const { return keeps_rows() && (!refines() || params.refine > 0); }
  /// One line for people: how searches are answered ("8-bit codes of 129 for 784 dims, ...").
  virtual std::string description() const = 0;

  /// The k nearest rows of each query, of those that the index looks at.
  ///
  ///   queries           [q, d]  same dtype as the base
  ///   result.ids        [q, k]  nearest first, ties by id; `no_row` fills the tail where fewer are found
  ///   result.distances  [q, k]  as `Metric` says, exact, of the rows or, without full vectors, of what codes stand for (by cosine half the squared distance of rows of length 1; of RaBitQ's they are estimates, l2 and euclidean may be below 0), or of transformed rows; +inf (inner_product: -inf) beside `no_row`
  ///
  /// Throws Error: invalid_argument (k < 1, nprobe < 1, shapes or dtypes disagree, bits that are not for the ids there are, a moment of another
  /// index), invalid_data
  /// (NaN or infinity in the queries, unless allowed), unsupported (`only`, by an index that cannot), out_of_memory, cancelled.
  virtual Neighbors search(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run = {}) const = 0;
  Neighbors search(MatrixRef queries, std::int64_t k, const RunOptions& run = {}) const { return search(queries, k, SearchParams{}, run); }

  /// All rows at most `radius` away (inner_product: of at least this product), nearest first, of those that the index looks at, by the
  /// distances of `search`. Where candidates are compared by full vectors, these are `refine` times one more than are found, at least.
  /// What is found may take half of `run.memory_bytes` (of a flat index that was not made for it, what its base leaves); beyond, Error:
  /// out_of_memory.
  virtual RadiusNeighbors search_radius(MatrixRef queries, float radius, const SearchParams& params, const RunOptions& run = {}) const = 0;
  RadiusNeighbors search_radius(MatrixRef queries, float radius, const RunOptions& run = {}) const {
    return search_radius(queries, radius, SearchParams{}, run);
  }

  /// As `search`, but of all rows (of `only`), exactly: the truth for what it finds, whatever `nprobe` and `refine` are. Throws Error:
  /// unsupported where no full vectors are kept.
  virtual Neighbors search_all(MatrixRef queries, std::int64_t k, const SearchParams& params, const RunOptions& run = {}) const = 0;
  Neighbors search_all(MatrixRef queries, std::int64_t k, const IdSet* only = nullptr, const RunOptions& run = {}) const {
    return search_all(queries, k, SearchParams{.only = only}, run);
  }

  /// For several questions that are to see the same rows, beside changes; null: of an index that does not change.
  virtual std::shared_ptr<const Moment> moment() const { return nullptr; }

  // What follows throws Error: unsupported where an index does not change.

  /// Adds copies of `rows` [m, d], called `ids` [m], or next_id() and on. Throws Error: invalid_argument (shapes or dtypes disagree),
  /// invalid_data (NaN or infinity, unless allowed; an id that is negative, there already or there twice).
  virtual void add(MatrixRef rows, std::span<const RowId> ids = {}, const RunOptions& run = {});
  /// As `add`, but rows that are called so already are replaced.
  virtual void update(MatrixRef rows, std::span<const RowId> ids, const RunOptions& run = {});
  /// Throws Error: invalid_argument where one is not there.
  virtual void remove(std::span<const RowId> ids);
  /// Copies of the rows [m, d] that are called so. Where no full vectors are kept, in f32 what the index holds of them stands for: what
  /// codes are decoded to, or rows as they were quantized, their transform undone; of an index by cosine these are near rows of length 1.
  /// Throws as `remove`; also unsupported where a transform's directions are not at right angles.
  virtual Matrix reconstruct(std::span<const RowId> ids) const;
  /// What the rows are called that are there, ascending. An index that does not change numbers them.
  std::vector<RowId> ids() const { return ids_at(moment()); }
  /// The same at `moment`, which is of this index.
  virtual std::vector<RowId> ids_at(const std::shared_ptr<const Moment>& moment) const;
  /// Rows, by id, that centroids were not fitted to, of those that are still there: to the index they are strangers, as queries are.
  virtual std::vector<RowId> held_out() const { return {}; }
  /// One more than the largest id that was ever given.
  virtual std::int64_t next_id() const;
  /// Writes a file that `open_index` opens. Same rows by the same ids in the same lists, and the same next id,
  /// rows held out and curve: same bytes. Throws Error: io.
  virtual void save(const std::filesystem::path& path, const RunOptions& run = {}) const;
};

/// An exact index. Borrows `base` [n, d], which must outlive it. Exact means proven: what low precision
/// rules out it rules out by an error bound (docs/exact-search.md).
/// Throws Error: invalid_argument (no columns), invalid_data, out_of_memory (with the least budget that would do).
std::unique_ptr<Index> make_flat_index(MatrixRef base, const FlatParams& params = {}, const RunOptions& run = {});

/// An inverted file (IVF) of full vectors: k-means divides the rows into lists, and a query is compared with the rows of the `nprobe` lists
/// whose centroids are nearest to it (Jégou, Douze, Schmid 2011, section IV). Exact among these, and with all lists; but rows that are
/// farthest from everything (NaN, infinity; cosine: zeros) are never named. Borrows `base` [n, d], which must outlive it.
///
/// inner_product and cosine divide by direction (rows of zeros, which have none, stand in the first list). The same lists for the same
/// arguments on every device. Throws Error: invalid_argument (no rows or columns, lists, ids), unsupported (metrics of packed bits),
/// invalid_data, out_of_memory (with the least budget that would do).
std::unique_ptr<Index> make_ivf_flat_index(MatrixRef base, const IvfFlatParams& params = {}, const RunOptions& run = {});

/// An inverted file (IVF) of product codes (IVFADC: Jégou, Douze, Schmid 2011; Johnson, Douze, Jégou 2017, section 5): rows of lists are
/// kept as `code_bytes` bytes each, that stand for the centroid of the list and a codeword for each part of what is left. What is found are
/// the nearest of the rows that codes stand for, exactly; with full vectors behind them the nearest by these of `refine` times as many.
/// Takes rows that are finite alone, 256 or more (of 6 bits 64, of 4 bits 16). Throws as make_ivf_flat_index.
std::unique_ptr<Index> make_ivf_pq_index(MatrixRef base, const IvfPqParams& params = {}, const RunOptions& run = {});

/// An inverted file (IVF) of quantized rows, of fewer dimensions (PCA) or all: what is found are the nearest among what lists hold, to
/// queries that are quantized alike; with full vectors behind them the nearest by these of `refine` times as many. Borrows `base` [n, d]
/// then, which must outlive it, unless rows have `ids`; takes rows that are finite alone, and by cosine not zeros. Throws as
/// make_ivf_flat_index.
std::unique_ptr<Index> make_ivf_sq_index(MatrixRef base, const IvfSqParams& params = {}, const RunOptions& run = {});

struct IndexParams {
  /// "Flat": all rows, which every query is compared with; "IVF1024,Flat": an inverted file of 1,024 lists, of full vectors; "IVF,Flat": of
  /// 4 sqrt(n); "IVF1024,PQ16": of product codes of 16 bytes; "IVF1024,PQ32x4", "IVF1024,PQ32x6": of 32 parts of 4 or 6 bits;
  /// "IVF1024,RaBitQ", "IVF1024,RaBitQ4": of RaBitQ's codes of 1 to 8 bits a dimension and 8 bytes, of rows that are rotated at random
  /// ("RR64,...", "PCA64,...": and shortened), whose distances are estimates without bias, so that they may be below 0; "IVF1024,SQ8",
  /// "IVF1024,SQfp16", "IVF1024,SQbf16": of rows of 8 or 16 bits a dimension; "IVF1024,SQ4", "IVF1024,SQ6", "IVF1024,SQ8d": of product
  /// codes of 4, 6 or 8 bits a dimension; "IVF1024,PQ16,RFlat": with full vectors behind them. Before full vectors, product codes and SQ
  /// rows may be transformed: "OPQ16,IVF1024,PQ16", "OPQ20_80,IVF1024,PQ20", "PCA64,IVF1024,Flat", "PCAR64,..." (rotated at random),
  /// "PCAW64,..." (whitened), "RR,IVF1024,PQ16", "RR64,...", "PCA48,IVF1024,SQ8,RFlat", each with ",RFlat" behind it or not. Codes,
  /// quantized and transformed rows are of finite rows, by l2, euclidean, inner_product or cosine (of which zeros are none).
  std::string recipe = "IVF,Flat";
  Metric metric = Metric::l2;
  int iterations = 10;              ///< of k-means
  std::uint64_t seed = 0;
  std::int64_t held_out = 0;        ///< as in IvfFlatParams
  std::span<const RowId> ids = {};  ///< as in IvfFlatParams
  std::string device = "cpu";
  bool allow_nonfinite = false;
  std::int64_t expected_k = 10;           ///< of searches in memory, as in IvfFlatParams
  std::int64_t expected_queries = 10000;
};

/// Any of the above in memory, by its recipe; it borrows `base`, which must outlive it. "Flat" is an index that changes, has filters and
/// can be saved, of the answers of make_ivf_flat_index; make_flat_index, which does not, takes metrics of packed bits and less memory than
/// all rows need. Throws as they do.
std::unique_ptr<Index> make_index(MatrixRef base, const IndexParams& params = {}, const RunOptions& run = {});
/// The most that it and a search of the index allocate, results not counted. Throws as it does, but for what only the values tell.
std::size_t make_index_bytes_needed(MatrixRef base, const IndexParams& params = {}, const RunOptions& run = {});

/// Makes an index of `base` [n, d] and writes it to `path`; rows are read in turns, and but for those with ids of their own behind product
/// codes never held together, nor what they are transformed or quantized to. Same arguments, same bytes. Throws Error: invalid_argument (a
/// recipe that says nothing), unsupported (one that says what is not built), invalid_data, io, out_of_memory.
void build_index(MatrixRef base, const std::filesystem::path& path, const IndexParams& params = {}, const RunOptions& run = {});
/// The most that it allocates, where no inverted list is longer than 4,096 rows: it is written whole. Throws as it does, but for what only
/// the values tell.
std::size_t build_index_bytes_needed(MatrixRef base, const IndexParams& params = {}, const RunOptions& run = {});
/// About the size of the file, without a curve. Throws as build_index_bytes_needed.
std::size_t index_file_bytes(MatrixRef base, const IndexParams& params = {});
/// The most that opening what it makes, mapped, and a search of it allocate, results not counted.
std::size_t search_bytes_needed(MatrixRef base, const IndexParams& params = {}, const RunOptions& run = {});

struct OpenParams {
  std::string device = "cpu";             ///< or several: device.hpp
  int shards = 1;                         ///< several GPUs: parts of the rows, or codes, that each group of them holds
  std::int64_t expected_k = 10;           ///< what the preparation is tuned for; any k works
  std::int64_t expected_queries = 10000;
  std::int64_t expected_refine = 4;       ///< of codes and quantized rows: SearchParams::refine
  /// true: rows stay in the file until they are looked at, which must not shrink meanwhile: the operating system would end the process
  /// (SIGBUS; the library handles no signals). What lists hold is compared with its checksums when it is first looked at, a block of 1 MiB
  /// at a time; full vectors behind it by what copies them, not by searches, which read few of a block. false: the file is read, and all of
  /// it compared.
  bool map = false;
};

/// Opens what `save` and `build_index` write. Nothing is prepared before the first search, whose time and memory that takes (and who is
/// told what is wrong with ids). Throws Error: io, corrupt_file, unsupported, out_of_memory (a budget smaller than what a search needs, or
/// than the file).
std::unique_ptr<Index> open_index(const std::filesystem::path& path, const OpenParams& params = {}, const RunOptions& run = {});
/// The most that opening it and a search allocate, results not counted. Throws as open_index.
std::size_t open_index_bytes_needed(const std::filesystem::path& path, const OpenParams& params = {}, const RunOptions& run = {});

// What follows maps the files it reads, while it runs: they must not shrink meanwhile (OpenParams::map). A change of a file in its own place
// waits for others of that file, as far as its file system has locks, by `.NAME.lock` beside it.

/// Reads a file from end to end. Throws as open_index: corrupt_file where a block is not what was written, an id is there twice, or a row
/// that may not has NaN or infinity.
void check_index(const std::filesystem::path& path, const RunOptions& run = {});

/// Writes to `to` the index at `from` with `rows` [m, d] added, which are borrowed and read in turns; `to` may be `from`. As Index::add
/// otherwise. `replace`: as Index::update.
void add_to_index(const std::filesystem::path& from, MatrixRef rows, std::span<const RowId> ids, bool replace,
                  const std::filesystem::path& to, const std::string& device = "cpu", const RunOptions& run = {});

/// Writes to `to` the index at `from` without some rows; as Index::remove otherwise.
void remove_from_index(const std::filesystem::path& from, std::span<const RowId> ids, const std::filesystem::path& to,
                       const RunOptions& run = {});

/// Writes the rows of several indexes to one, which have the same lists, and codewords, directions or transform: made from one by adding,
/// updating and removing. Throws Error: invalid_argument (another kind, other lists, metric or dtype; an id that is in two), as open_index.
void merge_indexes(std::span<const std::filesystem::path> from, const std::filesystem::path& to, const RunOptions& run = {});

/// The k-NN graph of `base` [n, d], self excluded, by a search of an index of it that is made for this and not kept (Johnson, Douze, Jégou
/// 2017, section 6.5). Distances are those of rows, whatever the index compares; it is not marked exact, and its recall is not measured
/// (sampled_recall). Throws Error: invalid_argument (k; `params.ids` or `search.only` given), as make_index and Index::search.
KnnGraph search_graph(MatrixRef base, std::int64_t k, const IndexParams& params, const SearchParams& search = {},
                      const RunOptions& run = {});
/// The most that it allocates, the graph with it.
std::size_t search_graph_bytes_needed(MatrixRef base, std::int64_t k, const IndexParams& params, const RunOptions& run = {});

}  // namespace gigaknn
