#include "eval/report.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <gigaknn/error.hpp>

namespace gigaknn {
namespace {

bool has(const std::string& html, const std::string& part) {
  return html.find(part) != std::string::npos;
}

std::size_t times(const std::string& html, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = html.find(part); at != std::string::npos; at = html.find(part, at + 1))
    ++count;
  return count;
}

// Six rows of 2x2 pixels on a line, each with its two nearest.
class Report : public testing::Test {
 protected:
  Report() : base_(6, 4, DType::u8), lists_(6, 2) {
    for (std::int64_t i = 0; i < 24; ++i)
      base_.row<std::uint8_t>(0)[i] = static_cast<std::uint8_t>(i / 4 * 40);
    for (std::int64_t row = 0; row < 6; ++row) {
      lists_.ids[row * 2] = RowId{row == 0 ? 2 : row - 1};
      lists_.ids[row * 2 + 1] = RowId{row == 5 ? 3 : row + 1};
      lists_.distances[row * 2] = 1600;
      lists_.distances[row * 2 + 1] = 6400;
    }
    data_.title = "A <title>";
  }

  void add_gallery() {
    data_.base = base_;
    ReportGallery gallery;
    gallery.queries = base_;
    gallery.lists = &lists_;
    gallery.shown = {0, 3};
    data_.gallery = gallery;
  }
  void add_labels() {
    data_.base_labels = {"a", "a", "b", "b", "c/d", "<c>"};
    data_.gallery->query_labels = data_.base_labels;
  }
  void add_path() {
    Path path;
    path.rows = {RowId{0}, RowId{2}, RowId{3}};
    path.steps = {1600, 6400};
    path.largest_step = 6400;
    data_.paths = {path};
  }

