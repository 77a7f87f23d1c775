// The page from top to bottom: title, key figures, pictures, distributions, correctness, how it was
// computed.
#include "eval/report.hpp"

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "eval/report_parts.hpp"
#include "eval/report_text.hpp"
#include "io/output_file.hpp"

namespace gigaknn {
namespace {

std::string head_html(const ReportData& data) {
  return join_text("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
                   "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n",
                   "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
                   escape_html(data.title), "</title>\n<style>", report_style,
                   "</style>\n</head>\n");
}

std::string header_html(const ReportData& data) {
  std::string html = join_text("<header><p class=\"brand\">gigaknn report</p><h1>",
                               escape_html(data.title), "</h1>");
  if (data.summary) html += join_text("<p class=\"lede\">", escape_html(*data.summary), "</p>");
  return html + "</header>\n";
}

std::string footer_html(const ReportData& data) {
  std::string html = "<footer>";
  if (data.command)
    html += join_text("<p>Made by</p><pre><code>", escape_html(*data.command), "</code></pre>");
  return html + join_text("<p>gigaknn ", escape_html(version()), ", commit ", escape_html(commit()),
                          ". This file is complete in itself: it loads nothing and runs no "
                          "script.</p></footer>\n");
}

}  // namespace

std::string report_html(const ReportData& data) {
  return join_text(head_html(data), "<body>\n<main>\n", header_html(data), key_figures_html(data),
                   gallery_html(data), paths_html(data), distributions_html(data),
                   correctness_html(data), computation_html(data), footer_html(data),
                   "</main>\n</body>\n</html>\n");
}

void write_report(const ReportData& data, const std::filesystem::path& path) {
  const std::string html = report_html(data);
  OutputFile file(path);
  file.write(html.data(), html.size());
  file.finish();
}

}  // namespace gigaknn
