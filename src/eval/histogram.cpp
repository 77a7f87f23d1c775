#include "eval/histogram.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/require.hpp"
#include "eval/report_text.hpp"

namespace gigaknn {
namespace {

constexpr double bins_wanted = 32;

// The drawing in its own units; the page scales it to its column, 440 wide on a desk, 330 on a
// phone.
constexpr double chart_width = 440;
constexpr double chart_height = 236;
constexpr double left = 52;  // room for the numbers of the y axis
constexpr double right = 432;
constexpr double tick_letter = 7;  // at most, of a number of an axis
constexpr double top = 24;  // room for the name of the median
constexpr double bottom = 190;  // below it the numbers and the name of the x axis

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string line(double x1, double y1, double x2, double y2, const char* style) {
  return join_text("<line class=\"", style, "\" x1=\"", number(x1), "\" y1=\"", number(y1),
                   "\" x2=\"", number(x2), "\" y2=\"", number(y2), "\"/>");
}

std::string label(double x, double y, const char* style, const char* anchor,
                  const std::string& text) {
  return join_text("<text class=\"", style, "\" x=\"", number(x), "\" y=\"", number(y),
                   "\" text-anchor=\"", anchor, "\">", escape_html(text), "</text>");
}

// Where the values and the counts of one histogram lie in the drawing.
struct Scale {
  double low, high, most;

  double x(double value) const { return left + (value - low) / (high - low) * (right - left); }
  double y(double count) const { return bottom - count / most * (bottom - top); }
};

std::string bar(const Scale& scale, double from, double to, std::int64_t count, const char* style) {
  if (count == 0) return "";
  const double x = scale.x(from);
  const double gap = std::min(1.0, 0.1 * (scale.x(to) - x));
  const double height =
      std::max(0.8, bottom - scale.y(static_cast<double>(count)));  // one value stays visible
  return join_text("<rect class=\"", style, "\" x=\"", number(x), "\" y=\"",
                   number(bottom - height), "\" width=\"", number(scale.x(to) - x - gap),
                   "\" height=\"", number(height), "\"/>");
}

// `room` is where the last number of the x axis must end.
std::string draw_axes(const Scale& scale, double last_tick, double room, const ChartText& text) {
  std::string svg;
  for (const double tick : round_ticks(0, scale.most, 4)) {
    if (tick > 0) svg += line(left, scale.y(tick), right, scale.y(tick), "grid");
    svg += label(left - 7, scale.y(tick) + 4, "tick", "end", format_tick(tick));
  }
  double free = 0;  // from where a number has room
  for (const double tick : round_ticks(scale.low, last_tick, 5)) {
    const std::string text_of_tick = format_tick(tick);
    const double half = tick_letter / 2 * static_cast<double>(text_of_tick.size());
    if (scale.x(tick) > room) continue;
    svg += line(scale.x(tick), bottom, scale.x(tick), bottom + 4, "axis");
    if (scale.x(tick) - half < free || (room < right && scale.x(tick) + half > room + 20)) continue;
    svg += label(scale.x(tick), bottom + 18, "tick", "middle", text_of_tick);
    free = scale.x(tick) + half + tick_letter;
  }
  svg += line(left, bottom, right, bottom, "axis");
  svg += label((left + right) / 2, chart_height - 6, "name", "middle", text.x_label);
  return svg + label(0, 12, "name", "start", text.y_label);
}

// Sets where bins begin and how wide they are, so that they reach `high`; returns their number.
double choose_bins(Histogram& histogram, double high, bool whole_numbers) {
  const double span = high - histogram.smallest;
  if (whole_numbers || span == 0) {
    histogram.low = histogram.smallest - 0.5;
    histogram.width = std::ceil((span + 1) / bins_wanted);
    return std::ceil((span + 1) / histogram.width);
  }
  histogram.low = histogram.smallest;
  histogram.width = span / bins_wanted;
  return bins_wanted;
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  const double rough = (high - low) / std::max(1, count);
  if (!(rough > 0)) return {low};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (const double factor : {2.0, 5.0, 10.0}) {
    if (step < rough * 0.8) step = factor * power;
  }
  std::vector<double> ticks;
  for (double i = std::ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; ++i) {
    ticks.push_back(i * step + 0.0);  // a zero without a sign
  }
  return ticks;
}

Histogram count_values(std::vector<double> values, bool whole_numbers) {
  Histogram histogram;
  const auto finite_end = std::partition(values.begin(), values.end(),
                                         [](double value) { return std::isfinite(value); });
  histogram.left_out = values.end() - finite_end;
  values.erase(finite_end, values.end());
  if (values.empty()) return histogram;
  std::sort(values.begin(), values.end());
  histogram.smallest = values.front();
  histogram.median = values[(values.size() - 1) / 2];
  histogram.largest = values.back();
  double high =
      values[static_cast<std::size_t>(std::ceil(0.995 * static_cast<double>(values.size() - 1)))];
  // A tail no longer than a few bins is shown as it is.
  if (histogram.largest - histogram.smallest <= 1.2 * (high - histogram.smallest))
    high = histogram.largest;
  const double bins = choose_bins(histogram, high, whole_numbers);
  histogram.counts.assign(static_cast<std::size_t>(bins), 0);
  for (const double value : values) {
    if (value > high) {
      ++histogram.beyond;
    } else {  // `high` itself belongs to the last bin
      ++histogram.counts[static_cast<std::size_t>(
          std::min((value - histogram.low) / histogram.width, bins - 1))];
    }
  }
  return histogram;
}

std::string draw_histogram(const Histogram& histogram, const ChartText& text) {
  const auto bins = static_cast<double>(histogram.counts.size());
  const double end = histogram.low + bins * histogram.width;
  const std::int64_t most = *std::max_element(histogram.counts.begin(), histogram.counts.end());
  // The bar of what lies beyond stands one bin apart, two bins wide.
  const double high = histogram.beyond > 0 ? end + 3 * histogram.width : end;
  const Scale scale{histogram.low, high,
                    1.05 * static_cast<double>(std::max(most, histogram.beyond))};
  std::string svg =
      join_text("<svg class=\"chart\" viewBox=\"0 0 ", chart_width, " ", chart_height,
                "\" role=\"img\" aria-label=\"", escape_html(text.description), "\">");
  const double beyond_label = (scale.x(end + histogram.width) + scale.x(high)) / 2;
  svg += draw_axes(scale, end, histogram.beyond > 0 ? beyond_label - 34 : right, text);
  for (std::size_t bin = 0; bin < histogram.counts.size(); ++bin) {
    const double from = histogram.low + static_cast<double>(bin) * histogram.width;
    svg += bar(scale, from, from + histogram.width, histogram.counts[bin], "bar");
  }
  if (histogram.beyond > 0) {
    svg += bar(scale, end + histogram.width, high, histogram.beyond, "bar beyond");
    svg += label(beyond_label, bottom + 18, "tick", "middle", "more");
  }
  const double median = scale.x(histogram.median);
  svg += line(median, top, median, bottom, "median");
  const bool right_half = median > (left + right) / 2;
  svg += label(median + (right_half ? -6 : 6), top + 8, "mark", right_half ? "end" : "start",
               join_text("median ", format_value(histogram.median)));
  return svg + "</svg>";
}

}  // namespace gigaknn
