// gigaknn search, which graph --to shares.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "options.hpp"
#include "results.hpp"

namespace gigaknn::cli {

struct SearchOptions {
  CommonOptions common;
  std::filesystem::path base;
  std::filesystem::path queries;
  std::optional<std::int64_t> k;
  std::optional<float> radius;
  ResultFiles output;
  std::filesystem::path report;
  std::string image;
  std::int64_t verify = 0;
  std::optional<std::int64_t> nprobe;  // of an index, as what follows
  std::optional<std::int64_t> refine;
  std::optional<double> recall;
  std::filesystem::path only_bits;
  std::filesystem::path only;
  std::filesystem::path except;
  std::optional<std::int64_t> sample;
};

int run_search(const SearchOptions& options, const std::string& command_line);
/// Where BASE is an index; its arguments are checked.
int run_index_search(const SearchOptions& options, const std::string& command_line);

}  // namespace gigaknn::cli
