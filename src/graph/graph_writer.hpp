// A .knng file written piece by piece: for graphs that are not in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include <gigaknn/graph.hpp>
#include <gigaknn/ids.hpp>
#include <gigaknn/metric.hpp>

#include "io/container.hpp"

namespace gigaknn {

/// Writes all ids, [n, k] in the order of the rows, then all distances. Same graph, same bytes as save_graph.
class GraphWriter {
 public:
  /// Throws Error: io.
  GraphWriter(const std::filesystem::path& path, std::int64_t n, std::int64_t k, Metric metric, bool exact,
              std::optional<Only> only = std::nullopt);

  void append_ids(std::span<const RowId> ids);
  void append_distances(std::span<const float> distances);
  /// Throws Error: invalid_argument (entries are missing), io.
  void finish();

 private:
  std::uint64_t n_;
  std::uint64_t k_;
  Element id_;
  bool in_distances_ = false;
  ContainerWriter writer_;
};

}  // namespace gigaknn
