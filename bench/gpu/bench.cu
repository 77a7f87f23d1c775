// Times the GPU's work against the roofline of the machine it runs on, which it measures first (roofline.cuh). Every result is checked
// before it is timed, all neighbours of a few rows against a scan of the host (truth.hpp); one that is wrong is not timed. Medians; kernels
// by events of the device, whole searches (vectors and results on the host) by the clock. Johnson, Douze, Jégou 2017: figures 3 and 4,
// table 1; Bustos et al. 2006.
//
//   gpu_bench [--small] [--only WORK] [--json FILE]
//     --small  sizes for the emulated device, to see that all of it works
//     --only   selection, search, unfused, kmeans, cells, codes or manhattan
#include <cmath>
#include <cstring>
#include <optional>

#ifdef __CUDACC__
#include <cub/device/device_segmented_sort.cuh>
#include <cuda_runtime_api.h>
#endif

#include "measure.hpp"
#include "ops/assignment.hpp"
#include "ops/blocks.hpp"
#include "ops/gpu/gpu_ops.hpp"
#include "ops/gpu/scan.hpp"
#include "ops/gpu/select_rows.hpp"
#include "plain.cuh"
#include "roofline.cuh"
#include "truth.hpp"

namespace gigaknn::bench {
namespace {

using gpu::SelectMethod;
using gpu::SelectPlan;
using simt::DeviceBuffer;

__global__ void random_floats_kernel(float* values, std::int64_t count, std::uint64_t seed) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    std::uint64_t x = (static_cast<std::uint64_t>(i) + seed) * 0x9E3779B97F4A7C15u;  // splitmix64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    values[i] = static_cast<float>(x >> 40) * 0x1p-24f;
  }
}

// ---- work

const char* name_of(SelectMethod method) {
  switch (method) {
    case SelectMethod::thread_queues: return "thread queues";
    case SelectMethod::ballot_buffer: return "ballot buffer";
    default: return "stream";
  }
}

void select_plainly(const float* matrix, std::int64_t rows, std::int64_t columns, std::int64_t k, PackedNeighbor* out,
                    simt::Stream* stream) {
  simt::launch({static_cast<unsigned>((rows + 63) / 64), 64, 0, stream}, plain_select, matrix, rows, columns, static_cast<int>(k), out);
}

// What a selection found in the first and the last row, against a sort.
bool selection_holds(const DeviceBuffer<float>& values, const DeviceBuffer<PackedNeighbor>& out, std::int64_t rows, std::int64_t length,
                     std::int64_t k, const std::string& work, simt::Stream* stream) {
  std::vector<float> row(static_cast<std::size_t>(length));
  std::vector<PackedNeighbor> found(static_cast<std::size_t>(k));
  bool right = true;
  for (const std::int64_t r : {std::int64_t{0}, rows - 1}) {
    simt::copy(row.data(), values.get() + r * length, row.size() * sizeof(float), stream);
    simt::copy(found.data(), out.get() + r * k, found.size() * sizeof(PackedNeighbor), stream);
    simt::synchronize(stream);
    std::vector<PackedNeighbor> keys;
    for (std::size_t i = 0; i < row.size(); ++i) keys.push_back(pack_neighbor(row[i], static_cast<LocalRow>(i)));
    right = expect_right(found == nearest_of(std::move(keys), k), join_text(work, ", row ", r)) && right;
  }
  return right;
}

