// Clocks, inputs and the report of the GPU benchmark.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
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

inline double now_ms() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

// The median of `repeats` runs after some that warm up; run(i) may rotate among inputs, so that none is in a cache when it is its turn.
inline double device_ms(simt::Stream* stream, int repeats, const std::function<void(int)>& run, int warm_ups = 2) {
  simt::Event* begin = simt::create_event();
  simt::Event* end = simt::create_event();
  std::vector<double> times;
  for (int i = 0; i < warm_ups + repeats; ++i) {
    simt::record(begin, stream);
    run(i);
    simt::record(end, stream);
    const double elapsed = simt::milliseconds_between(begin, end);
    if (i >= warm_ups) times.push_back(elapsed);
  }
  simt::destroy_event(begin);
  simt::destroy_event(end);
  return median(times);
}
inline double host_ms(int repeats, const std::function<void()>& run, int warm_ups = 1) {
  std::vector<double> times;
  for (int i = 0; i < warm_ups + repeats; ++i) {
    const double begin = now_ms();
    run();
    if (i >= warm_ups) times.push_back(now_ms() - begin);
  }
  return median(times);
}

// ---- the report

inline int wrong_results = 0;

// Main says that something was wrong.
inline bool expect_right(bool right, const std::string& what) {
  if (right) return true;
  ++wrong_results;
  std::printf("WRONG RESULT: %s\n", what.c_str());
  std::fflush(stdout);
  return false;
}

// Rows, in a file that is whole after each of them: a run that is cut off leaves what it had, and says that it is not all.
class JsonFile {
 public:
  void open(const std::string& path, const std::string& device) {  // an empty path: there is no file
    path_ = path;
    device_ = device;
    write(false);
  }
  void add(const std::string& row) {
    rows_.push_back(row);
    write(false);
  }
  void finish() const { write(true); }

 private:
  // Under another name first: who reads it, or is cut off here, has the one before.
  void write(bool finished) const {
    if (path_.empty()) return;
    const std::string part = path_ + ".part";
    std::ofstream file(part);
    file << "{\"device\": \"" << device_ << "\", \"small\": " << (small ? "true" : "false")
         << ", \"finished\": " << (finished ? "true" : "false") << ", \"wrong_results\": " << wrong_results << ", \"rows\": [\n";
    for (std::size_t i = 0; i < rows_.size(); ++i) file << (i ? ",\n  " : "  ") << rows_[i];
    file << "\n]}\n";
    file.close();
    require(!file.fail() && std::rename(part.c_str(), path_.c_str()) == 0, Fault::io, "cannot write ", path_);
  }

  std::string path_, device_;
  std::vector<std::string> rows_;
};
inline JsonFile json_file;

// What is timed, and what it could take or should take.
struct Work {
  std::string name;
  double roof_ms = 0;    // 0: not known
  double target_ms = 0;  // 0: none
};

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

inline void report(const Work& work, double ms) {
  std::printf("%-58s %10.3f ms", work.name.c_str(), ms);
  if (work.roof_ms > 0) std::printf("  roof %8.3f ms (%5.1f %%)", work.roof_ms, 100 * work.roof_ms / ms);
  if (work.target_ms > 0) std::printf("  target %6.2f ms %s", work.target_ms, ms <= work.target_ms ? "met" : "MISSED");
  std::printf("\n");
  report_kernels();
  std::fflush(stdout);
  json_file.add(join_text("{\"work\": \"", work.name, "\", \"ms\": ", ms, ", \"roof_ms\": ", work.roof_ms,
                          ", \"target_ms\": ", work.target_ms, "}"));
}

// Times what gives the right result: time_ms(). What does not has a row without a time.
inline void report_if(bool right, const Work& work, const std::function<double()>& time_ms) {
  if (right) return report(work, time_ms());
  std::printf("%-58s  not timed: WRONG\n", work.name.c_str());
  std::fflush(stdout);
  json_file.add(join_text("{\"work\": \"", work.name, "\", \"wrong\": true}"));
}

// Does some work; what it throws is a fault of its own, and others go on.
inline void attempt(const std::string& name, const std::function<void()>& work) {
  try {
    work();
  } catch (const std::exception& error) {
    expect_right(false, join_text(name, ": ", error.what()));
    json_file.add(join_text("{\"work\": \"", name, "\", \"failed\": true}"));
  }
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

}  // namespace gigaknn::bench
