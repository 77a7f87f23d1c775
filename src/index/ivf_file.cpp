#include "index/ivf_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/cancelled.hpp"
#include "core/gather.hpp"
#include "core/require.hpp"
#include "index/curve_sections.hpp"
#include "io/container_values.hpp"
#include "io/encoding.hpp"
#include "io/validate.hpp"

namespace gigaknn {
namespace {

constexpr std::uint32_t schema_version = 1;
constexpr std::size_t about_bytes = 56;
constexpr std::size_t dtype_name_bytes = 8;
#ifdef GIGAKNN_TINY_TILES
constexpr std::size_t band_bytes = 500;
#else
constexpr std::size_t band_bytes = std::size_t{256} << 20;
#endif

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::string encode(const IvfFacts& facts, std::int64_t rows) {
  std::string bytes;
  append_value(bytes, static_cast<std::uint64_t>(rows));
  append_value(bytes, static_cast<std::uint64_t>(facts.cols));
  append_value(bytes, static_cast<std::uint64_t>(facts.next_id));
  append_metric(bytes, facts.metric);
  std::string dtype(name_of(facts.dtype));
  dtype.resize(dtype_name_bytes, '\0');
  bytes += dtype;
  append_value(bytes, std::uint64_t{facts.allow_nonfinite});
  return bytes;
}

// Beside the container's own block.
std::size_t band_limit(const RunOptions& run) {
  if (run.memory_bytes == 0) return band_bytes;
  return std::clamp<std::size_t>(run.memory_bytes - std::min<std::size_t>(run.memory_bytes, container_block_bytes), 1, band_bytes);
}

// A row, what is known of it, and its turn when it is read.
std::size_t bytes_in_band(std::size_t row_bytes) { return row_bytes + sizeof(MergedLists::Entry) + sizeof(std::uint32_t); }

struct About {
  IvfFacts facts;
  std::uint64_t rows = 0;
};

About decode(const FileBytes& file, const Section& section) {
  const std::uint64_t offset = section.offset;
  require_at(section.bytes == about_bytes, file, offset, "section 'about' has ", section.bytes, " bytes, expected ", about_bytes);
  About about;
  about.rows = value_at<std::uint64_t>(file, offset, "rows");
  require_at(about.rows < 0xFFFFFFFF, file, offset, about.rows, " rows, expected 0 to 4294967294");
  const auto cols = value_at<std::uint64_t>(file, offset + 8, "columns");
  require_at(cols >= 1 && cols < std::uint64_t{1} << 32, file, offset + 8, cols, " columns, expected 1 to 4294967295");
  const auto next_id = value_at<std::uint64_t>(file, offset + 16, "the next id");
  require_at(next_id >= about.rows && next_id <= std::uint64_t{1} << 62, file, offset + 16, "the next id is ", next_id, ", expected ",
             about.rows, " to 2^62");
  about.facts.cols = static_cast<std::int64_t>(cols);
  about.facts.next_id = static_cast<std::int64_t>(next_id);
  about.facts.metric = metric_at(file, offset + 24);
  require_at(!on_bits(about.facts.metric), file, offset + 24, "metric ", name_of(about.facts.metric), " has no inverted file");
  std::string dtype(reinterpret_cast<const char*>(file.bytes.data() + offset + 40), dtype_name_bytes);
  dtype.resize(std::min(dtype.find('\0'), dtype.size()));
  const auto* found = std::find_if(std::begin(vector_dtypes), std::end(vector_dtypes), [&](DType type) { return name_of(type) == dtype; });
  require_at(found != std::end(vector_dtypes), file, offset + 40, "rows of '", printable(dtype), "', expected f32, f16, bf16, u8 or i8");
  about.facts.dtype = *found;
  const auto nonfinite = value_at<std::uint64_t>(file, offset + 48, "whether NaN is allowed");
  require_at(nonfinite <= 1, file, offset + 48, "whether NaN is allowed is ", nonfinite, ", expected 0 or 1");
  about.facts.allow_nonfinite = nonfinite == 1;
  return about;
}

void verify_section(const Container& file, const Section& section) {
  for (std::uint64_t block = 0; block * container_block_bytes < section.bytes; ++block) file.verify_block(section, block);
}

const Section& sized_section(const Container& file, std::string_view name, Element element, std::uint64_t rows, std::uint64_t cols) {
  const Section& section = file.section(name, element);
  require_at(section.rows == rows && section.cols == cols, file.file(), section.offset, "section '", name, "' is ", section.rows, " x ",
             section.cols, ", expected ", rows, " x ", cols);
  return section;
}

// What searches by a recall go by, where there is any of it.
void add_measured(ContainerWriter& writer, const IvfFacts& facts) {
  if (!facts.held_out.empty()) writer.add_section("held_out", Element::i64, facts.held_out.size(), 1, facts.held_out.data());
  if (facts.curve) add_curve(writer, *facts.curve);
}

std::vector<RowId> held_out_in(const Container& file, std::int64_t next_id) {
  if (!file.find_section("held_out")) return {};
  const Section& section = file.section("held_out", Element::i64);
  verify_section(file, section);
  std::vector<RowId> ids;
  for (const std::int64_t id : values_in<std::int64_t>(file, "held_out", Element::i64)) {
    require_at(id > (ids.empty() ? -1 : value_of(ids.back())) && id < next_id, file.file(), section.offset + ids.size() * sizeof id,
               "rows that were held out must ascend below the next id, ", next_id);
    ids.push_back(RowId{id});
  }
  return ids;
}

void add_linear(ContainerWriter& writer, std::string_view matrix, const LinearTransform& linear) {
  const auto add = [&](std::string_view name, const std::vector<float>& values) {
    if (!values.empty()) writer.add_section(name, Element::f32, 1, values.size(), values.data());
  };
  add("mean", linear.mean);
  if (linear.turns()) add_matrix(writer, matrix, linear.matrix);
  add("bias", linear.bias);
}

void write_about(ContainerWriter& writer, const IvfFacts& facts, std::int64_t rows) {
  const std::string about = encode(facts, rows);
  writer.add_section("about", Element::u8, 1, about.size(), about.data());
  if (schema_of(facts, {}) == ivf_transformed_schema) add_linear(writer, "transform", facts.form->linear);
}

// Of quantized rows.
void write_quantizer(ContainerWriter& writer, const RowForm& form) {
  add_linear(writer, "directions", form.linear);
  if (form.dtype == DType::i8) writer.add_section("step", Element::f64, 1, 1, &form.step);
}

void write_rows(ContainerWriter& writer, std::string_view name, DType dtype, std::int64_t rows, std::int64_t cols,
                const RowReader& read_row, const RunOptions& run) {
  writer.begin_section(name, element_of(dtype), at(rows), at(cols));
  std::vector<std::byte> row(at(cols) * size_of(dtype));
  for (std::int64_t place = 0; place < rows; ++place) {
    read_row(place, row.data());
    writer.append(row.data(), row.size());
    if (place % 65536 != 0) continue;
    check_cancelled(run);
    if (run.progress) run.progress->report("write", place, rows);
  }
}

}  // namespace

std::string_view schema_of(const IvfFacts& facts, std::string_view plain) {
  if (!facts.form) return plain;
  return facts.form->quantizes() ? ivf_sq_schema : facts.form->linear.turns() ? ivf_transformed_schema : plain;
}

std::string_view rows_name(const IvfFacts& facts) { return !facts.form ? "rows" : facts.form->quantizes() ? "codes" : "transformed"; }

void require_queries_for(const IvfFacts& facts, MatrixRef queries, const RunOptions& run) {
  require(queries.cols == facts.cols && queries.dtype == facts.dtype, Fault::invalid_argument, "queries are ", queries.cols, " x ",
          name_of(queries.dtype), ", the base ", facts.cols, " x ", name_of(facts.dtype));
  require_usable_values(queries, facts.metric, facts.allow_nonfinite, "the queries", run);
}

std::size_t least_writing_bytes(std::int64_t rows, std::size_t row_bytes) {
  constexpr std::int64_t least_rows = 4096;
  return at(std::min(rows, least_rows)) * bytes_in_band(row_bytes) + container_block_bytes;
}

namespace {

// The rows of parts, as a file has them.
class PartsWriter {
 public:
  PartsWriter(ContainerWriter& writer, std::span<const LiveRows> parts, std::int64_t lists, const RunOptions& run)
      : writer_(writer), parts_(parts), lists_(parts, lists), run_(run) {}

