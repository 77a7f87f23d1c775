// gigaknn graph --radius: all pairs of rows within a radius.
#pragma once

#include <filesystem>
#include <string>

#include "options.hpp"
#include "results.hpp"

namespace gigaknn::cli {

struct RadiusGraphOptions {
  CommonOptions common;
  std::filesystem::path base;
  float radius = 0;
  ResultFiles output;
};

int run_radius_graph(const RadiusGraphOptions& options, const std::string& command_line);

}  // namespace gigaknn::cli
