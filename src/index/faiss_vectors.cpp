#include "index/faiss_vectors.hpp"

#include <algorithm>
#include <limits>

#include <gigaknn/faiss.hpp>

#include "core/cancelled.hpp"
#include "core/elements.hpp"
#include "core/require.hpp"
#include "index/faiss_rows.hpp"
#include "index/faiss_writer.hpp"
#include "index/row_ids.hpp"
#include "io/format.hpp"
#include "io/mapped_file.hpp"
#include "io/validate.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

const FaissIndex& vectors_in(const FileBytes& file, const FaissIndex& root) {
  const FaissIndex* const index = vectors_alone(root);
  require(index, Fault::unsupported, file.name, ": ", tree_of(root),
          " is no set of vectors, expected IndexFlat or IndexScalarQuantizer; an inverted file is converted to a .gknn");
  require_at(index->rows >= 1, file, index->offset, "0 rows, expected at least 1");
  return *index;
}

}  // namespace

Converted convert_faiss_vectors(const std::filesystem::path& in, const std::filesystem::path& out, const ConvertParams& params,
                                const RunOptions& run) {
  const FileBytes file = map_file(in);
  const FaissIndex root = read_faiss(file);
  const FaissIndex& index = vectors_in(file, root);
  const auto* const scalar = std::get_if<FaissScalarRows>(&index.what);
  FaissRows rows(index.cols, scalar ? &scalar->quantizer : nullptr, false);
  const std::byte* const first = scalar ? scalar->codes.data() : std::get<FaissFlat>(index.what).values.at(0);
  const auto read_rows = [&](std::int64_t begin, std::int64_t end) {
    Matrix block(end - begin, index.cols, rows.dtype());
    for (std::int64_t row = begin; row < end; ++row) {
      rows.read(first + at(row) * rows.code_bytes(), nullptr, block.row<std::byte>(row - begin));
    }
    return block;
  };
  return convert_blocks({index.rows, index.cols, rows.dtype()}, read_rows, file.name, out, params, run);
}

std::vector<RowId> faiss_ids(const std::filesystem::path& path) {
  const FileBytes file = map_file(path);
  const FaissIndex root = read_faiss(file);
  vectors_in(file, root);
  std::vector<RowId> ids;
  const auto* const map = std::get_if<FaissIdMap>(&root.what);
  for (std::size_t row = 0; map && row < map->ids.size(); ++row) ids.push_back(RowId{map->ids[row]});
  if (!ids.empty()) RowIds(ids, nullptr, file.name).require_sound();
  return ids;
}

bool is_faiss(const std::filesystem::path& path) {
  if (path.extension() == ".faiss") return true;
  if (find_format(path)) return false;  // so many rows could look like letters
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && std::filesystem::file_size(path, ignored) >= 4 && begins_faiss(map_file(path));
}

FaissFacts describe_faiss(const std::filesystem::path& path) {
  const FileBytes file = map_file(path);
  const FaissIndex root = read_faiss(file);
  const FaissIvf* const ivf = inverted_file_in(root);
  const auto* const map = std::get_if<FaissIdMap>(&root.what);
  const auto* const refine = std::get_if<FaissRefine>(map && map->index ? &map->index->what : &root.what);
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  return {.kind = tree_of(root),
          .metric = std::string(faiss_metric_name(root.metric)),
          .rows = root.rows,
          .cols = root.cols,
          .lists = ivf ? std::ssize(ivf->lists) : 0,
          .nprobe = ivf ? static_cast<std::int64_t>(std::min(ivf->nprobe, most)) : 0,
          .k_factor = refine ? refine->k_factor : 0};
}

void write_faiss_flat(MatrixRef rows, Metric metric, std::span<const RowId> ids, const std::filesystem::path& to, const RunOptions& run) {
  require(ids.empty() || std::ssize(ids) == rows.rows, Fault::invalid_argument, ids.size(), " ids are not those of ", rows.rows, " rows");
  require(rows.dtype != DType::i32 && rows.dtype != DType::i64, Fault::unsupported, "an IndexFlat holds vectors of numbers, not ",
          name_of(rows.dtype));
  if (!ids.empty()) RowIds(ids, nullptr).require_sound();
  require_columns(rows, "the vectors");
  const std::int32_t number = faiss_metric_of(metric, printable(to.string()));
  FaissWriter writer(to);
  if (!ids.empty()) writer.begin("IxMp", rows.cols, rows.rows, number);
  writer.begin_flat(rows.cols, rows.rows, number);
  constexpr std::int64_t rows_at_once = 1024;
  for (std::int64_t begin = 0; begin < rows.rows; begin += rows_at_once) {
    check_cancelled(run);
    const Matrix block = as_floats(rows.slice(begin, std::min(rows.rows, begin + rows_at_once)));
    writer.bytes(block.ref().data, at(block.rows() * block.cols()) * sizeof(float));
    if (run.progress) run.progress->report("convert", begin, rows.rows);
  }
  if (!ids.empty()) {
    writer.value(rows.rows);
    writer.bytes(ids.data(), ids.size_bytes());
  }
  writer.finish();
}

}  // namespace gigaknn
