// Times the GPU's work against the roofline of the machine it runs on, which it measures first:
// bytes over the bandwidth of a copy. Every result is checked on a sample of rows before it is
// timed. Medians; kernels by events of the device, whole searches (vectors and results on the host)
// by the clock.
//
//   gpu_bench [--small] [--json FILE]      --small: sizes for the emulated device, to see that all
//   of it works
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "core/require.hpp"
#include "ops/gpu/gpu_ops.hpp"
#include "ops/gpu/select_rows.hpp"
#include "simt/simt.cuh"

namespace gigaknn {
namespace {

using simt::DeviceBuffer;

bool small = false;
std::vector<std::string> json_rows;

double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// The median of `repeats` runs after two that warm up; run(i) may rotate among inputs.
double device_ms(simt::Stream* stream, int repeats, const std::function<void(int)>& run) {
  simt::Event* begin = simt::create_event();
  simt::Event* end = simt::create_event();
  std::vector<double> times;
  for (int i = -2; i < repeats; ++i) {
    simt::record(begin, stream);
    run(i + 2);
    simt::record(end, stream);
    const double elapsed = simt::milliseconds_between(begin, end);
    if (i >= 0) times.push_back(elapsed);
  }
  simt::destroy_event(begin);
  simt::destroy_event(end);
  return median(times);
}
double host_ms(int repeats, const std::function<void()>& run) {
  run();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double begin = now_ms();
    run();
    times.push_back(now_ms() - begin);
  }
  return median(times);
}

void report(const std::string& work, double ms, double roof_ms, double target_ms) {
  std::printf("%-58s %10.3f ms", work.c_str(), ms);
  if (roof_ms > 0) std::printf("  roof %8.3f ms (%5.1f %%)", roof_ms, 100 * roof_ms / ms);
  if (target_ms > 0)
    std::printf("  target %6.2f ms %s", target_ms, ms <= target_ms ? "met" : "MISSED");
  std::printf("\n");
  std::fflush(stdout);
  json_rows.push_back(join_text("{\"work\": \"", work, "\", \"ms\": ", ms,
                                ", \"roof_ms\": ", roof_ms, ", \"target_ms\": ", target_ms, "}"));
}

void require_right(bool right, const std::string& what) {
  require(right, Fault::device, "wrong result: ", what);
}

// ---- inputs

__global__ void random_floats_kernel(float* values, std::int64_t count, std::uint64_t seed) {
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    std::uint64_t x = (static_cast<std::uint64_t>(i) + seed) * 0x9E3779B97F4A7C15u;  // splitmix64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    values[i] = static_cast<float>(x >> 40) * 0x1p-24f;
  }
}

// Rows around 1,000 centres, so that neighbours are nearer than the rest; in f32, or rounded to u8.
Matrix make_rows(std::int64_t n, std::int64_t d, DType dtype, std::uint64_t seed) {
  Matrix rows(n, d, dtype);
  std::uint64_t state = seed;
  const auto next = [&] {
    state += 0x9E3779B97F4A7C15u;
    std::uint64_t x = state;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return static_cast<double>((x ^ x >> 31) >> 11) * 0x1p-53;
  };
  for (std::int64_t i = 0; i < n; ++i) {
    const auto centre = static_cast<std::uint64_t>(next() * 1000);
    for (std::int64_t j = 0; j < d; ++j) {
      const double value = 64 + 128 * random_unit(99, centre, static_cast<std::uint64_t>(j)) +
                           60 * (next() + next() - 1);
      if (dtype == DType::u8) {
        rows.row<std::uint8_t>(i)[j] = static_cast<std::uint8_t>(std::clamp(value, 0.0, 255.0));
      } else {
        rows.row<float>(i)[j] = static_cast<float>(value);
      }
    }
  }
  return rows;
}

