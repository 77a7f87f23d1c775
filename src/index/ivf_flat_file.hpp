// .gknn of schema "ivf_flat": an inverted file of full vectors in a container (io/container.hpp), version 1; docs/formats.md draws it.
#pragma once

#include <filesystem>
#include <memory>
#include <span>

#include <gigaknn/metric.hpp>

#include "index/list_rows.hpp"
#include "io/container.hpp"

namespace gigaknn {

struct IvfFlatFacts {
  Metric metric = Metric::l2;
  DType dtype = DType::f32;
  std::int64_t cols = 0;
  std::int64_t next_id = 0;      ///< above all that were ever given
  bool allow_nonfinite = false;
};

struct StoredIvfFlat {
  IvfFlatFacts facts;
  Matrix centroids;
  std::shared_ptr<const ListRows> lists;  ///< null: no row
};

inline constexpr std::string_view ivf_flat_schema = "ivf_flat";

/// Writes the rows of `parts` that count. Holds a band of lists at a time: 256 MiB, or as much of `run.memory_bytes` as that is.
void write_ivf_flat(const IvfFlatFacts& facts, MatrixRef centroids, std::span<const LiveRows> parts, const std::filesystem::path& path,
                    const RunOptions& run);

/// The most that it allocates, where no list is longer than a band.
std::size_t ivf_flat_writing_bytes(std::int64_t rows, std::int64_t cols, DType dtype, const RunOptions& run);

/// Rows and ids stay in the file. Looks at all sizes, and at the contents of all but these; of them only whether lists could be meant.
/// Throws Error: corrupt_file, unsupported.
StoredIvfFlat read_ivf_flat(const Container& file);

}  // namespace gigaknn
