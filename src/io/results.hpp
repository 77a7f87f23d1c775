// Results and ground truth in files: k neighbours a query, or all within a radius.
#pragma once

#include <filesystem>
#include <optional>

#include <gigaknn/ids.hpp>

#include "io/file_bytes.hpp"

namespace gigaknn {

/// big-ann's k-NN truth: | u32 q | u32 k | q * k ids, u32 | q * k distances, f32 |. The id 2^32 - 1
/// (-1 as i32) is `no_row`. Distances are what the file holds: often similarities where larger is
/// nearer. Throws Error: io, corrupt_file.
Neighbors read_ground_truth(const std::filesystem::path& path);
Neighbors parse_ground_truth(const FileBytes& file);

/// big-ann's range truth: | i32 q | i32 total | q counts, i32 | total ids, i32 | total distances,
/// f32 |. Throws Error: io, corrupt_file.
RadiusNeighbors read_range_truth(const std::filesystem::path& path);
RadiusNeighbors parse_range_truth(const FileBytes& file);

enum class ResultKind { ids, neighbors, radius };

/// What a results file holds: `ids` (.ibin .ivecs .npy), `neighbors` (k-NN truth) or `radius`
/// (range truth; .range is nothing else). Files of other names are told by their size: only one of .ibin, k-NN truth and
/// range truth must fit it. Throws Error: io, corrupt_file (none fits), unsupported (two fit, or
/// vectors of reals).
ResultKind kind_of_results(const std::filesystem::path& path);

/// k neighbours of each query from an .ibin, .ivecs, .npy (i4, i8) or a k-NN truth. `distances`
/// (.fbin, .fvecs, .npy f4), where given, must have the shape of the ids. Without it and without
/// distances in the file itself the result's `distances` is empty. Negative ids other than -1
/// (`no_row`) are refused. Throws Error: io, corrupt_file, unsupported.
Neighbors read_neighbors(const std::filesystem::path& ids,
                         const std::optional<std::filesystem::path>& distances = std::nullopt);

/// Writes ids as .ibin or .ivecs (i32; ids from 2^31 - 1 on are refused), .npy (i64) or .gtbin
/// (with distances), and distances as .fbin, .fvecs or .npy. Both files appear after both are
/// complete. Throws Error: io, unsupported, invalid_argument (distances are asked for, but the
/// result has none).
void write_neighbors(const Neighbors& result, const std::filesystem::path& ids,
                     const std::optional<std::filesystem::path>& distances = std::nullopt);
/// Writes distances alone.
void write_distances(const Neighbors& result, const std::filesystem::path& distances);

/// Writes big-ann's range format under any name. Throws Error: io, unsupported (more than 2^31 - 1
/// entries).
void write_radius_neighbors(const RadiusNeighbors& result, const std::filesystem::path& path);

}  // namespace gigaknn
