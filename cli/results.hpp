// Files of neighbours: what src/io reads and writes, and beside it graphs and HDF5.
#pragma once

#include <cstdint>
#include <filesystem>

#include <gigaknn/ids.hpp>

namespace gigaknn::cli {

/// Where the neighbours of a search go.
struct ResultFiles {
  std::filesystem::path ids;
  std::filesystem::path distances;  ///< may be empty; a HDF5 file holds both
};

/// What so many entries take; where that is more than anybody has, 2^62, to which others can be added.
std::size_t bytes_of_entries(std::int64_t rows, std::int64_t each, std::size_t entry_bytes);
/// What the file of a graph of n lists of k takes, or a little less than this.
std::size_t graph_file_bytes(std::int64_t n, std::int64_t k);

/// Throws Error: invalid_argument where no writer knows a name (`radius`: any that names no other format), unsupported where this build has
/// no HDF5.
void check_result_names(const ResultFiles& files, bool radius);
/// The same of ids that have no distances.
void check_ids_name(const std::filesystem::path& path);
/// Throws Error: unsupported where ids below `n` do not fit the format; `radius`: that of range results, whatever the name.
void check_ids_fit(const ResultFiles& files, std::int64_t n, bool radius = false);
bool ids_fit(const ResultFiles& files, std::int64_t n, bool radius);

/// Bytes that k neighbours of each query take on disk.
std::size_t ids_file_bytes(const ResultFiles& files, std::int64_t queries, std::int64_t k);
std::size_t distances_file_bytes(const ResultFiles& files, std::int64_t queries, std::int64_t k);

/// Throws Error: io, unsupported.
void write_results(const ResultFiles& files, const Neighbors& results);

/// True for a file whose name is no vector format's: big-ann's ground truths, told by their size.
bool is_truth(const std::filesystem::path& path);

/// Ids, and distances where the file or `distances` (may be empty) has them, else that vector is
/// empty: from what search writes, .ivecs, big-ann ground truth, a graph, or HDF5. Throws Error:
/// io, corrupt_file, unsupported.
Neighbors read_results(const std::filesystem::path& path, const std::filesystem::path& distances);

/// Ids of rows, one after the other, of .npy, .ibin or .ivecs. Throws Error: invalid_argument (a file of lists of neighbours), as above.
LargeVector<RowId> read_ids(const std::filesystem::path& path);

}  // namespace gigaknn::cli
