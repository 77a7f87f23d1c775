// Times the GPU's work against the roofline of the machine it runs on, which it measures first:
// bytes over the bandwidth of a copy. Every result is checked on a sample of rows before it is
// timed. Medians; kernels by events of the device, whole searches (vectors and results on the host)
// by the clock. Johnson, Douze, Jégou 2017: figures 3 and 4, table 1; Bustos et al. 2006.
//
//   gpu_bench [--small] [--only WORK] [--json FILE]
//     --small  sizes for the emulated device, to see that all of it works
//     --only   selection, search, unfused, kmeans, cells, codes or manhattan
#include <cmath>
#include <cstring>
#include <optional>

#ifdef __CUDACC__
#include <cub/device/device_segmented_sort.cuh>
#endif

#include "measure.hpp"
#include "ops/gpu/gpu_ops.hpp"
#include "ops/gpu/scan.hpp"
#include "ops/gpu/select_rows.hpp"
#include "plain.cuh"

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

double measure_copy(simt::Stream* stream) {
  const std::size_t bytes = small ? std::size_t{1} << 20 : std::size_t{4} << 30;
  const DeviceBuffer<std::byte> from(bytes, stream);
  const DeviceBuffer<std::byte> to(bytes, stream);
  const double ms =
      device_ms(stream, 10, [&](int) { simt::copy(to.get(), from.get(), bytes, stream); });
  const double bandwidth = 2.0 * static_cast<double>(bytes) / ms * 1e-6;
  std::printf("copy: %.0f GB/s read and written\n", bandwidth);
  json_rows.push_back(join_text("{\"work\": \"copy\", \"gb_per_s\": ", bandwidth, "}"));
  return bandwidth * 1e6;  // bytes a ms
}

const char* name_of(SelectMethod method) {
  switch (method) {
    case SelectMethod::thread_queues: return "thread queues";
    case SelectMethod::ballot_buffer: return "ballot buffer";
    default: return "stream";
  }
}

// What a selection found in the first and the last row, against a sort.
void check_selection(const DeviceBuffer<float>& values, const DeviceBuffer<PackedNeighbor>& out, std::int64_t rows,
                     std::int64_t length, std::int64_t k, simt::Stream* stream) {
  std::vector<float> row(static_cast<std::size_t>(length));
  std::vector<PackedNeighbor> found(static_cast<std::size_t>(k));
  for (const std::int64_t r : {std::int64_t{0}, rows - 1}) {
    simt::copy(row.data(), values.get() + r * length, row.size() * sizeof(float), stream);
    simt::copy(found.data(), out.get() + r * k, found.size() * sizeof(PackedNeighbor), stream);
    simt::synchronize(stream);
    std::vector<PackedNeighbor> want;
    for (std::size_t i = 0; i < row.size(); ++i) want.push_back(pack_neighbor(row[i], static_cast<LocalRow>(i)));
    want.resize(std::max(want.size(), found.size()), no_neighbor);
    std::partial_sort(want.begin(), want.begin() + k, want.end());
    want.resize(found.size());
    expect_right(found == want, join_text("selection, row ", r, ", length ", length, ", k ", k));
  }
}