  Matrix base_;
  Neighbors lists_;
  ReportData data_;
};

TEST_F(Report, of_a_title_alone_has_no_sections) {
  const std::string html = report_html(data_);
  EXPECT_TRUE(has(html, "<h1>A &lt;title&gt;</h1>"));
  EXPECT_FALSE(has(html, "<section"));
  EXPECT_FALSE(has(html, "<dl"));
  EXPECT_TRUE(has(html, "</html>"));
}

TEST_F(Report, tells_queries_from_rows) {
  add_gallery();
  EXPECT_TRUE(has(report_html(data_), " rows, each with its 2 neighbours"));
  EXPECT_TRUE(has(report_html(data_), "Row 3"));
  const Matrix queries(base_.rows(), base_.cols(), base_.dtype());
  data_.gallery->queries = queries;
  EXPECT_TRUE(has(report_html(data_), " queries, each with its 2 neighbours"));
  EXPECT_TRUE(has(report_html(data_), "Query 3"));
  EXPECT_FALSE(has(report_html(data_), "Row 3"));
}

TEST_F(Report, loads_nothing_and_runs_nothing) {
  add_gallery();
  add_labels();
  add_path();
  data_.image = ImageLayout{2, 2};
  const std::string html = report_html(data_);
  for (const char* part :
       {"<script", "<link", "http:", "https:", "@import", "url(", "onload", "src=\"/"}) {
    EXPECT_FALSE(has(html, part)) << part;
  }
}

TEST_F(Report, escapes_every_text_from_outside) {
  add_gallery();
  const std::string evil = "<img src=x onerror=alert(1)>\"'&";
  data_.title = evil;
  data_.summary = evil;
  data_.command = evil;
  data_.input = ReportInput{evil, 6, 4, DType::u8, evil, 3};
  data_.method = ReportMethod{evil, Metric::l2, 2, evil, false, evil, evil, evil, 2, 1};
  data_.base_labels.assign(6, evil);
  data_.gallery->query_labels.assign(6, evil + "!");
  add_path();
  for (const bool pictures : {false, true}) {
    if (pictures) data_.image = ImageLayout{2, 2};
    EXPECT_FALSE(has(report_html(data_), "<img src=x"));
  }
}

TEST_F(Report, shows_pictures_where_rows_are_images) {
  add_gallery();
  data_.image = ImageLayout{2, 2};
  const std::string html = report_html(data_);
  EXPECT_EQ(times(html, "<img class=\"coarse\" src=\"data:image/png;base64,"), 6u);
  EXPECT_EQ(times(html, "<article class=\"query\">"), 2u);
  EXPECT_TRUE(has(html, "alt=\"query 3\""));
  EXPECT_TRUE(has(html, "alt=\"row 2\""));
  EXPECT_TRUE(has(html, "2 of 6 rows, each with its 2 neighbours"));
}

TEST_F(Report, shows_results_that_are_ids_alone) {
  lists_.distances.clear();
  add_gallery();
  for (const bool pictures : {false, true}) {
    if (pictures) data_.image = ImageLayout{2, 2};
    const std::string html = report_html(data_);
    EXPECT_TRUE(has(html, "2 of 6 rows, each with its 2 neighbours"));
    EXPECT_FALSE(has(html, "distance")) << html;
    EXPECT_FALSE(has(html, "1600"));
  }
}

TEST_F(Report, names_neighbours_of_another_label_only) {
  add_gallery();
  add_labels();
  data_.image = ImageLayout{2, 2};
  const std::string html = report_html(data_);
  EXPECT_EQ(times(html, "<i>"), 2u);  // row 0 "a" finds row 2 "b"; row 3 "b" finds row 4 "c/d"
  EXPECT_TRUE(has(html, "<i>c/<wbr>d</i>"));
}

TEST_F(Report, shows_tables_where_rows_are_no_images) {
  add_gallery();
  lists_.ids[1] = no_row;
  const std::string html = report_html(data_);
  EXPECT_FALSE(has(html, "<img"));
  EXPECT_EQ(times(html, "<caption>Row "), 2u);
  EXPECT_EQ(times(html, "<td>1600</td>"), 2u);
  EXPECT_EQ(times(html, "<td>6400</td>"), 1u);
}

TEST_F(Report, shows_no_more_neighbours_than_asked) {
  add_gallery();
  data_.gallery->neighbours_shown = 1;
  const std::string html = report_html(data_);
  EXPECT_FALSE(has(html, "<td>6400</td>"));
  EXPECT_TRUE(has(html, "each with its first 1 neighbours"));
}

TEST_F(Report, calls_inner_products_by_their_name) {
  add_gallery();
  data_.method = ReportMethod{};
  data_.method->metric = Metric::inner_product;
  EXPECT_TRUE(has(report_html(data_), "stands its inner product"));
  EXPECT_TRUE(has(report_html(data_), "<th>product</th>"));
}

TEST_F(Report, marks_the_largest_step_of_a_path) {
  add_path();
  const std::string html = report_html(data_);
  EXPECT_TRUE(has(html, "Row 0 to row 3"));
  EXPECT_TRUE(has(html, "<span class=\"step\">1600</span>"));
  EXPECT_TRUE(has(html, "<span class=\"step largest\">6400</span>"));
  EXPECT_TRUE(has(html, "2 steps, the largest 6400"));
  EXPECT_EQ(times(html, "class=\"frame\""), 3u);
}

TEST_F(Report, says_where_there_is_no_path) {
  data_.paths = {Path{}};
  EXPECT_TRUE(has(report_html(data_), "No path"));
}

TEST_F(Report, tells_a_sampled_recall_with_its_interval) {
  data_.recall = Recall{10, 0.98765, 0.981, 0.992, 400};
  const std::string html = report_html(data_);
  EXPECT_TRUE(has(html, "98.76\u202F%"));
  EXPECT_TRUE(has(html, "between 98.1\u202F% and 99.2\u202F%"));
  EXPECT_TRUE(has(html, "400 rows drawn at random"));
}

TEST_F(Report, tells_exactness_as_proven) {
  data_.method = ReportMethod{};
  data_.method->exact = true;
  data_.recall = Recall{10, 1, 0.99, 1, 400};
  const std::string html = report_html(data_);
  EXPECT_TRUE(has(html, "exact: proven, not sampled"));
  EXPECT_TRUE(has(html, "The method is exact"));
  EXPECT_FALSE(has(html, "confidence"));
}

TEST_F(Report, tells_what_verification_found) {
  data_.verification = Verification{100, 1000, 0};
  EXPECT_TRUE(has(report_html(data_), "All 1,000 neighbours agree"));
  data_.verification->different = 3;
  EXPECT_TRUE(has(report_html(data_), "3 of 1,000 neighbours differ"));
}

TEST_F(Report, draws_both_distributions_and_counts_components) {
  data_.kth_distances = std::vector<float>{1, 2, 3, 4};
  data_.shape = GraphShape{2, 3, {0, 1, 2, 5}};
  std::string html = report_html(data_);
  EXPECT_EQ(times(html, "<svg"), 2u);
  EXPECT_TRUE(has(html, "2 connected components"));
  EXPECT_TRUE(has(html, "the largest has 3 of 4 rows (75\u202F%)"));
  EXPECT_TRUE(has(html, "1 row is nobody’s neighbour"));
  data_.shape->components = 1;
  EXPECT_TRUE(has(report_html(data_), "The graph is <b>connected</b>"));
  data_.kth_distances = std::vector<float>{};
  EXPECT_EQ(times(report_html(data_), "<svg"), 1u);
}

TEST_F(Report, shows_data_method_time_and_memory) {
  data_.input = ReportInput{"base.fbin", 60000, 784, DType::u8, "queries.fbin", 10000};
  data_.method =
      ReportMethod{"10 nearest rows", Metric::l2, 10, "exact", true, "cpu", "avx2", "int8", 2, 7};
  data_.seconds = ReportSeconds{0.5, 1.0, 4.0, {}, 5.6};
  data_.memory = ReportMemory{std::uint64_t{1} << 30, 512u << 20};
  const std::string html = report_html(data_);
  for (const char* part :
       {"base.fbin", "60,000, each of 784 u8", "10,000 from queries.fbin", "10 nearest rows",
        "cpu, avx2, 2 threads", "int8", "5.00\u202Fs", "2000/s", "512\u202FMiB at its peak",
        "1.0\u202FGiB planned", "5.60\u202Fs", "width:100%"}) {
    EXPECT_TRUE(has(html, part)) << part;
  }
  EXPECT_FALSE(has(html, "Evaluate"));
}

TEST_F(Report, refuses_images_that_do_not_fit) {
  add_gallery();
  data_.image = ImageLayout{3, 3};
  try {
    report_html(data_);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::invalid_argument);
    EXPECT_STREQ(error.what(), "images of 3x3 have 9 columns, or 27 in colour; the data has 4");
  }
}

TEST_F(Report, is_written_whole_or_not_at_all) {
  const auto path = std::filesystem::path(testing::TempDir()) / "gigaknn_report_test.html";
  write_report(data_, path);
  std::ifstream file(path, std::ios::binary);
  const std::string written{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(written, report_html(data_));
  std::filesystem::remove(path);
  const auto nowhere =
      std::filesystem::path(testing::TempDir()) / "gigaknn_no_such_folder" / "report.html";
  try {
    write_report(data_, nowhere);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::io);
  }
  EXPECT_FALSE(std::filesystem::exists(nowhere));
}

}  // namespace
}  // namespace gigaknn