  const MergedLists& lists() const { return lists_; }

  void begins_and_ids() const {
    writer_.add_section("begins", Element::i64, lists_.begins().size(), 1, lists_.begins().data());
    writer_.begin_section("ids", Element::i64, at(lists_.rows()), 1);
    for_bands(sizeof(MergedLists::Entry), [&](const std::vector<MergedLists::Entry>& entries, std::int64_t, std::int64_t) {
      for (const auto& entry : entries) writer_.append(&entry.id, sizeof entry.id);
    });
  }

  /// What lists hold, handed to `take` with the lists it is of.
  template <class Take>
  void rows(std::size_t row_bytes, const Take& take) const {
    std::int64_t done = 0;
    for_bands(bytes_in_band(row_bytes), [&](const std::vector<MergedLists::Entry>& entries, std::int64_t first, std::int64_t end) {
      if (entries.empty()) return;
      take(gather_entries(parts_, entries, run_), first, end);
      done += std::ssize(entries);
      if (run_.progress) run_.progress->report("write", done, lists_.rows());
    });
  }

  void rows(std::string_view name, DType dtype, std::int64_t cols) const {
    writer_.begin_section(name, element_of(dtype), at(lists_.rows()), at(cols));
    rows(at(cols) * size_of(dtype), [&](const Matrix& band, std::int64_t, std::int64_t) {
      writer_.append(band.ref().data, at(band.rows() * band.ref().stride_bytes));
    });
  }

