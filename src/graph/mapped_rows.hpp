// Rows of a mapped base, few of whose pages are in memory at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/ids.hpp>
#include <gigaknn/matrix.hpp>
#include <gigaknn/progress.hpp>

namespace gigaknn {

/// Gives their pages back.
void release_rows(MatrixRef rows);
/// Without what lies behind the last row: the file may end there.
std::span<const std::byte> bytes_of_rows(MatrixRef rows);

std::vector<std::int64_t> numbers_of(std::span<const RowId> rows);

/// Pages of a base that are in memory at once while rows are copied, in bytes.
inline constexpr std::int64_t gathered_span = std::int64_t{1} << 24;
/// Copies of some rows, ascending.
Matrix gather_mapped(MatrixRef base, std::span<const std::int64_t> rows, const RunOptions& run);
/// The same of rows in any order.
Matrix gather_mapped_anyhow(MatrixRef base, std::span<const RowId> rows, const RunOptions& run);

}  // namespace gigaknn