double element(const Matrix& rows, std::int64_t i, std::int64_t j) {
  return rows.dtype() == DType::u8 ? rows.row<std::uint8_t>(i)[j] : rows.row<float>(i)[j];
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

// Johnson, Douze, Jégou 2017, figure 3: selection over the length of rows, as a share of the peak.
void measure_selection(simt::Stream* stream, double bytes_a_ms) {
  const std::int64_t rows = small ? 8 : 10000;
  const std::int64_t longest = small ? 2000 : 128000;
  const DeviceBuffer<float> values(static_cast<std::size_t>(rows * longest), stream);
  simt::launch({1024, 256, 0, stream}, random_floats_kernel, values.get(), rows * longest,
               std::uint64_t{7});
  const DeviceBuffer<PackedNeighbor> out(static_cast<std::size_t>(rows * 2048), stream);
  const auto run = [&](std::int64_t length, int k, double target_ms) {
    const auto select = [&] {
      gpu::select_rows(values.get(), nullptr, rows, length, length, k, out.get(), stream);
    };
    select();
    std::vector<float> row(static_cast<std::size_t>(length));
    std::vector<PackedNeighbor> found(static_cast<std::size_t>(k));
    for (const std::int64_t r : {std::int64_t{0}, rows - 1}) {
      simt::copy(row.data(), values.get() + r * length, row.size() * sizeof(float), stream);
      simt::copy(found.data(), out.get() + r * k, found.size() * sizeof(PackedNeighbor), stream);
      simt::synchronize(stream);
      std::vector<PackedNeighbor> want;
      for (std::size_t i = 0; i < row.size(); ++i)
        want.push_back(pack_neighbor(row[i], static_cast<LocalRow>(i)));
      want.resize(std::max(want.size(), found.size()), no_neighbor);
      std::partial_sort(want.begin(), want.begin() + k, want.end());
      want.resize(found.size());
      require_right(found == want, join_text("selection, row ", r, ", length ", length, ", k ", k));
    }
    const double ms = device_ms(stream, small ? 1 : 7, [&](int) { select(); });
    report(join_text("k-selection ", rows, " x ", length, ", k = ", k), ms,
           static_cast<double>(rows * length) * sizeof(float) / bytes_a_ms, small ? 0 : target_ms);
  };
  for (const int k : {32, 100, 256}) run(longest, k, 1.6);
  run(longest, 1000, 2.2);
  run(longest, 2048, 3);
  for (std::int64_t length = small ? 1000 : 1000; length < longest; length *= 2) {
    run(length, 100, 0);
    run(length, 1000, 0);
  }
}

// The first answers again, in float64 by the definition of l2 or l1.
void check_answers(const Matrix& queries, const Matrix& base, Metric metric,
                   const Neighbors& found) {
  const std::int64_t checked = std::min<std::int64_t>(3, found.queries);
  for (std::int64_t q = 0; q < checked; ++q) {
    std::vector<PackedNeighbor> want;
    for (std::int64_t i = 0; i < base.rows(); ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < base.cols(); ++j) {
        const double difference = element(queries, q, j) - element(base, i, j);
        sum += metric == Metric::l1 ? std::abs(difference) : difference * difference;
      }
      want.push_back(pack_neighbor(static_cast<float>(sum), static_cast<LocalRow>(i)));
    }
    std::nth_element(want.begin(), want.begin() + (found.k - 1), want.end());
    const float kth = key_of(want[static_cast<std::size_t>(found.k - 1)]);
    const float got = found.distances[static_cast<std::size_t>((q + 1) * found.k - 1)];
    require_right(std::abs(got - kth) <= 1e-6f * kth,
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

// Bustos et al. 2006: nearest neighbour by l1; the upload is the preparation.
void measure_manhattan(const Ops& ops) {
  const std::int64_t n = small ? 3000 : 262144;
  const std::int64_t q = small ? 20 : 1000;
  for (const std::int64_t d : {16, 64, 256}) {
    const Matrix base = make_rows(n, d, DType::f32, 3);
    const Matrix queries = make_rows(q, d, DType::f32, 4);
    std::unique_ptr<PreparedRows> rows;
    const PrepareHints hints{.k = 1, .queries = q, .batch = q, .self = false};
    report(join_text("upload ", n, " x ", d, " f32"),
           host_ms(3, [&] { rows = ops.prepare(base, Metric::l1, hints, {}); }), 0, 0);
    Neighbors found(q, 1);
    const auto search = [&] { ops.nearest_rows(*rows, queries, 1, NeighborsOut(found), {}, -1); };
    search();
    check_answers(queries, base, Metric::l1, found);
    report(join_text("1-NN by l1, ", q, " in ", n, " x ", d), host_ms(small ? 1 : 5, search), 0, 0);
    if (small) break;
  }
}

int run(int argc, char** argv) {
  std::string json;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--small") == 0) {
      small = true;
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      std::fprintf(stderr, "usage: gpu_bench [--small] [--json FILE]\n");
      return 2;
    }
  }
  const std::vector<const Ops*> devices = gpu::devices();
  require(!devices.empty(), Fault::device, "there is no GPU here");
  const Ops& ops = *devices.front();
  std::printf("%s, %d multiprocessors\n", simt::device_name(0).c_str(), simt::multiprocessors(0));
  const simt::OwnStream stream(0);
  const double bytes_a_ms = measure_copy(stream);
  measure_selection(stream, bytes_a_ms);
  measure_search(ops, DType::f32, bytes_a_ms);
  measure_search(ops, DType::u8, bytes_a_ms);
  measure_manhattan(ops);
  if (!json.empty()) {
    std::ofstream file(json);
    file << "{\"device\": \"" << simt::device_name(0)
         << "\", \"small\": " << (small ? "true" : "false") << ", \"rows\": [\n";
    for (std::size_t i = 0; i < json_rows.size(); ++i) file << (i ? ",\n  " : "  ") << json_rows[i];
    file << "\n]}\n";
    require(file.good(), Fault::io, "cannot write ", json);
  }
  return 0;
}

}  // namespace
}  // namespace gigaknn

int main(int argc, char** argv) {
  try {
    return gigaknn::run(argc, argv);
  } catch (const gigaknn::Error& error) {
    std::fprintf(stderr, "gpu_bench: %s\n", error.what());
    return 3;
  }
}
