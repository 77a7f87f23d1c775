// .gknn as indexes of Faiss: lists as they stand, codes in rows again.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gigaknn/faiss.hpp>
#include <gigaknn/index.hpp>

#include "core/cancelled.hpp"
#include "core/require.hpp"
#include "core/usual_floats.hpp"
#include "index/faiss_rows.hpp"
#include "index/faiss_writer.hpp"
#include "index/ivf_file.hpp"
#include "index/list_centroids.hpp"
#include "index/row_ids.hpp"
#include "io/mapped_file.hpp"
#include "io/validate.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

class Exporter {
 public:
  Exporter(const Container& container, const IvfFacts& facts, MatrixRef centroids, const std::filesystem::path& to, const RunOptions& run, const FaissExport& params)
      : name_(container.file().name), facts_(facts), centroids_(centroids), metric_(faiss_metric_of(facts.metric, name_)), run_(run), params_(params), writer_(to) {
    if (ListCentroids::chosen_by(facts.metric) == Metric::l2) return;
    const auto list = not_of_length_one(centroids);
    require(!list, Fault::unsupported, name_, ": the centroid of list ", list.value_or(0),
            " is not of length 1: Faiss would look into other lists");
  }

  void flat(const StoredIvfFlat& stored);
  void vectors(const StoredIvfFlat& stored);  // of all rows in one list
  void codes(const StoredIvfPq& stored);

 private:
  void require_finite(MatrixRef rows) {
    const ValueFaults faults = find_value_faults(rows, facts_.metric, run_);
    require(faults.nonfinite_rows == 0, Fault::unsupported, name_, ": ", faults.nonfinite_rows,
            " rows have NaN or infinity, by which Faiss finds nothing");
  }
  void begin_inverted_file(std::string_view letters, std::int64_t rows);
  void centroids();
  // `rows_at(begin, end)` writes the codes of rows, which are of one list; `id_of`: of a row.
  template <class CodesOf, class IdOf>
  void lists(std::span<const std::int64_t> begins, std::int64_t code_bytes, const CodesOf& codes_of, const IdOf& id_of);
  // Rows as they are; of i8 as Faiss has their signs.
  void own_rows(MatrixRef rows);
  void full_vectors(MatrixRef rows);
  // Around lists of rows that are called so: a map, full vectors behind them, where there are some, and the transform before them.
  void begin_around_lists(const FullRows& full, const RowIds& ids);
  void end_around_lists(const FullRows& full, const RowIds& ids);
  void begin_map(const RowIds& ids);
  void ids_of_map(const RowIds& ids);

  // Full vectors are found by their number, and so is what stands in a map.
  bool mapped(const RowIds& ids, bool full) const { return params_.map != FaissMap::where_needed || (full && !is_numbered(ids)); }
  static bool is_numbered(const RowIds& ids) { return ids.consecutive() && value_of(ids.of_rank(0)) == 0; }
  // Behind a map lists hold the ranks of ids.
  RowId called(const RowIds& ids, std::int64_t row, bool full) const {
    if (!mapped(ids, full)) return ids.of_row(row);
    const auto ranks = ids.ranks();
    return RowId{ranks.empty() ? row : ranks[at(row)]};
  }

  const std::string name_;
  const IvfFacts facts_;
  const MatrixRef centroids_;
  const std::int32_t metric_;
  const RunOptions& run_;
  const FaissExport& params_;
  FaissWriter writer_;
};

void Exporter::begin_inverted_file(std::string_view letters, std::int64_t rows) {
  writer_.begin(letters, centroids_.cols, rows, metric_);
  writer_.value(centroids_.rows);
  writer_.value(std::min(centroids_.rows, params_.nprobe));
  writer_.begin_flat(centroids_.cols, centroids_.rows, metric_);
  centroids();
  writer_.value(std::uint8_t{0});  // no direct map
  writer_.value(std::uint64_t{0});
}

// In the unit of rows, where lists hold bytes and are chosen by distances.
void Exporter::centroids() {
  const double step = facts_.form && ListCentroids::chosen_by(facts_.metric) == Metric::l2 ? facts_.form->step : 1;
  std::vector<float> row(at(centroids_.cols));
  for (std::int64_t i = 0; i < centroids_.rows; ++i) {
    std::transform(centroids_.row<float>(i), centroids_.row<float>(i) + centroids_.cols, row.begin(), [&](float x) {
      constexpr double most = std::numeric_limits<float>::max();
      return static_cast<float>(std::clamp(static_cast<double>(x) * step, -most, most));
    });
    writer_.bytes(row.data(), row.size() * sizeof(float));
  }
}

