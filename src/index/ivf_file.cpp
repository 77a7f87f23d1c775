#include "index/ivf_file.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "core/cancelled.hpp"
#include "core/gather.hpp"
#include "core/require.hpp"
#include "io/container_values.hpp"
#include "io/encoding.hpp"

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
std::size_t bytes_in_band(std::int64_t cols, DType dtype) {
  return at(cols) * size_of(dtype) + sizeof(MergedLists::Entry) + sizeof(std::uint32_t);
}

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
  require_at(next_id >= about.rows && next_id <= std::uint64_t{1} << 62, file, offset + 16, "the next id is ", next_id, ", expected ", about.rows,
             " to 2^62");
  about.facts.cols = static_cast<std::int64_t>(cols);
  about.facts.next_id = static_cast<std::int64_t>(next_id);
  about.facts.metric = metric_at(file, offset + 24);
  require_at(!on_bits(about.facts.metric), file, offset + 24, "metric ", name_of(about.facts.metric), " has no inverted file");
  std::string dtype(reinterpret_cast<const char*>(file.bytes.data() + offset + 40), dtype_name_bytes);
  dtype.resize(std::min(dtype.find('\0'), dtype.size()));
  constexpr DType dtypes[] = {DType::f32, DType::f16, DType::u8, DType::i8};
  const auto* found = std::find_if(std::begin(dtypes), std::end(dtypes), [&](DType type) { return name_of(type) == dtype; });
  require_at(found != std::end(dtypes), file, offset + 40, "rows of '", printable(dtype), "', expected f32, f16, u8 or i8");
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

void write_about(ContainerWriter& writer, const IvfFacts& facts, std::int64_t rows) {
  const std::string about = encode(facts, rows);
  writer.add_section("about", Element::u8, 1, about.size(), about.data());
}

void write_rows(ContainerWriter& writer, const IvfFacts& facts, std::int64_t rows, const RowReader& read_row, const RunOptions& run) {
  writer.begin_section("rows", element_of(facts.dtype), at(rows), at(facts.cols));
  std::vector<std::byte> row(at(facts.cols) * size_of(facts.dtype));
  for (std::int64_t place = 0; place < rows; ++place) {
    read_row(place, row.data());
    writer.append(row.data(), row.size());
    if (place % 65536 != 0) continue;
    check_cancelled(run);
    if (run.progress) run.progress->report("write", place, rows);
  }
}

}  // namespace

std::size_t least_writing_bytes(std::int64_t rows, std::int64_t cols, DType dtype) {
  constexpr std::int64_t least_rows = 4096;
  return at(std::min(rows, least_rows)) * bytes_in_band(cols, dtype) + container_block_bytes;
}

void write_ivf_flat(const IvfFacts& facts, MatrixRef centroids, std::span<const LiveRows> parts, const std::filesystem::path& path,
                    const RunOptions& run) {
  ContainerWriter writer(path, ivf_flat_schema, schema_version);
  const std::vector<std::int64_t> no_rows(at(centroids.rows + 1));
  std::optional<MergedLists> lists;
  if (!parts.empty()) lists.emplace(parts);
  const std::int64_t rows = lists ? lists->rows() : 0;
  write_about(writer, facts, rows);
  add_matrix(writer, "centroids", centroids);
  writer.add_section("begins", Element::i64, at(centroids.rows + 1), 1, lists ? lists->begins().data() : no_rows.data());
  const std::size_t row_bytes = at(facts.cols) * size_of(facts.dtype);
  const auto for_bands = [&](std::size_t bytes_of_row, auto&& take) {
    for (std::int64_t first = 0; lists && first < centroids.rows;) {
      const std::int64_t end = lists->end_of_band(first, static_cast<std::int64_t>(band_limit(run) / bytes_of_row));
      take(lists->entries(first, end));
      check_cancelled(run);
      first = end;
    }
  };
  writer.begin_section("ids", Element::i64, at(rows), 1);
  for_bands(sizeof(MergedLists::Entry), [&](const std::vector<MergedLists::Entry>& entries) {
    for (const auto& entry : entries) writer.append(&entry.id, sizeof entry.id);
  });
  writer.begin_section("rows", element_of(facts.dtype), at(rows), at(facts.cols));
  std::int64_t done = 0;
  for_bands(bytes_in_band(facts.cols, facts.dtype), [&](const std::vector<MergedLists::Entry>& entries) {
    const Matrix band = lists->gather(entries, run);
    writer.append(band.ref().data, entries.size() * row_bytes);
    done += std::ssize(entries);
    if (run.progress) run.progress->report("write", done, rows);
  });
  writer.finish();
}

void write_ivf_flat(const IvfFacts& facts, MatrixRef centroids, std::span<const std::int64_t> begins, std::span<const RowId> ids, const RowReader& read_row,
                    const std::filesystem::path& path, const RunOptions& run) {
  ContainerWriter writer(path, ivf_flat_schema, schema_version);
  write_about(writer, facts, std::ssize(ids));
  add_matrix(writer, "centroids", centroids);
  writer.add_section("begins", Element::i64, begins.size(), 1, begins.data());
  writer.add_section("ids", Element::i64, ids.size(), 1, ids.data());
  write_rows(writer, facts, std::ssize(ids), read_row, run);
  writer.finish();
}

