// Curves of recall, and indexes chosen by them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include <gigaknn/eval.hpp>
#include <gigaknn/faiss.hpp>
#include <gigaknn/tune.hpp>

#include "core/random.hpp"
#include "index/curve_sections.hpp"
#include "io/container.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

constexpr std::int64_t d = 16;

// Normally distributed: what overlaps most, and so the most that a centroid can be drawn to a row.
Matrix make_normal(std::int64_t n, std::uint64_t seed) {
  Matrix rows(n, d, DType::f32);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < d; ++j) {
      double sum = -6;
      for (std::uint64_t part = 0; part < 12; ++part) {
        sum += random_unit(seed + part, static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(j));
      }
      rows.row<float>(i)[j] = static_cast<float>(sum);
    }
  }
  return rows;
}

OperatingPoint make_point(std::int64_t nprobe, std::int64_t refine, double recall, double seconds) {
  return {nprobe, refine, {10, recall, recall - 0.01, recall + 0.01, 100}, seconds};
}

RecallCurve make_curve() {
  RecallCurve curve;
  curve.points = {make_point(1, 1, 0.25, 1), make_point(11, 1, 0.75, 2), make_point(11, 3, 0.8125, 3), make_point(15, 3, 0.9375, 5)};
  return curve;
}

class Tune : public FileTest {
 protected:
  Tune() : base_(make_normal(2000, 1)), queries_(make_normal(250, 99)) {}

  std::filesystem::path build(const std::string& recipe, std::int64_t held_out, const std::string& name = "x.gknn") const {
    IndexParams params;
    params.recipe = recipe;
    params.held_out = held_out;
    build_index(base_, file(name), params);
    return file(name);
  }

  Matrix base_;
  Matrix queries_;
};

double recall_with(const Index& index, const Matrix& queries, const OperatingPoint& point, const IdSet* only = nullptr) {
  const Neighbors truth = index.search_all(queries, 10, only);
  return recall_at(index.search(queries, 10, {.nprobe = point.nprobe, .refine = point.refine, .only = only}), truth, 10, index.metric())
      .value;
}

TEST(RecallCurve, gives_the_least_that_reaches_a_recall) {
  const RecallCurve curve = make_curve();
  EXPECT_EQ(curve.point_for(0.1)->nprobe, 1);
  EXPECT_EQ(curve.point_for(0.25)->nprobe, 1);
  EXPECT_EQ(curve.point_for(0.75)->nprobe, 11);
  EXPECT_EQ(curve.point_for(0.75)->refine, 1);
  EXPECT_EQ(curve.point_for(0.9375)->seconds, 5);
  EXPECT_FALSE(curve.point_for(0.938));
  EXPECT_FALSE(RecallCurve().point_for(0.1));
}

TEST(RecallCurve, of_fewer_neighbours_as_many_candidates_are_compared) {
  RecallCurve curve = make_curve();
  curve.k = 10;
  EXPECT_EQ(curve.point_for(0.8, 10)->refine, 3);
  EXPECT_EQ(curve.point_for(0.8, 9)->refine, 4);
  EXPECT_EQ(curve.point_for(0.8, 1)->refine, 30);
  EXPECT_EQ(curve.point_for(0.8, 1)->nprobe, curve.point_for(0.8)->nprobe);
  EXPECT_FALSE(curve.point_for(0.938, 1));
  expect_error(Fault::invalid_argument, [&] { curve.point_for(0.8, 11); }, "of 1 to 10 neighbours, not of 11");
}

TEST(RecallCurve, goes_straight_between_points_that_differ_in_lists_alone) {
  const RecallCurve curve = make_curve();
  const auto half = curve.point_for(0.5);  // halfway from 1 to 11
  EXPECT_EQ(half->nprobe, 6);
  EXPECT_NEAR(half->recall.value, 0.5, 1e-12);
  EXPECT_NEAR(half->recall.low, 0.49, 1e-12);
  EXPECT_NEAR(half->seconds, 1.5, 1e-12);
  const auto above = curve.point_for(0.501);  // a whole list more, and what that finds
  EXPECT_EQ(above->nprobe, 7);
  EXPECT_NEAR(above->recall.value, 0.55, 1e-12);
  EXPECT_EQ(curve.point_for(0.8)->refine, 3);  // (11, 3): no point before it has its refine
  EXPECT_EQ(curve.point_for(0.8)->nprobe, 11);
  EXPECT_EQ(curve.point_for(0.84375)->nprobe, 12);
}

