#include "ops/product_codes.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/gather.hpp"
#include "ops/canonical.hpp"
#include "ops/list_writer.hpp"
#include "ops/ops.hpp"
#include "ops/requests.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Of codes of 8 bits, of a width that the compiler knows. A factor of 1 changes nothing.
template <int dims>
void decode_parts(const ProductCodes& codes, const float* centroid, float factor, std::int64_t block, std::int64_t row, float* out) {
  const std::uint8_t* code = codes.codes.data() + ProductCodes::place(block, codes.code_bytes(), 0, row);
  const auto* words = static_cast<const float*>(codes.codewords.data);
  const std::int64_t next_words = codes.scaled ? 0 : most_codewords * dims;
  for (std::int64_t part = 0; part < codes.m; ++part, code += code_block_rows, words += next_words, centroid += dims, out += dims) {
    const float* const word = words + *code * dims;
    for (int j = 0; j < dims; ++j) out[j] = centroid[j] + factor * word[j];
  }
}

}  // namespace

std::string CodeShape::description() const { return std::to_string(code_bytes()) + (scaled ? "-byte RaBitQ codes" : "-byte product codes"); }

RowScale ProductCodes::stored_scale(std::int64_t block, std::int64_t row) const {
  std::uint32_t words32[2] = {};
  for (int byte = 0; byte < scale_bytes; ++byte) {
    words32[byte / 4] |= std::uint32_t{codes[at(place(block, code_bytes(), code_bytes() - scale_bytes + byte, row))]} << (8 * (byte % 4));
  }
  return {std::bit_cast<float>(words32[0]), std::bit_cast<float>(words32[1])};
}

std::vector<std::int64_t> ProductCodes::block_begins() const {
  std::vector<std::int64_t> blocks = {0};
  for (std::int64_t cell = 0; cell < cells.count(); ++cell) blocks.push_back(blocks.back() + blocks_of(cells.begins[at(cell + 1)] - cells.begins[at(cell)]));
  return blocks;
}

void ProductCodes::decode(std::int64_t cell, std::int64_t block, std::int64_t row, float* out) const {
  const float* const centroid = centroids.row<float>(cell);
  const RowScale scaling = scale(block, row);
  if (!scaling.usable()) {
    std::fill_n(out, d, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  switch (bits == 8 && m * part_dims() == d ? part_dims() : 0) {
    case 1: return decode_parts<1>(*this, centroid, scaling.factor, block, row, out);
    case 2: return decode_parts<2>(*this, centroid, scaling.factor, block, row, out);
    case 4: return decode_parts<4>(*this, centroid, scaling.factor, block, row, out);
    case 8: return decode_parts<8>(*this, centroid, scaling.factor, block, row, out);
    default: break;
  }
  for (std::int64_t part = 0, i = 0; part < m && i < d; ++part) {
    const float* const word = codeword(part, code(block, part, row));
    for (std::int64_t j = 0; j < part_dims() && i < d; ++j, ++i) out[i] = centroid[i] + scaling.factor * word[j];
  }
}

std::vector<std::uint8_t> in_blocks(std::span<const std::uint8_t> codes, std::int64_t code_bytes, std::span<const std::int64_t> begins) {
  std::int64_t count = 0;
  for (std::size_t cell = 0; cell + 1 < begins.size(); ++cell) count += ProductCodes::blocks_of(begins[cell + 1] - begins[cell]);
  std::vector<std::uint8_t> blocks;
  blocks.reserve(at(count * code_bytes * code_block_rows));
  for (std::size_t cell = 0; cell + 1 < begins.size(); ++cell) {
    const std::int64_t first = std::ssize(blocks) / (code_bytes * code_block_rows);
    blocks.resize(blocks.size() + at(ProductCodes::blocks_of(begins[cell + 1] - begins[cell]) * code_bytes * code_block_rows));
    for (std::int64_t row = begins[cell]; row < begins[cell + 1]; ++row) {
      const std::int64_t in_cell = row - begins[cell];
      for (std::int64_t byte = 0; byte < code_bytes; ++byte) {
        blocks[at(ProductCodes::place(first + in_cell / code_block_rows, code_bytes, byte, in_cell % code_block_rows))] = codes[at(row * code_bytes + byte)];
      }
    }
  }
  return blocks;
}

void Ops::products(MatrixRef rows, MatrixRef directions, float* out, const RunOptions& run) const {
  require_products(rows, directions);
  constexpr std::int64_t at_once = 4096;  // pairs
  const std::int64_t some = std::max<std::int64_t>(1, at_once / std::max<std::int64_t>(1, directions.rows));
  for (std::int64_t begin = 0; begin < rows.rows; begin += some) {
    const std::int64_t pairs = std::min(some, rows.rows - begin) * directions.rows;
    std::vector<std::int64_t> repeated;
    std::vector<RowId> with;
    for (std::int64_t i = 0; i < pairs; ++i) {
      repeated.push_back(begin + i / directions.rows);
      with.push_back(RowId{i % directions.rows});
    }
    pair_distances(gather_rows(rows, repeated, run), directions, Metric::inner_product, with.data(), out + begin * directions.rows, run);
  }
}

void Ops::nearest_among(MatrixRef queries, MatrixRef base, Metric metric, const RowId* candidates, std::int64_t width, std::int64_t k,
                        NeighborsOut out, const RunOptions& run) const {
  require_k(k);
  require_pairs(queries, base, metric);
  constexpr std::int64_t copied_bytes = 1 << 24;  // of queries, one copy a candidate
  const std::int64_t at_once = std::max<std::int64_t>(1, copied_bytes / std::max<std::int64_t>(1, width * (24 + base.cols * static_cast<std::int64_t>(size_of(base.dtype)))));
  for (std::int64_t begin = 0; begin < queries.rows; begin += at_once) {
    const std::int64_t count = std::min(at_once, queries.rows - begin);
    std::vector<std::int64_t> repeated;
    for (std::int64_t i = 0; i < count * width; ++i) repeated.push_back(begin + i / width);
    const Matrix pairs = gather_rows(queries, repeated, run);
    std::vector<float> values(repeated.size());
    pair_distances(pairs, base, metric, candidates + begin * width, values.data(), run);
    for (std::int64_t i = 0; i < count; ++i) {
      std::vector<PackedNeighbor> keys;
      for (std::int64_t j = 0; j < width; ++j) {
        const RowId id = candidates[(begin + i) * width + j];
        const float key = key_of_value(metric, values[at(i * width + j)]);
        if (id != no_row && std::isfinite(key)) keys.push_back(pack_neighbor(key, static_cast<LocalRow>(value_of(id))));
      }
      std::sort(keys.begin(), keys.end());
      ListWriter(metric, 0, {}).write(keys.data(), std::min<std::int64_t>(k, std::ssize(keys)), false, -1, begin + i, out);
    }
  }
}

}  // namespace gigaknn
