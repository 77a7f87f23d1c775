// gigaknn check: FILE -> every byte under its checksum, every list of a graph sound, every value
// finite
#include <cstdio>
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "hdf5.hpp"
#include "index/ivf_file.hpp"
#include "inputs.hpp"
#include "io/container.hpp"
#include "io/results.hpp"
#include "io/validate.hpp"
#include "results.hpp"
#include "session.hpp"

namespace gigaknn::cli {
namespace {

struct CheckOptions {
  CommonOptions common;
  std::filesystem::path path;
};

void check_graph_file(const std::filesystem::path& path, const RunOptions& run) {
  const KnnGraph graph = load_graph(path, run);
  const GraphFaults faults = check_graph(graph, run);
  require(faults.sound(), Fault::corrupt_file, path.string(),
          ": not a sound graph: ", faults.unsorted, " lists out of order, ", faults.duplicates,
          " ids twice in a list, ", faults.self, " rows that name themselves, ",
          faults.out_of_range, " ids out of range");
}

/// The graph's own faults are only looked for once its bytes are what was written.
void check_container(const CheckOptions& options, Session& session) {
  const Container container = Container::open(options.path);
  if (options.path.extension() == ".gknn" || holds_index(container)) return check_index(options.path, session.run());
  container.verify(session.run());
  if (options.path.extension() == ".knng" || container.schema() == "knng") check_graph_file(options.path, session.run());
}

void check_values_of(MatrixRef matrix, const std::string& name, const RunOptions& run) {
  if (matrix.dtype == DType::i32 || matrix.dtype == DType::i64) return;
  const ValueFaults faults = find_value_faults(matrix, Metric::l2, run);
  if (const auto& place = faults.first_nonfinite) {
    fail(Fault::invalid_data, name, ": row ", place->row, ", column ", place->col, " is ", place->value, "; ", faults.nonfinite_rows,
         " rows have NaN or infinity");
  }
}

// As ann-benchmarks lays it out: vectors, and neighbours of some.
void check_hdf5(const std::filesystem::path& path, const RunOptions& run) {
  for (const Hdf5Part& part : list_hdf5(path)) {
    if (part.name == "train" || part.name == "test") {
      check_values_of(read_hdf5_matrix(path, part.name), path.string() + ", data set '" + part.name + "'", run);
    } else if (part.name == "neighbors") {
      read_hdf5_neighbors(path);
    }
  }
}

int run_check(const CheckOptions& options, const std::string& command_line) {
  Session session(options.common, command_line);
  const std::filesystem::path& path = options.path;
  double seconds = 0;
  session.timed("check", seconds, [&] {
    if (path.extension() == ".knng" || path.extension() == ".gknn" || is_container(path)) {
      check_container(options, session);
    } else if (is_hdf5(path)) {
      check_hdf5(path, session.run());
    } else if (is_faiss(path)) {
      describe_faiss(path);
      session.note("Faiss's files have no checksums: their structure alone was looked at");
    } else if (is_truth(path) && kind_of_results(path) == ResultKind::radius) {
      read_range_truth(path);
    } else if (is_truth(path)) {
      read_results(path, {});
    } else {
      const Dataset data = Dataset::open(path);
      check_values_of(data.matrix(), path.string(), session.run());
    }
  });
  if (!options.common.quiet) std::printf("%s: sound\n", path.string().c_str());
  return 0;
}

}  // namespace

void add_check_command(Command app, Request& request) {
  const auto options = std::make_shared<CheckOptions>();
  const Command command = app.add_command("check", "check a file from end to end");
  command
      .add_option("FILE", options->path,
                  "container: checksums; graph: sorted, unique, no self, in range; index: ids unique; vectors, HDF5: "
                  "sizes, finite values; Faiss: structure")
      .required();
  command.add_option("--threads", options->common.threads,
                     "threads (default: what affinity and cgroup allow)");
  command.add_flag("--quiet", options->common.quiet, "print nothing but errors");
  command.add_examples(
      "  gigaknn check base.knng\nExit code 3 and one line where something is wrong.");
  command.callback([options, &request] {
    request.run = [options, &request] { return run_check(*options, request.command_line); };
  });
}

}  // namespace gigaknn::cli