// Figure 3: selection over the length of rows, as a share of the peak, by every method; select_table is set by this.
void measure_selection(simt::Stream* stream, const Roof& roof) {
  const std::int64_t rows = small ? 8 : 10000;
  const std::int64_t longest = small ? 2000 : 128000;
  const DeviceBuffer<float> values(static_cast<std::size_t>(rows * longest), stream);
  simt::launch({1024, 256, 0, stream}, random_floats_kernel, values.get(), rows * longest, std::uint64_t{7});
  const DeviceBuffer<PackedNeighbor> out(static_cast<std::size_t>(rows * 2048), stream);
  const int multiprocessors = simt::multiprocessors(0);
  const auto run = [&](std::int64_t length, std::int64_t k, double target_ms) {
    // Shorter rows are so many matrices, which take turns: 40 MB of them would stay in the L2 cache.
    const std::int64_t matrices = longest / length;
    const auto measure = [&](const std::string& way, double target, int repeats, int warm_ups,
                             const std::function<void(const float*)>& select) {
      const std::string name = join_text("select ", rows, " x ", length, ", k = ", k, way);
      simt::fill(out.get(), 0, static_cast<std::size_t>(rows * k) * sizeof(PackedNeighbor), stream);  // what another way left
      select(values.get());
      const bool right = selection_holds(values, out, rows, length, k, name, stream);
      report_if(right, {name, roof.of_bytes(static_cast<double>(rows * length) * sizeof(float)), small ? 0 : target}, [&] {
        return device_ms(stream, small ? 1 : repeats, [&](int i) { select(values.get() + (i + 1) % matrices * rows * length); }, warm_ups);
      });
    };
    if (k <= most_plain_k) {
      measure(": plain, a thread a row", 0, 1, 0,
              [&](const float* matrix) { select_plainly(matrix, rows, length, k, out.get(), stream); });
    }
    const auto measure_plan = [&](const SelectPlan& plan, bool by_table) {
      measure(join_text(by_table ? " (table): " : ": ", name_of(plan.method), " x ", plan.warps), by_table ? target_ms : 0, 5, 2,
              [&](const float* matrix) { gpu::select_rows(matrix, nullptr, rows, length, length, k, plan, out.get(), stream); });
    };
    const SelectPlan chosen = gpu::select_plan(rows, length, k, multiprocessors);
    measure_plan(chosen, true);
    std::vector<SelectPlan> others = {{SelectMethod::stream, 1, 1}};
    for (const int warps : {1, 2, 4}) others.push_back({SelectMethod::thread_queues, warps, 1});
    for (const int warps : {1, 2}) {
      if (k <= gpu::most_ballot_buffer_k) others.push_back({SelectMethod::ballot_buffer, warps, 1});
    }
    for (const SelectPlan& plan : others) {
      if (plan.method != chosen.method || plan.warps != chosen.warps) measure_plan(plan, false);
    }
  };
  for (const int k : {10, 32, 100, 256}) run(longest, k, 1.6);
  run(longest, 1000, 2.2);
  run(longest, 2048, 3);
  for (std::int64_t length = 1000; length < longest; length *= 2) {
    run(length, 100, 0);
    run(length, 1000, 0);
  }
}

// Memory of the host that a device copies from by itself, for as long as this lives.
#ifdef __CUDACC__
class Pinned {
 public:
  explicit Pinned(Matrix& rows) : memory_(rows.data()) {
    const auto bytes = static_cast<std::size_t>(rows.rows() * rows.ref().stride_bytes);
    const cudaError_t error = cudaHostRegister(memory_, bytes, cudaHostRegisterDefault);
    require(error == cudaSuccess, Fault::device, "host memory cannot be pinned: ", cudaGetErrorString(error));
  }
  Pinned(const Pinned&) = delete;
  ~Pinned() { cudaHostUnregister(memory_); }

 private:
  void* memory_;
};
#else
struct Pinned {
  explicit Pinned(Matrix&) {}  // the emulated device knows one kind
};
#endif

// A base that does not fit: blocks are copied and encoded while those before are searched. To copy it takes some time at least.
void measure_streamed(const Ops& ops, Matrix& base, const Matrix& queries, const Truth& truth, const Roof& roof) {
  const std::int64_t n = base.rows(), d = base.cols(), q = queries.rows(), k = 10;
  const std::string name = join_text(n, " x ", d, " ", name_of(base.dtype()));
  const PrepareHints hints{.k = k, .queries = q, .batch = q, .self = false};
  RunOptions run;
  const auto needed = [&](std::int64_t rows) { return ops.device_bytes_needed(rows, d, base.dtype(), Metric::l2, hints); };
  run.device_memory_bytes = std::min(2 * needed(std::max<std::int64_t>(n / 8, 1024)), needed(n) - 1);
  double upload_ms = 0;
  const auto measure = [&](const std::string& memory) {
    const BlockedBase rows(ops, base, Metric::l2, hints, 0, run);
    Neighbors found(q, k);
    const auto search = [&] { rows.nearest(queries, k, NeighborsOut(found), run); };
    const std::string work = join_text("search ", q, " in ", name, ", k = ", k, ", streamed from ", memory, " memory, budget ",
                                       run.device_memory_bytes >> 20, " MiB, ", rows.block_rows(), " rows a block");
    search();
    const bool right = expect_right(rows.whole() == nullptr, work + ": it fits") && truth.holds(found, work);
    report_if(right, {work, std::max(upload_ms, roof.of_search(q, n, d, base.dtype()))}, [&] { return host_ms(small ? 1 : 3, search, 0); });
  };
  {
    const Pinned pinned(base);
    {
      const simt::OwnStream stream(0);
      const DeviceBuffer<std::byte> there(static_cast<std::size_t>(n * d) * size_of(base.dtype()), stream);
      upload_ms = device_ms(stream, small ? 1 : 3, [&](int) { simt::copy(there.get(), base.data(), there.size(), stream); });
      report({"upload " + name + " from pinned memory"}, upload_ms);
    }
    measure("pinned");
  }
  measure("pageable");
}

