// Index files of earlier days, in tests/golden: they are opened and searched for ever, and the same arguments make the same bytes.
// Nothing in them depends on the processor: k-means, PCA, OPQ and codes are IEEE arithmetic in one order, without the functions of libm
// that round as they like.
//
// To add a kind: a row in `golden`, then
//   build/release/src/index/golden_index_test --gtest_also_run_disabled_tests --gtest_filter='*writes_those_that_are_missing'
// A file that is there is never written again: one that a new version of a schema replaces gets a row without a recipe.
#include <gtest/gtest.h>

#include <gigaknn/index.hpp>

#include "io/results.hpp"
#include "io/test_files.hpp"

namespace gigaknn {
namespace {

struct GoldenFile {
  const char* name;
  const char* recipe;  // null: no longer written
  Metric metric;
};
constexpr GoldenFile golden[] = {
    {"flat_1", "Flat", Metric::l2},
    {"ivf_flat_1", "IVF4,Flat", Metric::cosine},
    {"ivf_pq_1", "IVF4,PQ2", Metric::inner_product},
    {"ivf_pq_rows_1", "IVF4,PQ2,RFlat", Metric::l2},
    {"ivf_pq_4_bits_1", nullptr, Metric::l2},  // codewords of one dimension began at rows
    {"ivf_pq_4_bits_2", "IVF4,PQ4x4", Metric::l2},
    {"ivf_sq_1", "PCA2,IVF4,SQ8,RFlat", Metric::l2},
    {"ivf_transformed_1", "PCA3,IVF4,Flat,RFlat", Metric::l2},
    {"ivf_transformed_pq_1", "OPQ2,IVF4,PQ2", Metric::inner_product},
    {"ivf_transformed_white_1", "PCAW3,IVF4,Flat", Metric::euclidean},
    {"ivf_rabitq_1", "IVF4,RaBitQ2", Metric::l2},
    {"ivf_rabitq_rows_1", "IVF4,RaBitQ,RFlat", Metric::euclidean},
    {"ivf_sq_plain_1", "IVF4,SQ8,RFlat", Metric::euclidean},
    {"ivf_sq_alone_1", "IVF4,SQ8", Metric::inner_product},
    {"ivf_sq_cosine_1", "OPQ2,IVF4,SQ8", Metric::cosine},
    {"ivf_sq_16_bits_1", "PCAW3,IVF4,SQfp16,RFlat", Metric::euclidean},
    {"ivf_sq_4_bits_1", nullptr, Metric::l2},  // codewords of one dimension began at rows
    {"ivf_sq_4_bits_2", "IVF4,SQ4", Metric::l2},
    {"ivf_sq_bf16_1", "PCA3,IVF4,SQbf16,RFlat", Metric::l2},
    {"ivf_sq_6_bits_1", nullptr, Metric::l2},  // codewords of one dimension began at rows
    {"ivf_sq_6_bits_2", "IVF4,SQ6", Metric::l2},
    {"ivf_pq_6_bits_1", nullptr, Metric::euclidean},  // codewords of one dimension began at rows
    {"ivf_pq_6_bits_2", "PCAR3,IVF4,PQ4x6", Metric::euclidean},
    {"ivf_sq_8_bits_1", "IVF4,SQ8d", Metric::l2},
    {"ivf_rabitq_planes_1", "PCA3,IVF4,RaBitQ5,RFlat", Metric::l2},
    {"ivf_pq_cosine_1", "IVF4,PQ2", Metric::cosine},
};

#if defined(GIGAKNN_SANITIZED) || defined(GIGAKNN_TINY_TILES)
constexpr const char* devices[] = {"cpu", "cpu:generic"};  // the emulated GPU takes too long there
#else
constexpr const char* devices[] = {"cpu", "cpu:generic", "emulated"};
#endif

class GoldenIndex : public FileTest {
 protected:
  GoldenIndex() : base_(260, 4, DType::f32) {
    for (std::int64_t i = 0; i < 260; ++i) {
      for (std::int64_t j = 0; j < 4; ++j) {
        base_.row<float>(i)[j] = static_cast<float>((i * (i + 7 * j) + 13 * j * j) % 97 - 48) / (4 + 4 * static_cast<float>(j));
      }
      ids_.push_back(RowId{(i * 7) % 260 * 11 + 100});
    }
  }
  static std::filesystem::path kept(const GoldenFile& which, const char* suffix) {
    return std::filesystem::path(GIGAKNN_GOLDEN_FOLDER) / (which.name + std::string(suffix));
  }
  void build(const GoldenFile& which, const std::filesystem::path& path, const std::string& device = "cpu") const {
    build_index(base_, path, {.recipe = which.recipe, .metric = which.metric, .iterations = 3, .ids = ids_, .device = device});
  }
  Neighbors found_in(const std::filesystem::path& path, const OpenParams& params) const {
    return open_index(path, params)->search(base_.ref().slice(30, 36), 5, {.nprobe = 2, .refine = 3});
  }

  Matrix base_;
  std::vector<RowId> ids_;
};

TEST_F(GoldenIndex, finds_what_it_found_then) {
  for (const GoldenFile& which : golden) {
    check_index(kept(which, ".gknn"));
    const Neighbors then = read_neighbors(kept(which, ".gtbin"));
    for (const char* device : devices) {
      for (const bool map : {false, true}) {
        const Neighbors now = found_in(kept(which, ".gknn"), {.device = device, .map = map});
        EXPECT_EQ(now.ids, then.ids) << which.name << ' ' << device;
        EXPECT_EQ(now.distances, then.distances) << which.name << ' ' << device;
      }
    }
  }
}

TEST_F(GoldenIndex, is_still_what_the_same_arguments_make) {
  for (const GoldenFile& which : golden) {
    if (!which.recipe) continue;
    for (const char* device : devices) {
      build(which, file("now.gknn"), device);
      EXPECT_EQ(bytes_of(file("now.gknn")), bytes_of(kept(which, ".gknn"))) << which.name << ' ' << device;
    }
    open_index(kept(which, ".gknn"))->save(file("again.gknn"));
    EXPECT_EQ(bytes_of(file("again.gknn")), bytes_of(kept(which, ".gknn"))) << which.name;
  }
}

TEST_F(GoldenIndex, DISABLED_writes_those_that_are_missing) {
  for (const GoldenFile& which : golden) {
    if (std::filesystem::exists(kept(which, ".gknn"))) continue;
    build(which, kept(which, ".gknn"));
    write_neighbors(found_in(kept(which, ".gknn"), {}), kept(which, ".gtbin"));
  }
}

}  // namespace
}  // namespace gigaknn
