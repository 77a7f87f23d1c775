#include "ops/product_codes.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/threads.hpp"
#include "ops/canonical.hpp"
#include "ops/list_writer.hpp"
#include "ops/ops.hpp"
#include "ops/requests.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Of widths that the compiler knows. A factor of 1 changes nothing.
template <int bits, int dims>
void decode_parts(const ProductCodes& codes, const float* centroid, float factor, std::int64_t block, std::int64_t row, float* out) {
  const std::uint8_t* const code = codes.codes.data() + ProductCodes::place(block, codes.code_bytes(), 0, row);
  const auto* words = static_cast<const float*>(codes.codewords.data);
  const std::int64_t next_words = codes.scaled ? 0 : std::int64_t{dims} << bits;
  for (std::int64_t part = 0; part < codes.m; ++part, words += next_words, centroid += dims, out += dims) {
    const float* const word = words + code_in_bytes(code + part * bits / 8 * code_block_rows, code_block_rows, part, bits) * dims;
    for (int j = 0; j < dims; ++j) out[j] = centroid[j] + factor * word[j];
  }
}

// False: the compiler knows no such width.
template <int bits>
bool decode_known(const ProductCodes& codes, const float* centroid, float factor, std::int64_t block, std::int64_t row, float* out) {
  switch (codes.m * codes.part_dims() == codes.d ? codes.part_dims() : 0) {
    case 1: decode_parts<bits, 1>(codes, centroid, factor, block, row, out); return true;
    case 2: decode_parts<bits, 2>(codes, centroid, factor, block, row, out); return true;
    case 4: decode_parts<bits, 4>(codes, centroid, factor, block, row, out); return true;
    case 8: decode_parts<bits, 8>(codes, centroid, factor, block, row, out); return true;
    default: return false;
  }
}

}  // namespace

std::string CodeShape::description() const {
  return std::to_string(code_bytes()) + (scaled ? "-byte RaBitQ codes" : "-byte product codes");
}

RowScale ProductCodes::stored_scale(std::int64_t block, std::int64_t row) const {
  std::uint32_t words32[2] = {};
  for (int byte = 0; byte < scale_bytes; ++byte) {
    words32[byte / 4] |= std::uint32_t{codes[at(place(block, code_bytes(), code_bytes() - scale_bytes + byte, row))]} << (8 * (byte % 4));
  }
  return {std::bit_cast<float>(words32[0]), std::bit_cast<float>(words32[1])};
}

std::vector<std::int64_t> ProductCodes::block_begins() const {
  std::vector<std::int64_t> blocks = {0};
  for (std::int64_t cell = 0; cell < cells.count(); ++cell) {
    blocks.push_back(blocks.back() + blocks_of(cells.begins[at(cell + 1)] - cells.begins[at(cell)]));
  }
  return blocks;
}

