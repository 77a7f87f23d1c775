#include "index/id_words.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/require.hpp"
#include "ops/cell_rows.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Bits [first, first + 64) of bytes; beyond their end there are none.
std::uint64_t bits_from(std::span<const std::uint8_t> bytes, std::int64_t first) {
  std::uint64_t found = 0;
  const std::size_t byte = at(first / 8);
  if (byte >= bytes.size()) return 0;
  std::memcpy(&found, bytes.data() + byte, std::min<std::size_t>(8, bytes.size() - byte));
  const auto shift = first % 8;
  if (shift == 0) return found;
  const std::uint64_t next = byte + 8 < bytes.size() ? bytes[byte + 8] : 0;
  return found >> shift | next << (64 - shift);
}

void clear_beyond(std::vector<std::uint64_t>& words, std::int64_t count) {
  if (count % 64 != 0) words.back() &= (std::uint64_t{1} << (count % 64)) - 1;
}

}  // namespace

std::vector<std::uint64_t> id_words(const IdSet& only, const RowIds& ids) {
  std::vector<std::uint64_t> words(RowMask::words_for(ids.count()));
  const auto flip = [&](std::int64_t rank) { words[at(rank / 64)] ^= std::uint64_t{1} << (rank % 64); };
  if (only.is_all_but()) {
    std::fill(words.begin(), words.end(), ~std::uint64_t{0});
    clear_beyond(words, ids.count());
  }
  if (!only.is_bits()) {
    for (const RowId id : only.ids()) {
      if (const auto rank = ids.rank_of(id)) flip(*rank);
    }
  } else if (ids.consecutive()) {
    const std::int64_t first = value_of(ids.of_rank(0));
    for (std::size_t word = 0; word < words.size(); ++word) {
      words[word] = bits_from(only.bits(), first + static_cast<std::int64_t>(word) * 64);
    }
    clear_beyond(words, ids.count());
  } else {
    for (std::int64_t rank = 0; rank < ids.count(); ++rank) {
      if (only.has(ids.of_rank(static_cast<LocalRow>(rank)))) flip(rank);
    }
  }
  return words;
}

std::int64_t count_of(std::span<const std::uint64_t> words) {
  std::int64_t count = 0;
  for (const std::uint64_t word : words) count += std::popcount(word);
  return count;
}

std::vector<LocalRow> ranks_in(std::span<const std::uint64_t> words) {
  std::vector<LocalRow> ranks;
  for (std::size_t word = 0; word < words.size(); ++word) {
    for (std::uint64_t bits = words[word]; bits != 0; bits &= bits - 1) {
      ranks.push_back(static_cast<LocalRow>(word * 64 + at(std::countr_zero(bits))));
    }
  }
  return ranks;
}

void require_bits_for(const IdSet& only, std::int64_t next_id) {
  const std::int64_t bytes = (next_id + 7) / 8;
  require(!only.is_bits() || std::ssize(only.bits()) == bytes, Fault::invalid_argument, "a filter of ", only.bits().size(),
          " bytes is not that of ids below ", next_id, ", which has ", bytes);
}

}  // namespace gigaknn