// Whose cosine distances are far below what 1 - cos has in float32.
TEST_F(Tune, points_of_rows_far_from_the_origin_are_not_all_one) {
  for (const Metric metric : {Metric::cosine, Metric::l2, Metric::inner_product}) {
    Matrix base = make_normal(4000, 3), queries = make_normal(100, 5);
    for (Matrix* const rows : {&base, &queries}) {
      for (std::int64_t i = 0; i < rows->rows() * d; ++i) rows->row<float>(0)[i] = 1000 + 0.3f * rows->row<float>(0)[i];
    }
    IndexParams params;
    params.recipe = "IVF60,Flat";
    params.metric = metric;
    build_index(base, file("far.gknn"), params);
    const auto index = open_index(file("far.gknn"));
    const Neighbors found = index->search(queries, 10, {.nprobe = 1});
    Neighbors truth = index->search_all(queries, 10);
    const double with_distances = recall_at(found, truth, 10, metric).value;
    truth.distances.clear();
    const double by_ids = recall_at(found, truth, 10, metric).value;
    EXPECT_NEAR(with_distances, by_ids, 0.05) << name_of(metric);
    EXPECT_LT(by_ids, 0.9) << name_of(metric);
  }
}

// Of rows that are held out few are left out at a time: with a tenth of the rows gone, as many candidates would find more.
TEST_F(Tune, held_out_rows_find_what_strangers_find) {
  const Matrix strangers = make_normal(1000, 77);
  for (const std::string recipe : {"IVF8,RaBitQ,RFlat", "PCA6,IVF8,SQ8,RFlat"}) {
    const auto index = open_index(build(recipe, 300));
    CurveParams params;
    params.until = 0.99;
    const RecallCurve curve = measure_curve_by_own_rows(*index, params);
    EXPECT_TRUE(curve.held_out);
    double sum = 0;
    std::int64_t points = 0;
    for (const OperatingPoint& point : curve.points) {
      if (point.recall.value < 0.5 || point.recall.value > 0.95) continue;
      sum += point.recall.value - recall_with(*index, strangers, point);
      ++points;
    }
    ASSERT_GE(points, 3);
    EXPECT_NEAR(sum / static_cast<double>(points), 0, 0.02) << recipe;
  }
}

TEST_F(Tune, a_point_of_the_recall_that_was_asked_is_measured) {
  const auto index = open_index(build("IVF60,Flat", 0));
  for (const double asked : {0.7, 0.85, 0.93}) {
    CurveParams params;
    params.asked = asked;
    const RecallCurve curve = measure_curve(*index, queries_, params);
    const auto point = curve.point_for(asked);
    ASSERT_TRUE(point);
    EXPECT_GE(point->recall.value, asked);
    EXPECT_DOUBLE_EQ(point->recall.value, recall_with(*index, queries_, *point));
    EXPECT_LT(recall_with(*index, queries_, {.nprobe = point->nprobe - 1, .refine = 1, .recall = {}, .seconds = 0}), asked) << "fewer lists do as well";
  }
}

TEST_F(Tune, each_point_is_what_a_search_finds) {
  for (const std::string recipe : {"IVF60,Flat", "IVF60,PQ8,RFlat"}) {
    const auto index = open_index(build(recipe, 0));
    CurveParams params;
    params.until = 1;
    const RecallCurve curve = measure_curve(*index, queries_, params);
    EXPECT_EQ(curve.k, 10);
    EXPECT_EQ(curve.queries, 250);
    EXPECT_EQ(curve.rows, 2000);
    EXPECT_FALSE(curve.held_out);
    ASSERT_GE(curve.points.size(), 2u) << recipe;
    for (std::size_t i = 0; i < curve.points.size(); ++i) {
      const OperatingPoint& point = curve.points[i];
      EXPECT_DOUBLE_EQ(point.recall.value, recall_with(*index, queries_, point)) << recipe << ' ' << point.nprobe << ' ' << point.refine;
      EXPECT_LE(point.recall.low, point.recall.value);
      EXPECT_LT(point.recall.low, point.recall.high);
      EXPECT_GT(point.seconds, 0);
      if (i == 0) continue;
      EXPECT_GT(point.recall.value, curve.points[i - 1].recall.value);
      EXPECT_GE(point.seconds, curve.points[i - 1].seconds);  // equal where a clock saw more lists take less
    }
    if (recipe == "IVF60,Flat") {
      EXPECT_EQ(curve.points.back().recall.value, 1);
    }
  }
}

