// The report: one HTML file that shows what was computed, how well and how fast.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gigaknn/eval.hpp>
#include <gigaknn/graph.hpp>
#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>

#include "eval/image.hpp"

namespace gigaknn {

/// What was read.
struct ReportInput {
  std::string base_name;  ///< usually a file name
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DType dtype = DType::f32;
  std::optional<std::string> queries_name;
  std::optional<std::int64_t> queries;
};

/// What was done with it.
struct ReportMethod {
  std::string task;  ///< "15-NN graph", "10 nearest rows of each query"
  Metric metric = Metric::l2;
  std::int64_t k = 0;
  std::string name;  ///< "exact"
  bool exact = false;
  std::string device;
  std::string isa;
  std::string detail;  ///< what the preparation says of itself; may be empty
  int threads = 0;
  std::uint64_t seed = 0;
};

/// Wall-clock time of the stages that there were.
struct ReportSeconds {
  std::optional<double> load;
  std::optional<double> prepare;
  std::optional<double> compute;
  std::optional<double> evaluate;
  double total = 0;
};

struct ReportMemory {
  std::optional<std::uint64_t> planned_bytes;
  std::uint64_t peak_bytes = 0;
};

/// Some queries with what was found. Borrows all three.
struct ReportGallery {
  MatrixRef queries;
  const Neighbors* lists = nullptr;  ///< [queries, k], rows of the base
  std::vector<std::int64_t> shown;  ///< rows of `queries`
  std::vector<std::string> query_labels;  ///< one a query, or empty
  std::int64_t neighbours_shown = 10;  ///< of each list, at most
};

/// Everything is optional but the title: a section without its data is left out.
struct ReportData {
  std::string title;
  std::optional<std::string> summary;  ///< a sentence or two under the title
  std::optional<std::string> command;  ///< what the user typed
  std::optional<ReportInput> input;
  std::optional<ReportMethod> method;
  std::optional<ReportSeconds> seconds;
  std::optional<ReportMemory> memory;
  std::optional<Recall> recall;
  std::optional<Verification> verification;
  std::optional<std::vector<float>> kth_distances;  ///< distance of the last neighbour of each list
  std::optional<GraphShape> shape;
  std::optional<MatrixRef> base;  ///< for pictures of rows
  std::optional<ImageLayout> image;  ///< rows are images
  std::vector<std::string> base_labels;  ///< one a base row, or empty
  std::optional<ReportGallery> gallery;
  std::vector<Path> paths;  ///< rows of the base
};

/// The page as text: UTF-8, self-contained, all text escaped.
/// Throws Error: invalid_argument where `image` does not fit the columns.
std::string report_html(const ReportData& data);
/// Writes the page, whole or not at all. Throws Error: invalid_argument as above, io.
void write_report(const ReportData& data, const std::filesystem::path& path);

}  // namespace gigaknn