// Figure 3: selection over the length of rows, as a share of the peak, by every method; select_table is set by this.
void measure_selection(simt::Stream* stream, double bytes_a_ms) {
  const std::int64_t rows = small ? 8 : 10000;
  const std::int64_t longest = small ? 2000 : 128000;
  const DeviceBuffer<float> values(static_cast<std::size_t>(rows * longest), stream);
  simt::launch({1024, 256, 0, stream}, random_floats_kernel, values.get(), rows * longest, std::uint64_t{7});
  const DeviceBuffer<PackedNeighbor> out(static_cast<std::size_t>(rows * 2048), stream);
  const int multiprocessors = simt::multiprocessors(0);
  const auto run = [&](std::int64_t length, std::int64_t k, double target_ms) {
    const double roof = static_cast<double>(rows * length) * sizeof(float) / bytes_a_ms;
    const SelectPlan chosen = gpu::select_plan(rows, length, k, multiprocessors);
    const auto measure = [&](const SelectPlan& plan, bool by_table) {
      const auto select = [&] {
        gpu::select_rows(values.get(), nullptr, rows, length, length, k, plan, out.get(), stream);
      };
      select();
      check_selection(values, out, rows, length, k, stream);
      report(join_text("select ", rows, " x ", length, ", k = ", k, by_table ? " (table): " : ": ", name_of(plan.method), " x ",
                       plan.warps),
             device_ms(stream, small ? 1 : 5, [&](int) { select(); }), roof, by_table && !small ? target_ms : 0);
    };
    measure(chosen, true);
    std::vector<SelectPlan> others = {{SelectMethod::stream, 1, 1}};
    for (const int warps : {1, 2, 4}) others.push_back({SelectMethod::thread_queues, warps, 1});
    for (const int warps : {1, 2}) {
      if (k <= gpu::most_ballot_buffer_k) others.push_back({SelectMethod::ballot_buffer, warps, 1});
    }
    for (const SelectPlan& plan : others) {
      if (plan.method != chosen.method || plan.warps != chosen.warps) measure(plan, false);
    }
  };
  for (const int k : {10, 32, 100, 256}) run(longest, k, 1.6);
  run(longest, 1000, 2.2);
  run(longest, 2048, 3);
  for (std::int64_t length = 1000; length < longest; length *= 2) {
    run(length, 100, 0);
    run(length, 1000, 0);
  }
  const std::int64_t length = small ? 500 : 4000;
  const auto plain = [&] {
    simt::launch({static_cast<unsigned>((rows + 63) / 64), 64, 0, stream}, plain_select, values.get(), rows, length, 100, out.get());
  };
  plain();
  check_selection(values, out, rows, length, 100, stream);
  report(join_text("select ", rows, " x ", length, ", k = 100: plain, a thread a row"),
         device_ms(stream, 1, [&](int) { plain(); }), static_cast<double>(rows * length) * sizeof(float) / bytes_a_ms, 0);
}

// The first answers again, in float64 by the definition of l2 or l1.
void check_answers(MatrixRef queries, MatrixRef base, Metric metric,
                   const Neighbors& found) {
  const std::int64_t checked = std::min<std::int64_t>(3, found.queries);
  for (std::int64_t q = 0; q < checked; ++q) {
    std::vector<PackedNeighbor> want;
    for (std::int64_t i = 0; i < base.rows; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < base.cols; ++j) {
        const double difference = element(queries, q, j) - element(base, i, j);
        sum += metric == Metric::l1 ? std::abs(difference) : difference * difference;
      }
      want.push_back(pack_neighbor(static_cast<float>(sum), static_cast<LocalRow>(i)));
    }
    std::nth_element(want.begin(), want.begin() + (found.k - 1), want.end());
    const float kth = key_of(want[static_cast<std::size_t>(found.k - 1)]);
    const float got = found.distances[static_cast<std::size_t>((q + 1) * found.k - 1)];
    expect_right(std::abs(got - kth) <= 1e-6f * kth,
                 join_text("query ", q, ": k-th distance ", got, ", want ", kth));
  }
}

void measure_search(const Ops& ops, DType dtype, double bytes_a_ms) {
  const std::int64_t n = small ? 3000 : 1000000;
  const std::int64_t q = small ? 20 : 10000;
  const std::int64_t d = small ? 16 : 128;
  const Matrix base = make_rows(n, d, dtype, 1);
  const Matrix queries = make_rows(q, d, dtype, 2);
  const std::string name = join_text(n, " x ", d, " ", name_of(dtype));
  const RunOptions run;
  const PrepareHints hints{.k = 10, .queries = q, .batch = q, .self = false};
  std::unique_ptr<PreparedRows> rows;
  report("prepare " + name,
         host_ms(small ? 1 : 3, [&] { rows = ops.prepare(base, Metric::l2, hints, run); }), 0, 0);
  const bool bytes = dtype == DType::u8;
  const struct {
    std::int64_t k;
    double target_ms;
  } lists[] = {{1, 0}, {10, bytes ? 3.0 : 5.0}, {100, 8}, {1000, 20}};
  for (const auto& [k, target_ms] : lists) {
    Neighbors found(q, k);
    const auto search = [&] { ops.nearest_rows(*rows, queries, k, NeighborsOut(found), run, -1); };
    search();
    check_answers(queries, base, Metric::l2, found);
    report(join_text("search ", q, " in ", name, ", k = ", k), host_ms(small ? 1 : 5, search), 0,
           small ? 0 : target_ms);
  }
  Neighbors found(1, 10);
  const auto one = [&] {
    ops.nearest_rows(*rows, queries.ref().slice(0, 1), 10, NeighborsOut(found), run, -1);
  };
  one();
  check_answers(queries, base, Metric::l2, found);
  report("search 1 in " + name + ", k = 10", host_ms(small ? 1 : 20, one),
         static_cast<double>(n * d) * static_cast<double>(size_of(dtype)) / bytes_a_ms,
         small || bytes ? 0 : 0.15);
  if (bytes) {
    Neighbors graph(n, 10);
    report("exact 10-NN graph of " + name,
           host_ms(1, [&] { ops.self_nearest(*rows, 10, NeighborsOut(graph), run); }), 0,
           small ? 0 : 600);
  }
}