TEST_F(Tune, of_many_queries_some_are_drawn_with_their_truth) {
  const auto index = open_index(build("IVF60,Flat", 0));
  CurveParams params;
  params.sample = 100;
  params.until = 1;
  const Neighbors truth = index->search_all(queries_, 10);
  const RecallCurve drawn = measure_curve(*index, queries_, params), with_truth = measure_curve(*index, queries_, params, {}, &truth);
  EXPECT_EQ(drawn.queries, 100);
  EXPECT_EQ(with_truth.queries, 100);
  EXPECT_EQ(drawn.points.back().recall.value, 1);
  EXPECT_EQ(with_truth.points.back().recall.value, 1);
  // Which parameters are in a curve depends on the time they took; what they find does not.
  int alike = 0;
  for (const OperatingPoint& point : drawn.points) {
    for (const OperatingPoint& other : with_truth.points) {
      if (other.nprobe != point.nprobe || other.refine != point.refine) continue;
      EXPECT_EQ(point.recall.value, other.recall.value) << point.nprobe;
      ++alike;
    }
  }
  EXPECT_GT(alike, 1);
  const Neighbors other(249, 10);
  expect_error(Fault::invalid_argument, [&] { measure_curve(*index, queries_, params, {}, &other); }, "249");
}

TEST_F(Tune, a_truth_that_is_given_serves_codes_without_vectors) {
  const auto index = open_index(build("IVF20,PQ8", 0));
  const Neighbors truth = make_flat_index(base_)->search(queries_, 10);
  CurveParams params;
  params.until = 0.3;
  const RecallCurve curve = measure_curve(*index, queries_, params, {}, &truth);
  EXPECT_GE(curve.points.back().recall.value, 0.3);
  EXPECT_EQ(curve.points.back().refine, 1);
  // Distances of codes are smaller than those of rows: what seems as near as a true neighbour need not be one.
  Neighbors only_ids = truth;
  only_ids.distances.clear();
  for (const char* recipe : {"IVF20,PQ8", "PCA4,IVF20,Flat"}) {
    const auto other = open_index(build(recipe, 0));
    const double recall = recall_at(other->search(queries_, 10, {.nprobe = 20}), only_ids, 10, Metric::l2).value;
    const RecallCurve of_all = measure_curve(*other, queries_, {}, {}, &truth);
    EXPECT_LE(of_all.points.back().recall.value, recall + 0.01) << recipe;
    EXPECT_LT(recall, 0.9) << recipe;
  }
  expect_error(Fault::unsupported, [&] { measure_curve(*index, queries_, params); }, "must be given");
  expect_error(Fault::unsupported, [&] { measure_curve_by_own_rows(*index, params); }, "full vectors");
}

TEST_F(Tune, rows_that_were_held_out_stand_for_queries) {
  for (const std::string recipe : {"IVF,Flat", "IVF,PQ8,RFlat"}) {
    const auto index = open_index(build(recipe, 200));
    const RecallCurve curve = measure_curve_by_own_rows(*index, {.until = 0.9});
    EXPECT_TRUE(curve.held_out);
    EXPECT_EQ(curve.queries, 200);
    for (const OperatingPoint& point : curve.points) {
      EXPECT_NEAR(point.recall.value, recall_with(*index, queries_, point), 0.06) << recipe << ' ' << point.nprobe << ' ' << point.refine;
    }
  }
}

