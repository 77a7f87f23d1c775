// gigaknn info: FILE -> what it holds, from its header alone, but for results, which are read
#include <cstdio>
#include <memory>

#include <gigaknn/gigaknn.hpp>

#include "eval/report_text.hpp"
#include "graph/knng.hpp"
#include "hdf5.hpp"
#include "index/ivf_file.hpp"
#include "inputs.hpp"
#include "io/container.hpp"
#include "io/results.hpp"
#include "io/shards.hpp"
#include "recall_curve.hpp"
#include "results.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

void print_line(const std::string& name, const std::string& value) {
  std::printf("%-12s %s\n", name.c_str(), one_line(value).c_str());
}

void print_size(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return;
  const auto bytes = std::filesystem::file_size(path);
  print_line("size", format_bytes(bytes) + " (" + format_count(static_cast<std::int64_t>(bytes)) +
                         " bytes)");
}

void print_container(const std::filesystem::path& path) {
  const Container container = Container::open(path);
  print_line("format", "container, schema " + container.schema() + " version " +
                           std::to_string(container.schema_version()));
  print_size(path);
  for (const Section& section : container.sections()) {
    print_line("section", section.name + ": " + std::string(name_of(section.element)) + " " +
                              format_count(static_cast<std::int64_t>(section.rows)) + " x " +
                              std::to_string(section.cols) + " at " +
                              std::to_string(section.offset));
  }
  if (holds_index(container)) {
    const auto index = open_index(path, {.map = true});
    print_line("index", format_count(index->rows()) + " x " + std::to_string(index->cols()) + " " + std::string(name_of(index->dtype())) +
                            ", " + index->description());
    print_line("metric", std::string(name_of(index->metric())));
    print_line("next id", std::to_string(index->next_id()));
    if (const auto curve = stored_curve(path)) {
      print_line("curve", text_of(*curve));
      for (const std::string& line : lines_of(*curve)) print_line("", line);
    }
    return;
  }
  if (container.schema() != "knng") return;
  const KnngFile graph = open_knng(path);
  print_line("graph", format_count(graph.n) + " rows, " + std::to_string(graph.k) + " neighbours each");
  print_line("metric", std::string(name_of(graph.metric)));
  print_line("exact", graph.exact ? "yes" : !graph.only ? "no" : graph.only == Only::same ? "among rows of the same label" : "among rows of other labels");
}

/// Files whose names say nothing: big-ann's ground truths, told by their size.
void print_truth(const std::filesystem::path& path) {
  if (kind_of_results(path) == ResultKind::radius) {
    const RadiusNeighbors truth = read_range_truth(path);
    print_line("format", "neighbours within a radius (big-ann)");
    print_size(path);
    print_line("queries", format_count(static_cast<std::int64_t>(truth.offsets.size()) - 1));
    print_line("entries", format_count(static_cast<std::int64_t>(truth.ids.size())));
    return;
  }
  const Neighbors truth = read_neighbors(path);
  print_line("format", truth.distances.empty() ? "k neighbours of each query, ids alone (as .ibin)"
                                               : "k neighbours of each query, ids and distances (big-ann)");
  print_size(path);
  print_line("queries", format_count(truth.queries));
  print_line("neighbours", std::to_string(truth.k));
}

void print_vectors(const std::filesystem::path& path) {
  const ShardsShape shape = shape_of_shards(shards_of(path));
  print_line("format", std::filesystem::is_directory(path) ? "folder of shards" : "matrix");
  print_size(path);
  print_line("rows", format_count(shape.rows));
  print_line("columns", std::to_string(shape.cols));
  print_line("type", std::string(name_of(shape.dtype)));
  if (shape.image_height > 0) print_line("images", std::to_string(shape.image_height) + "x" + std::to_string(shape.image_width));
}

void print_faiss(const std::filesystem::path& path) {
  const FaissFacts facts = describe_faiss(path);
  print_line("format", "Faiss");
  print_size(path);
  print_line("index", facts.kind);
  print_line("rows", format_count(facts.rows));
  print_line("columns", std::to_string(facts.cols));
  if (facts.lists > 0) print_line("lists", format_count(facts.lists));
  if (!facts.metric.empty()) print_line("metric", facts.metric);
}

void print_hdf5(const std::filesystem::path& path) {
  print_line("format", "HDF5");
  print_size(path);
  if (const auto distance = read_hdf5_distance(path)) print_line("distance", *distance);
  for (const Hdf5Part& part : list_hdf5(path)) {
    print_line("data set", part.name + ": " + format_count(part.rows) + " x " +
                               std::to_string(part.cols) + " " + part.type);
  }
}

int run_info(const std::filesystem::path& path) {
  std::error_code unknown;
  require(std::filesystem::status(path, unknown).type() != std::filesystem::file_type::not_found, Fault::io, path.string(), ": no such file");
  print_line("file", path.string());
  if (is_hdf5(path)) {
    print_hdf5(path);
  } else if (path.extension() == ".knng" || path.extension() == ".gknn" || is_container(path)) {
    print_container(path);
  } else if (is_faiss(path)) {
    print_faiss(path);
  } else if (is_truth(path)) {
    print_truth(path);
  } else {
    print_vectors(path);
  }
  return 0;
}

}  // namespace

void add_info_command(Command app, Request& request) {
  const auto path = std::make_shared<std::filesystem::path>();
  const Command command = app.add_command("info", "say what a file holds");
  command
      .add_option("FILE", *path,
                  "vectors, ids, a graph, an index, also of Faiss, ground truth, HDF5, or a folder of shards")
      .required();
  command.add_examples("  gigaknn info base.fbin\n  gigaknn info base.knng\n  gigaknn info base.gknn");
  command.callback([path, &request] { request.run = [path] { return run_info(*path); }; });
}

}  // namespace gigaknn::cli
