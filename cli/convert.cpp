// gigaknn convert: IN -> OUT: vectors block by block; of a graph its ids, or with --distances its
// distances; indexes to files of Faiss and back, or to their rows and ids
#include <algorithm>
#include <cstring>
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "hdf5.hpp"
#include "index/faiss_vectors.hpp"
#include "inputs.hpp"
#include "io/convert.hpp"
#include "io/format.hpp"
#include "io/matrix_writer.hpp"
#include "io/results.hpp"
#include "outputs.hpp"
#include "results.hpp"
#include "session.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

struct ConvertOptions {
  CommonOptions common;
  std::filesystem::path input;
  std::filesystem::path output;
  std::string rows;
  std::string dtype;
  std::string dataset = "train";
  std::string metric;
  std::filesystem::path ids;     // read
  std::filesystem::path ids_to;  // written
  bool distances = false;
  bool allow_rounding = false;
};

std::optional<DType> dtype_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::u8, DType::i8, DType::i32, DType::i64}) {
    if (name_of(dtype) == name) return dtype;
  }
  fail(Fault::invalid_argument, "unknown type '", name, "'; allowed: f32 f16 bf16 u8 i8 i32 i64");
}

ConvertParams params_of(const ConvertOptions& options) {
  ConvertParams params;
  params.dtype = dtype_of(options.dtype);
  params.allow_rounding = options.allow_rounding;
  if (options.rows.empty()) return params;
  const auto [begin, end] = parse_range(options.rows);
  params.row_begin = begin;
  if (end != end_of_file) params.row_end = end;
  return params;
}

/// Rows [begin, end) of the lists.
Neighbors slice_lists(const Neighbors& lists, const ConvertParams& params,
                      const std::string& rows) {
  const std::int64_t end = params.row_end.value_or(lists.queries);
  require(params.row_begin <= end && end <= lists.queries, Fault::invalid_argument, "--rows ", rows,
          " reaches outside the file; allowed: 0 to ", lists.queries);
  Neighbors part;
  part.queries = end - params.row_begin;
  part.k = lists.k;
  part.ids.assign(lists.ids.begin() + params.row_begin * lists.k,
                  lists.ids.begin() + end * lists.k);
  if (lists.distances.empty()) return part;
  part.distances.assign(lists.distances.begin() + params.row_begin * lists.k,
                        lists.distances.begin() + end * lists.k);
  return part;
}

/// From a graph, from HDF5's neighbors, or into HDF5: all that has ids.
Converted convert_lists(const ConvertOptions& options, const ConvertParams& params) {
  require(options.dtype.empty(), Fault::invalid_argument, "--dtype is of vectors: ids and distances have types of their own");
  const Neighbors part = slice_lists(read_results(options.input, {}), params, options.rows);
  if (options.distances) {
    check_result_names({"ids.ibin", options.output}, false);
    write_distances(part, options.output);
    return {part.queries, part.k, DType::f32, DType::f32};
  }
  const ResultFiles files{options.output, {}};
  check_result_names(files, false);
  write_results(files, part);
  return {part.queries, part.k, DType::i64,
          options.output.extension() == ".npy" ? DType::i64 : DType::i32};
}

/// From a data set of HDF5, which is read as a whole.
Converted convert_hdf5(const ConvertOptions& options, const ConvertParams& params) {
  const Matrix all = read_hdf5_matrix(options.input, options.dataset);
  const std::int64_t end = params.row_end.value_or(all.rows());
  require(params.row_begin <= end && end <= all.rows(), Fault::invalid_argument, "--rows ", options.rows,
          " reaches outside the file; allowed: 0 to ", all.rows());
  const MatrixRef part = all.ref().slice(params.row_begin, end);
  const VectorFormat& format = format_of(options.output);
  const DType target = params.dtype.value_or(format.any_dtype ? part.dtype : format.dtype);
  Matrix converted(part.rows, part.cols, target);
  convert_values(part, converted, options.allow_rounding, options.input.string(), params.row_begin);
  write_matrix(converted, options.output);
  return {part.rows, part.cols, part.dtype, target};
}

/// What an index holds; all of it is converted.
Converted index_of(const std::filesystem::path& path) {
  const auto index = open_index(path, {.map = true});
  return {index->rows(), index->cols(), index->dtype(), index->dtype()};
}

void require_whole(const ConvertOptions& options) {
  require(options.rows.empty() && options.dtype.empty() && options.metric.empty() && options.ids_to.empty() && !options.distances,
          Fault::invalid_argument, "an index is converted whole: --rows, --dtype, --metric, --ids-to and --distances are of vectors");
}

