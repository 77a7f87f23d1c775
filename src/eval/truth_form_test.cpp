#include "eval/truth_form.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include <gigaknn/error.hpp>

namespace gigaknn {
namespace {

Neighbors lists_of(std::int64_t k, const std::vector<std::int64_t>& ids,
                   const std::vector<float>& distances) {
  Neighbors lists(static_cast<std::int64_t>(ids.size()) / k, k);
  for (std::size_t i = 0; i < ids.size(); ++i) lists.ids[i] = RowId{ids[i]};
  lists.distances.assign(distances.begin(), distances.end());
  return lists;
}

TruthForm form_of(Metric metric, const std::vector<float>& result,
                  const std::vector<float>& truth) {
  std::vector<std::int64_t> ids;
  for (std::size_t i = 0; i < result.size(); ++i) ids.push_back(static_cast<std::int64_t>(i));
  const auto k = static_cast<std::int64_t>(ids.size());
  return TruthForm::of(lists_of(k, ids, result), lists_of(k, ids, truth), metric).value();
}

TEST(TruthForm, takes_rising_cosine_as_distances_and_falling_as_similarities) {
  const TruthForm distances = form_of(Metric::cosine, {0.1f, 0.4f}, {0.1f, 0.4f});
  EXPECT_TRUE(distances.is_as_near(0.4f, 0.4f));
  EXPECT_FALSE(distances.is_as_near(0.6f, 0.4f));
  const TruthForm similarities = form_of(Metric::cosine, {0.1f, 0.4f}, {0.9f, 0.6f});
  EXPECT_TRUE(similarities.is_as_near(0.4f, 0.6f));
  EXPECT_FALSE(similarities.is_as_near(0.41f, 0.6f));
}

TEST(TruthForm, asks_common_ids_where_a_row_has_one_neighbour) {
  EXPECT_TRUE(form_of(Metric::cosine, {0.1f}, {0.9f}).is_as_near(0.1f, 0.9f));
  EXPECT_FALSE(form_of(Metric::cosine, {0.1f}, {0.9f}).is_as_near(0.2f, 0.9f));
  EXPECT_TRUE(form_of(Metric::cosine, {0.9f}, {0.9f}).is_as_near(0.9f, 0.9f));
  EXPECT_TRUE(form_of(Metric::jaccard, {0.25f}, {0.75f}).is_as_near(0.25f, 0.75f));
}

TEST(TruthForm, knows_three_customs_of_inner_products) {
  const std::vector<float> products = {5, 3};
  const TruthForm plain = form_of(Metric::inner_product, products, {5, 3});
  EXPECT_TRUE(plain.is_as_near(3, 3));
  EXPECT_FALSE(plain.is_as_near(2.9f, 3));
  const TruthForm negated = form_of(Metric::inner_product, products, {-5, -3});
  EXPECT_TRUE(negated.is_as_near(3, -3));
  EXPECT_FALSE(negated.is_as_near(2.9f, -3));
  const TruthForm one_minus = form_of(Metric::inner_product, products, {-4, -2});
  EXPECT_TRUE(one_minus.is_as_near(3, -2));
  EXPECT_FALSE(one_minus.is_as_near(2.9f, -2));
}

TEST(TruthForm, knows_roots_from_squares) {
  EXPECT_TRUE(form_of(Metric::l2, {4, 9}, {2, 3}).is_as_near(9, 3));
  EXPECT_FALSE(form_of(Metric::l2, {4, 9}, {2, 3}).is_as_near(9.1f, 3));
  EXPECT_FALSE(form_of(Metric::l2, {4, 9}, {4, 9}).is_as_near(10, 9));
  EXPECT_TRUE(form_of(Metric::euclidean, {2, 3}, {4, 9}).is_as_near(3, 9));
  EXPECT_FALSE(form_of(Metric::euclidean, {2, 3}, {4, 9}).is_as_near(3.1f, 9));
}

TEST(TruthForm, forgives_the_rounding_of_another_program_and_no_more) {
  const TruthForm form = form_of(Metric::l2, {100, 1000}, {100, 1000.0045f});
  EXPECT_TRUE(form.is_as_near(1000.008f, 1000));
  EXPECT_FALSE(form.is_as_near(1000.02f, 1000));
  const TruthForm cosine = form_of(Metric::cosine, {3e-7f, 0.5f}, {1, 0.5f});
  EXPECT_TRUE(cosine.is_as_near(5e-7f, 1.0f));  // 1 - cos has lost the digits of a small distance
  EXPECT_FALSE(cosine.is_as_near(7e-7f, 1.0f));
  // What agrees to the last bit was not rounded.
  EXPECT_FALSE(form_of(Metric::l2, {100, 1000}, {100, 1000}).is_as_near(1000.009f, 1000));
  EXPECT_FALSE(form_of(Metric::cosine, {1e-8f, 3e-8f}, {1e-8f, 3e-8f}).is_as_near(4e-8f, 3e-8f));
  // Where no id is on both sides, as of copies by others' names, nothing is shown.
  const auto copies = TruthForm::of(lists_of(2, {7, 8}, {100, 1000.009f}), lists_of(2, {5, 6}, {100, 1000}), Metric::l2);
  EXPECT_TRUE(copies->is_as_near(1000.009f, 1000));
  EXPECT_FALSE(copies->is_as_near(1000.02f, 1000));
}

TEST(TruthForm, of_this_library_has_no_tolerance) {
  EXPECT_TRUE(TruthForm::exact(Metric::l2).is_as_near(1000, 1000));
  EXPECT_FALSE(TruthForm::exact(Metric::l2).is_as_near(std::nextafter(1000.0f, 2000.0f), 1000));
  EXPECT_FALSE(TruthForm::exact(Metric::inner_product).is_as_near(std::nextafter(10.0f, 0.0f), 10));
}

TEST(TruthForm, is_not_misled_by_one_row_in_disorder_or_an_empty_tail) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<std::int64_t> ids = {0, 1, 0, 1, 0, -1};
  const Neighbors result = lists_of(2, ids, {0.1f, 0.2f, 0.1f, 0.2f, 0.5f, inf});
  const Neighbors truth = lists_of(2, ids, {0.9f, 0.8f, 0.9f, 0.8f, 0.5f, inf});
  EXPECT_TRUE(TruthForm::of(result, truth, Metric::cosine)->is_as_near(0.2f, 0.8f));
  EXPECT_FALSE(TruthForm::of(result, truth, Metric::cosine)->is_as_near(0.21f, 0.8f));
}

TEST(TruthForm, is_none_of_values_of_what_stands_for_rows) {
  const auto agree = [](const std::vector<std::int64_t>& ids, const std::vector<float>& found, Metric metric, const std::vector<float>& truth) {
    return TruthForm::of(lists_of(2, ids, found), lists_of(2, {0, 1, 2, 3, 4, 5}, truth), metric).has_value();
  };
  const std::vector<float> l2 = {4, 9, 1, 2, 5, 6};
  EXPECT_TRUE(agree({0, 7, 2, 3, 8, 4}, {4, 9, 1, 2, 5, 5}, Metric::l2, l2));
  EXPECT_FALSE(agree({0, 7, 2, 3, 8, 4}, {3, 9, 0.5f, 2, 4, 4.5f}, Metric::l2, l2)) << "most that both name have other values";
  EXPECT_TRUE(agree({7, 8, 9, 10, 11, 12}, l2, Metric::l2, l2)) << "equals of other ids";
  EXPECT_TRUE(agree({7, 8, 9, 10, 11, 12}, {5, 9, 1, 1.5f, 4, 6}, Metric::l2, l2)) << "one row begins too near";
  EXPECT_FALSE(agree({7, 8, 9, 10, 11, 12}, {3, 9, 1, 2, 4, 6}, Metric::l2, l2)) << "most do";
  const std::vector<float> products = {9, 4, 7, 2, 6, 5};
  EXPECT_TRUE(agree({7, 8, 9, 10, 11, 12}, products, Metric::inner_product, products));
  EXPECT_FALSE(agree({7, 8, 9, 10, 11, 12}, {9.5f, 9, 8, 2, 6, 5}, Metric::inner_product, products));
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(agree({0, 1, 2, 3, 4, 5}, {4, inf, 1, inf, 5, inf}, Metric::l2, {4, inf, 1, inf, 5, inf})) << "infinity is infinity";
}

TEST(TruthForm, refuses_falling_distances_where_smaller_is_nearer) {
  try {
    form_of(Metric::l1, {1, 2}, {5, 4});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::invalid_data);
    EXPECT_STREQ(
        error.what(),
        "the distances of the truth fall along its rows, but metric l1 is smaller where nearer: "
        "is this the truth of another metric?");
  }
}

}  // namespace
}  // namespace gigaknn