TEST_F(Tune, lists_do_not_depend_on_rows_that_are_held_out) {
  const auto centroids_of = [](const std::filesystem::path& path) {
    const Container file = Container::open(path);
    const auto bytes = file.bytes_of(file.section("centroids", Element::f32));
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const auto path = build("IVF40,Flat", 100);
  const std::string before = centroids_of(path);
  const std::vector<RowId> held_out = open_index(path)->held_out();
  ASSERT_EQ(held_out.size(), 100u);
  for (const RowId row : held_out) std::fill_n(base_.row<float>(value_of(row)), d, 100.0F);
  EXPECT_EQ(centroids_of(build("IVF40,Flat", 100)), before);
  EXPECT_EQ(centroids_of(build("IVF40,PQ4", 100)), before);
  std::int64_t other = 0;
  while (std::binary_search(held_out.begin(), held_out.end(), RowId{other})) ++other;
  base_.row<float>(other)[0] = 50;
  EXPECT_NE(centroids_of(build("IVF40,Flat", 100)), before);
}

TEST_F(Tune, held_out_rows_are_left_out_while_they_are_queries_and_there_afterwards) {
  const auto index = open_index(build("IVF20,Flat", 100));
  CurveParams params;
  params.until = 1;
  EXPECT_EQ(measure_curve_by_own_rows(*index, params).points.back().recall.value, 1);  // none is its own neighbour
  const std::vector<RowId> ids = index->held_out();
  ASSERT_EQ(ids.size(), 100u);
  const Neighbors found = index->search(index->reconstruct(ids), 1, {.nprobe = 20});
  EXPECT_EQ(found.ids, ids);
}

TEST_F(Tune, what_is_wrong_is_refused) {
  const auto index = open_index(build("IVF20,Flat", 0));
  expect_error(Fault::unsupported, [&] { measure_curve_by_own_rows(*index); }, "held out");
  expect_error(Fault::invalid_argument, [&] { measure_curve(*index, queries_, {.k = 0}); }, "k from 1");
  expect_error(Fault::invalid_argument, [&] { measure_curve(*index, queries_, {.k = 2001}); }, "k from 1");
  expect_error(Fault::invalid_argument, [&] { measure_curve(*index, queries_, {.until = 1.5}); }, "0 to 1");
  expect_error(Fault::invalid_argument, [&] { measure_curve(*index, Matrix(0, d, DType::f32)); }, "a query");
  expect_error(Fault::invalid_argument, [&] { build("IVF20,Flat", 2000); }, "held out");
  expect_error(Fault::invalid_argument, [&] { build("IVF1200,Flat", 1000); }, "lists");
}

TEST_F(Tune, a_curve_is_kept_in_the_file) {
  for (const std::string recipe : {"IVF20,Flat", "IVF20,PQ4,RFlat"}) {
    const auto path = build(recipe, 50);
    const std::string plain = bytes_of(path);
    EXPECT_FALSE(stored_curve(path));
    RecallCurve curve = make_curve();
    curve.queries = 100;
    curve.held_out = true;
    curve.rows = 3000;
    curve.threads = 2;
    store_curve(path, curve);
    check_index(path);
    const auto stored = stored_curve(path);
    ASSERT_TRUE(stored);
    EXPECT_EQ(std::tuple(stored->k, stored->queries, stored->held_out, stored->rows, stored->threads), std::tuple(10, 100, true, 3000, 2));
    ASSERT_EQ(stored->points.size(), 4u);
    for (std::size_t i = 0; i < 4; ++i) {
      const OperatingPoint &got = stored->points[i], &want = curve.points[i];
      EXPECT_EQ(std::tuple(got.nprobe, got.refine, got.recall.value, got.recall.low, got.recall.high, got.seconds),
                std::tuple(want.nprobe, want.refine, want.recall.value, want.recall.low, want.recall.high, want.seconds));
    }
    const std::string with_curve = bytes_of(path);
    store_curve(path, curve);  // in place of itself
    EXPECT_EQ(bytes_of(path), with_curve);
    open_index(path)->save(file("copy.gknn"));
    EXPECT_EQ(bytes_of(file("copy.gknn")), with_curve);
    EXPECT_EQ(open_index(path)->search(queries_, 5).ids, open_index(file("copy.gknn"))->search(queries_, 5).ids);
    EXPECT_GT(with_curve.size(), plain.size());
  }
}

TEST_F(Tune, a_curve_outlives_changes_and_no_merge) {
  const auto path = build("IVF20,Flat", 50);
  store_curve(path, make_curve());
  const std::vector<RowId> held_out = open_index(path)->held_out();
  add_to_index(path, queries_, {}, false, path);
  EXPECT_TRUE(stored_curve(path));
  remove_from_index(path, std::span(held_out).first(10), path);
  EXPECT_TRUE(stored_curve(path));
  const std::vector<RowId> left(held_out.begin() + 10, held_out.end());
  EXPECT_EQ(open_index(path)->held_out(), left);
  EXPECT_EQ(measure_curve_by_own_rows(*open_index(path)).queries, 40);
  const std::vector<std::filesystem::path> one = {path};
  merge_indexes(one, file("merged.gknn"));
  EXPECT_FALSE(stored_curve(file("merged.gknn")));
}

// Faiss's files do not say which rows were held out.
TEST_F(Tune, a_merge_holds_out_what_one_of_the_indexes_does) {
  const auto path = build("IVF20,Flat", 50), other = file("other.gknn");
  export_faiss(path, file("x.faiss"));
  import_faiss(file("x.faiss"), other);
  const auto index = open_index(path);
  std::vector<RowId> even, odd;
  for (const RowId id : index->ids()) (value_of(id) % 2 == 0 ? even : odd).push_back(id);
  const std::vector<RowId> held_out = index->held_out();
  ASSERT_EQ(held_out.size(), 50u);
  remove_from_index(path, even, path);
  remove_from_index(other, odd, other);
  for (const auto& paths : {std::vector{path, other}, std::vector{other, path}}) {
    merge_indexes(paths, file("merged.gknn"));
    EXPECT_EQ(open_index(file("merged.gknn"))->held_out(), held_out);
  }
}

TEST_F(Tune, a_damaged_curve_is_refused) {
  const auto path = build("IVF5,Flat", 5);
  RecallCurve curve = make_curve();
  store_curve(path, curve);
  const std::string good = bytes_of(path);
  const Container container = Container::open(path);
  for (const char* name : {"curve", "curve_of", "held_out"}) {
    const Section* section = container.find_section(name);
    ASSERT_NE(section, nullptr);
    for (std::uint64_t i = 0; i < section->bytes; ++i) {
      std::string bad = good;
      bad[section->offset + i] = static_cast<char>(bad[section->offset + i] ^ 0x10);
      file("bad.gknn", bad);
      expect_error(Fault::corrupt_file, [&] { open_index(file("bad.gknn")); }, "bad.gknn");
      expect_error(Fault::corrupt_file, [&] { store_curve(file("bad.gknn"), curve); }, "bad.gknn");
      EXPECT_EQ(bytes_of(file("bad.gknn")), bad);
    }
  }
  // Right checksums do not make a curve of these, which are not stored either.
  const auto refused = [&](const std::function<void(RecallCurve&)>& spoil) {
    RecallCurve bad = make_curve();
    spoil(bad);
    const std::string plain = bytes_of(build("IVF5,Flat", 5, "bad.gknn"));
    expect_error(Fault::invalid_argument, [&] { store_curve(file("bad.gknn"), bad); }, "curve of recall");
    EXPECT_EQ(bytes_of(file("bad.gknn")), plain);
    {
      const Container old = Container::open(file("bad.gknn"));
      ContainerWriter writer(file("bad.gknn"), old.schema(), old.schema_version());
      for (const Section& section : old.sections()) {
        writer.add_section(section.name, section.element, section.rows, section.cols, old.bytes_of(section).data());
      }
      add_curve(writer, bad);
      writer.finish();
    }
    expect_error(Fault::corrupt_file, [&] { stored_curve(file("bad.gknn")); }, "curve of recall");
    expect_error(Fault::corrupt_file, [&] { open_index(file("bad.gknn")); }, "curve of recall");
  };
  refused([](RecallCurve& bad) { bad.points[1].nprobe = 0; });
  refused([](RecallCurve& bad) { bad.points[1].refine = -1; });
  refused([](RecallCurve& bad) { bad.points[1].recall.value = NAN; });
  refused([](RecallCurve& bad) { bad.points[1].recall.high = 1.5; });
  refused([](RecallCurve& bad) { bad.points[1].seconds = INFINITY; });
  refused([](RecallCurve& bad) { std::swap(bad.points[1], bad.points[2]); });
  refused([](RecallCurve& bad) { bad.k = 0; });
  expect_error(Fault::unsupported, [&] {
    ContainerWriter(file("other.gknn"), "other", 1).finish();
    store_curve(file("other.gknn"), curve);
  }, "no index");
}

// Rows of 64 dimensions that vary in 16 alone, which PCA finds; enough of them that codes are tried.
class Choose : public testing::Test {
 protected:
  Choose() : base_(make_wide(2400, 1)), queries_(make_wide(100, 99)) {}

  static Matrix make_wide(std::int64_t n, std::uint64_t seed) {
    const Matrix narrow = make_normal(n, seed);
    Matrix rows(n, 4 * d, DType::f32);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < 4 * d; ++j) rows.row<float>(i)[j] = narrow.ref().row<float>(i)[j % d] * static_cast<float>(1 + j % 3);
    }
    return rows;
  }
  static const Trial& trial_of(const IndexChoice& choice, const std::string& recipe) {
    const auto found = std::find_if(choice.trials.begin(), choice.trials.end(), [&](const Trial& trial) { return trial.recipe == recipe; });
    return found == choice.trials.end() ? throw std::runtime_error(recipe + " was not tried") : *found;
  }

  Matrix base_;
  Matrix queries_;
};