Converted convert_index(const ConvertOptions& options, Session& session) {
  require_whole(options);
  if (options.output.extension() == ".faiss") {
    export_faiss(options.input, options.output, session.run());
    return index_of(options.input);
  }
  const std::string note = import_faiss(options.input, options.output, session.run());
  if (!note.empty()) session.note(note);
  return index_of(options.output);
}

void write_ids(const std::filesystem::path& path, const Neighbors& ids, const ConvertParams& params, const std::string& rows) {
  write_results({path, {}}, slice_lists(ids, params, rows));
}

// One column of ids, which are some.
Neighbors column_of(std::span<const RowId> ids) {
  Neighbors column;
  column.queries = std::ssize(ids);
  column.k = 1;
  column.ids.assign(ids.begin(), ids.end());
  return column;
}

void check_ids_file(const std::filesystem::path& path, const Neighbors& ids) {
  check_ids_name(path);
  check_ids_fit({path, {}}, value_of(*std::max_element(ids.ids.begin(), ids.ids.end())) + 1);
  check_output(path, 0);
}

/// The full vectors of an index by ascending ids, and with --ids-to these.
Converted convert_rows_of_index(const ConvertOptions& options, const ConvertParams& params, Session& session) {
  require(options.metric.empty() && !options.distances, Fault::invalid_argument, "--metric is of a .faiss output, --distances of a graph");
  const auto index = open_index(options.input, {.map = true});
  require(index->keeps_rows(), Fault::unsupported, options.input.string(), ": keeps no full vectors that could be written");
  const Neighbors ids = column_of(index->ids());
  require(ids.queries > 0, Fault::invalid_argument, options.input.string(), " has no rows");
  if (!options.ids_to.empty()) check_ids_file(options.ids_to, ids);
  const auto read_rows = [&](std::int64_t begin, std::int64_t end) {
    return index->reconstruct(std::span(ids.ids).subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin)));
  };
  const Converted done = convert_blocks({index->rows(), index->cols(), index->dtype()}, read_rows, options.input.string(), options.output,
                                        params, session.run());
  if (!options.ids_to.empty()) {
    write_ids(options.ids_to, ids, params, options.rows);
  } else if (value_of(ids.ids.back()) >= ids.queries) {
    session.note("rows stand in the order of their ids, which are not 0, 1, ...; --ids-to FILE writes them");
  }
  return done;
}

/// Into an IndexFlat.
Converted convert_to_faiss(const ConvertOptions& options, const ConvertParams& params, Session& session) {
  require(options.dtype.empty() && !options.distances, Fault::invalid_argument,
          "an IndexFlat holds f32 vectors: --dtype and --distances are of other outputs");
  const Vectors vectors = open_vectors(options.input, options.dataset);
  const std::int64_t end = params.row_end.value_or(vectors.matrix().rows);
  require(params.row_begin < end && end <= vectors.matrix().rows, Fault::invalid_argument, "--rows ", options.rows,
          " reaches outside the file; allowed: 0 to ", vectors.matrix().rows);
  const MatrixRef part = vectors.matrix().slice(params.row_begin, end);
  LargeVector<RowId> ids;
  if (!options.ids.empty()) {
    ids = read_ids(options.ids);
    require(std::ssize(ids) == vectors.matrix().rows, Fault::invalid_data, options.ids.string(), ": holds ", ids.size(),
            " ids, expected one for each of the ", vectors.matrix().rows, " rows of ", vectors.name);
    ids = {ids.begin() + params.row_begin, ids.begin() + end};
  }
  write_faiss_flat(part, options.metric.empty() ? Metric::l2 : metric_of(options.metric), ids, options.output, session.run());
  return {part.rows, part.cols, part.dtype, DType::f32};
}

/// The vectors of an IndexFlat or IndexScalarQuantizer, and with --ids-to what an IndexIDMap calls them.
Converted convert_from_faiss(const ConvertOptions& options, const ConvertParams& params, Session& session) {
  require(options.metric.empty() && !options.distances, Fault::invalid_argument, "--metric is of a .faiss output, --distances of a graph");
  const Neighbors ids = column_of(faiss_ids(options.input));
  require(options.ids_to.empty() || ids.queries > 0, Fault::invalid_argument, options.input.string(),
          ": has no IndexIDMap: there are no ids to write to ", options.ids_to.string());
  if (!options.ids_to.empty()) check_ids_file(options.ids_to, ids);
  const Converted done = convert_faiss_vectors(options.input, options.output, params, session.run());
  if (!options.ids_to.empty()) {
    write_ids(options.ids_to, ids, params, options.rows);
  } else if (ids.queries > 0) {
    session.note("the ids of the IndexIDMap are left out; --ids-to FILE writes them");
  }
  return done;
}

