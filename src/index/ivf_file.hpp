// .gknn: inverted files in a container (io/container.hpp), of schema "flat", "ivf_flat", "ivf_pq", "ivf_sq" or "ivf_transformed";
// docs/formats.md draws them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gigaknn/metric.hpp>
#include <gigaknn/tune.hpp>

#include "index/list_rows.hpp"
#include "io/container.hpp"
#include "learn/product_quantizer.hpp"
#include "learn/row_form.hpp"

namespace gigaknn {

struct IvfFacts {
  Metric metric = Metric::l2;
  DType dtype = DType::f32;
  std::int64_t cols = 0;
  std::int64_t next_id = 0;      ///< above all that were ever given
  bool allow_nonfinite = false;
  std::vector<RowId> held_out = {};  ///< ascending: Index::held_out, of the index as it was made
  std::optional<RecallCurve> curve = std::nullopt;  ///< of the index as it was once
  std::shared_ptr<const RowForm> form = nullptr;  ///< of rows as lists of vectors hold them, or product codes stand for; null: as they are

  /// Dimensions of what lists compare, its type, and the metric among it.
  std::int64_t width() const { return form ? form->width(cols) : cols; }
  DType listed_dtype() const { return form ? form->dtype : dtype; }
  Metric compared_by() const { return form ? RowForm::compared_by(metric, form->dtype) : metric; }
};

/// Throws Error: invalid_argument (another shape or type), invalid_data (NaN or infinity, unless allowed).
void require_queries_for(const IvfFacts& facts, MatrixRef queries, const RunOptions& run);

struct StoredIvfFlat {
  IvfFacts facts;
  Matrix centroids;                       ///< none: of schema "flat"
  std::shared_ptr<const ListRows> lists;  ///< null: no row
  FullRows full = {};                     ///< behind rows of another form, or none
};

inline constexpr std::string_view ivf_flat_schema = "ivf_flat";
inline constexpr std::string_view flat_schema = "flat";  ///< without centroids: one list, of all rows
inline constexpr std::string_view ivf_transformed_schema = "ivf_transformed";  ///< lists of vectors, f32, or product codes of rows that a matrix has turned
inline constexpr std::string_view ivf_sq_schema = "ivf_sq";                    ///< lists of quantized rows: i8, f16 or bf16
/// Whether it is of one of these schemas, or "flat", or of product codes.
bool holds_index(const Container& file);
/// By the form of rows; `plain`: where they are not turned or quantized.
std::string_view schema_of(const IvfFacts& facts, std::string_view plain);
/// The section of what lists of vectors hold.
std::string_view rows_name(const IvfFacts& facts);

/// Writes the row at a place to `out`; asked for one place after the other.
using RowReader = std::function<void(std::int64_t place, std::byte* out)>;

/// Writes rows without centroids by their `ids`, ascending.
void write_flat(const IvfFacts& facts, std::span<const RowId> ids, const RowReader& read_row, const std::filesystem::path& path,
                const RunOptions& run);
/// Writes the rows of `parts`, each one list, that count, by their ids.
void write_flat(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path, const RunOptions& run);

/// The full vectors behind `parts`, in the order of their ids.
RowReader full_rows_by_id(std::span<const LiveRows> parts);

/// Writes the rows of `parts` that count; full vectors behind others by `read_full`, in the order of their ids; null: none. Here and below
/// a band of lists is held at a time: 256 MiB, or as much of `run.memory_bytes` as that is.
void write_ivf_flat(const IvfFacts& facts, MatrixRef centroids, std::span<const LiveRows> parts, const RowReader& read_full,
                    const std::filesystem::path& path, const RunOptions& run);

/// As above, of rows that stand nowhere together.
///
///   begins  [lists + 1]
///   ids     [n]  list after list, ascending in each
void write_ivf_flat(const IvfFacts& facts, MatrixRef centroids, std::span<const std::int64_t> begins, std::span<const RowId> ids,
                    const RowReader& read_row, const RowReader& read_full, const std::filesystem::path& path, const RunOptions& run);

/// What it must be left: lists that are longer than 4,096 rows are held whatever the budget. `row_bytes`: of what lists hold of a row.
std::size_t least_writing_bytes(std::int64_t rows, std::size_t row_bytes);

/// What an inverted file of product codes holds; views of what the container or the caller keeps alive.
struct IvfPqParts {
  MatrixRef centroids;                   ///< [lists, width] f32
  MatrixRef codewords;                   ///< [m * words, part_dims] f32; of a grid: none
  std::span<const std::int64_t> begins;  ///< [lists + 1]
  std::span<const RowId> ids;            ///< [n] list after list, ascending in each
  std::span<const std::uint8_t> codes;   ///< [blocks][code_bytes][32]
  FullRows full;                         ///< or none
  int bits = 8;                          ///< of a part: 8, 6 or 4
  int grid_bits = 0;                     ///< of a dimension, of RaBitQ; 0: product codes

  /// Of these, the codewords copied.
  ProductQuantizer quantizer() const;
  bool refines() const { return full.any(); }
};
struct StoredIvfPq {
  IvfFacts facts;
  IvfPqParts parts;
  std::shared_ptr<const void> owner;  ///< of what `parts` shows
  std::string file = {};              ///< whose ids these are, for messages
  std::shared_ptr<const FileCheck> check = nullptr;  ///< of codes and ids
};
inline constexpr std::string_view ivf_pq_schema = "ivf_pq";

/// Writes the rows of `parts`, lists of codes of `fit`, that count; full vectors as above.
void write_ivf_pq(const IvfFacts& facts, const ProductCodes& fit, std::span<const LiveRows> parts, const RowReader& read_full,
                  const std::filesystem::path& path, const RunOptions& run);
/// So many bytes of a row, and of the block it may have for itself, writing holds.
std::size_t writing_bytes_of_code(std::int64_t code_bytes);
/// Whether this is for `read_ivf_pq`: of that schema, or of transformed rows with codes.
bool holds_product_codes(const Container& file);
/// `check`: null: the file was looked at whole; else what it holds of rows is when it is first read.
StoredIvfPq read_ivf_pq(const Container& file, const std::shared_ptr<const FileCheck>& check = nullptr);

/// Of schema flat, ivf_flat, ivf_sq or ivf_transformed. Here and above rows and ids stay in the file. Looks at all sizes, and at the
/// contents of all but these; of them only whether lists could be meant. Throws Error: corrupt_file, unsupported.
StoredIvfFlat read_ivf_flat(const Container& file, const std::shared_ptr<const FileCheck>& check = nullptr);

}  // namespace gigaknn
