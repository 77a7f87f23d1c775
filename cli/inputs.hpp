// Vectors that commands read, and the checks before work starts on them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include <gigaknn/dataset.hpp>
#include <gigaknn/index.hpp>
#include <gigaknn/metric.hpp>

#include "session.hpp"

namespace gigaknn::cli {

/// Vectors and what to call them in messages.
struct Vectors {
  std::string name;
  Dataset data;
  std::size_t held_bytes = 0;  ///< memory that they take because no file is mapped

  MatrixRef matrix() const { return data.matrix(); }
};

/// True for .h5 and .hdf5.
bool is_hdf5(const std::filesystem::path& path);

/// Opens all that Dataset opens, and of a HDF5 file the data set called `part`: "train" or "test".
/// Throws Error: io, corrupt_file, unsupported (also for matrices of ids).
/// Shards and HDF5's data sets, which are read into memory, may take `memory_bytes` (0: what there is). Throws as Dataset::open does.
Vectors open_vectors(const std::filesystem::path& path, const std::string& part, std::size_t memory_bytes = 0);
/// Of a session's budget, what it does not hold yet.
Vectors open_vectors(const std::filesystem::path& path, const std::string& part, const Session& session);

/// Throws Error: unsupported where rows of this type have no such distance (bits are u8).
void check_metric(const Vectors& vectors, Metric metric);

/// As above, of --metric; where it was not given, and an HDF5 file says that its distance is another, that is noted.
void check_metric(const Vectors& vectors, const std::filesystem::path& path, Session& session);

/// Throws Error: invalid_argument unless dimensions and element types agree.
void check_same_rows(const Vectors& base, const Vectors& queries);

/// Refuses NaN, infinity and (chi2, hellinger) negative values, by row and column; or counts rows
/// with NaN or infinity with --allow-nonfinite. Names zero rows under cosine. Throws Error:
/// invalid_data.
void check_values(const Vectors& vectors, Metric metric, Session& session);

/// Both of these, of rows or queries for the index at `path`, which says itself whether NaN and infinity may be among them.
void check_rows_for(const Index& index, const std::filesystem::path& path, const Vectors& rows, Session& session);

/// --image, or what the file says of its images, or 0, 0. Throws Error: invalid_argument if it does
/// not multiply to the dimension of a row.
struct ImageSize {
  int height = 0;
  int width = 0;
};
ImageSize image_size(const std::string& option, const Vectors& vectors);

}  // namespace gigaknn::cli