Converted convert_any(const ConvertOptions& options, Session& session) {
  const ConvertParams params = params_of(options);
  const bool from_faiss = is_faiss(options.input);
  require(options.ids.empty() || (options.output.extension() == ".faiss" && !from_faiss && options.input.extension() != ".gknn"),
          Fault::invalid_argument, "--ids is of vectors to .faiss, what their rows are called; --ids-to says where ids of an index are written");
  require(options.ids_to.empty() || from_faiss || options.input.extension() == ".gknn", Fault::invalid_argument,
          "--ids-to is of .gknn and .faiss files, where what their rows are called is written");
  require(is_hdf5(options.input) || options.dataset == "train", Fault::invalid_argument, "--dataset is of a HDF5 input");
  if (from_faiss ? options.output.extension() == ".gknn" : options.input.extension() == ".gknn" && options.output.extension() == ".faiss") {
    return convert_index(options, session);
  }
  if (from_faiss) return convert_from_faiss(options, params, session);
  if (options.output.extension() == ".faiss") return convert_to_faiss(options, params, session);
  if (options.input.extension() == ".gknn") return convert_rows_of_index(options, params, session);
  require(options.metric.empty(), Fault::invalid_argument, "--metric is of .faiss files");
  const bool lists = options.input.extension() == ".knng" || is_hdf5(options.output) || options.output.extension() == ".gtbin" ||
                     (is_hdf5(options.input) ? options.dataset == "neighbors" : is_truth(options.input)) || options.distances;
  require(!lists || !is_hdf5(options.input) || options.dataset != "test", Fault::invalid_argument,
          "--dataset test is vectors; to ", options.output.string(), " go neighbors and distances");
  if (lists) return convert_lists(options, params);
  if (is_hdf5(options.input)) return convert_hdf5(options, params);
  return convert_vectors(options.input, options.output, params, session.run());
}

int run_convert(const ConvertOptions& options, const std::string& command_line) {
  params_of(options);
  check_apart({options.input, options.ids}, {options.output, options.ids_to, options.common.json});
  check_output(options.output, 0);
  Session session(options.common, command_line);
  double seconds = 0;
  const Converted done =
      session.timed("convert", seconds, [&] { return convert_any(options, session); });
  session.say("wrote " + options.output.string() + ": " + format_count(done.rows) + " x " +
              std::to_string(done.cols) + ", " + std::string(name_of(done.from)) + " to " +
              std::string(name_of(done.to)) + ", " +
              format_bytes(std::filesystem::file_size(options.output)) + " in " +
              format_seconds(seconds));
  return 0;
}

}  // namespace

void add_convert_command(Command app, Request& request) {
  const auto options = std::make_shared<ConvertOptions>();
  const Command command =
      app.add_command("convert", "convert vectors, ids, a graph or an index to another format");
  command
      .add_option("IN", options->input, "vectors, ids, a .knng graph, a .gknn or .faiss index, HDF5, or a folder of shards")
      .required();
  command
      .add_option("OUT", options->output,
                  "its suffix says the format: .fvecs .bvecs .ivecs .fbin .hbin .bf16bin .u8bin .i8bin "
                  ".ibin .npy, of ids .h5, of an index .faiss or .gknn, of vectors .faiss (IndexFlat)")
      .required();
  command.add_option("--rows", options->rows, "only rows a:b, half open");
  command.add_option("--dtype", options->dtype, "type of a .npy output: f32 f16 bf16 u8 i8 i32 i64 (default: the input's)");
  command
      .add_option("--dataset", options->dataset,
                  "which data set of a HDF5 input: train, test, neighbors or distances")
      .show_default();
  command.add_option("--metric", options->metric, "of vectors to .faiss: l2 (default) or inner_product");
  command.add_option("--ids", options->ids, "of vectors to .faiss: what rows are called");
  command.add_option("--ids-to", options->ids_to, "from .faiss and .gknn: where what rows are called is written");
  command.add_flag("--distances", options->distances,
                   "of a graph or result the distances, not the ids");
  command.add_flag("--allow-rounding", options->allow_rounding,
                   "let values lose digits, never range");
  command.add_option("--threads", options->common.threads,
                     "threads (default: what affinity and cgroup allow)");
  command.add_flag("--quiet", options->common.quiet, "print nothing but errors");
  command.add_examples(
      "  gigaknn convert base.fvecs base.fbin --rows 0:100000\n"
      "  gigaknn convert base.npy base.hbin --allow-rounding\n"
      "  gigaknn convert base.knng ids.npy\n"
      "  gigaknn convert base.knng distances.fbin --distances\n"
      "  gigaknn convert index.gknn index.faiss\n"
      "  gigaknn convert index.gknn rows.fbin --ids-to ids.npy\n"
      "  gigaknn convert faiss_written.faiss index.gknn\n"
      "  gigaknn convert base.fbin flat.faiss --metric inner_product");
  command.callback([options, &request] {
    request.run = [options, &request] { return run_convert(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