TEST_F(Choose, the_quickest_or_the_smallest_of_those_that_reach_the_recall) {
  for (const bool memory_first : {false, true}) {
    ChoiceParams params;
    params.recall = 0.6;
    params.memory_first = memory_first;
    const IndexChoice choice = choose_index(base_, params);
    EXPECT_EQ(choice.trials.size(), memory_first ? 6u : 3u);  // full vectors, PCA to 32 and 48, product codes of 16 and 32, RaBitQ
    const Trial& chosen = trial_of(choice, choice.recipe);
    ASSERT_TRUE(chosen.point);
    EXPECT_GE(chosen.point->recall.value, 0.6);
    std::size_t reached = 0;
    for (const Trial& trial : choice.trials) {
      EXPECT_TRUE(trial.fits);
      EXPECT_GT(trial.search_bytes, 0u);
      EXPECT_FALSE(trial.slow && (trial.point || memory_first));
      if (!trial.point) continue;
      ++reached;
      if (memory_first) {
        EXPECT_GE(trial.search_bytes, chosen.search_bytes) << trial.recipe;
      } else {
        EXPECT_GE(trial.point->seconds, chosen.point->seconds) << trial.recipe;
      }
    }
    EXPECT_GE(reached, memory_first ? 5u : 1u);
    IndexParams built;
    built.recipe = choice.recipe;
    built.held_out = 200;
    const auto index = make_index(base_, built);
    const auto point = measure_curve_by_own_rows(*index).point_for(0.6);
    ASSERT_TRUE(point);
    EXPECT_GT(recall_with(*index, queries_, *point), 0.52);
  }
}