// Figure 4: exact search over k, by a fused search, by the matrix of distances on two streams with selection, and with a
// full sort.
void measure_unfused(const Ops& ops) {
  const std::int64_t n = small ? 3000 : 1000000;
  const std::int64_t q = small ? 32 : 1024;
  const std::int64_t d = small ? 16 : 128;
  const std::int64_t part = small ? 16 : 256;  // queries whose distances are in memory at once, on each of two streams
  const Matrix base = make_rows(n, d, DType::f32, 1);
  const Matrix queries = make_rows(q, d, DType::f32, 2);
  const auto rows = ops.prepare(base, Metric::l2, {.k = 10, .queries = q, .batch = q, .self = false}, {});
  const simt::OwnStream streams[] = {simt::OwnStream(0), simt::OwnStream(0)};
  const auto upload = [&](const Matrix& from) {
    return DeviceBuffer<float>(std::span(from.row<float>(0), static_cast<std::size_t>(from.rows() * d)), streams[0]);
  };
  const DeviceBuffer<float> x = upload(queries);
  const DeviceBuffer<float> y = upload(base);
  simt::synchronize(streams[0]);
  const DeviceBuffer<float> matrices[] = {DeviceBuffer<float>(static_cast<std::size_t>(part * n), streams[0]),
                                          DeviceBuffer<float>(static_cast<std::size_t>(part * n), streams[1])};
  const auto fill = [&](std::int64_t at, int s) {
    simt::launch({{static_cast<unsigned>((n + plain_side - 1) / plain_side), static_cast<unsigned>(part / plain_side)},
                  {plain_side, plain_side}, 0, streams[s]},
                 plain_distances, x.get() + at * d, y.get(), part, n, static_cast<int>(d), matrices[s].get());
  };
  for (const std::int64_t k : {1, 10, 100, 1000}) {
    const std::string name = join_text(" ", q, " in ", n, " x ", d, " f32, k = ", k);
    Neighbors found(q, k);
    report("fused" + name, host_ms(small ? 1 : 5, [&] {
             ops.nearest_rows(*rows, queries, k, NeighborsOut(found), {}, -1);
           }), 0, 0);
    const DeviceBuffer<PackedNeighbor> out(static_cast<std::size_t>(q * k), streams[0]);
    simt::synchronize(streams[0]);
    const auto unfused = [&] {
      for (std::int64_t at = 0; at < q; at += part) {
        const int s = static_cast<int>(at / part % 2);
        fill(at, s);
        gpu::select_rows(matrices[s].get(), nullptr, part, n, n, k, out.get() + at * k, streams[s]);
      }
      for (const simt::OwnStream& stream : streams) simt::synchronize(stream);
    };
    unfused();
    const std::vector<PackedNeighbor> keys = out.download();
    for (std::int64_t i = 0; i < q; ++i) {
      const float want = found.distances[static_cast<std::size_t>(i * k + k - 1)];
      const float got = key_of(keys[static_cast<std::size_t>(i * k + k - 1)]);
      expect_right(std::abs(got - want) <= 1e-4f * want, join_text("unfused, query ", i, ": ", got, ", fused ", want));
    }
    report("distances, then selection on two streams" + name, host_ms(small ? 1 : 2, unfused), 0, 0);
  }
#ifdef __CUDACC__
  const DeviceBuffer<float> sorted(static_cast<std::size_t>(part * n), streams[0]);
  std::vector<int> begins;
  for (std::int64_t i = 0; i <= part; ++i) begins.push_back(static_cast<int>(i * n));
  const DeviceBuffer<int> offsets(std::span<const int>(begins), streams[0]);
  std::size_t bytes = 0;
  const auto sort = [&](void* scratch) {
    cub::DeviceSegmentedSort::SortKeys(scratch, bytes, matrices[0].get(), sorted.get(), static_cast<int>(part * n),
                                       static_cast<int>(part), offsets.get(), offsets.get() + 1,
                                       static_cast<cudaStream_t>(simt::native_stream(streams[0])));
  };
  sort(nullptr);
  const DeviceBuffer<std::byte> scratch(bytes, streams[0]);
  report(join_text("distances, then a full sort ", part, " in ", n, " x ", d, " f32"), host_ms(1, [&] {
           fill(0, 0);
           sort(scratch.get());
           simt::synchronize(streams[0]);
         }), 0, 0);
#endif
}

