// Clocks, inputs and the report of the GPU benchmark.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gigaknn/matrix.hpp>

#include "core/random.hpp"
#include "core/require.hpp"
#include "simt/device.hpp"

namespace gigaknn::bench {

using simt::DeviceBuffer;

inline bool small = false;  // sizes for the emulated device
inline std::vector<std::string> json_rows;

inline double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// The median of `repeats` runs after two that warm up; run(i) may rotate among inputs.
inline double device_ms(simt::Stream* stream, int repeats, const std::function<void(int)>& run) {
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
inline double host_ms(int repeats, const std::function<void()>& run) {
  run();
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    const double begin = now_ms();
    run();
    times.push_back(now_ms() - begin);
  }
  return median(times);
}

// What each kernel has taken since the last report, where launches are timed (device.hpp).
inline void report_kernels() {
  if (!simt::launches_are_timed()) return;
  static std::map<std::string, simt::KernelTime> before;
  const std::map<std::string, simt::KernelTime> now = simt::kernel_times();
  for (const auto& [name, time] : now) {
    const simt::KernelTime& then = before[name];
    if (time.launches == then.launches) continue;
    std::printf("    %-30s %8lld launches %12.3f ms\n", name.c_str(), static_cast<long long>(time.launches - then.launches),
                time.ms - then.ms);
  }
  before = now;
}

inline void report(const std::string& work, double ms, double roof_ms, double target_ms) {
  std::printf("%-58s %10.3f ms", work.c_str(), ms);
  if (roof_ms > 0) std::printf("  roof %8.3f ms (%5.1f %%)", roof_ms, 100 * roof_ms / ms);
  if (target_ms > 0)
    std::printf("  target %6.2f ms %s", target_ms, ms <= target_ms ? "met" : "MISSED");
  std::printf("\n");
  report_kernels();
  std::fflush(stdout);
  json_rows.push_back(join_text("{\"work\": \"", work, "\", \"ms\": ", ms,
                                ", \"roof_ms\": ", roof_ms, ", \"target_ms\": ", target_ms, "}"));
}

inline int wrong_results = 0;

// What follows is measured all the same, and main says that something was wrong.
inline void expect_right(bool right, const std::string& what) {
  if (right) return;
  ++wrong_results;
  std::printf("WRONG RESULT: %s\n", what.c_str());
  std::fflush(stdout);
}

inline void write_json(const std::string& path, const std::string& device) {
  std::ofstream file(path);
  file << "{\"device\": \"" << device << "\", \"small\": " << (small ? "true" : "false") << ", \"wrong_results\": " << wrong_results
       << ", \"rows\": [\n";
  for (std::size_t i = 0; i < json_rows.size(); ++i) file << (i ? ",\n  " : "  ") << json_rows[i];
  file << "\n]}\n";
  require(file.good(), Fault::io, "cannot write ", path);
}

// ---- inputs

// Rows around 1,000 centres, so that neighbours are nearer than the rest; in f32, or rounded to u8.
inline Matrix make_rows(std::int64_t n, std::int64_t d, DType dtype, std::uint64_t seed) {
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

inline double element(MatrixRef rows, std::int64_t i, std::int64_t j) {
  return rows.dtype == DType::u8 ? rows.row<std::uint8_t>(i)[j] : rows.row<float>(i)[j];
}

}  // namespace gigaknn::bench