void measure_search(const Ops& ops, DType dtype, const Roof& roof) {
  const std::int64_t n = small ? 3000 : 1000000;
  const std::int64_t q = small ? 20 : 10000;
  const std::int64_t d = small ? 16 : 128;
  Matrix base = make_rows(n, d, dtype, 1);
  const Matrix queries = make_rows(q, d, dtype, 2);
  const std::string name = join_text(n, " x ", d, " ", name_of(dtype));
  const PrepareHints hints{.k = 10, .queries = q, .batch = q, .self = false};
  std::unique_ptr<PreparedRows> rows;
  report({"prepare " + name}, host_ms(small ? 1 : 3, [&] { rows = ops.prepare(base, Metric::l2, hints, {}); }));
  const Truth truth(queries, base, Metric::l2, 1000);
  const auto measure = [&](std::int64_t asked, std::int64_t k, int repeats, double target_ms) {
    const std::string work = join_text("search ", asked, " in ", name, ", k = ", k);
    Neighbors found(asked, k);
    const auto search = [&] { ops.nearest_rows(*rows, queries.ref().slice(0, asked), k, NeighborsOut(found), {}, -1); };
    search();
    report_if(truth.holds(found, work), {work, roof.of_search(asked, n, d, dtype), small ? 0 : target_ms},
              [&] { return host_ms(small ? 1 : repeats, search); });
  };
  const bool bytes = dtype == DType::u8;
  measure(q, 1, 5, 0);
  measure(q, 10, 5, bytes ? 3 : 5);
  measure(q, 100, 5, 8);
  measure(q, 1000, 5, 20);
  measure(1, 10, 20, bytes ? 0 : 0.15);
  if (!bytes) {
    for (const std::int64_t asked : {2, 16}) measure(asked, 10, 20, 0);
    rows.reset();
    measure_streamed(ops, base, queries, truth, roof);
    return;
  }
  const std::string work = "exact 10-NN graph of " + name;
  Neighbors graph(n, 10);
  const auto build = [&] { ops.self_nearest(*rows, 10, NeighborsOut(graph), {}); };
  build();
  const bool right = Truth(base, base, Metric::l2, 10, Truth::Self::is_left_out).holds(graph, work);
  // Of each pair one product.
  const double roof_ms = roof.of_products(static_cast<double>(n) * static_cast<double>(n) / 2 * static_cast<double>(d), dtype);
  report_if(right, {work, roof_ms, small ? 0.0 : 600}, [&] { return host_ms(1, build, 0); });
}

// The matrix of distances, a part at a time on two streams, whose rows something else selects from.
class UnfusedSearch {
 public:
  UnfusedSearch(MatrixRef queries, MatrixRef base)
      : q_(queries.rows), n_(base.rows), d_(base.cols), x_(upload(queries)), y_(upload(base)),
        matrices_{DeviceBuffer<float>(static_cast<std::size_t>(part() * n_), streams_[0]),
                  DeviceBuffer<float>(static_cast<std::size_t>(part() * n_), streams_[1])} {
    simt::synchronize(streams_[0]);
  }

  static std::int64_t part() { return small ? 16 : 256; }  // queries whose distances are in memory at once, on each stream
  const DeviceBuffer<float>& matrix() const { return matrices_[0]; }
  simt::Stream* stream() const { return streams_[0]; }