template <class CodesOf, class IdOf>
void Exporter::lists(std::span<const std::int64_t> begins, std::int64_t code_bytes, const CodesOf& codes_of, const IdOf& id_of) {
  const std::int64_t count = std::ssize(begins) - 1;
  writer_.bytes("ilar", 4);
  writer_.value(count);
  writer_.value(code_bytes);
  writer_.bytes("full", 4);
  writer_.value(count);
  for (std::int64_t list = 0; list < count; ++list) writer_.value(begins[at(list + 1)] - begins[at(list)]);
  for (std::int64_t list = 0; list < count; ++list) {
    check_cancelled(run_);
    codes_of(begins[at(list)], begins[at(list + 1)]);
    for (std::int64_t row = begins[at(list)]; row < begins[at(list + 1)]; ++row) writer_.value(id_of(row));
    if (run_.progress) run_.progress->report("write", begins[at(list + 1)], begins.back());
  }
}

void Exporter::own_rows(MatrixRef rows) {
  const std::size_t row_bytes = at(rows.cols) * size_of(rows.dtype);
  std::vector<std::byte> row(row_bytes);
  for (std::int64_t i = 0; i < rows.rows; ++i) {
    std::copy_n(rows.row_bytes(i), row_bytes, row.begin());
    if (rows.dtype == DType::i8) flip_signs(row);
    writer_.bytes(row.data(), row_bytes);
    if (i % 65536 == 0) check_cancelled(run_);
  }
}

void Exporter::flat(const StoredIvfFlat& stored) {
  const MatrixRef rows = stored.lists ? stored.lists->rows() : MatrixRef(nullptr, 0, facts_.width(), facts_.listed_dtype());
  const RowIds none(0, 0);
  const RowIds& ids = stored.lists ? stored.lists->ids() : none;
  if (facts_.allow_nonfinite && rows.rows > 0) require_finite(rows);
  begin_around_lists(stored.full, ids);
  const auto code_bytes = static_cast<std::int64_t>(at(rows.cols) * size_of(rows.dtype));
  begin_inverted_file(rows.dtype == DType::f32 ? "IwFl" : "IwSq", rows.rows);
  if (rows.dtype != DType::f32) {
    if (facts_.form && rows.dtype == DType::i8) {
      const auto trained = trained_by(facts_.form->step);
      require(std::isfinite(trained[0]) && std::isfinite(trained[1]) && trained[1] > 0, Fault::unsupported, name_, ": a step of ",
              facts_.form->step, " has no width in float32");
      writer_.scalar_quantizer(FaissScalarType::bits8_uniform, rows.cols, code_bytes, trained);
    } else {
      writer_.scalar_quantizer(scalar_type_of(rows.dtype), rows.cols, code_bytes);
    }
    writer_.value(code_bytes);
    writer_.value(std::uint8_t{0});  // not by residual
  }
  const std::vector<std::int64_t> no_row_begins(at(centroids_.rows + 1));
  lists(stored.lists ? stored.lists->begins() : no_row_begins, code_bytes, [&](std::int64_t begin, std::int64_t end) { own_rows(rows.slice(begin, end)); },
        [&](std::int64_t row) { return called(ids, row, stored.full.any()); });
  end_around_lists(stored.full, ids);
  writer_.finish();
}

void Exporter::vectors(const StoredIvfFlat& stored) {
  const MatrixRef rows = stored.lists ? stored.lists->rows() : MatrixRef(nullptr, 0, facts_.cols, facts_.dtype);
  const RowIds none(0, 0);
  const RowIds& ids = stored.lists ? stored.lists->ids() : none;
  if (facts_.allow_nonfinite && rows.rows > 0) require_finite(rows);
  for (std::int64_t row = 1; row < ids.count(); ++row) {
    require(ids.of_row(row - 1) < ids.of_row(row), Fault::corrupt_file, name_, ": ids must ascend, id ", value_of(ids.of_row(row)),
            " does not");
  }
  if (mapped(ids, true)) begin_map(ids);
  full_vectors(rows);  // which stand by id
  if (mapped(ids, true)) ids_of_map(ids);
  writer_.finish();
}

void Exporter::full_vectors(MatrixRef rows) {
  if (facts_.dtype == DType::f32) {
    writer_.begin_flat(facts_.cols, rows.rows, metric_);
  } else {
    const auto code_bytes = static_cast<std::int64_t>(at(facts_.cols) * size_of(facts_.dtype));
    writer_.begin("IxSQ", facts_.cols, rows.rows, metric_);
    writer_.scalar_quantizer(scalar_type_of(facts_.dtype), facts_.cols, code_bytes);
    writer_.value(rows.rows * code_bytes);
  }
  own_rows(rows);
}