// Table 1: k-means; what one round of its two steps takes, rows and sums on the host.
void measure_kmeans(const Ops& ops) {
  const std::int64_t n = small ? 3000 : 1000000;
  const std::int64_t d = small ? 16 : 128;
  const Matrix rows = make_rows(n, d, DType::f32, 5);
  for (const std::int64_t centroids : {256, 4096}) {
    if (small && centroids > 256) break;
    Matrix centers(centroids, d, DType::f32);
    for (std::int64_t i = 0; i < centroids; ++i) std::copy_n(rows.row<float>(i * (n / centroids)), d, centers.row<float>(i));
    std::vector<RowId> labels(static_cast<std::size_t>(n));
    std::vector<float> distances(static_cast<std::size_t>(n));
    std::vector<double> sums(static_cast<std::size_t>(centroids * d));
    std::vector<std::int64_t> counts(static_cast<std::size_t>(centroids));
    const std::string name = join_text(" ", n, " x ", d, " f32, ", centroids, " centroids");
    const auto assign = [&] {
      const auto prepared = ops.prepare(centers, Metric::l2, {.k = 1, .queries = n, .batch = n, .self = false}, {});
      ops.nearest_one(*prepared, rows, labels.data(), distances.data(), {});
    };
    assign();
    for (const std::int64_t i : {std::int64_t{0}, n / 2, n - 1}) {
      double best = HUGE_VAL;
      for (std::int64_t c = 0; c < centroids; ++c) {
        double sum = 0;
        for (std::int64_t j = 0; j < d; ++j) sum += std::pow(double{rows.row<float>(i)[j]} - centers.row<float>(c)[j], 2);
        best = std::min(best, sum);
      }
      expect_right(std::abs(best - distances[static_cast<std::size_t>(i)]) <= 1e-6 * best, "the nearest centroid");
    }
    report("k-means, assignment:" + name, host_ms(small ? 1 : 3, assign), 0, 0);
    report("k-means, sums:" + name, host_ms(small ? 1 : 3, [&] {
             ops.sum_by_label(rows, nullptr, labels.data(), centroids, sums.data(), counts.data(), {});
           }), 0, 0);
  }
}

// Rows in cells. Of 10,000 queries some 300 look into each, which is read once for 128 of them; of 200 six do, and each reads its own. The roof is that of the latter.
void measure_cells(const Ops& ops, DType dtype, double bytes_a_ms) {
  const std::int64_t cells = small ? 8 : 1024, n = small ? 2000 : 1024 * 1024, d = small ? 16 : 128, probed = small ? 3 : 32;
  const Matrix base = make_rows(n, d, dtype, 11);
  std::vector<std::int64_t> begins;
  for (std::int64_t cell = 0; cell <= cells; ++cell) begins.push_back(n * cell / cells);
  for (const std::int64_t q : {small ? 20 : 10000, small ? 2 : 200}) {
    const PrepareHints hints{.k = 10, .queries = q, .batch = q, .self = false};
    const Matrix queries = make_rows(q, d, dtype, 12);
    std::vector<RowId> probes;
    for (std::int64_t i = 0; i < q * probed; ++i) probes.push_back(RowId{(i / probed * cells / q + i % probed) % cells});
    const auto prepared = ops.prepare_cells(base, {{}, begins}, Metric::l2, hints, {});
    Neighbors found(q, 10);
    const auto search = [&] { ops.nearest_in_cells(*prepared, queries, probes.data(), probed, 10, NeighborsOut(found), {}, nullptr, {}); };
    search();
    Neighbors first(1, 10);
    std::copy_n(found.distances.begin(), 10, first.distances.begin());
    check_answers(queries.ref().slice(0, 1), base.ref().slice(0, begins[static_cast<std::size_t>(probed)]), Metric::l2, first);  // it looks into the first cells
    report(join_text("cells: ", q, " queries in ", probed, " of ", cells, " of ", n, " x ", d, " ", name_of(dtype), ", k = 10"), host_ms(small ? 1 : 5, search),
           static_cast<double>(q * probed) * static_cast<double>(n / cells * d) * static_cast<double>(size_of(dtype)) / bytes_a_ms, 0);
  }
}

