#include "index/curve_sections.hpp"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <vector>

#include "core/require.hpp"
#include "io/container_values.hpp"

namespace gigaknn {
namespace {

enum Fact : std::size_t { k_fact, queries_fact, held_out_fact, rows_fact, threads_fact, facts_count };
enum Column : std::size_t { nprobe_column, refine_column, recall_column, low_column, high_column, seconds_column, columns };
constexpr std::uint64_t most = std::uint64_t{1} << 48;  // of any number; exact as a double
constexpr std::uint64_t most_points = 4096;

bool is_count(double x) { return x >= 1 && x <= static_cast<double>(most) && x == std::floor(x); }
bool is_share(double x) { return x >= 0 && x <= 1; }

bool is_point(const OperatingPoint& point) {
  const Recall& recall = point.recall;
  return is_count(static_cast<double>(point.nprobe)) && is_count(static_cast<double>(point.refine)) && is_share(recall.low) &&
         recall.value >= recall.low && recall.high >= recall.value && is_share(recall.high) && point.seconds >= 1e-12 && point.seconds <= 1e12;
}
bool comes_after(const OperatingPoint& point, const OperatingPoint& before) {
  return before.recall.value < point.recall.value && before.seconds <= point.seconds;
}

void verify(const Container& file, const Section& section) {
  for (std::uint64_t block = 0; block * container_block_bytes < section.bytes; ++block) file.verify_block(section, block);
}

}  // namespace

void add_curve(ContainerWriter& writer, const RecallCurve& curve) {
  const std::uint64_t facts[facts_count] = {static_cast<std::uint64_t>(curve.k), static_cast<std::uint64_t>(curve.queries),
                                            std::uint64_t{curve.held_out}, static_cast<std::uint64_t>(curve.rows),
                                            static_cast<std::uint64_t>(curve.threads)};
  writer.add_section(curve_facts_section, Element::u64, 1, facts_count, facts);
  std::vector<double> values;
  for (const OperatingPoint& point : curve.points) {
    values.insert(values.end(), {static_cast<double>(point.nprobe), static_cast<double>(point.refine), point.recall.value, point.recall.low,
                                 point.recall.high, point.seconds});
  }
  writer.add_section(curve_points_section, Element::f64, curve.points.size(), columns, values.data());
}

void require_curve(const RecallCurve& curve) {
  require(curve.k >= 1 && curve.queries >= 0 && curve.rows >= 0 && curve.threads >= 0 && curve.points.size() <= most_points,
          Fault::invalid_argument, "a curve of recall is of k = ", curve.k, ", ", curve.queries, " queries, ", curve.rows, " rows, ",
          curve.threads, " threads and ", curve.points.size(), " points");
  for (std::size_t i = 0; i < curve.points.size(); ++i) {
    require(is_point(curve.points[i]), Fault::invalid_argument, "point ", i, " of the curve of recall is none");
    require(i == 0 || comes_after(curve.points[i], curve.points[i - 1]), Fault::invalid_argument, "point ", i,
            " of the curve of recall is no better than the one before, or no slower");
  }
}

std::optional<RecallCurve> curve_in(const Container& file) {
  if (!file.find_section(curve_facts_section)) return std::nullopt;
  const Section& head = file.section(curve_facts_section, Element::u64);
  require_at(head.rows == 1 && head.cols == facts_count, file.file(), head.offset, "section '", curve_facts_section, "' is ", head.rows,
             " x ", head.cols, ", expected 1 x ", +facts_count);
  verify(file, head);
  const auto facts = values_in<std::uint64_t>(file, curve_facts_section, Element::u64);
  for (const std::uint64_t fact : facts) require_at(fact <= most, file.file(), head.offset, "a curve of recall says ", fact);
  require_at(facts[k_fact] >= 1 && facts[held_out_fact] <= 1, file.file(), head.offset, "a curve of recall is of k = ", facts[k_fact],
             ", held out ", facts[held_out_fact]);
  RecallCurve curve;
  curve.k = static_cast<std::int64_t>(facts[k_fact]);
  curve.queries = static_cast<std::int64_t>(facts[queries_fact]);
  curve.held_out = facts[held_out_fact] == 1;
  curve.rows = static_cast<std::int64_t>(facts[rows_fact]);
  curve.threads = static_cast<int>(std::min<std::uint64_t>(facts[threads_fact], 1 << 20));

  const Section& section = file.section(curve_points_section, Element::f64);
  require_at(section.rows <= most_points && section.cols == columns, file.file(), section.offset, "section '", curve_points_section,
             "' is ", section.rows, " x ", section.cols, ", expected at most ", most_points, " x ", +columns);
  verify(file, section);
  const auto values = values_in<double>(file, curve_points_section, Element::f64);
  for (std::uint64_t i = 0; i < section.rows; ++i) {
    const auto at = values.subspan(i * columns, columns);
    OperatingPoint point;
    const bool counts = is_count(at[nprobe_column]) && is_count(at[refine_column]);  // which fit into integers then
    if (counts) {
      point.nprobe = static_cast<std::int64_t>(at[nprobe_column]);
      point.refine = static_cast<std::int64_t>(at[refine_column]);
    }
    point.recall = {curve.k, at[recall_column], at[low_column], at[high_column], curve.queries};
    point.seconds = at[seconds_column];
    require_at(counts && is_point(point), file.file(), section.offset + i * columns * sizeof(double), "point ", i,
               " of the curve of recall is none");
    require_at(curve.points.empty() || comes_after(point, curve.points.back()), file.file(), section.offset + i * columns * sizeof(double), "point ", i,
               " of the curve of recall is no better than the one before, or no slower");
    curve.points.push_back(point);
  }
  return curve;
}

}  // namespace gigaknn
