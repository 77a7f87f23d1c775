// .gknn: inverted files in a container (io/container.hpp), of schema "ivf_flat", "ivf_pq", "ivf_sq" or "ivf_transformed"; docs/formats.md draws them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <gigaknn/metric.hpp>
#include <gigaknn/tune.hpp>

#include "index/list_rows.hpp"
#include "io/container.hpp"
#include "learn/linear_transform.hpp"
#include "learn/pca.hpp"

namespace gigaknn {

struct IvfFacts {
  Metric metric = Metric::l2;
  DType dtype = DType::f32;
  std::int64_t cols = 0;
  std::int64_t next_id = 0;      ///< above all that were ever given
  bool allow_nonfinite = false;
  std::vector<RowId> held_out = {};  ///< ascending: Index::held_out, of the index as it was made
  std::optional<RecallCurve> curve = std::nullopt;  ///< of the index as it was once
};

/// Throws Error: invalid_argument (another shape or type), invalid_data (NaN or infinity, unless allowed).
void require_queries_for(const IvfFacts& facts, MatrixRef queries, const RunOptions& run);

struct StoredIvfFlat {
  IvfFacts facts;
  Matrix centroids;
  std::shared_ptr<const ListRows> lists;  ///< null: no row
};

inline constexpr std::string_view ivf_flat_schema = "ivf_flat";

/// Writes the rows of `parts` that count. Holds a band of lists at a time: 256 MiB, or as much of `run.memory_bytes` as that is.
void write_ivf_flat(const IvfFacts& facts, MatrixRef centroids, std::span<const LiveRows> parts, const std::filesystem::path& path,
                    const RunOptions& run);

/// Writes the row at a place to `out`; asked for one place after the other.
using RowReader = std::function<void(std::int64_t place, std::byte* out)>;

/// As above, of rows that stand nowhere together.
///
///   begins  [lists + 1]
///   ids     [n]  list after list, ascending in each
void write_ivf_flat(const IvfFacts& facts, MatrixRef centroids, std::span<const std::int64_t> begins, std::span<const RowId> ids, const RowReader& read_row,
                    const std::filesystem::path& path, const RunOptions& run);

/// What it must be left: lists that are longer than 4,096 rows are held whatever the budget.
std::size_t least_writing_bytes(std::int64_t rows, std::int64_t cols, DType dtype);

/// What an inverted file of product codes holds; views of what the container or the caller keeps alive.
struct IvfPqParts {
  MatrixRef centroids;                   ///< [lists, d] f32
  MatrixRef codewords;                   ///< [m * 256, part_dims] f32
  std::span<const std::int64_t> begins;  ///< [lists + 1]
  std::span<const RowId> ids;            ///< [n] list after list, ascending in each
  std::span<const std::uint8_t> codes;   ///< [blocks][m][32]
  MatrixRef rows;                        ///< [n, d] full vectors, by rank of their ids; without data: none
};
inline constexpr std::string_view ivf_pq_schema = "ivf_pq";

void write_ivf_pq(const IvfFacts& facts, const IvfPqParts& parts, const std::filesystem::path& path, const RunOptions& run);
/// With full vectors by `read_row`, in the order of their ids, in place of `parts.rows`; null: none.
void write_ivf_pq(const IvfFacts& facts, const IvfPqParts& parts, const RowReader& read_row, const std::filesystem::path& path, const RunOptions& run);
std::pair<IvfFacts, IvfPqParts> read_ivf_pq(const Container& file);

/// An inverted file of quantized rows with full vectors behind them.
struct StoredIvfSq {
  IvfFacts facts;
  Matrix centroids;                       ///< [lists, dims] f32, of the bytes
  PcaBytes pca;
  std::shared_ptr<const ListRows> lists;  ///< of bytes, i8 [n, dims]
  MatrixRef rows;                         ///< [n, d] full vectors, by rank of their ids; a view of what the container or the caller keeps alive
};
inline constexpr std::string_view ivf_sq_schema = "ivf_sq";

/// `order` [n]: which of `stored.rows` has each rank; empty: they stand by rank.
void write_ivf_sq(const StoredIvfSq& stored, std::span<const LocalRow> order, const std::filesystem::path& path, const RunOptions& run);
StoredIvfSq read_ivf_sq(const Container& file);

/// An inverted file of transformed rows, with the full vectors that they were made from behind it or not.
struct StoredTransformed {
  IvfFacts facts;                         ///< of the full vectors
  LinearTransform transform;
  std::shared_ptr<const ListRows> lists;  ///< f32 [n, d_out]; null: product codes
  IvfPqParts parts;                       ///< of transformed rows: codes and all that they need, or centroids alone
  MatrixRef rows;                         ///< [n, d] full vectors, by rank of their ids; without data: none; a view of what the container or the caller keeps alive
};
inline constexpr std::string_view ivf_transformed_schema = "ivf_transformed";

/// What the lists know of transformed rows: f32, and their curve and held-out rows are those of the whole.
IvfFacts facts_of_transformed(const IvfFacts& facts, const LinearTransform& transform);

/// `parts` with begins and ids, also where there are no codes: then `read_transformed` reads f32 rows [d_out], list after list, and is null otherwise.
/// `read_row`: full vectors in the order of their ids; null: none.
void write_ivf_transformed(const IvfFacts& facts, const LinearTransform& transform, const IvfPqParts& parts, const RowReader& read_transformed,
                           const RowReader& read_row, const std::filesystem::path& path, const RunOptions& run);
/// `order` [n]: which of `stored.rows` has each rank; empty: they stand by rank.
void write_ivf_transformed(const StoredTransformed& stored, std::span<const LocalRow> order, const std::filesystem::path& path, const RunOptions& run);
StoredTransformed read_ivf_transformed(const Container& file);

/// Rows and ids stay in the file. Looks at all sizes, and at the contents of all but these; of them only whether lists could be meant.
/// Throws Error: corrupt_file, unsupported.
StoredIvfFlat read_ivf_flat(const Container& file);

}  // namespace gigaknn
