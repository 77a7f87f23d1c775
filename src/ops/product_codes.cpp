#include "ops/product_codes.hpp"

#include <algorithm>
#include <cmath>

#include "core/gather.hpp"
#include "core/threads.hpp"
#include "ops/canonical.hpp"
#include "ops/list_writer.hpp"
#include "ops/merge_lists.hpp"
#include "ops/ops.hpp"
#include "ops/requests.hpp"

namespace gigaknn {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// Of codes of 8 bits, of a width that the compiler knows.
template <int dims>
void decode_parts(const ProductCodes& codes, const float* centroid, std::int64_t block, std::int64_t row, float* out) {
  const std::uint8_t* code = codes.codes.data() + ProductCodes::place(block, codes.m, 0, row);
  const auto* words = static_cast<const float*>(codes.codewords.data);
  for (std::int64_t part = 0; part < codes.m; ++part, code += code_block_rows, words += most_codewords * dims, centroid += dims, out += dims) {
    const float* const word = words + *code * dims;
    for (int j = 0; j < dims; ++j) out[j] = centroid[j] + word[j];
  }
}

// Rows as decoded, and searched as those: the specification.
class DecodedCodes : public PreparedCodes {
 public:
  DecodedCodes(const Ops& ops, const ProductCodes& codes, Metric metric, const PrepareHints& hints, const RunOptions& run)
      : rows_(std::max<std::int64_t>(1, codes.cells.begins.back()), codes.d, DType::f32) {
    const std::vector<std::int64_t> blocks = codes.block_begins();
    parallel_for(run, codes.cells.count(), 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t cell = begin; cell < end; ++cell) {
        const std::int64_t first = codes.cells.begins[at(cell)];
        for (std::int64_t row = first; row < codes.cells.begins[at(cell + 1)]; ++row) {
          codes.decode(cell, blocks[at(cell)] + (row - first) / code_block_rows, (row - first) % code_block_rows, rows_.row<float>(row));
        }
      }
    });
    cells_ = ops.prepare_cells(rows_, codes.cells, metric, hints, run);
  }

  std::int64_t rows() const override { return cells_->rows(); }
  std::int64_t cols() const override { return cells_->cols(); }
  std::int64_t cells() const override { return cells_->cells(); }
  Metric metric() const override { return cells_->metric(); }
  std::size_t bytes() const override { return cells_->bytes() + at(rows_.rows() * rows_.ref().stride_bytes); }
  std::string description() const override { return "decoded: " + cells_->description(); }
  const PreparedCells& decoded() const { return *cells_; }

 private:
  Matrix rows_;
  std::unique_ptr<PreparedCells> cells_;
};

}  // namespace

std::vector<std::int64_t> ProductCodes::block_begins() const {
  std::vector<std::int64_t> blocks = {0};
  for (std::int64_t cell = 0; cell < cells.count(); ++cell) blocks.push_back(blocks.back() + blocks_of(cells.begins[at(cell + 1)] - cells.begins[at(cell)]));
  return blocks;
}

void ProductCodes::decode(std::int64_t cell, std::int64_t block, std::int64_t row, float* out) const {
  const float* const centroid = centroids.row<float>(cell);
  switch (bits == 8 && m * part_dims() == d ? part_dims() : 0) {
    case 2: return decode_parts<2>(*this, centroid, block, row, out);
    case 4: return decode_parts<4>(*this, centroid, block, row, out);
    case 8: return decode_parts<8>(*this, centroid, block, row, out);
    default: break;
  }
  for (std::int64_t part = 0, i = 0; part < m && i < d; ++part) {
    const float* const word = codeword(part, code(block, part, row));
    for (std::int64_t j = 0; j < part_dims() && i < d; ++j, ++i) out[i] = centroid[i] + word[j];
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

void Ops::encode_products(MatrixRef rows, MatrixRef codewords, std::uint8_t* codes, const RunOptions& run) const {
  require_encoding(rows, codewords);
  const std::int64_t m = rows.cols / codewords.cols, words = codewords.rows / m;
  const PrepareHints hints{.k = 1, .queries = rows.rows, .batch = rows.rows, .self = false};
  for (std::int64_t part = 0; part < m; ++part) {
    MatrixRef slice = rows;
    slice.data = rows.row<float>(0) + part * codewords.cols;
    slice.cols = codewords.cols;
    const auto prepared = prepare(codewords.slice(part * words, (part + 1) * words), Metric::l2, hints, run);
    Neighbors nearest(rows.rows, 1);
    nearest_rows(*prepared, slice, 1, NeighborsOut(nearest), run);
    for (std::int64_t i = 0; i < rows.rows; ++i) codes[i * m + part] = static_cast<std::uint8_t>(value_of(nearest.ids[at(i)]));
  }
}

std::unique_ptr<PreparedCodes> Ops::prepare_codes(const ProductCodes& codes, Metric metric, const PrepareHints& hints, const RunOptions& run) const {
  require_codes(codes, metric);
  return std::make_unique<DecodedCodes>(*this, codes, metric, hints, run);
}

std::size_t Ops::code_bytes_needed(std::int64_t n, std::int64_t d, std::int64_t, int, Metric metric, std::int64_t cells, const PrepareHints& hints,
                                   int threads) const {
  return at(n * d) * sizeof(float) + at(cells + 1) * 8 + cell_bytes_needed(n, d, DType::f32, metric, cells, hints, threads);
}

void Ops::nearest_in_codes(const PreparedCodes& base, MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out,
                           const RunOptions& run, RowMask allowed, ListOrder order) const {
  require_code_probing(base, queries, probes, width, k, allowed, run);
  nearest_in_cells(static_cast<const DecodedCodes&>(base).decoded(), queries, probes, width, k, out, run, nullptr, allowed);
  if (order == ListOrder::by_id) sort_by_id(out);
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
