// What was found, as pictures where rows are images, else as ids and distances.
#include <algorithm>
#include <optional>

#include "core/neighbor.hpp"
#include "core/require.hpp"
#include "eval/report_parts.hpp"
#include "eval/report_text.hpp"

namespace gigaknn {
namespace {

std::string label_at(const std::vector<std::string>& labels, std::int64_t row) {
  return row >= 0 && row < static_cast<std::int64_t>(labels.size()) ? labels[row] : "";
}

std::optional<ImageMaker> image_maker(const ReportData& data,
                                      const std::optional<MatrixRef>& rows) {
  if (!data.image || !rows) return std::nullopt;
  return ImageMaker(*rows, *data.image);
}

std::string picture(const ImageMaker& maker, std::int64_t row, const std::string& words) {
  const char* style = maker.is_coarse() ? "<img class=\"coarse\" src=\"" : "<img src=\"";
  return join_text(style, maker.url_of(row), "\" alt=\"", escape_html(words), "\" title=\"",
                   escape_html(words), "\">");
}

// "row 17" or "row 17, Sneaker"
std::string words_for(const char* what, std::int64_t row, const std::string& label) {
  return join_text(what, " ", format_count(row), label.empty() ? "" : ", ", label);
}

class Gallery {
 public:
  explicit Gallery(const ReportData& data)
      : data_(data),
        gallery_(*data.gallery),
        lists_(*data.gallery->lists),
        base_images_(image_maker(data, data.base)),
        query_images_(image_maker(data, gallery_.queries)) {}

  std::string html() const {
    const bool pictures = base_images_ && query_images_;
    std::string html = join_text("<section><h2>Neighbours</h2><p class=\"note\">",
                                 escape_html(explanation(pictures)), "</p><div class=\"",
                                 pictures ? "gallery" : "tables", "\">");
    for (const std::int64_t query : gallery_.shown)
      html += pictures ? picture_row(query) : table(query);
    return html + "</div></section>\n";
  }

 private:
  std::string explanation(bool pictures) const {
    const bool labelled = !gallery_.query_labels.empty() && !data_.base_labels.empty();
    const bool cut = gallery_.neighbours_shown < lists_.k;
    const char* nearer =
        data_.method && larger_is_nearer(data_.method->metric) ? "inner product" : "distance";
    std::string text =
        join_text(format_count(static_cast<std::int64_t>(gallery_.shown.size())), " of ",
                  format_count(lists_.queries), of_base() ? " rows" : " queries", ", each with its ", cut ? "first " : "",
                  format_count(std::min(gallery_.neighbours_shown, lists_.k)),
                  " neighbours, nearest first.");
    if (has_distances()) {
      text += join_text(pictures ? " The number under a picture is its " : " Beside each neighbour stands its ", nearer, ".");
    }
    if (!pictures) return text;
    if (labelled) text += " A name under a neighbour marks one whose label is not the query’s.";
    return text;
  }

  // Calls visit(position in lists, row of the base) for each neighbour that is shown.
  template <class Visit>
  void visit_neighbours(std::int64_t query, const Visit& visit) const {
    const std::int64_t count = std::min(lists_.k, gallery_.neighbours_shown);
    for (std::int64_t i = query * lists_.k; i < query * lists_.k + count; ++i) {
      if (lists_.ids[i] != no_row) visit(i, value_of(lists_.ids[i]));
    }
  }

  // Rows whose own neighbours are shown; else queries, which are numbered by themselves.
  bool of_base() const { return data_.base && gallery_.queries.data == data_.base->data; }

  // Results may be ids alone.
  bool has_distances() const { return !lists_.distances.empty(); }

  std::string picture_row(std::int64_t query) const {
    const std::string label = label_at(gallery_.query_labels, query);
    std::string html =
        join_text("<article class=\"query\"><figure class=\"asked\">",
                  picture(*query_images_, query, words_for("query", query, label)), "<figcaption>");
    if (!label.empty()) html += join_text("<b>", breakable_html(label), "</b><br>");
    html += join_text(of_base() ? "row " : "query ", format_count(query), "</figcaption></figure><div class=\"found\">");
    visit_neighbours(query, [&](std::int64_t position, std::int64_t row) {
      const std::string other = label_at(data_.base_labels, row);
      html += join_text("<figure>", picture(*base_images_, row, words_for("row", row, other)),
                        "<figcaption>", has_distances() ? format_value(lists_.distances[position]) : "");
      if (!other.empty() && !label.empty() && other != label) {
        html += join_text("<br><i>", breakable_html(other), "</i>");
      }
      html += "</figcaption></figure>";
    });
    return html + "</div></article>";
  }