TEST_F(Choose, what_does_not_fit_the_budget_is_not_tried) {
  const auto needed = [&](const std::string& recipe) {
    IndexParams params;
    params.recipe = recipe;
    return std::max(search_bytes_needed(base_, params), build_index_bytes_needed(base_, params));
  };
  RunOptions run;
  run.memory_bytes = 1000;
  expect_error(Fault::out_of_memory, [&] { choose_index(base_, {.recall = 0.6}, run); }, "needs");
  expect_error(Fault::invalid_argument, [&] { choose_index(base_, {.recall = 0}); }, "above 0");
  expect_error(Fault::invalid_argument, [&] { choose_index(base_, {.k = 2400}); }, "k must be");
  expect_error(Fault::invalid_argument, [&] { choose_index(base_, {.sample = 0}); }, "a row");
  expect_error(Fault::invalid_argument, [&] { choose_index(base_.ref().slice(0, 1)); }, "rows");
  expect_error(Fault::invalid_argument, [] { choose_index(Matrix(3000, 0, DType::f32), {.recall = 0.6}); }, "the base: 0 columns, expected at least 1");
  run.memory_bytes = 2 * std::max(needed("IVF,Flat"), needed("IVF,PQ16,RFlat"));
  const IndexChoice choice = choose_index(base_, {.recall = 0.6}, run);
  EXPECT_EQ(choice.trials.size(), 8u);  // and codes of rotated rows
  EXPECT_TRUE(trial_of(choice, "IVF,Flat").fits);
  EXPECT_TRUE(trial_of(choice, "OPQ16,IVF,PQ16,RFlat").fits);
  EXPECT_LE(trial_of(choice, choice.recipe).bytes(), run.memory_bytes);
}