 private:
  template <class Take>
  void for_bands(std::size_t bytes_of_row, const Take& take) const {
    for (std::int64_t first = 0; first < lists_.lists();) {
      const std::int64_t end = lists_.end_of_band(first, static_cast<std::int64_t>(band_limit(run_) / bytes_of_row));
      take(lists_.entries(first, end), first, end);
      check_cancelled(run_);
      first = end;
    }
  }

  ContainerWriter& writer_;
  std::span<const LiveRows> parts_;
  MergedLists lists_;
  const RunOptions& run_;
};

}  // namespace

void write_flat(const IvfFacts& facts, std::span<const LiveRows> parts, const std::filesystem::path& path, const RunOptions& run) {
  ContainerWriter writer(path, flat_schema, schema_version);
  std::int64_t count = 0;
  std::vector<std::vector<LocalRow>> by_rank;  // the rows of each part; none where they stand so
  for (const LiveRows& part : parts) {
    count += part.count;
    by_rank.push_back(part.lists->ids().rows_by_rank());
  }
  write_about(writer, facts, count);
  writer.begin_section("ids", Element::i64, at(count), 1);
  RowsById named(parts);
  for (std::int64_t i = 0; i < count; ++i) {
    const RowsById::Place place = named.next();
    const RowId id = place.part->lists->ids().of_rank(place.rank);
    writer.append(&id, sizeof id);
  }
  const auto read_row = [&, rows = RowsById(parts)](std::int64_t, std::byte* out) mutable {
    const RowsById::Place place = rows.next();
    const std::vector<LocalRow>& of_part = by_rank[at(place.part - parts.data())];
    place.part->lists->copy_row(of_part.empty() ? place.rank : of_part[place.rank], out);
  };
  write_rows(writer, "rows", facts.dtype, count, facts.cols, read_row, run);
  add_measured(writer, facts);
  writer.finish();
}

void write_flat(const IvfFacts& facts, std::span<const RowId> ids, const RowReader& read_row, const std::filesystem::path& path,
                const RunOptions& run) {
  ContainerWriter writer(path, flat_schema, schema_version);
  write_about(writer, facts, std::ssize(ids));
  writer.add_section("ids", Element::i64, ids.size(), 1, ids.data());
  write_rows(writer, "rows", facts.dtype, std::ssize(ids), facts.cols, read_row, run);
  writer.finish();
}

void write_ivf_flat(const IvfFacts& facts, MatrixRef centroids, std::span<const LiveRows> parts, const RowReader& read_full,
                    const std::filesystem::path& path, const RunOptions& run) {
  ContainerWriter writer(path, schema_of(facts, ivf_flat_schema), schema_version);
  const PartsWriter rows(writer, parts, centroids.rows, run);
  write_about(writer, facts, rows.lists().rows());
  add_matrix(writer, "centroids", centroids);
  rows.begins_and_ids();
  if (schema_of(facts, {}) == ivf_sq_schema) write_quantizer(writer, *facts.form);
  rows.rows(rows_name(facts), facts.listed_dtype(), facts.width());
  if (read_full) write_rows(writer, "rows", facts.dtype, rows.lists().rows(), facts.cols, read_full, run);
  add_measured(writer, facts);
  writer.finish();
}

void write_ivf_flat(const IvfFacts& facts, MatrixRef centroids, std::span<const std::int64_t> begins, std::span<const RowId> ids,
                    const RowReader& read_row, const RowReader& read_full, const std::filesystem::path& path, const RunOptions& run) {
  ContainerWriter writer(path, schema_of(facts, ivf_flat_schema), schema_version);
  write_about(writer, facts, std::ssize(ids));
  add_matrix(writer, "centroids", centroids);
  writer.add_section("begins", Element::i64, begins.size(), 1, begins.data());
  writer.add_section("ids", Element::i64, ids.size(), 1, ids.data());
  if (schema_of(facts, {}) == ivf_sq_schema) write_quantizer(writer, *facts.form);
  write_rows(writer, rows_name(facts), facts.listed_dtype(), std::ssize(ids), facts.width(), read_row, run);
  if (read_full) write_rows(writer, "rows", facts.dtype, std::ssize(ids), facts.cols, read_full, run);
  add_measured(writer, facts);
  writer.finish();
}

namespace {

// What all schemas begin with, checked.
struct Head {
  MatrixRef centroids;
  std::span<const std::int64_t> begins;
  std::span<const RowId> ids;
};

void require_finite(const Container& file, const Section& section, const char* what) {
  verify_section(file, section);
  const auto values = values_in<float>(file, section.name, Element::f32);
  const auto bad = std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  require_at(bad == values.end(), file.file(), section.offset + at(bad - values.begin()) * sizeof(float), what, " has the value ",
             bad == values.end() ? 0 : *bad);
}

About read_about(const Container& file) {
  const Section& section = file.section("about", Element::u8);
  verify_section(file, section);
  About about = decode(file.file(), section);
  about.facts.held_out = held_out_in(file, about.facts.next_id);
  about.facts.curve = curve_in(file);
  return about;
}

// Sections of a transform, whose matrix is called so, where there are any.
LinearTransform read_linear(const Container& file, std::string_view name, const IvfFacts& facts) {
  LinearTransform linear;
  const auto read = [&](std::string_view vector, std::int64_t size) {
    std::vector<float> values;
    if (!file.find_section(vector)) return values;
    const Section& section = sized_section(file, vector, Element::f32, 1, at(size));
    require_at(facts.metric != Metric::inner_product, file.file(), section.offset, "a ", vector,
               ", expected none under inner_product, whose order it would change");
    require_finite(file, section, vector == "mean" ? "the mean" : "a bias");
    const auto held = values_in<float>(file, vector, Element::f32);
    values.assign(held.begin(), held.end());
    return values;
  };
  linear.mean = read("mean", facts.cols);
  if (!file.find_section(name)) return linear;
  const Section& matrix = file.section(name, Element::f32);
  require_at(matrix.rows >= 1 && matrix.rows < std::uint64_t{1} << 32 && matrix.cols == at(facts.cols), file.file(), matrix.offset,
             "section '", name, "' is ", matrix.rows, " x ", matrix.cols, ", expected 1 to 4294967295 x ", facts.cols);
  require_finite(file, matrix, name == "transform" ? "a transform" : "a direction");
  linear.matrix = copy_rows(matrix_in(file, name));
  linear.bias = read("bias", linear.cols_out());
  return linear;
}

RowForm read_quantizer(const Container& file, const IvfFacts& facts) {
  RowForm form{.unit = facts.metric == Metric::cosine, .linear = read_linear(file, "directions", facts)};
  const Section* const codes = file.find_section("codes");
  form.dtype = !codes ? DType::i8 : codes->element == Element::f16 ? DType::f16 : codes->element == Element::bf16 ? DType::bf16 : DType::i8;
  if (form.dtype != DType::i8) return form;
  const Section& step = sized_section(file, "step", Element::f64, 1, 1);
  verify_section(file, step);
  form.step = values_in<double>(file, "step", Element::f64).front();
  // What is larger or smaller no numbers in float32 have, and its square is nothing, or infinite.
  require_at(form.step >= 0x1p-160 && form.step <= std::numeric_limits<float>::max(), file.file(), step.offset, "the step is ", form.step,
             ", expected ", 0x1p-160, " to ", std::numeric_limits<float>::max());
  return form;
}

// Of codes and of rows of another form, which stand for finite rows.
About read_about_codes(const Container& file) {
  About about = read_about(file);
  IvfFacts& facts = about.facts;
  const std::uint64_t offset = file.section("about", Element::u8).offset;
  require_at(!facts.allow_nonfinite, file.file(), offset + 48, "whether NaN is allowed is 1, expected 0 of codes");
  const bool cosine = facts.metric == Metric::cosine;
  require_at(cosine || facts.metric == Metric::l2 || facts.metric == Metric::euclidean || facts.metric == Metric::inner_product,
             file.file(), offset + 24, "metric ", name_of(facts.metric), ", expected l2, euclidean, inner_product or cosine of codes");
  if (file.schema() == ivf_sq_schema) {
    facts.form = std::make_shared<const RowForm>(read_quantizer(file, facts));
  } else if (file.schema() == ivf_transformed_schema) {
    file.section("transform", Element::f32);
    facts.form = std::make_shared<const RowForm>(RowForm{.unit = cosine, .linear = read_linear(file, "transform", facts)});
  } else if (cosine) {
    facts.form = std::make_shared<const RowForm>(RowForm{.unit = true});
  }
  return about;
}

std::span<const RowId> ids_in(const Container& file, const About& about) {
  sized_section(file, "ids", Element::i64, about.rows, 1);
  const auto numbers = values_in<std::int64_t>(file, "ids", Element::i64);
  return {reinterpret_cast<const RowId*>(numbers.data()), numbers.size()};
}

// `width`: dimensions of centroids.
Head read_head(const Container& file, const About& about, std::int64_t width) {
  Head head;
  const Section& centroids = file.section("centroids", Element::f32);
  require_at(centroids.rows >= 1 && centroids.cols == at(width), file.file(), centroids.offset, "section 'centroids' is ",
             centroids.rows, " x ", centroids.cols, ", expected 1 or more x ", width);
  require_finite(file, centroids, "a centroid");
  head.centroids = matrix_in(file, "centroids");

  const Section& begins = sized_section(file, "begins", Element::i64, centroids.rows + 1, 1);
  verify_section(file, begins);
  head.begins = values_in<std::int64_t>(file, "begins", Element::i64);
  require_at(head.begins.front() == 0 && head.begins.back() == static_cast<std::int64_t>(about.rows) &&
                 std::is_sorted(head.begins.begin(), head.begins.end()),
             file.file(), begins.offset, "lists must ascend from 0 to the ", about.rows, " rows");
  head.ids = ids_in(file, about);
  return head;
}

// `rows` [n, width] that stand list after list and remain in the file; null: there are none.
std::shared_ptr<const ListRows> lists_in(const Container& file, const Head& head, MatrixRef rows,
                                         const std::shared_ptr<const FileCheck>& check) {
  if (rows.rows == 0) return nullptr;
  return std::make_shared<ListRows>(rows, std::vector<LocalRow>(), std::vector<std::int64_t>(head.begins.begin(), head.begins.end()),
                                    RowIds(head.ids, file.file().owner, file.file().name, check), file.file().owner, check);
}

// Full vectors, where there are any.
FullRows full_rows_in(const Container& file, const About& about, const std::shared_ptr<const FileCheck>& check) {
  if (!file.find_section("rows")) return {};
  sized_section(file, "rows", element_of(about.facts.dtype), about.rows, at(about.facts.cols));
  return {matrix_in(file, "rows"), nullptr, file.file().owner, check};
}

}  // namespace

StoredIvfFlat read_ivf_flat(const Container& file, const std::shared_ptr<const FileCheck>& check) {
  const bool in_one = file.schema() == flat_schema, formed = file.schema() == ivf_transformed_schema || file.schema() == ivf_sq_schema;
  require_schema(file, in_one || formed ? file.schema() : ivf_flat_schema, schema_version);
  const About about = formed ? read_about_codes(file) : read_about(file);
  const std::int64_t all[] = {0, static_cast<std::int64_t>(about.rows)};
  const Head head = in_one ? Head{{}, all, ids_in(file, about)} : read_head(file, about, about.facts.width());
  StoredIvfFlat stored{about.facts, in_one ? Matrix() : copy_rows(head.centroids), nullptr};
  const std::string_view listed = rows_name(stored.facts);
  sized_section(file, listed, element_of(stored.facts.listed_dtype()), about.rows, at(stored.facts.width()));
  stored.lists = lists_in(file, head, matrix_in(file, listed), check);
  if (formed) stored.full = full_rows_in(file, about, check);
  return stored;
}

RowReader full_rows_by_id(std::span<const LiveRows> parts) {
  return [rows = RowsById(parts)](std::int64_t, std::byte* out) mutable {
    const RowsById::Place place = rows.next();
    const FullRows& full = place.part->full;
    std::memcpy(out, full.of_rank(place.rank), at(full.rows.cols) * size_of(full.rows.dtype));
  };
}

std::size_t writing_bytes_of_code(std::int64_t code_bytes) { return at(code_bytes * (1 + code_block_rows)); }

namespace {

// What codes are written in.
void add_fit(ContainerWriter& writer, const ProductCodes& fit) {
  if (!fit.scaled) return add_matrix(writer, "codewords", fit.codewords);
  const std::int64_t grid_bits = fit.planes > 1 ? fit.planes : 8 / fit.part_dims();
  writer.add_section("rabitq", Element::i64, 1, 1, &grid_bits);
}

}  // namespace

void write_ivf_pq(const IvfFacts& facts, const ProductCodes& fit, std::span<const LiveRows> parts, const RowReader& read_full,
                  const std::filesystem::path& path, const RunOptions& run) {
  ContainerWriter writer(path, schema_of(facts, ivf_pq_schema), schema_version);
  const PartsWriter rows(writer, parts, fit.centroids.rows, run);
  const std::vector<std::int64_t>& begins = rows.lists().begins();
  write_about(writer, facts, rows.lists().rows());
  add_matrix(writer, "centroids", fit.centroids);
  const bool transformed = schema_of(facts, {}) == ivf_transformed_schema;
  if (!transformed) add_fit(writer, fit);
  rows.begins_and_ids();
  if (transformed) add_fit(writer, fit);  // where files of transformed rows have always had it
  std::int64_t blocks = 0;
  for (std::size_t list = 0; list + 1 < begins.size(); ++list) blocks += ProductCodes::blocks_of(begins[list + 1] - begins[list]);
  writer.begin_section("codes", Element::u8, at(blocks), at(fit.code_bytes() * code_block_rows));
  rows.rows(writing_bytes_of_code(fit.code_bytes()), [&](const Matrix& codes, std::int64_t first, std::int64_t end) {
    std::vector<std::int64_t> in_band(begins.begin() + first, begins.begin() + end + 1);
    for (std::int64_t& begin : in_band) begin -= begins[at(first)];
    const std::vector<std::uint8_t> band =
        in_blocks({codes.row<std::uint8_t>(0), at(codes.rows() * codes.cols())}, fit.code_bytes(), in_band, run);
    writer.append(band.data(), band.size());
  });
  if (read_full) write_rows(writer, "rows", facts.dtype, rows.lists().rows(), facts.cols, read_full, run);
  add_measured(writer, facts);
  writer.finish();
}

namespace {

// Codes of rows [n, d], without what stands behind them.
IvfPqParts read_codes(const Container& file, const Head& head, std::int64_t d) {
  std::uint64_t blocks = 0;
  for (std::size_t list = 0; list + 1 < head.begins.size(); ++list) {
    blocks += at(ProductCodes::blocks_of(head.begins[list + 1] - head.begins[list]));
  }
  if (file.find_section("rabitq")) {
    const Section& section = sized_section(file, "rabitq", Element::i64, 1, 1);
    verify_section(file, section);
    const auto bits = values_in<std::int64_t>(file, "rabitq", Element::i64).front();
    require_at(bits >= 1 && bits <= 8, file.file(), section.offset, "RaBitQ of ", bits, " bits a dimension, expected 1 to 8");
    const CodeShape shape = grid_shape(d, static_cast<int>(bits));
    require_at(shape.m <= most_code_parts, file.file(), section.offset, "RaBitQ of ", bits, " bits has at most ", most_code_parts,
               " bytes, of ", d, " columns it would have ", shape.m);
    sized_section(file, "codes", Element::u8, blocks, at(shape.code_bytes() * code_block_rows));
    return {head.centroids,        {}, head.begins, head.ids, values_in<std::uint8_t>(file, "codes", Element::u8), {}, shape.bits,
            static_cast<int>(bits)};
  }
  const Section& codewords = file.section("codewords", Element::f32);
  // A byte of codes of 8 bits a part has 256 codewords, of 4 bits 32; 3 bytes of 6 bits have 256.
  const std::uint64_t code_bytes = file.section("codes", Element::u8).cols / code_block_rows;
  const int bits = code_bytes < 1 ? 8 : codewords.rows == 32 * code_bytes ? 4 : code_bytes % 3 == 0 && codewords.rows == 256 * (code_bytes / 3) ? 6 : 8;
  const std::uint64_t m = codewords.rows >> bits;
  const auto together = at(parts_together(bits));
  require_at(m >= 1 && m <= at(most_code_parts) && m % together == 0 && codewords.rows == m << bits && codewords.cols >= 1 &&
                 m * codewords.cols >= at(d) && (m - together) * codewords.cols < at(d),
             file.file(), codewords.offset, "section 'codewords' is ", codewords.rows, " x ", codewords.cols, ", which are not ", 1 << bits,
             " of each part of ", d, " columns");
  require_finite(file, codewords, "a codeword");
  sized_section(file, "codes", Element::u8, blocks, m * at(bits) / 8 * code_block_rows);
  return {head.centroids, matrix_in(file, "codewords"), head.begins, head.ids, values_in<std::uint8_t>(file, "codes", Element::u8), {}, bits};
}

}  // namespace

ProductQuantizer IvfPqParts::quantizer() const {
  if (grid_bits > 0) return grid_quantizer(centroids.cols, grid_bits);
  return {centroids.cols, codewords.rows >> bits, copy_rows(codewords), bits};
}

bool holds_product_codes(const Container& file) {
  return file.schema() == ivf_pq_schema || (file.schema() == ivf_transformed_schema && !file.find_section("transformed"));
}

StoredIvfPq read_ivf_pq(const Container& file, const std::shared_ptr<const FileCheck>& check) {
  require_schema(file, file.schema() == ivf_transformed_schema ? ivf_transformed_schema : ivf_pq_schema, schema_version);
  const About about = read_about_codes(file);
  const std::int64_t width = about.facts.width();
  IvfPqParts parts = read_codes(file, read_head(file, about, width), width);
  parts.full = full_rows_in(file, about, check);
  return {about.facts, std::move(parts), file.file().owner, file.file().name, check};
}

}  // namespace gigaknn
