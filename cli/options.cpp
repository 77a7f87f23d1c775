#include "options.hpp"

#include <algorithm>
#include <functional>

#include <gigaknn/device.hpp>

#include "core/require.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

std::string names_of(const std::function<bool(Metric)>& is_taken) {
  std::string names;
  for (const Metric metric : all_metrics()) {
    if (!is_taken(metric)) continue;
    if (!names.empty()) names += ' ';
    names += name_of(metric);
  }
  return names;
}

std::string words(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& word : list) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

void CommonOptions::check() const {
  metric_of(metric);
  require(std::find(methods.begin(), methods.end(), method) != methods.end(),
          Fault::invalid_argument, "unknown method '", method, "'; allowed: ", words(methods));
  isa_of(device);
  require(shards >= 1, Fault::invalid_argument, "--shards must be >= 1, got ", shards);
  require(threads >= 0, Fault::invalid_argument, "--threads must be >= 0 (0: all allowed), got ",
          threads);
  memory_bytes();
  device_memory_bytes();
}

std::size_t CommonOptions::memory_bytes() const {
  return memory.empty() ? 0 : parse_size(memory);
}

std::size_t CommonOptions::device_memory_bytes() const {
  return device_memory.empty() ? 0 : parse_size(device_memory);
}

int CommonOptions::thread_count() const {
  return threads > 0 ? threads : available_threads();
}

void add_metric_option(Command app, CommonOptions& options, const std::function<bool(Metric)>& is_taken) {
  app.add_option("--metric", options.metric, "one of: " + names_of(is_taken)).show_default().tell(options.metric_given);
}

void add_run_options(Command app, CommonOptions& options) {
  app.add_option("--threads", options.threads, "threads (default: what affinity and cgroup allow)");
  app.add_option("--memory", options.memory, "memory budget of the host, as 8GiB, 500MB or 1e9");
  app.add_option("--seed", options.seed, "seed of what is sampled").show_default();
  app.add_option("--json", options.json, "write what was done and measured to this JSON file; -: to standard output");
  app.add_flag("--quiet", options.quiet, "print nothing but errors");
}

void add_device_option(Command app, CommonOptions& options) {
  std::string names;
  for (const std::string& name : devices()) names += ' ' + name;
  app.add_option("--device", options.device, "where to compute, one of:" + names).show_default();
  app.add_option("--device-memory", options.device_memory,
                 "memory budget of each device other than the host");
  app.add_flag("--allow-nonfinite", options.allow_nonfinite,
               "rows with NaN or infinity count as farthest instead of being refused");
}

void add_engine_options(Command app, CommonOptions& options) {
  app.add_option("--method", options.method, "one of: " + words(options.methods))
      .show_default();
  add_device_option(app, options);
  add_shards_option(app, options, "the base");
}

void add_shards_option(Command app, CommonOptions& options, const std::string& what) {
  app.add_option("--shards", options.shards, "with several GPUs: parts of " + what + ", each held by one GPU of a group").show_default();
}

}  // namespace gigaknn::cli