void Exporter::begin_around_lists(const FullRows& full, const RowIds& ids) {
  if (mapped(ids, full.any())) begin_map(ids);
  if (full.any()) writer_.begin("IxRF", facts_.cols, ids.count(), metric_);
  if (!facts_.form) return;
  writer_.begin("IxPT", facts_.cols, ids.count(), metric_);
  const LinearTransform& linear = facts_.form->linear;
  writer_.value(static_cast<std::int32_t>(!linear.mean.empty()) + static_cast<std::int32_t>(linear.turns()));  // none: rows themselves are f32 all the same
  if (!linear.mean.empty()) writer_.centering(linear.mean);
  if (linear.turns()) writer_.linear_transform(linear.matrix, linear.bias);
}

void Exporter::end_around_lists(const FullRows& full, const RowIds& ids) {
  if (full.any()) {
    full_vectors(full.rows);
    writer_.value(params_.k_factor);
  }
  if (mapped(ids, full.any())) ids_of_map(ids);
}

void Exporter::begin_map(const RowIds& ids) {
  writer_.begin(params_.map == FaissMap::id_map2 ? "IxM2" : "IxMp", facts_.cols, ids.count(), metric_);
}

void Exporter::ids_of_map(const RowIds& ids) {
  writer_.value(ids.count());
  for (std::int64_t rank = 0; rank < ids.count(); ++rank) writer_.value(ids.of_rank(static_cast<LocalRow>(rank)));
}

void Exporter::codes(const StoredIvfPq& stored) {
  const IvfPqParts& parts = stored.parts;
  const RowIds ids(parts.ids, stored.owner, name_);
  require(parts.grid_bits == 0, Fault::unsupported, name_, ": codes of RaBitQ are not written as Faiss's");
  const CodeShape shape = parts.quantizer().shape();
  const std::int64_t m = shape.m, code_bytes = shape.code_bytes(), cols = centroids_.cols;
  require(m * parts.codewords.cols == cols, Fault::unsupported, name_, parts.codewords.cols == 1 ? ": scalar codes, as" : ":", " product codes of ", m,
          " parts do not divide ", cols, " dimensions evenly, as Faiss needs it");
  begin_around_lists(parts.full, ids);
  begin_inverted_file("IwPQ", ids.count());
  writer_.value(std::uint8_t{1});  // by residual
  writer_.value(code_bytes);
  writer_.value(cols);
  writer_.value(m);
  writer_.value(std::int64_t{parts.bits});
  writer_.value(cols << parts.bits);
  writer_.bytes(parts.codewords.data, at(cols << parts.bits) * sizeof(float));
  std::int64_t first_block = 0;
  std::vector<std::uint8_t> code(at(code_bytes));
  const auto codes_of = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < end - begin; ++row) {
      for (std::int64_t byte = 0; byte < code_bytes; ++byte) {
        code[at(byte)] = parts.codes[at(ProductCodes::place(first_block + row / code_block_rows, code_bytes, byte, row % code_block_rows))];
      }
      writer_.bytes(code.data(), code.size());
    }
    first_block += ProductCodes::blocks_of(end - begin);
  };
  lists(parts.begins, code_bytes, codes_of, [&](std::int64_t row) { return called(ids, row, parts.full.any()); });
  end_around_lists(parts.full, ids);
  writer_.finish();
}

}  // namespace

void export_faiss(const std::filesystem::path& from, const std::filesystem::path& to, const RunOptions& run, const FaissExport& params) {
  const UsualFloats floats;
  constexpr float most_factor = 1000;  // that Faiss reads
  require(params.nprobe >= 1 && params.k_factor >= 1 && params.k_factor <= most_factor, Fault::invalid_argument,
          "Faiss's searches begin with at least 1 list and a factor of 1 to ", most_factor, ", got ", params.nprobe, " and ", params.k_factor);
  const Container file = Container::open(map_file(from));
  file.verify(run);
  if (holds_product_codes(file)) {
    const StoredIvfPq stored = read_ivf_pq(file);
    return Exporter(file, stored.facts, stored.parts.centroids, to, run, params).codes(stored);
  }
  constexpr std::string_view schemas[] = {flat_schema, ivf_flat_schema, ivf_sq_schema, ivf_transformed_schema};
  require(std::find(std::begin(schemas), std::end(schemas), file.schema()) != std::end(schemas), Fault::unsupported, file.file().name,
          ": holds '", file.schema(), "', no index; allowed: ", flat_schema, " ", ivf_flat_schema, " ", ivf_pq_schema, " ", ivf_sq_schema,
          " ", ivf_transformed_schema);
  const StoredIvfFlat stored = read_ivf_flat(file);
  Exporter exporter(file, stored.facts, stored.centroids, to, run, params);
  return file.schema() == flat_schema ? exporter.vectors(stored) : exporter.flat(stored);
}

}  // namespace gigaknn