  // Distances of queries `first` ... `first` + part() - 1 on stream s.
  void fill(std::int64_t first, int s) const {
    simt::launch({{static_cast<unsigned>((n_ + plain_side - 1) / plain_side), static_cast<unsigned>(part() / plain_side)},
                  {plain_side, plain_side}, 0, streams_[s]},
                 plain_distances, x_.get() + first * d_, y_.get(), part(), n_, static_cast<int>(d_), matrices_[s].get());
  }
  // select(matrix, first query, stream) of each part's distances.
  void run(const std::function<void(const float*, std::int64_t, simt::Stream*)>& select) const {
    for (std::int64_t first = 0; first < q_; first += part()) {
      const int s = static_cast<int>(first / part() % 2);
      fill(first, s);
      select(matrices_[s].get(), first, streams_[s]);
    }
    for (const simt::OwnStream& stream : streams_) simt::synchronize(stream);
  }

 private:
  DeviceBuffer<float> upload(MatrixRef from) const {
    return DeviceBuffer<float>(std::span(from.row<float>(0), static_cast<std::size_t>(from.rows * from.cols)), streams_[0]);
  }

  std::int64_t q_, n_, d_;
  simt::OwnStream streams_[2] = {simt::OwnStream(0), simt::OwnStream(0)};
  DeviceBuffer<float> x_, y_;  // [q, d], [n, d]
  DeviceBuffer<float> matrices_[2];  // [part, n]
};

// Some of a row of `matrix`, the distances of the first queries.
bool distances_hold(const std::vector<float>& row, std::int64_t query, const Matrix& queries, const Matrix& base, const std::string& work) {
  for (std::int64_t i = 0; i < base.rows(); i += 97) {
    const float got = row[static_cast<std::size_t>(i)], want = plain_distance(queries, query, base, i, Metric::l2);
    if (!Truth::is_near(got, want)) {
      return expect_right(false, join_text(work, ": ", got, ", expected ", want, ", query ", query, ", row ", i));
    }
  }
  return true;
}

std::vector<float> download_row(const DeviceBuffer<float>& matrix, std::int64_t row, std::int64_t columns, simt::Stream* stream) {
  std::vector<float> values(static_cast<std::size_t>(columns));
  simt::copy(values.data(), matrix.get() + row * columns, values.size() * sizeof(float), stream);
  simt::synchronize(stream);
  return values;
}

#ifdef __CUDACC__
void measure_full_sort(const UnfusedSearch& unfused, std::int64_t n, const std::string& set) {
  const std::int64_t part = UnfusedSearch::part();
  const DeviceBuffer<float> sorted(static_cast<std::size_t>(part * n), unfused.stream());
  std::vector<int> begins;
  for (std::int64_t i = 0; i <= part; ++i) begins.push_back(static_cast<int>(i * n));
  const DeviceBuffer<int> offsets(std::span<const int>(begins), unfused.stream());
  std::size_t bytes = 0;
  const auto sort = [&](void* scratch) {
    const cudaError_t error = cub::DeviceSegmentedSort::SortKeys(
        scratch, bytes, unfused.matrix().get(), sorted.get(), static_cast<int>(part * n), static_cast<int>(part), offsets.get(),
        offsets.get() + 1, simt::OnStream(unfused.stream()));
    require(error == cudaSuccess, Fault::device, "a sort failed: ", cudaGetErrorString(error));
  };
  sort(nullptr);
  const DeviceBuffer<std::byte> scratch(bytes, unfused.stream());
  const auto run = [&] {
    unfused.fill(0, 0);
    sort(scratch.get());
    simt::synchronize(unfused.stream());
  };
  run();
  const std::string work = "distances, then a full sort " + set;
  bool right = true;
  for (const std::int64_t row : some_of(part)) {
    std::vector<float> want = download_row(unfused.matrix(), row, n, unfused.stream());
    std::sort(want.begin(), want.end());
    right = expect_right(download_row(sorted, row, n, unfused.stream()) == want, join_text(work, ": row ", row)) && right;
  }
  report_if(right, {work}, [&] { return host_ms(1, run, 0); });
}
#endif

