// A set of ids as bits of the rows of an index.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <gigaknn/id_set.hpp>

#include "index/row_ids.hpp"

namespace gigaknn {

/// Throws Error: invalid_argument where a bitmap is not that of ids below `next_id`.
void require_bits_for(const IdSet& only, std::int64_t next_id);

/// By rank, which of `ids` are in the set: the words of a RowMask.
std::vector<std::uint64_t> id_words(const IdSet& only, const RowIds& ids);

std::int64_t count_of(std::span<const std::uint64_t> words);
/// Of the bits that are set.
std::vector<LocalRow> ranks_in(std::span<const std::uint64_t> words);

}  // namespace gigaknn