namespace {

// What both schemas begin with, checked.
struct Head {
  About about;
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

Head read_head(const Container& file) {
  const Section& about_section = file.section("about", Element::u8);
  verify_section(file, about_section);
  Head head{decode(file.file(), about_section), {}, {}, {}};
  const Section& centroids = file.section("centroids", Element::f32);
  require_at(centroids.rows >= 1 && centroids.cols == at(head.about.facts.cols), file.file(), centroids.offset, "section 'centroids' is ",
             centroids.rows, " x ", centroids.cols, ", expected 1 or more x ", head.about.facts.cols);
  require_finite(file, centroids, "a centroid");
  head.centroids = matrix_in(file, "centroids");

  const Section& begins = sized_section(file, "begins", Element::i64, centroids.rows + 1, 1);
  verify_section(file, begins);
  head.begins = values_in<std::int64_t>(file, "begins", Element::i64);
  require_at(head.begins.front() == 0 && head.begins.back() == static_cast<std::int64_t>(head.about.rows) &&
                 std::is_sorted(head.begins.begin(), head.begins.end()),
             file.file(), begins.offset, "lists must ascend from 0 to the ", head.about.rows, " rows");
  sized_section(file, "ids", Element::i64, head.about.rows, 1);
  const auto numbers = values_in<std::int64_t>(file, "ids", Element::i64);
  head.ids = {reinterpret_cast<const RowId*>(numbers.data()), numbers.size()};
  return head;
}

}  // namespace

StoredIvfFlat read_ivf_flat(const Container& file) {
  require_schema(file, ivf_flat_schema, schema_version);
  const Head head = read_head(file);
  StoredIvfFlat stored{head.about.facts, {}, nullptr};
  std::vector<std::int64_t> all(at(head.centroids.rows));
  std::iota(all.begin(), all.end(), 0);
  stored.centroids = gather_rows(head.centroids, all);
  sized_section(file, "rows", element_of(stored.facts.dtype), head.about.rows, at(stored.facts.cols));
  if (head.about.rows == 0) return stored;
  stored.lists = std::make_shared<ListRows>(matrix_in(file, "rows"), std::vector<LocalRow>(), std::vector<std::int64_t>(head.begins.begin(), head.begins.end()),
                                            RowIds(head.ids, file.file().owner, file.file().name), file.file().owner);
  return stored;
}

void write_ivf_pq(const IvfFacts& facts, const IvfPqParts& parts, const std::filesystem::path& path, const RunOptions& run) {
  RowReader read_row;
  if (parts.rows.data) read_row = [&](std::int64_t rank, std::byte* out) { std::memcpy(out, parts.rows.row_bytes(rank), at(facts.cols) * size_of(facts.dtype)); };
  write_ivf_pq(facts, parts, read_row, path, run);
}

void write_ivf_pq(const IvfFacts& facts, const IvfPqParts& parts, const RowReader& read_row, const std::filesystem::path& path, const RunOptions& run) {
  ContainerWriter writer(path, ivf_pq_schema, schema_version);
  const std::int64_t rows = std::ssize(parts.ids), m = parts.codewords.rows / codewords_a_part;
  write_about(writer, facts, rows);
  add_matrix(writer, "centroids", parts.centroids);
  add_matrix(writer, "codewords", parts.codewords);
  writer.add_section("begins", Element::i64, parts.begins.size(), 1, parts.begins.data());
  writer.add_section("ids", Element::i64, at(rows), 1, parts.ids.data());
  writer.add_section("codes", Element::u8, parts.codes.size() / at(m * code_block_rows), at(m * code_block_rows), parts.codes.data());
  check_cancelled(run);
  if (read_row) write_rows(writer, facts, rows, read_row, run);
  writer.finish();
}

std::pair<IvfFacts, IvfPqParts> read_ivf_pq(const Container& file) {
  require_schema(file, ivf_pq_schema, schema_version);
  const Head head = read_head(file);
  const std::uint64_t about = file.section("about", Element::u8).offset;
  require_at(head.about.rows >= 1, file.file(), about, "0 rows, expected 1 to 4294967294");
  require_at(!head.about.facts.allow_nonfinite, file.file(), about + 48, "whether NaN is allowed is 1, expected 0 of product codes");
  const Section& codewords = file.section("codewords", Element::f32);
  const std::uint64_t m = codewords.rows / codewords_a_part;
  require_at(m >= 1 && m <= 256 && codewords.rows == m * codewords_a_part && codewords.cols >= 1 && m * codewords.cols >= at(head.about.facts.cols) &&
                 (m - 1) * codewords.cols < at(head.about.facts.cols),
             file.file(), codewords.offset, "section 'codewords' is ", codewords.rows, " x ", codewords.cols, ", which are not 256 of each part of ",
             head.about.facts.cols, " columns");
  require_finite(file, codewords, "a codeword");
  std::uint64_t blocks = 0;
  for (std::size_t list = 0; list + 1 < head.begins.size(); ++list) blocks += at(ProductCodes::blocks_of(head.begins[list + 1] - head.begins[list]));
  sized_section(file, "codes", Element::u8, blocks, m * code_block_rows);
  IvfPqParts parts{head.centroids, matrix_in(file, "codewords"), head.begins, head.ids, values_in<std::uint8_t>(file, "codes", Element::u8), {}};
  if (file.find_section("rows")) {
    sized_section(file, "rows", element_of(head.about.facts.dtype), head.about.rows, at(head.about.facts.cols));
    parts.rows = matrix_in(file, "rows");
  }
  return {head.about.facts, parts};
}

}  // namespace gigaknn