// Figure 4: exact search over k by the matrix of distances, with a plain selection, with selection and with a full sort; and by a fused
// search.
void measure_unfused(const Ops& ops, const Roof& roof) {
  const std::int64_t n = small ? 3000 : 1000000;
  const std::int64_t q = small ? 32 : 1024;
  const std::int64_t d = small ? 16 : 128;
  const std::int64_t part = UnfusedSearch::part();
  const Matrix base = make_rows(n, d, DType::f32, 1);
  const Matrix queries = make_rows(q, d, DType::f32, 2);
  const Truth truth(queries, base, Metric::l2, 1000);
  const auto rows = ops.prepare(base, Metric::l2, {.k = 10, .queries = q, .batch = q, .self = false}, {});
  const UnfusedSearch unfused(queries, base);

  const std::string part_name = join_text(part, " in ", n, " x ", d, " f32");
  const std::string distances = "plain distances " + part_name;
  unfused.fill(0, 0);
  bool right = true;
  for (const std::int64_t row : some_of(part)) {
    right = right && distances_hold(download_row(unfused.matrix(), row, n, unfused.stream()), row, queries, base, distances);
  }
  const double written_ms = roof.of_bytes(static_cast<double>(part * n) * sizeof(float));
  const auto fill = [&](int) { unfused.fill(0, 0); };
  report_if(right, {distances, std::max(written_ms, roof.of_search(part, n, d, DType::f32))},
            [&] { return device_ms(unfused.stream(), small ? 1 : 3, fill, 0); });

  const double roof_ms = roof.of_search(q, n, d, DType::f32);
  for (const std::int64_t k : {1, 10, 100, 1000}) {
    const std::string name = join_text(" ", q, " in ", n, " x ", d, " f32, k = ", k);
    const DeviceBuffer<PackedNeighbor> out(static_cast<std::size_t>(q * k), unfused.stream());
    simt::synchronize(unfused.stream());
    using Select = std::function<void(const float*, PackedNeighbor*, simt::Stream*)>;
    const auto measure = [&](const std::string& work, int repeats, const Select& select) {
      const auto search = [&] {
        unfused.run([&](const float* matrix, std::int64_t first, simt::Stream* stream) { select(matrix, out.get() + first * k, stream); });
      };
      simt::fill(out.get(), 0, out.size() * sizeof(PackedNeighbor), unfused.stream());  // what another way left
      simt::synchronize(unfused.stream());
      search();
      report_if(truth.nearly_holds(out.download(), k, work + name), {work + name, roof_ms},
                [&] { return host_ms(small ? 1 : repeats, search, 0); });
    };
    if (k <= most_plain_k) {
      measure("plain distances, then plain selection on two streams", 1,
              [&](const float* matrix, PackedNeighbor* to, simt::Stream* stream) { select_plainly(matrix, part, n, k, to, stream); });
    }
    measure("distances, then selection on two streams", 2, [&](const float* matrix, PackedNeighbor* to, simt::Stream* stream) {
      gpu::select_rows(matrix, nullptr, part, n, n, k, to, stream);
    });
    Neighbors found(q, k);
    const auto fused = [&] { ops.nearest_rows(*rows, queries, k, NeighborsOut(found), {}, -1); };
    fused();
    report_if(truth.holds(found, "fused" + name), {"fused" + name, roof_ms}, [&] { return host_ms(small ? 1 : 5, fused); });
  }
#ifdef __CUDACC__
  measure_full_sort(unfused, n, part_name);
#endif
}

// Table 1: k-means; what one round of its two steps takes, of rows that are kept on the device between rounds, as fit_kmeans keeps them,
// and of rows that come from the host each time. Centroids, labels and sums are the host's.
void measure_kmeans(const Ops& ops, const Roof& roof) {
  const std::int64_t n = small ? 3000 : 1000000;
  const std::int64_t d = small ? 16 : 128;
  const Matrix rows = make_rows(n, d, DType::f32, 5);
  const KeptRows kept = ops.keep_rows(rows, Metric::l2, DType::f32, 4096, {});
  for (const std::int64_t centroids : {256, 4096}) {
    if (small && centroids > 256) break;
    Matrix centers(centroids, d, DType::f32);
    for (std::int64_t i = 0; i < centroids; ++i) std::copy_n(rows.row<float>(i * (n / centroids)), d, centers.row<float>(i));
    Neighbors labels(n, 1);
    std::vector<double> sums(static_cast<std::size_t>(centroids * d));
    std::vector<std::int64_t> counts(static_cast<std::size_t>(centroids));
    const std::string name = join_text(" ", n, " x ", d, " f32, ", centroids, " centroids");
    const Truth truth(rows, centers, Metric::l2, 1);
    for (const auto& [from, where] : {std::pair<MatrixRef, std::string>(kept.rows, ", rows kept"), {rows, ""}}) {
      const auto assign = [&] {
        ops.start_assignment(from, Metric::l2, DType::f32, centroids, {})
            ->assign(centers, labels.ids.data(), labels.distances.data(), {});
      };
      assign();
      const std::string assignment = "k-means, assignment" + where + ":" + name;
      // The rows are what is long here: they are the base that is read once.
      report_if(truth.holds(labels, assignment), {assignment, roof.of_search(centroids, n, d, DType::f32)},
                [&] { return host_ms(small ? 1 : 3, assign); });
      const auto add = [&] { ops.sum_by_label(from, nullptr, labels.ids.data(), centroids, sums.data(), counts.data(), {}); };
      add();
      const std::string adding = "k-means, sums" + where + ":" + name;
      report_if(sums_hold(rows, labels, sums, counts, adding), {adding, roof.of_bytes(static_cast<double>(n * d) * sizeof(float))},
                [&] { return host_ms(small ? 1 : 3, add); });
    }
  }
}

