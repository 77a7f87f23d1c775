#include "options.hpp"

#include <algorithm>

#include <gigaknn/device.hpp>

#include "core/require.hpp"
#include "text.hpp"

namespace gigaknn::cli {
namespace {

std::string metric_names() {
  std::string names;
  for (const Metric metric : all_metrics()) {
    if (!names.empty()) names += ' ';
    names += name_of(metric);
  }
  return names;
}

}  // namespace

void CommonOptions::check() const {
  metric_of(metric);
  require(method == "auto" || method == "exact", Fault::invalid_argument, "unknown method '",
          method, "'; allowed: auto exact");
  const std::vector<std::string> known = devices();
  std::string names;
  for (const std::string& name : known) names += ' ' + name;
  require(std::find(known.begin(), known.end(), device) != known.end(), Fault::device,
          "no device '", device, "' in this build; allowed:", names);
  require(threads >= 0, Fault::invalid_argument, "--threads must be >= 0 (0: all allowed), got ",
          threads);
  memory_bytes();
  if (!device_memory.empty()) parse_size(device_memory);
}

std::size_t CommonOptions::memory_bytes() const {
  return memory.empty() ? 0 : parse_size(memory);
}

int CommonOptions::thread_count() const {
  return threads > 0 ? threads : available_threads();
}

void add_metric_option(CLI::App& app, CommonOptions& options) {
  app.add_option("--metric", options.metric, "one of: " + metric_names())->capture_default_str();
}

void add_run_options(CLI::App& app, CommonOptions& options) {
  app.add_option("--threads", options.threads, "threads (default: what affinity and cgroup allow)");
  app.add_option("--memory", options.memory, "memory budget of the host, as 8GiB, 500MB or 1e9");
  app.add_option("--seed", options.seed, "seed of what is sampled")->capture_default_str();
  app.add_option("--json", options.json, "write what was done and measured to this JSON file");
  app.add_flag("--quiet", options.quiet, "print nothing but errors");
}

void add_engine_options(CLI::App& app, CommonOptions& options) {
  app.add_option("--method", options.method, "auto or exact")->capture_default_str();
  app.add_option("--device", options.device, "where to compute: cpu")->capture_default_str();
  app.add_option("--device-memory", options.device_memory,
                 "memory budget of each device other than the host");
  app.add_flag("--allow-nonfinite", options.allow_nonfinite,
               "rows with NaN or infinity count as farthest instead of being refused");
}

void add_examples(CLI::App& app, const std::string& examples) {
  app.footer("Examples:\n" + examples);
}

}  // namespace gigaknn::cli
