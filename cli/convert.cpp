// gigaknn convert: IN -> OUT: vectors block by block; of a graph its ids, or with --distances its
// distances
#include <cstring>
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_text.hpp"
#include "hdf5.hpp"
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
  bool distances = false;
  bool allow_rounding = false;
};

std::optional<DType> dtype_of(const std::string& name) {
  if (name.empty()) return std::nullopt;
  for (const DType dtype : {DType::f32, DType::f16, DType::u8, DType::i8, DType::i32, DType::i64}) {
    if (name_of(dtype) == name) return dtype;
  }
  fail(Fault::invalid_argument, "unknown type '", name, "'; allowed: f32 f16 u8 i8 i32 i64");
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
  require(end <= all.rows(), Fault::invalid_argument, "--rows ", options.rows,
          " reaches outside the file; allowed: 0 to ", all.rows());
  const MatrixRef part = all.ref().slice(params.row_begin, end);
  const VectorFormat& format = format_of(options.output);
  const DType target = params.dtype.value_or(format.any_dtype ? part.dtype : format.dtype);
  Matrix converted(part.rows, part.cols, target);
  convert_values(part, converted, options.allow_rounding, options.input.string(), params.row_begin);
  write_matrix(converted, options.output);
  return {part.rows, part.cols, part.dtype, target};
}

Converted convert_any(const ConvertOptions& options, Session& session) {
  const ConvertParams params = params_of(options);
  const bool lists = options.input.extension() == ".knng" || is_hdf5(options.output) ||
                     (is_hdf5(options.input) && options.dataset == "neighbors") ||
                     options.distances;
  if (lists) return convert_lists(options, params);
  if (is_hdf5(options.input)) return convert_hdf5(options, params);
  return convert_vectors(options.input, options.output, params, session.run());
}

int run_convert(const ConvertOptions& options, const std::string& command_line) {
  params_of(options);
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

void add_convert_command(CLI::App& app, Request& request) {
  const auto options = std::make_shared<ConvertOptions>();
  CLI::App* command =
      app.add_subcommand("convert", "convert vectors, ids or a graph to another format");
  command
      ->add_option("IN", options->input, "vectors, ids, a .knng graph, HDF5, or a folder of shards")
      ->required();
  command
      ->add_option("OUT", options->output,
                   "its suffix says the format: .fvecs .bvecs .ivecs .fbin .hbin .u8bin .i8bin "
                   ".ibin .npy, of ids .h5")
      ->required();
  command->add_option("--rows", options->rows, "only rows a:b, half open");
  command->add_option("--dtype", options->dtype, "type of a .npy output (default: the input's)");
  command
      ->add_option("--dataset", options->dataset,
                   "which data set of a HDF5 input: train, test, neighbors or distances")
      ->capture_default_str();
  command->add_flag("--distances", options->distances,
                    "of a graph or result the distances, not the ids");
  command->add_flag("--allow-rounding", options->allow_rounding,
                    "let values lose digits, never range");
  command->add_option("--threads", options->common.threads,
                      "threads (default: what affinity and cgroup allow)");
  command->add_flag("--quiet", options->common.quiet, "print nothing but errors");
  add_examples(*command,
               "  gigaknn convert base.fvecs base.fbin --rows 0:100000\n"
               "  gigaknn convert base.npy base.hbin --allow-rounding\n"
               "  gigaknn convert base.knng ids.npy\n"
               "  gigaknn convert base.knng distances.fbin --distances");
  command->callback([options, &request] {
    request.run = [options, &request] { return run_convert(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