// Product codes in lists, as IVFADC scans them. Of 10,000 queries some 300 look into each list, whose rows are decoded for them; of 1,000 31 do, which read its codes by tables. The roof is that of a scan which reads each query's codes from memory; queries beside each
// other share lists, which the L2 cache may hold, so a share can be above 1.
void measure_codes(const Ops& ops, double bytes_a_ms) {
  const std::int64_t lists = small ? 8 : 1024;
  const std::int64_t n = small ? 2000 : 1024 * 1024;
  const std::int64_t d = small ? 16 : 128;
  const Matrix centroids = make_rows(lists, d, DType::f32, 6);
  std::vector<std::int64_t> begins;
  for (std::int64_t list = 0; list <= lists; ++list) begins.push_back(n * list / lists);
  for (const auto& [m, bits] : {std::pair{d / 8, 8}, {d / 4, 8}, {d / 2, 4}}) {
    const Matrix codewords = make_rows(m << bits, d / m, DType::f32, 7);
    ProductCodes codes{.d = d, .m = m, .codewords = codewords, .centroids = centroids, .codes = {}, .cells = {{}, begins}, .bits = bits};
    std::vector<std::uint8_t> drawn(static_cast<std::size_t>(codes.block_begins().back() * codes.code_bytes() * code_block_rows));
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] = static_cast<std::uint8_t>(random_bits(8, 0, i));
    codes.codes = drawn;
    const std::string name = join_text(n, " x ", m, " parts of ", bits, " bits in ", lists, " lists");
    for (const std::int64_t q : {small ? 20 : 10000, small ? 10 : 1000, 1}) {
      const std::int64_t probed = small ? 3 : 32;
      const PrepareHints hints{.k = 100, .queries = q, .batch = q, .self = false};
      const Matrix queries = make_rows(q, d, DType::f32, 9);
      std::vector<RowId> probes;
      for (std::int64_t i = 0; i < q * probed; ++i) probes.push_back(RowId{(i / probed * lists / q + i % probed) % lists});
      const auto prepared = ops.prepare_codes(codes, Metric::l2, hints, {});
      for (const std::int64_t k : {10, 100}) {
        Neighbors found(q, k);
        const auto search = [&] { ops.nearest_in_codes(*prepared, queries, probes.data(), probed, k, NeighborsOut(found), {}); };
        search();
        std::vector<PackedNeighbor> want;
        std::vector<float> row(static_cast<std::size_t>(d));
        const std::vector<std::int64_t> blocks = codes.block_begins();
        for (std::int64_t j = 0; j < probed; ++j) {
          const auto list = static_cast<std::size_t>(value_of(probes[static_cast<std::size_t>(j)]));
          for (std::int64_t i = 0; i < begins[list + 1] - begins[list]; ++i) {
            codes.decode(static_cast<std::int64_t>(list), blocks[list] + i / code_block_rows, i % code_block_rows, row.data());
            double sum = 0;
            for (std::int64_t c = 0; c < d; ++c) sum += std::pow(double{queries.row<float>(0)[c]} - row[static_cast<std::size_t>(c)], 2);
            want.push_back(pack_neighbor(static_cast<float>(sum), static_cast<LocalRow>(begins[list] + i)));
          }
        }
        std::nth_element(want.begin(), want.begin() + (k - 1), want.end());
        const float kth = key_of(want[static_cast<std::size_t>(k - 1)]), got = found.distances[static_cast<std::size_t>(k - 1)];
        expect_right(std::abs(got - kth) <= 1e-6f * kth, join_text("codes, k-th distance ", got, ", want ", kth));
        const double bytes = static_cast<double>(q * probed) * static_cast<double>(n / lists) * static_cast<double>(codes.code_bytes() + 4);
        report(join_text("codes: ", q, " queries in ", probed, " lists of ", name, ", k = ", k), host_ms(small ? 1 : 5, search), bytes / bytes_a_ms, 0);
      }
    }
    const Matrix rows = make_rows(n, d, DType::f32, 10);
    std::vector<std::uint8_t> encoded(static_cast<std::size_t>(n * m));
    report(join_text("encode ", n, " x ", d, " f32, ", m, " parts of ", bits, " bits"),
           host_ms(small ? 1 : 3, [&] { ops.encode_products(rows, codewords, encoded.data(), {}); }), 0, 0);
  }
}