// Also of long rows, of which the sample takes nearly as much as the index.
TEST_F(Choose, the_budget_that_a_refusal_names_suffices) {
  for (const auto& [n, d] : {std::pair<std::int64_t, std::int64_t>{2100, 300}, {3000, 20}, {10000, 4}, {30, 4}}) {
    Matrix rows(n, d, DType::f32);
    const Matrix normal = make_normal(n, 5);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < d; ++j) rows.row<float>(i)[j] = normal.row<float>(i)[j % normal.cols()];
    }
    ChoiceParams params;
    params.recall = 0.1;
    params.index.expected_queries = 256;
    RunOptions run;
    run.threads = 1;
    run.memory_bytes = 1000;
    for (const std::int64_t k : {std::int64_t{-1}, n}) {
      expect_error(Fault::invalid_argument, [&] { choose_index(rows, {.k = k}, run); }, "k must be");
    }
    std::string refusal;
    try {
      choose_index(rows, params, run);
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::out_of_memory);
      refusal = error.what();
    }
    run.memory_bytes = std::stoull(refusal.substr(refusal.rfind(' ')));
    const IndexChoice choice = choose_index(rows, params, run);
    EXPECT_LE(trial_of(choice, choice.recipe).bytes(), run.memory_bytes);
  }
}

TEST_F(Choose, codes_are_tried_by_cosine_where_all_rows_have_a_direction) {
  ChoiceParams params;
  params.recall = 0.5;
  params.index.metric = Metric::cosine;
  EXPECT_EQ(choose_index(base_, params).trials.size(), 3u);
  std::fill_n(base_.row<float>(70), base_.cols(), 0.0F);
  const IndexChoice choice = choose_index(base_, params);
  EXPECT_EQ(choice.trials.size(), 1u);
  EXPECT_EQ(choice.recipe, "IVF,Flat");
}

TEST_F(Choose, rows_that_may_not_be_finite_have_an_index) {
  base_.row<float>(70)[3] = NAN;
  ChoiceParams params;
  params.recall = 0.5;
  params.index.allow_nonfinite = true;
  EXPECT_EQ(choose_index(base_, params).recipe, "IVF,Flat");
}

// A query without a direction has no true neighbours; the flat search that knows them names some, infinitely far.
TEST_F(Choose, rows_without_a_direction_are_no_hindrance) {
  Matrix rows = make_normal(2000, 3);
  for (std::int64_t i = 0; i < rows.rows(); i += 10) std::fill_n(rows.row<float>(i), d, 0.0F);
  ChoiceParams params;
  params.index.metric = Metric::cosine;
  EXPECT_EQ(choose_index(rows, params).recipe, "IVF,Flat");
}

TEST_F(Tune, every_metric_has_an_index) {
  for (const Metric metric : {Metric::euclidean, Metric::inner_product, Metric::cosine, Metric::l1}) {
    ChoiceParams params;
    params.recall = 0.5;
    params.index.metric = metric;
    const IndexChoice choice = choose_index(base_.ref().slice(0, 900), params);
    EXPECT_FALSE(choice.recipe.empty()) << name_of(metric);
  }
}

}  // namespace
}  // namespace gigaknn