// The cells that queries look into: as many each, the neighbours of a query mostly the same.
std::vector<RowId> make_probes(std::int64_t queries, std::int64_t cells, std::int64_t probed) {
  std::vector<RowId> probes;
  for (std::int64_t i = 0; i < queries * probed; ++i) probes.push_back(RowId{(i / probed * cells / queries + i % probed) % cells});
  return probes;
}

// Appends the keys of a cell's rows to a query.
using AppendCell = std::function<void(std::int64_t query, std::int64_t cell, std::vector<PackedNeighbor>& keys)>;

// Some of the queries against all rows of the cells that they look into.
bool probed_lists_hold(const Neighbors& found, const std::vector<RowId>& probes, const std::string& work, const AppendCell& append) {
  const std::int64_t probed = std::ssize(probes) / found.queries;
  const std::vector<std::int64_t> some = some_of(found.queries);
  return std::all_of(some.begin(), some.end(), [&](std::int64_t query) {
    std::vector<PackedNeighbor> keys;
    for (std::int64_t j = 0; j < probed; ++j) append(query, value_of(probes[static_cast<std::size_t>(query * probed + j)]), keys);
    return is_list(found, query, nearest_of(std::move(keys), found.k), work);
  });
}

// Rows in cells. Of 10,000 queries some 300 look into each, which is read once for 128 of them; of 200 six do, and each reads its own. The
// roof is that of the latter.
void measure_cells(const Ops& ops, DType dtype, const Roof& roof) {
  const std::int64_t cells = small ? 8 : 1024, n = small ? 2000 : 1024 * 1024, d = small ? 16 : 128, probed = small ? 3 : 32;
  const Matrix base = make_rows(n, d, dtype, 11);
  std::vector<std::int64_t> begins;
  for (std::int64_t cell = 0; cell <= cells; ++cell) begins.push_back(n * cell / cells);
  for (const std::int64_t q : {small ? 20 : 10000, small ? 2 : 200}) {
    const std::string work =
        join_text("cells: ", q, " queries in ", probed, " of ", cells, " of ", n, " x ", d, " ", name_of(dtype), ", k = 10");
    const PrepareHints hints{.k = 10, .queries = q, .batch = q, .self = false};
    const Matrix queries = make_rows(q, d, dtype, 12);
    const std::vector<RowId> probes = make_probes(q, cells, probed);
    const auto prepared = ops.prepare_cells(base, {{}, begins}, Metric::l2, hints, {});
    Neighbors found(q, 10);
    const auto search = [&] { ops.nearest_in_cells(*prepared, queries, probes.data(), probed, 10, NeighborsOut(found), {}, nullptr, {}); };
    search();
    const AppendCell append = [&](std::int64_t query, std::int64_t cell, std::vector<PackedNeighbor>& keys) {
      const auto at = static_cast<std::size_t>(cell);
      append_keys(queries, query, base, begins[at], begins[at + 1], Metric::l2, keys);
    };
    const double bytes = static_cast<double>(q * probed) * static_cast<double>(n / cells * d) * static_cast<double>(size_of(dtype));
    report_if(probed_lists_hold(found, probes, work, append), {work, roof.of_bytes(bytes)}, [&] { return host_ms(small ? 1 : 5, search); });
  }
}

// Codes drawn at random, of rows that stand in lists one after the other.
struct DrawnCodes {
  Matrix centroids, codewords;
  std::vector<std::int64_t> begins;
  std::vector<std::uint8_t> drawn;
  ProductCodes codes;
  std::vector<std::int64_t> blocks;  // [lists + 1] in which each begins

