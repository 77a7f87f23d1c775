// A .knng file that stays a file: what its header says, and where its lists lie. How it is read into memory: load_graph.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>

#include <gigaknn/graph.hpp>
#include <gigaknn/ids.hpp>
#include <gigaknn/metric.hpp>

#include "io/container.hpp"

namespace gigaknn {

inline constexpr std::uint32_t no_row_of_u32 = std::numeric_limits<std::uint32_t>::max();

/// Header, metadata and shapes of its sections are sound; of the lists nothing has been read.
struct KnngFile {
  Container container;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Metric metric = Metric::l2;
  bool exact = false;
  std::optional<Only> only = {};
  Element id = Element::u32;  ///< or i64
  Section ids;                ///< [n, k]; 2^32 - 1 of u32 and -1 of i64 are `no_row`
  Section distances;          ///< [n, k] f32

  /// The id at `position` of all lists, -1 for `no_row`; whether there is such a row is not checked.
  std::int64_t id_at(std::int64_t position) const {
    const std::byte* bytes = container.file().bytes.data() + ids.offset;
    if (id == Element::i64) {
      std::int64_t wide;
      std::memcpy(&wide, bytes + position * 8, sizeof wide);
      return wide;
    }
    std::uint32_t narrow;
    std::memcpy(&narrow, bytes + position * 4, sizeof narrow);
    return narrow == no_row_of_u32 ? value_of(no_row) : std::int64_t{narrow};
  }
  /// Throws Error: corrupt_file, at the byte of an id that names no row.
  [[noreturn]] void fail_at_id(std::int64_t position) const;
};

/// Throws Error: io, corrupt_file, unsupported (a later version).
KnngFile open_knng(const std::filesystem::path& path);

}  // namespace gigaknn
