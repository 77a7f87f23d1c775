// The ops and the graph builder behind a C interface, for bench/exact.py and bench/graphs.py (ctypes). Times are taken here, around the op
// alone.
//
// Calls that return seconds return a negative number on failure; gigaknn_bench_error() then says
// why.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <gigaknn/gigaknn.hpp>

#include "core/require.hpp"
#include "ops/ops.hpp"

namespace {

using namespace gigaknn;

thread_local std::string last_error;

/// A base beside the ops that prepared it. The caller's array must outlive it.
struct Prepared {
  MatrixRef base;
  std::unique_ptr<PreparedRows> rows;
  const Ops* ops;
};

DType dtype_called(const std::string& name) {
  for (const DType dtype : vector_dtypes) {
    if (name_of(dtype) == name) return dtype;
  }
  fail(Fault::invalid_argument, "unknown dtype '", name, "'");
}

template <class Work>
double seconds_of(const Work& work) {
  try {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  } catch (const std::exception& error) {
    last_error = error.what();
    return -1;
  }
}

NeighborsOut lists_at(std::int64_t* ids, float* distances, std::int64_t rows, std::int64_t k) {
  static_assert(sizeof(RowId) == sizeof(std::int64_t));
  NeighborsOut out;
  out.ids = reinterpret_cast<RowId*>(ids);
  out.distances = distances;
  out.rows = rows;
  out.k = k;
  return out;
}

RunOptions run_on(int threads) {
  RunOptions run;
  run.threads = threads;
  return run;
}

}  // namespace

