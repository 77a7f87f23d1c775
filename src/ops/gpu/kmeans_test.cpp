// k-means' steps on the GPU, real or emulated: rows that stay there, and what fits a budget of its memory.
#include <cstring>
#include <string>
#include <vector>

#include "core/elements.hpp"
#include "core/expect_error.hpp"
#include "ops/assignment.hpp"
#include "ops/conformance.hpp"
#include "ops/gpu/gpu_ops.hpp"
#include "simt/device.hpp"
#include "simt/memory_budget.hpp"

namespace gigaknn {
namespace {

using namespace test;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
const Ops& gpu_ops() { return *gpu::devices().front(); }

#if defined(GIGAKNN_TINY_TILES) || defined(GIGAKNN_SANITIZED)
constexpr std::int64_t n = 540;
#else
constexpr std::int64_t n = 1100;
#endif

RunOptions within(std::size_t device_memory) {
  RunOptions run;
  run.threads = 2;
  run.device_memory_bytes = device_memory;
  return run;
}

// The smallest budget that does, which what refuses a byte says.
template <class Work>
std::size_t least_of(const Work& work) {
  try {
    work(within(1));
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::out_of_memory);
    const std::string text = error.what();
    return std::stoull(text.substr(text.rfind(' ')));
  }
  ADD_FAILURE() << "a byte was enough";
  return 1;
}

// work(run) by a device that refuses more than it was said.
template <class Work>
void hold_to(std::size_t bytes, const Work& work) {
  const simt::MemoryBudget budget(bytes);
  work(within(bytes));
}

struct Vectors {
  StridedRows rows, queries;
  Vectors(std::int64_t d, DType dtype) : rows(n, d, dtype, 3), queries(20, d, dtype, 0) {
    VectorMaker(Kind::clustered, n, d, dtype, Metric::l2, 4).fill(rows, queries);
  }
};

TEST(GpuKMeans, sums_stay_within_a_budget) {
  for (const DType dtype : {DType::f32, DType::u8}) {
    const Vectors vectors(13, dtype);
    std::vector<double> some_weights;
    for (std::int64_t i = 0; i < n; ++i) some_weights.push_back(random_unit(1, 7, at(i)) * 3);
    for (const double* const weights : {static_cast<const double*>(nullptr), static_cast<const double*>(some_weights.data())}) {
      for (const std::int64_t count : {std::int64_t{1}, std::int64_t{40}, n}) {
        std::vector<RowId> labels;
        for (std::int64_t i = 0; i < n; ++i) {
          // A few labels have several runs, most fewer rows than a run; a row in ten counts nowhere.
          const auto drawn = static_cast<std::int64_t>(random_below(at(count), 2, 6, at(i)) * random_below(at(count), 3, 6, at(i))) / count;
          labels.push_back(random_below(10, 4, 6, at(i)) == 0 ? no_row : RowId{drawn});
        }
        const auto sum = [&](const RunOptions& run) {
          std::vector<double> sums(at(count * 13), -77);
          std::vector<std::int64_t> counts(at(count), -77);
          gpu_ops().sum_by_label(vectors.rows, weights, labels.data(), count, sums.data(), counts.data(), run);
          return std::pair(sums, counts);
        };
        const auto want = sum({});
        const std::size_t least = least_of(sum);
        for (const std::size_t share : {100, 101, 150, 300, 10000}) {
          hold_to(least * share / 100, [&](const RunOptions& run) {
            const auto found = sum(run);
            EXPECT_EQ(std::memcmp(found.first.data(), want.first.data(), want.first.size() * sizeof(double)), 0) << share;
            EXPECT_EQ(found.second, want.second) << share;
          });
        }
        EXPECT_EQ(simt::memory_use().bytes, 0u) << "something was not given back";
      }
    }
  }
}

TEST(GpuKMeans, pairs_and_products_stay_within_a_budget) {
  for (const DType dtype : {DType::f32, DType::i8}) {
    const Vectors vectors(13, dtype);
    for (const std::int64_t width : {1, 7, 64}) {
      std::vector<RowId> ids;
      for (std::int64_t i = 0; i < 20 * width; ++i) ids.push_back(RowId{static_cast<std::int64_t>(random_below(at(n), 5, 6, at(i)))});
      const auto distances = [&](const RunOptions& run) {
        std::vector<float> found(ids.size(), -77);
        gpu_ops().pair_distances(vectors.queries, vectors.rows, Metric::l2, ids.data(), width, found.data(), run);
        return found;
      };
      const std::vector<float> want = distances({});
      const std::size_t least = least_of(distances);
      for (const std::size_t share : {100, 120, 700}) {
        hold_to(least * share / 100, [&](const RunOptions& run) { EXPECT_EQ(distances(run), want) << width << ' ' << share; });
      }
    }
  }
  const Vectors vectors(13, DType::f32);
  const auto products = [&](const RunOptions& run) {
    std::vector<float> found(at(n * 20), -77);
    gpu_ops().products(vectors.rows, vectors.queries, found.data(), run);
    return found;
  };
  const std::vector<float> want = products({});
  const std::size_t least = least_of(products);
  for (const std::size_t share : {100, 120, 700}) {
    hold_to(least * share / 100, [&](const RunOptions& run) { EXPECT_EQ(products(run), want) << share; });
  }
  EXPECT_EQ(simt::memory_use().bytes, 0u) << "something was not given back";
}

// Both steps read what was kept, and find in it what they find in the rows themselves.
TEST(GpuKMeans, rows_are_kept_where_there_is_room) {
  constexpr std::int64_t clusters = 30;
  const std::vector<double> weights(at(n), 0.3);
  struct Shape {
    std::int64_t d;
    DType dtype;
  };
  for (const auto& [d, dtype] : {Shape{16, DType::f32}, {13, DType::f16}, {13, DType::u8}}) {  // rows as kernels want them, and others
    const Vectors vectors(d, dtype);
    const MatrixRef rows = vectors.rows;
    const Matrix floats = as_floats(rows);
    const Matrix centroids = as_floats(rows.slice(50, 50 + clusters));
    const std::size_t bytes = at(n * d) * sizeof(float);
    const auto rounds = [&](MatrixRef read, const RunOptions& run) {
      std::vector<RowId> labels(at(n));
      std::vector<float> distances(at(n));
      gpu_ops().start_assignment(read, Metric::l2, DType::f32, clusters, run)->assign(centroids, labels.data(), distances.data(), run);
      std::vector<double> sums(at(clusters * d));
      std::vector<std::int64_t> counts(at(clusters));
      gpu_ops().sum_by_label(read, weights.data(), labels.data(), clusters, sums.data(), counts.data(), run);
      return std::tuple(labels, distances, sums, counts);
    };
    const auto want = rounds(rows, {});
    std::size_t kept_at = 0, refused_at = 0;
    for (std::size_t budget = bytes; budget < 30 * bytes; budget *= 2) {
      hold_to(budget, [&](const RunOptions& run) {
        const KeptRows kept = gpu_ops().keep_rows(rows, Metric::l2, DType::f32, clusters, run);
        if (kept.bytes == 0) {
          EXPECT_EQ(kept.rows.data, rows.data);
          refused_at = budget;
          return;
        }
        if (kept_at == 0) kept_at = budget;
        EXPECT_EQ(kept.bytes, bytes);
        EXPECT_EQ(kept.rows.space, MemorySpace::device);
        std::vector<float> there(at(n * d));
        simt::copy(there.data(), kept.rows.data, bytes, nullptr);
        simt::synchronize(nullptr);
        EXPECT_TRUE(std::equal(there.begin(), there.end(), floats.row<float>(0)));
        RunOptions beside = run;
        beside.device_memory_bytes -= kept.bytes;
        EXPECT_EQ(rounds(kept.rows, beside), want) << budget;
      });
      EXPECT_EQ(simt::memory_use().bytes, 0u) << "something was not given back";
    }
    EXPECT_GT(refused_at, 0u);
    EXPECT_GT(kept_at, refused_at);
  }
}

}  // namespace
}  // namespace gigaknn
