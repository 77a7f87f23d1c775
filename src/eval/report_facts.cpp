// Numbers in words: the key figures, correctness, and how it was computed.
#include <algorithm>
#include <utility>
#include <vector>

#include "core/require.hpp"
#include "eval/report_parts.hpp"
#include "eval/report_text.hpp"

namespace gigaknn {
namespace {

struct Figure {
  std::string name;
  std::string value;
  std::string note;
};

std::string interval_text(const Recall& recall) {
  return join_text(format_percent(recall.low), " and ", format_percent(recall.high));
}

bool is_sampled(const Recall& recall) {
  return recall.low != recall.high;
}

Figure recall_figure(const ReportData& data) {
  if (data.method && data.method->exact)
    return {"Recall", format_percent(1), "exact: proven, not sampled"};
  const Recall& recall = *data.recall;
  return {join_text("Recall at ", format_count(recall.at)), format_percent(recall.value),
          is_sampled(recall)
              ? join_text("between ", interval_text(recall), ", with 95 % confidence")
              : join_text("of all ", format_count(recall.sampled), " rows")};
}

// Lists of neighbours computed, whether of queries or of the base itself.
std::int64_t lists_of(const ReportInput& input) {
  return input.queries.value_or(input.rows);
}

std::vector<Figure> key_figures(const ReportData& data) {
  std::vector<Figure> figures;
  if (data.recall || (data.method && data.method->exact)) figures.push_back(recall_figure(data));
  if (data.seconds && data.seconds->compute) {
    const double seconds = *data.seconds->compute + data.seconds->prepare.value_or(0);
    figures.push_back({"Time", format_seconds(seconds), "to prepare and compute"});
    if (data.input && seconds > 0) {
      const double rate = static_cast<double>(lists_of(*data.input)) / seconds;
      figures.push_back({"Speed", format_value(rate) + "/s", "rows answered"});
    }
  }
  if (data.memory)
    figures.push_back({"Memory", format_bytes(data.memory->peak_bytes), "at its peak"});
  if (data.verification) {
    const Verification& found = *data.verification;
    figures.push_back(
        {"Verified", format_count(found.entries - found.different),
         join_text("of ", format_count(found.entries), " neighbours agree to the bit")});
  }
  return figures;
}

using Facts = std::vector<std::pair<std::string, std::string>>;

Facts facts_of(const ReportData& data) {
  Facts facts;
  if (data.input) {
    const ReportInput& input = *data.input;
    facts.emplace_back("Data", input.base_name);
    facts.emplace_back("Rows", join_text(format_count(input.rows), ", each of ",
                                         format_count(input.cols), " ", name_of(input.dtype)));
    if (input.queries) {
      facts.emplace_back("Queries",
                         join_text(format_count(*input.queries), input.queries_name ? " from " : "",
                                   input.queries_name.value_or("")));
    }
  }
  if (data.method) {
    const ReportMethod& method = *data.method;
    facts.emplace_back("Task", method.task);
    facts.emplace_back("Metric", std::string(name_of(method.metric)));
    facts.emplace_back("Method", method.name);
    if (!method.detail.empty()) facts.emplace_back("Preparation", method.detail);
    facts.emplace_back("Device",
                       join_text(method.device, method.isa.empty() ? "" : ", ", method.isa, ", ",
                                 method.threads, method.threads == 1 ? " thread" : " threads"));
    facts.emplace_back("Seed", std::to_string(method.seed));
  }
  if (data.memory) {
    std::string text = join_text(format_bytes(data.memory->peak_bytes), " at its peak");
    if (data.memory->planned_bytes)
      text += join_text(", ", format_bytes(*data.memory->planned_bytes), " planned");
    facts.emplace_back("Memory", text);
  }
  return facts;
}

std::string time_table(const ReportSeconds& seconds) {
  const std::pair<const char*, std::optional<double>> stages[] = {{"Load", seconds.load},
                                                                  {"Prepare", seconds.prepare},
                                                                  {"Compute", seconds.compute},
                                                                  {"Evaluate", seconds.evaluate}};
  double longest = 1e-9;
  for (const auto& [name, time] : stages) longest = std::max(longest, time.value_or(0));
  std::string html = "<table class=\"time\"><caption>Wall-clock time</caption><tbody>";
  for (const auto& [name, time] : stages) {
    if (!time) continue;
    html +=
        join_text("<tr><th scope=\"row\">", name, "</th><td class=\"length\"><span style=\"width:",
                  static_cast<int>(100 * *time / longest + 0.5), "%\"></span></td><td>",
                  format_seconds(*time), "</td></tr>");
  }
  return html + join_text("<tr class=\"total\"><th scope=\"row\">Total</th><td></td><td>",
                          format_seconds(seconds.total), "</td></tr></tbody></table>");
}

std::string recall_sentence(const Recall& recall, bool exact) {
  const std::string value = escape_html(format_percent(recall.value));
  std::string html = join_text("<p>Recall at ", format_count(recall.at), " is <b>", value,
                               "</b>: the share of the true ", format_count(recall.at),
                               " nearest that the lists hold. ");
  if (!is_sampled(recall)) {
    html += join_text("All ", format_count(recall.sampled), " rows were looked at.");
  } else {
    html += join_text("It was measured on ", format_count(recall.sampled), " rows drawn at random",
                      exact ? "."
                            : join_text("; with 95 % confidence the recall of all rows is between ",
                                        escape_html(interval_text(recall)), "."));
  }
  return html + "</p>";
}

std::string verification_sentence(const Verification& found) {
  std::string html = join_text(
      "<p>", format_count(found.rows), " rows drawn at random were searched again by a plain ",
      "linear scan in 64-bit arithmetic that shares no code with the engine. ");
  if (found.different == 0) {
    html += join_text("<b>All ", format_count(found.entries),
                      " neighbours agree</b>, ids and distances to the last bit.");
  } else {
    html += join_text("<b class=\"bad\">", format_count(found.different), " of ",
                      format_count(found.entries), " neighbours differ</b> in id or distance.");
  }
  return html + "</p>";
}

}  // namespace

std::string key_figures_html(const ReportData& data) {
  const std::vector<Figure> figures = key_figures(data);
  if (figures.empty()) return "";
  std::string html = "<dl class=\"figures\">";
  for (const Figure& figure : figures) {
    html += join_text("<div><dt>", escape_html(figure.name), "</dt><dd class=\"value\">",
                      escape_html(figure.value), "</dd><dd class=\"small\">",
                      escape_html(figure.note), "</dd></div>");
  }
  return html + "</dl>\n";
}

std::string correctness_html(const ReportData& data) {
  if (!data.recall && !data.verification) return "";
  const bool exact = data.method && data.method->exact;
  std::string html = "<section><h2>Correctness</h2>";
  if (exact)
    html +=
        "<p>The method is exact: a pair of rows is passed over only where a bound proves that it "
        "is too far.</p>";
  if (data.recall) html += recall_sentence(*data.recall, exact);
  if (data.verification) html += verification_sentence(*data.verification);
  return html + "</section>\n";
}

std::string computation_html(const ReportData& data) {
  const Facts facts = facts_of(data);
  if (facts.empty() && !data.seconds) return "";
  std::string html = "<section><h2>How it was computed</h2><div class=\"columns\">";
  if (!facts.empty()) {
    html += "<dl class=\"facts\">";
    for (const auto& [name, value] : facts) {
      html += join_text("<dt>", escape_html(name), "</dt><dd>", breakable_html(value), "</dd>");
    }
    html += "</dl>";
  }
  if (data.seconds) html += time_table(*data.seconds);
  return html + "</div></section>\n";
}

}  // namespace gigaknn