  DrawnCodes(std::int64_t n, std::int64_t d, std::int64_t lists, std::int64_t m, int bits)
      : centroids(make_rows(lists, d, DType::f32, 6)), codewords(make_rows(m << bits, d / m, DType::f32, 7)) {
    for (std::int64_t list = 0; list <= lists; ++list) begins.push_back(n * list / lists);
    codes = {.d = d, .m = m, .codewords = codewords, .centroids = centroids, .codes = {}, .cells = {{}, begins}, .bits = bits};
    blocks = codes.block_begins();
    drawn.resize(static_cast<std::size_t>(blocks.back() * codes.code_bytes() * code_block_rows));
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = static_cast<std::uint8_t>(random_bits(8, 0, i));
    codes.codes = drawn;
  }
  DrawnCodes(const DrawnCodes&) = delete;  // codes show what is here

  void append_keys_of_list(const Matrix& queries, std::int64_t query, std::int64_t list, std::vector<PackedNeighbor>& keys) const {
    Matrix row(1, codes.d, DType::f32);
    const std::int64_t begin = begins[static_cast<std::size_t>(list)], end = begins[static_cast<std::size_t>(list) + 1];
    for (std::int64_t i = 0; i < end - begin; ++i) {
      codes.decode(list, blocks[static_cast<std::size_t>(list)] + i / code_block_rows, i % code_block_rows, row.row<float>(0));
      keys.push_back(pack_neighbor(plain_distance(queries, query, row, 0, Metric::l2), static_cast<LocalRow>(begin + i)));
    }
  }
};

// Product codes in lists, as IVFADC scans them. Of 10,000 queries some 300 look into each list, whose rows are decoded for them; of 1,000
// 31 do, which read its codes by tables. The roof is that of a scan which reads each query's codes from memory; queries beside each other
// share lists, which the L2 cache may hold, so a share can be above 1.
void measure_codes(const Ops& ops, const Roof& roof) {
  const std::int64_t lists = small ? 8 : 1024, probed = small ? 3 : 32;
  const std::int64_t n = small ? 2000 : 1024 * 1024;
  const std::int64_t d = small ? 16 : 128;
  for (const auto& [m, bits] : {std::pair{d / 8, 8}, {d / 4, 8}, {d / 2, 4}}) {
    const DrawnCodes of(n, d, lists, m, bits);
    const std::string name = join_text(n, " x ", m, " parts of ", bits, " bits in ", lists, " lists");
    const double list_bytes = static_cast<double>(n / lists) * static_cast<double>(of.codes.code_bytes() + 4);  // with their norms
    for (const std::int64_t q : {small ? 20 : 10000, small ? 10 : 1000, 1}) {
      const PrepareHints hints{.k = 100, .queries = q, .batch = q, .self = false};
      const Matrix queries = make_rows(q, d, DType::f32, 9);
      const std::vector<RowId> probes = make_probes(q, lists, probed);
      const auto prepared = ops.prepare_codes(of.codes, Metric::l2, hints, {});
      for (const std::int64_t k : {10, 100}) {
        const std::string work = join_text("codes: ", q, " queries in ", probed, " lists of ", name, ", k = ", k);
        Neighbors found(q, k);
        const auto search = [&] { ops.nearest_in_codes(*prepared, queries, probes.data(), probed, k, NeighborsOut(found), {}); };
        search();
        const AppendCell append = [&](std::int64_t query, std::int64_t list, std::vector<PackedNeighbor>& keys) {
          of.append_keys_of_list(queries, query, list, keys);
        };
        report_if(probed_lists_hold(found, probes, work, append), {work, roof.of_bytes(list_bytes * static_cast<double>(q * probed))},
                  [&] { return host_ms(small ? 1 : 5, search); });
      }
    }
    const Matrix rows = make_rows(n, d, DType::f32, 10);
    std::vector<std::uint8_t> encoded(static_cast<std::size_t>(n * m));
    const auto encode = [&] { ops.encode_products(rows, of.codewords, encoded.data(), {}); };
    encode();
    const std::string work = join_text("encode ", n, " x ", d, " f32, ", m, " parts of ", bits, " bits");
    report_if(codes_hold(rows, of.codewords, m, encoded, work), {work}, [&] { return host_ms(small ? 1 : 3, encode); });
  }
}

