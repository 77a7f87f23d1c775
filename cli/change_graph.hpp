// gigaknn graph --merge, --extend, --reduce: graphs that change with their vectors.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "options.hpp"

namespace gigaknn::cli {

struct ChangeOptions {
  std::vector<std::filesystem::path> merge;   ///< two graphs
  std::filesystem::path extend;               ///< a graph
  std::filesystem::path reduce;               ///< a graph
  std::vector<std::filesystem::path> bases;   ///< of those graphs, in their order
  std::filesystem::path add;                  ///< vectors
  std::filesystem::path remove;               ///< ids
  std::filesystem::path map;                  ///< where old rows' new ids go

  bool wanted() const { return !merge.empty() || !extend.empty() || !reduce.empty(); }
  bool given() const { return wanted() || !bases.empty() || !add.empty() || !remove.empty() || !map.empty(); }
};

void add_change_options(Command app, ChangeOptions& options);

int run_change(const CommonOptions& common, const ChangeOptions& options, double recall, bool recall_given, const std::filesystem::path& output,
               const std::string& command_line);

}  // namespace gigaknn::cli
