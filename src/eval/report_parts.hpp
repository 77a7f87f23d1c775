// The parts of a report's page, each one function from data to HTML; an empty text where there is
// no data.
#pragma once

#include <string>

#include "eval/report.hpp"

namespace gigaknn {

/// The style sheet of the page.
extern const char* const report_style;

/// Four or five numbers that sum it all up.
std::string key_figures_html(const ReportData& data);
/// Queries with their neighbours: pictures, or tables.
std::string gallery_html(const ReportData& data);
/// Paths as film strips.
std::string paths_html(const ReportData& data);
/// Histograms of k-th distance and in-degree, connected components.
std::string distributions_html(const ReportData& data);
/// Recall and verification in words.
std::string correctness_html(const ReportData& data);
/// Data, method, time and memory.
std::string computation_html(const ReportData& data);

}  // namespace gigaknn