extern "C" {

const char* gigaknn_bench_error() {
  return last_error.c_str();
}
const char* gigaknn_bench_commit() {
  return commit();
}

/// The instruction set of `device` ("cpu", "cpu:avx2", ...); null where there is no such device.
const char* gigaknn_bench_isa(const char* device) {
  static thread_local std::string isa;
  const double seconds = seconds_of([&] { isa = ops_of(device).isa(); });
  return seconds < 0 ? nullptr : isa.c_str();
}

/// Prepares `base` [n, d], dense; null on failure. `seconds` gets the time it took.
void* gigaknn_bench_prepare(const char* device, const void* base, std::int64_t n, std::int64_t d,
                            const char* dtype, const char* metric, std::int64_t k,
                            std::int64_t queries, std::int64_t batch, int self, int threads,
                            double* seconds) {
  auto prepared = std::make_unique<Prepared>();
  *seconds = seconds_of([&] {
    prepared->ops = &ops_of(device);
    prepared->base = MatrixRef(base, n, d, dtype_called(dtype));
    const PrepareHints hints{.k = k, .queries = queries, .batch = batch, .self = self != 0};
    prepared->rows =
        prepared->ops->prepare(prepared->base, metric_of(metric), hints, run_on(threads));
  });
  return *seconds < 0 ? nullptr : prepared.release();
}

void gigaknn_bench_free(void* handle) {
  delete static_cast<Prepared*>(handle);
}

/// queries [q, d] -> ids, distances [q, k].
double gigaknn_bench_search(const void* handle, const void* queries, std::int64_t q, std::int64_t k,
                            int threads, std::int64_t* ids, float* distances) {
  const auto& prepared = *static_cast<const Prepared*>(handle);
  return seconds_of([&] {
    const MatrixRef rows(queries, q, prepared.base.cols, prepared.base.dtype);
    prepared.ops->nearest_rows(*prepared.rows, rows, k, lists_at(ids, distances, q, k),
                               run_on(threads));
  });
}

/// The graph of the base: ids, distances [n, k].
double gigaknn_bench_graph(const void* handle, std::int64_t k, int threads, std::int64_t* ids,
                           float* distances) {
  const auto& prepared = *static_cast<const Prepared*>(handle);
  return seconds_of([&] {
    prepared.ops->self_nearest(*prepared.rows, k, lists_at(ids, distances, prepared.base.rows, k),
                               run_on(threads));
  });
}

/// A graph by any method: base [n, d] -> ids, distances [n, k]; the recall that the library measured; and, cut to `size`
/// bytes, how.
double gigaknn_bench_build_graph(const char* device, const void* base, std::int64_t n, std::int64_t d,
                                 const char* dtype, const char* metric, std::int64_t k, const char* method,
                                 double recall, int threads, std::int64_t* ids, float* distances,
                                 double* measured, char* text, std::int64_t size) {
  KnnGraph graph;
  const double seconds = seconds_of([&] {
    GraphParams params;
    params.k = k;
    params.metric = metric_of(metric);
    params.method = method;
    params.recall = recall;
    params.device = device;
    graph = build_graph(MatrixRef(base, n, d, dtype_called(dtype)), params, run_on(threads));
  });
  if (seconds < 0) return seconds;
  std::memcpy(ids, graph.lists.ids.data(), graph.lists.ids.size() * sizeof(RowId));
  std::memcpy(distances, graph.lists.distances.data(), graph.lists.distances.size() * sizeof(float));
  *measured = graph.recall.value;
  std::strncpy(text, graph.method.c_str(), static_cast<std::size_t>(size - 1));
  text[size - 1] = 0;
  return seconds;
}

/// rows [n, d] -> centroids [clusters, d] f32, by `iterations` rounds on all rows from random ones.
double gigaknn_bench_kmeans(const char* device, const void* rows, std::int64_t n, std::int64_t d, const char* dtype, std::int64_t clusters,
                            int iterations, std::uint64_t seed, int threads, float* centroids) {
  KMeans found;
  const double seconds = seconds_of([&] {
    KMeansParams params;
    params.clusters = clusters;
    params.iterations = iterations;
    params.seed = seed;
    params.levels = KMeansLevels::one;
    params.most_rows_a_cluster = 0;
    params.device = device;
    found = fit_kmeans(MatrixRef(rows, n, d, dtype_called(dtype)), params, run_on(threads));
  });
  if (seconds >= 0) std::memcpy(centroids, found.centroids.data(), static_cast<std::size_t>(clusters * d) * sizeof(float));
  return seconds;
}

/// rows [n, d] -> the nearest of centroids [clusters, d] f32: ids [n], distances [n].
double gigaknn_bench_assign(const char* device, const void* rows, std::int64_t n, std::int64_t d, const char* dtype, const float* centroids,
                            std::int64_t clusters, int threads, std::int64_t* ids, float* distances) {
  Neighbors found;
  const double seconds = seconds_of([&] {
    found = nearest_centroids(MatrixRef(rows, n, d, dtype_called(dtype)), MatrixRef(centroids, clusters, d, DType::f32), Metric::l2, device,
                              run_on(threads));
  });
  if (seconds < 0) return seconds;
  std::memcpy(ids, found.ids.data(), found.ids.size() * sizeof(RowId));
  std::memcpy(distances, found.distances.data(), found.distances.size() * sizeof(float));
  return seconds;
}

/// An index by its recipe (IndexParams), its rows those of `base`, which must outlive it; null on failure. `seconds` gets the time it took.
void* gigaknn_bench_ivf(const char* device, const void* base, std::int64_t n, std::int64_t d, const char* dtype, const char* metric,
                        const char* recipe, int iterations, std::int64_t seed, int threads, double* seconds) {
  std::unique_ptr<Index> index;
  *seconds = seconds_of([&] {
    IndexParams params;
    params.recipe = recipe;
    params.metric = metric_of(metric);
    params.iterations = iterations;
    params.seed = static_cast<std::uint64_t>(seed);
    params.device = device;
    index = make_index(MatrixRef(base, n, d, dtype_called(dtype)), params, run_on(threads));
  });
  return index.release();
}
void gigaknn_bench_ivf_free(void* index) {
  delete static_cast<Index*>(index);
}
double gigaknn_bench_ivf_save(const void* index, const char* path) {
  return seconds_of([&] { static_cast<const Index*>(index)->save(path); });
}
/// Opened by mapping, and closed again.
double gigaknn_bench_ivf_open(const char* path) {
  std::unique_ptr<Index> index;
  return seconds_of([&] { index = open_index(path, {.map = true}); });
}
/// queries [q, d] in batches -> ids, distances [q, k]; the time of each batch, in order, to `batch_seconds`.
double gigaknn_bench_ivf_search(const void* index, const void* queries, std::int64_t q, const char* dtype, std::int64_t k,
                                std::int64_t nprobe, std::int64_t refine, std::int64_t batch, int threads, std::int64_t* ids,
                                float* distances, double* batch_seconds) {
  const auto& ivf = *static_cast<const Index*>(index);
  return seconds_of([&] {
    const MatrixRef rows(queries, q, ivf.cols(), dtype_called(dtype));
    for (std::int64_t begin = 0; begin < q; begin += batch) {
      const std::int64_t end = std::min(q, begin + batch);
      batch_seconds[begin / batch] = seconds_of([&] {
        const Neighbors found = ivf.search(rows.slice(begin, end), k, {.nprobe = nprobe, .refine = refine}, run_on(threads));
        std::memcpy(ids + begin * k, found.ids.data(), found.ids.size() * sizeof(RowId));
        std::memcpy(distances + begin * k, found.distances.data(), found.distances.size() * sizeof(float));
      });
      require(batch_seconds[begin / batch] >= 0, Fault::invalid_argument, last_error);
    }
  });
}

std::int64_t gigaknn_bench_bytes(const void* handle) {
  return static_cast<std::int64_t>(static_cast<const Prepared*>(handle)->rows->bytes());
}

/// Which filter the preparation chose, cut to `size` bytes.
void gigaknn_bench_describe(const void* handle, char* text, std::int64_t size) {
  const std::string description = static_cast<const Prepared*>(handle)->rows->description();
  std::strncpy(text, description.c_str(), static_cast<std::size_t>(size - 1));
  text[size - 1] = 0;
}

}  // extern "C"