  std::string table(std::int64_t query) const {
    const std::string label = label_at(gallery_.query_labels, query);
    const bool labelled = !data_.base_labels.empty();
    const char* value =
        data_.method && larger_is_nearer(data_.method->metric) ? "product" : "distance";
    std::string html = join_text("<table><caption>", escape_html(words_for(of_base() ? "Row" : "Query", query, label)),
                                 "</caption><thead><tr><th>row</th>",
                                 labelled ? "<th class=\"words\">label</th>" : "",
                                 has_distances() ? join_text("<th>", value, "</th>") : "",
                                 "</tr></thead><tbody>");
    visit_neighbours(query, [&](std::int64_t position, std::int64_t row) {
      html += join_text("<tr><td>", format_count(row), "</td>");
      if (labelled) {
        html += join_text("<td class=\"words\">", breakable_html(label_at(data_.base_labels, row)),
                          "</td>");
      }
      if (has_distances()) html += join_text("<td>", format_value(lists_.distances[position]), "</td>");
      html += "</tr>";
    });
    return html + "</tbody></table>";
  }

  const ReportData& data_;
  const ReportGallery& gallery_;
  const Neighbors& lists_;
  std::optional<ImageMaker> base_images_;
  std::optional<ImageMaker> query_images_;
};

std::string figure_html(const ReportData& data, const std::optional<ImageMaker>& images,
                        std::int64_t row) {
  const std::string label = label_at(data.base_labels, row);
  std::string html = "<figure>";
  if (images) html += picture(*images, row, words_for("row", row, label));
  html += join_text("<figcaption>", format_count(row));
  if (!label.empty()) html += join_text("<br>", breakable_html(label));
  return html + "</figcaption></figure>";
}

// Each row with the arrow to the next one. The first of equally large steps is the one that is
// marked.
std::string strip(const ReportData& data, const std::optional<ImageMaker>& images,
                  const Path& path) {
  const auto largest = std::max_element(path.steps.begin(), path.steps.end(), [](float a, float b) {
    return sortable_bits(a) < sortable_bits(b);
  });
  std::string html = images ? "<div class=\"strip\">" : "<div class=\"strip words-only\">";
  for (std::size_t i = 0; i < path.rows.size(); ++i) {
    html += join_text("<div class=\"frame\">", figure_html(data, images, value_of(path.rows[i])));
    if (i < path.steps.size()) {
      const bool marked = path.steps.begin() + static_cast<std::ptrdiff_t>(i) == largest;
      html += join_text("<span class=\"step", marked ? " largest" : "", "\">",
                        format_value(path.steps[i]), "</span>");
    }
    html += "</div>";
  }
  return html + "</div>";
}

}  // namespace

std::string gallery_html(const ReportData& data) {
  if (!data.gallery || data.gallery->shown.empty()) return "";
  return Gallery(data).html();
}

std::string paths_html(const ReportData& data) {
  if (data.paths.empty()) return "";
  const std::optional<ImageMaker> images = image_maker(data, data.base);
  std::string html =
      "<section><h2>Smooth paths</h2><p class=\"note\">From the first row to the last along the "
      "graph, so that "
      "the largest step is as small as it can be. Numbers on the arrows are distances; the largest "
      "step is "
      "<span class=\"key\">marked</span>.</p>";
  for (const Path& path : data.paths) {
    if (path.rows.empty()) {
      html += "<p>No path: the two rows lie in different components of the graph.</p>";
      continue;
    }
    html += join_text(
        "<article class=\"path\"><h3>Row ", format_count(value_of(path.rows.front())), " to row ",
        format_count(value_of(path.rows.back())), "</h3><p class=\"note\">",
        format_count(static_cast<std::int64_t>(path.steps.size())),
        path.steps.size() == 1 ? " step" : " steps", ", the largest ",
        format_value(path.largest_step), ".</p>", strip(data, images, path), "</article>");
  }
  return html + "</section>\n";
}

}  // namespace gigaknn
