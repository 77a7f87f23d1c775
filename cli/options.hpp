// Options that several commands share, and how a command reaches main.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>
#include <utility>

#include <gigaknn/metric.hpp>
#include <gigaknn/progress.hpp>

#include "arguments.hpp"

namespace gigaknn::cli {

/// Exit codes, the same for every command.
inline constexpr int exit_usage = 2;  ///< usage or budget
inline constexpr int exit_data = 3;  ///< data, disk or device
inline constexpr int exit_recall = 4;  ///< recall asked and missed
inline constexpr int exit_cancelled = 130;  ///< Ctrl-C

/// What the arguments asked for. `run` is set by the parser and called by main once all is parsed;
/// it returns the exit code and throws Error.
struct Request {
  std::string command_line;
  std::function<int()> run;
};

/// The options that work the same in every command that computes.
struct CommonOptions {
  bool metric_given = false;
  std::string metric = "l2";
  std::string method = "auto";
  std::vector<std::string> methods = {"auto", "exact"};  ///< that the command knows
  std::string device = "cpu";
  int shards = 1;
  int threads = 0;
  std::string memory;
  std::string device_memory;
  std::uint64_t seed = 0;
  std::filesystem::path json;
  bool quiet = false;
  bool allow_nonfinite = false;

  /// Throws Error: invalid_argument, or device where there is none of that name.
  void check() const;
  std::size_t memory_bytes() const;  ///< 0: no budget was given
  std::size_t device_memory_bytes() const;  ///< 0: no budget
  int thread_count() const;
};

/// `is_taken`: of which the help speaks; others are left to the command to refuse.
void add_metric_option(Command app, CommonOptions& options, const std::function<bool(Metric)>& is_taken = [](Metric) { return true; });
/// --threads --memory --seed --json --quiet
void add_run_options(Command app, CommonOptions& options);
/// --device --device-memory --allow-nonfinite
void add_device_option(Command app, CommonOptions& options);
/// The same, and --method --shards
void add_engine_options(Command app, CommonOptions& options);
/// --shards, parts of `what`
void add_shards_option(Command app, CommonOptions& options, const std::string& what);

// One function a command, each in the file of its name.
void add_graph_command(Command app, Request& request);
void add_build_command(Command app, Request& request);
void add_change_index_commands(Command app, Request& request);  // add, remove, merge
void add_tune_command(Command app, Request& request);
void add_search_command(Command app, Request& request);
void add_kmeans_command(Command app, Request& request);
void add_dedup_command(Command app, Request& request);
void add_eval_command(Command app, Request& request);
void add_path_command(Command app, Request& request);
void add_convert_command(Command app, Request& request);
void add_info_command(Command app, Request& request);
void add_check_command(Command app, Request& request);
void add_report_command(Command app, Request& request);
void add_plan_command(Command app, Request& request);
void add_run_command(Command app, Request& request);
void add_task_command(Command app, Request& request);

}  // namespace gigaknn::cli