void ProductCodes::decode(std::int64_t cell, std::int64_t block, std::int64_t row, float* out) const {
  const float* const centroid = centroids.row<float>(cell);
  const RowScale scaling = scale(block, row);
  if (!scaling.usable()) {
    std::fill_n(out, d, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  if (planes > 1) return decode_planes(centroid, scaling.factor, block, row, out);
  if (bits == 8 && decode_known<8>(*this, centroid, scaling.factor, block, row, out)) return;
  if (bits == 6 && decode_known<6>(*this, centroid, scaling.factor, block, row, out)) return;
  if (bits == 4 && decode_known<4>(*this, centroid, scaling.factor, block, row, out)) return;
  for (std::int64_t part = 0, i = 0; part < m && i < d; ++part) {
    const float* const word = codeword(part, code(block, part, row));
    for (std::int64_t j = 0; j < part_dims() && i < d; ++j, ++i) out[i] = centroid[i] + scaling.factor * word[j];
  }
}

void ProductCodes::decode_planes(const float* centroid, float factor, std::int64_t block, std::int64_t row, float* out) const {
  const std::uint8_t* const code = codes.data() + place(block, code_bytes(), 0, row);
  for (std::int64_t i = 0; i < d; ++i) {
    const std::int64_t first = i / part_dims() * planes;
    float word = 0;
    for (int plane = planes - 1; plane >= 0; --plane) {
      word = 2 * word + codeword(0, code[(first + plane) * code_block_rows])[i % part_dims()];
    }
    out[i] = centroid[i] + factor * word;
  }
}

void pack_parts(std::span<const std::uint8_t> parts, int bits, std::uint8_t* out) {
  std::uint32_t held = 0;
  int count = 0;
  for (const std::uint8_t part : parts) {
    held |= std::uint32_t{part} << count;
    for (count += bits; count >= 8; count -= 8, held >>= 8) *out++ = static_cast<std::uint8_t>(held);
  }
}

std::vector<std::uint8_t> in_blocks(std::span<const std::uint8_t> codes, std::int64_t code_bytes, std::span<const std::int64_t> begins,
                                    const RunOptions& run) {
  const std::int64_t cells = std::ssize(begins) - 1;
  std::vector<std::int64_t> first = {0};  // the first block of each cell
  for (std::int64_t cell = 0; cell < cells; ++cell) {
    first.push_back(first.back() + ProductCodes::blocks_of(begins[at(cell + 1)] - begins[at(cell)]));
  }
  std::vector<std::uint8_t> blocks(at(first.back() * code_bytes * code_block_rows));
  parallel_for(run, cells, 16, [&](std::int64_t from, std::int64_t to, int) {
    for (std::int64_t cell = from; cell < to; ++cell) {
      for (std::int64_t row = begins[at(cell)]; row < begins[at(cell + 1)]; ++row) {
        const std::int64_t in_cell = row - begins[at(cell)];
        std::uint8_t* const code =
            blocks.data() + ProductCodes::place(first[at(cell)] + in_cell / code_block_rows, code_bytes, 0, in_cell % code_block_rows);
        for (std::int64_t byte = 0; byte < code_bytes; ++byte) code[byte * code_block_rows] = codes[at(row * code_bytes + byte)];
      }
    }
  });
  return blocks;
}

void Ops::nearest_among(MatrixRef queries, MatrixRef base, Metric metric, const RowId* candidates, std::int64_t width, std::int64_t k,
                        NeighborsOut out, const RunOptions& run) const {
  require_k(k);
  constexpr std::int64_t pairs_at_once = 1 << 22;
  const std::int64_t at_once = std::max<std::int64_t>(1, pairs_at_once / std::max<std::int64_t>(1, width));
  const ListWriter writer(metric, 0, {});
  std::vector<float> values;
  for (std::int64_t first = 0; first < queries.rows; first += at_once) {
    const std::int64_t count = std::min(at_once, queries.rows - first);
    const RowId* const some = candidates + first * width;
    values.resize(at(count * width));
    pair_distances(queries.slice(first, first + count), base, metric, some, width, values.data(), run);
    parallel_for(run, count, 64, [&](std::int64_t begin, std::int64_t end, int) {
      std::vector<PackedNeighbor> keys;
      for (std::int64_t i = begin; i < end; ++i) {
        keys.clear();
        for (std::int64_t j = i * width; j < (i + 1) * width; ++j) {
          const float key = key_of_value(metric, values[at(j)]);
          if (some[j] != no_row && key < std::numeric_limits<float>::infinity()) keys.push_back(pack_neighbor(key, static_cast<LocalRow>(value_of(some[j]))));
        }
        const std::int64_t kept = std::min<std::int64_t>(k, std::ssize(keys));
        std::partial_sort(keys.begin(), keys.begin() + kept, keys.end());
        writer.write(keys.data(), kept, false, -1, first + i, out);
      }
    });
  }
}

}  // namespace gigaknn
