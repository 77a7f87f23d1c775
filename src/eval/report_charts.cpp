// Distributions: how far the k-th neighbour is, and how often each row is somebody's neighbour.
#include <algorithm>

#include "core/require.hpp"
#include "eval/histogram.hpp"
#include "eval/report_parts.hpp"
#include "eval/report_text.hpp"

namespace gigaknn {
namespace {

std::string chart_figure(const char* title, const Histogram& histogram, ChartText text,
                         const std::string& caption) {
  std::string remarks = caption;
  if (histogram.beyond > 0) {
    remarks += join_text(" The pale bar, “more”, holds the ", format_count(histogram.beyond),
                         " beyond the axis.");
  }
  if (histogram.left_out > 0) {
    remarks +=
        join_text(" ", format_count(histogram.left_out), " without a finite value are left out.");
  }
  text.description = join_text("Histogram: ", title, ". ", remarks);
  return join_text("<figure><h3>", title, "</h3>", draw_histogram(histogram, text), "<figcaption>",
                   escape_html(remarks), "</figcaption></figure>");
}

std::string kth_distance_chart(const ReportData& data) {
  if (!data.kth_distances) return "";
  const Histogram histogram =
      count_values({data.kth_distances->begin(), data.kth_distances->end()}, false);
  if (histogram.is_empty()) return "";
  const bool product = data.method && larger_is_nearer(data.method->metric);
  const std::string what = product ? "inner product" : "distance";
  const std::string last =
      data.method ? join_text("neighbour ", data.method->k) : "the last neighbour";
  ChartText text;
  text.x_label = join_text(what, " of ", last);
  if (data.method) text.x_label += join_text(" (", name_of(data.method->metric), ")");
  text.y_label = "rows";
  return chart_figure(
      "How far the last neighbour is", histogram, text,
      join_text("How many rows have their last neighbour at which ", what, ": from ",
                format_value(histogram.smallest), " to ", format_value(histogram.largest),
                product ? "." : ". Far ones lie in sparse regions or are outliers."));
}

std::string in_degree_chart(const GraphShape& shape) {
  const Histogram histogram = count_values({shape.in_degree.begin(), shape.in_degree.end()}, true);
  if (histogram.is_empty()) return "";
  const std::int64_t orphans =
      std::count(shape.in_degree.begin(), shape.in_degree.end(), std::int64_t{0});
  ChartText text;
  text.x_label = "lists that name the row (in-degree)";
  text.y_label = "rows";
  return chart_figure("How often a row is a neighbour", histogram, text,
                      join_text(format_count(orphans), orphans == 1 ? " row is" : " rows are",
                                " nobody’s neighbour; the most popular row is named by ",
                                format_value(histogram.largest), " others."));
}

std::string components_text(const GraphShape& shape) {
  const auto rows = static_cast<std::int64_t>(shape.in_degree.size());
  if (shape.components == 1) {
    return "<p>The graph is <b>connected</b>: from every row a path leads to every other.</p>";
  }
  const double share = static_cast<double>(shape.largest_component) /
                       static_cast<double>(std::max<std::int64_t>(rows, 1));
  return join_text("<p>The graph has <b>", format_count(shape.components),
                   " connected components</b>; the largest has ",
                   format_count(shape.largest_component), " of ", format_count(rows), " rows (",
                   escape_html(format_percent(share)),
                   "). Between components there is no path.</p>");
}

}  // namespace

std::string distributions_html(const ReportData& data) {
  std::string charts = kth_distance_chart(data);
  if (data.shape) charts += in_degree_chart(*data.shape);
  if (charts.empty()) return "";
  std::string html =
      join_text("<section><h2>Distributions</h2><div class=\"charts\">", charts, "</div>");
  if (data.shape) html += components_text(*data.shape);
  return html + "</section>\n";
}

}  // namespace gigaknn
