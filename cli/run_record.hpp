// What one command did, on what, how fast: the JSON that --json writes and the report reads.
//
//   {"version", "commit", "command", "n", "d", "k", "dtype", "metric", "method", "device", "isa",
//   "threads",
//    "seed", "exact", "filter",
//    "seconds": {"load", "prepare", "compute", "evaluate", "write", "total"},
//    "recall": {"at", "value", "low", "high", "sampled"},
//    "verification": {"rows", "entries", "different"},           where a sample was verified
//    "memory": {"planned_bytes", "peak_bytes"}, ...}             and what a command adds in `more`
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <gigaknn/eval.hpp>

#include "json.hpp"
#include "options.hpp"

namespace gigaknn::cli {

struct Seconds {
  double load = 0;
  double prepare = 0;
  double compute = 0;
  double evaluate = 0;
  double write = 0;
  double total = 0;
};

struct RunRecord {
  std::string command;
  std::int64_t n = 0;
  std::int64_t d = 0;
  std::int64_t k = 0;
  std::string dtype;
  std::string metric;
  std::string method;
  std::string device;
  std::string isa;
  int threads = 0;
  std::uint64_t seed = 0;
  bool exact = false;
  std::string filter;  ///< which filter the engine chose, for people
  Seconds seconds;
  std::optional<Recall> recall;
  std::optional<Verification> verification;
  std::size_t planned_bytes = 0;
  std::size_t worker_peak_bytes = 0;  // of other processes, in peak_bytes
  Json more;
};

/// A record with all that the options and the build know.
RunRecord make_record(const std::string& command_line, const CommonOptions& options);

/// Sets what the matrix says: n, d, dtype.
void describe_base(RunRecord& record, MatrixRef base);

/// The recall of an exact method: 1, by proof. `sampled` is what a verification looked at.
Recall exact_recall(std::int64_t k, const std::optional<Verification>& verification);

Json json_of(const RunRecord& record);

/// Writes `record` to `path`: to a temporary name, synced, renamed. Nothing where `path` is empty.
void write_record(const RunRecord& record, const std::filesystem::path& path);

}  // namespace gigaknn::cli
