// HDF5 files as ann-benchmarks lays them out: train, test, neighbors, distances. Only the command
// line links HDF5.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>

namespace gigaknn::cli {

/// Throws Error: unsupported where the build has no HDF5, so that nobody works for a file that cannot be written.
void require_hdf5(const std::filesystem::path& path);

/// A data set in the root group of a file.
struct Hdf5Part {
  std::string name;
  std::int64_t rows = 0;
  std::int64_t cols = 0;  ///< 1 where it has one dimension
  std::string type;  ///< "f32", ..., or "unknown"
};

/// The data sets of one or two dimensions, in name order. Throws Error: io, corrupt_file.
std::vector<Hdf5Part> list_hdf5(const std::filesystem::path& path);

/// The data set `part` ("train", "test") in memory: f32, f16, bf16, u8, i8, i32 or i64.
/// Throws Error: io, corrupt_file (no such part), unsupported (other types, f64 among them),
/// out_of_memory (also: more than `memory_bytes`; 0: as much as there is).
Matrix read_hdf5_matrix(const std::filesystem::path& path, const std::string& part, std::size_t memory_bytes = 0);

/// `neighbors`, and `distances` where the file has them (else that vector is empty).
/// Throws Error: io, corrupt_file, unsupported.
Neighbors read_hdf5_neighbors(const std::filesystem::path& path);

/// ann-benchmarks' attribute `distance` ("euclidean", "angular", ...), where there is one.
std::optional<std::string> read_hdf5_distance(const std::filesystem::path& path);

/// Writes `neighbors` (i32, or i64 where an id needs it) and, where the result has them,
/// `distances` (f32). The file appears whole; its bytes do not depend on time. Throws Error: io,
/// out_of_memory.
void write_hdf5_neighbors(const Neighbors& result, const std::filesystem::path& path);

}  // namespace gigaknn::cli