// Bustos et al. 2006: nearest neighbour by l1; upload, compute and download apart. A search is all three, and what it takes beyond the
// copies of its queries and results is the rest.
void measure_manhattan(const Ops& ops, simt::Stream* stream) {
  const std::int64_t n = small ? 3000 : 262144;
  const std::int64_t q = small ? 20 : 1000;
  for (const std::int64_t d : {16, 64, 256}) {
    const Matrix base = make_rows(n, d, DType::f32, 3);
    const Matrix queries = make_rows(q, d, DType::f32, 4);
    const std::string name = join_text(" ", q, " in ", n, " x ", d, " f32 by l1, k = 1");
    const int repeats = small ? 1 : 5;
    const DeviceBuffer<float> there(static_cast<std::size_t>(n * d), stream);
    const auto upload_ms = [&](const Matrix& rows) {
      return host_ms(repeats, [&] {
        simt::copy(there.get(), rows.row<float>(0), static_cast<std::size_t>(rows.rows() * d) * sizeof(float), stream);
        simt::synchronize(stream);
      });
    };
    report({"upload:" + name}, upload_ms(base));
    std::unique_ptr<PreparedRows> rows;
    report({"upload and prepare:" + name}, host_ms(small ? 1 : 3, [&] {
             rows = ops.prepare(base, Metric::l1, {.k = 1, .queries = q, .batch = q, .self = false}, {});
           }));
    Neighbors found(q, 1);
    const auto search = [&] { ops.nearest_rows(*rows, queries, 1, NeighborsOut(found), {}, -1); };
    search();
    const double queries_ms = upload_ms(queries);
    report({"upload of queries:" + name}, queries_ms);
    const DeviceBuffer<PackedNeighbor> keys(static_cast<std::size_t>(q), stream);
    const double download_ms = host_ms(repeats, [&] { keys.download(); });
    report({"download:" + name}, download_ms);
    const std::string all = "upload of queries, compute, download:" + name;
    double all_ms = 0;
    const bool right = Truth(queries, base, Metric::l1, 1).holds(found, all);
    report_if(right, {all}, [&] { return all_ms = host_ms(repeats, search); });
    if (right) report({"compute, what remains of that:" + name}, all_ms - queries_ms - download_ms);
    if (small) break;
  }
}

int run(int argc, char** argv) {
  std::string json;
  std::string only;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--small") == 0) {
      small = true;
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      only = argv[++i];
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: gpu_bench [--small] [--only WORK] [--json FILE]\n");
      return 2;
    }
  }
  const std::vector<const Ops*> devices = gpu::devices();
  require(!devices.empty(), Fault::device, "there is no GPU here");
  const Ops& ops = *devices.front();
  const char* const streamed = gpu::streams_slabs(0) ? ", streamed" : "";
  std::printf("%s, %d multiprocessors, products by %s%s\n", simt::device_name(0).c_str(), simt::multiprocessors(0),
              gpu::multiplies_by_warpgroups(0) ? "warpgroups (wgmma)" : "warps (mma.sync)", streamed);
  json_file.open(json, simt::device_name(0));
  const simt::OwnStream stream(0);
  const Roof roof = measure_roof(stream);
  const std::pair<std::string, std::function<void()>> works[] = {
      {"selection", [&] { measure_selection(stream, roof); }},
      {"search",
       [&] {
         for (const DType dtype : {DType::f32, DType::u8}) {
           attempt(join_text("search ", name_of(dtype)), [&] { measure_search(ops, dtype, roof); });
         }
       }},
      {"unfused", [&] { measure_unfused(ops, roof); }},
      {"kmeans", [&] { measure_kmeans(ops, roof); }},
      {"cells",
       [&] {
         for (const DType dtype : {DType::f32, DType::u8}) {
           attempt(join_text("cells ", name_of(dtype)), [&] { measure_cells(ops, dtype, roof); });
         }
       }},
      {"codes", [&] { measure_codes(ops, roof); }},
      {"manhattan", [&] { measure_manhattan(ops, stream); }},
  };
  bool known = only.empty();
  for (const auto& [name, measure] : works) {
    if (!only.empty() && only != name) continue;
    known = true;
    attempt(name, measure);
  }
  require(known, Fault::invalid_argument, "no work is called ", only);
  json_file.finish();
  return wrong_results > 0;
}

}  // namespace
}  // namespace gigaknn::bench

int main(int argc, char** argv) {
  try {
    return gigaknn::bench::run(argc, argv);
  } catch (const gigaknn::Error& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 3;
  }
}