// Bustos et al. 2006: nearest neighbour by l1; upload, compute and download apart.
void measure_manhattan(const Ops& ops, simt::Stream* stream) {
  const std::int64_t n = small ? 3000 : 262144;
  const std::int64_t q = small ? 20 : 1000;
  for (const std::int64_t d : {16, 64, 256}) {
    const Matrix base = make_rows(n, d, DType::f32, 3);
    const Matrix queries = make_rows(q, d, DType::f32, 4);
    const std::string name = join_text(" ", q, " in ", n, " x ", d, " f32 by l1, k = 1");
    const DeviceBuffer<float> there(static_cast<std::size_t>(n * d), stream);
    report("upload:" + name, host_ms(small ? 1 : 5, [&] {
             simt::copy(there.get(), base.row<float>(0), static_cast<std::size_t>(n * d) * sizeof(float), stream);
             simt::synchronize(stream);
           }), 0, 0);
    std::unique_ptr<PreparedRows> rows;
    report("upload and prepare:" + name, host_ms(small ? 1 : 3, [&] {
             rows = ops.prepare(base, Metric::l1, {.k = 1, .queries = q, .batch = q, .self = false}, {});
           }), 0, 0);
    Neighbors found(q, 1);
    const auto search = [&] { ops.nearest_rows(*rows, queries, 1, NeighborsOut(found), {}, -1); };
    search();
    check_answers(queries, base, Metric::l1, found);
    report("upload of queries, compute, download:" + name, host_ms(small ? 1 : 5, search), 0, 0);
    const DeviceBuffer<PackedNeighbor> keys(static_cast<std::size_t>(q), stream);
    report("download:" + name, host_ms(small ? 1 : 5, [&] { keys.download(); }), 0, 0);
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
  std::printf("%s, %d multiprocessors, products by %s\n", simt::device_name(0).c_str(), simt::multiprocessors(0),
              !gpu::multiplies_by_warpgroups(0) ? "warps (mma.sync)" : gpu::streams_slabs(0) ? "warpgroups (wgmma), streamed" : "warpgroups (wgmma)");
  const simt::OwnStream stream(0);
  const double bytes_a_ms = measure_copy(stream);
  const std::pair<std::string, std::function<void()>> works[] = {
      {"selection", [&] { measure_selection(stream, bytes_a_ms); }},
      {"search",
       [&] {
         measure_search(ops, DType::f32, bytes_a_ms);
         measure_search(ops, DType::u8, bytes_a_ms);
       }},
      {"unfused", [&] { measure_unfused(ops); }},
      {"kmeans", [&] { measure_kmeans(ops); }},
      {"cells",
       [&] {
         measure_cells(ops, DType::f32, bytes_a_ms);
         measure_cells(ops, DType::u8, bytes_a_ms);
       }},
      {"codes", [&] { measure_codes(ops, bytes_a_ms); }},
      {"manhattan", [&] { measure_manhattan(ops, stream); }},
  };
  bool known = only.empty();
  for (const auto& [name, measure] : works) {
    if (!only.empty() && only != name) continue;
    known = true;
    measure();
  }
  require(known, Fault::invalid_argument, "no work is called ", only);
  if (!json.empty()) write_json(json, simt::device_name(0));
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
