// What is about to be done, printed before long work, and its checks: memory, disk, time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <gigaknn/matrix.hpp>
#include <gigaknn/metric.hpp>

#include "session.hpp"

namespace gigaknn::cli {

/// One file that the work will write.
struct PlannedFile {
  std::filesystem::path path;
  std::size_t bytes = 0;
};

/// A search of `queries` rows (a graph: of the base with itself).
struct Plan {
  std::string title;  ///< "exact 15-NN graph of 60,000 x 784 u8 rows, metric l2"
  MatrixRef base;
  MatrixRef queries;  ///< the base again for a graph
  Metric metric = Metric::l2;
  std::int64_t k = 10;
  bool self = false;
  std::size_t result_bytes = 0;  ///< what the answer takes in memory
  std::size_t approximate_bytes = 0;  ///< what an approximate method takes, the answer with it; 0: none may be used
  std::vector<PlannedFile> files;
};

/// Checks that the files can be written, fills `record.planned_bytes`, and prints the plan unless
/// --quiet. Throws Error: io (folder, disk). The estimate of time comes from a short search of a
/// slice.
void check_and_print_plan(const Plan& plan, Session& session);

}  // namespace gigaknn::cli
