// What every device checks of a request before it starts: one wording, one place. Each throws
// Error.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "core/require.hpp"
#include "core/threads.hpp"
#include "ops/growth_rules.hpp"
#include "ops/ops.hpp"

namespace gigaknn {

inline void require_metric(MatrixRef rows, Metric metric) {
  require(on_bits(metric) ? rows.dtype == DType::u8 : holds_vectors(rows.dtype), Fault::unsupported,
          "metric ", name_of(metric), " takes ",
          on_bits(metric) ? "u8 rows of packed bits" : "f32, f16, bf16, u8 or i8 rows", ", got ",
          name_of(rows.dtype));
}
inline void require_base(MatrixRef base, Metric metric) {
  require(base.rows >= 1 && base.cols >= 1, Fault::invalid_argument, "a base of ", base.rows, " x ",
          base.cols, " has nothing to search");
  require(base.rows < std::int64_t{0xFFFFFFFF}, Fault::unsupported, "a base of ", base.rows,
          " rows must be searched in blocks of fewer than 4294967295");
  require_metric(base, metric);
}
inline void require_k(std::int64_t k) {
  require(k >= 1, Fault::invalid_argument, "k must be >= 1, got ", k);
}
inline void require_same_rows(MatrixRef queries, std::int64_t cols, DType dtype) {
  require(queries.cols == cols && queries.dtype == dtype, Fault::invalid_argument, "queries are ",
          queries.cols, " x ", name_of(queries.dtype), ", the base ", cols, " x ", name_of(dtype));
}
inline void require_queries(const PreparedRows& base, MatrixRef queries, std::int64_t k) {
  require_k(k);
  require_same_rows(queries, base.cols(), base.dtype());
}
inline void require_permutation(std::span<const LocalRow> rows, std::int64_t n, const char* what) {
  if (rows.empty()) return;
  require(std::ssize(rows) == n, Fault::invalid_argument, what, " of ", rows.size(), " rows is none of the ", n, " rows of the base");
  std::vector<bool> seen(rows.size());
  for (const LocalRow row : rows) {
    require(row < rows.size() && !seen[row], Fault::invalid_argument, "row ", row, " must be in [0, ", n - 1, "] and once in ", what);
    seen[row] = true;
  }
}
inline void require_cells(MatrixRef base, const CellRows& cells) {
  const auto& begins = cells.begins;
  const bool whole = begins.size() >= 2 && begins.front() == 0 && begins.back() == base.rows;
  require(whole && std::is_sorted(begins.begin(), begins.end()), Fault::invalid_argument,
          "cells must ascend from 0 to the ", base.rows, " rows of the base");
  require_permutation(cells.order, base.rows, "an order");
  require_permutation(cells.names, base.rows, "a naming");
}
inline void require_growth(MatrixRef rows, const GrowthParams& params) {
  require(rows.rows <= most_growing_rows, Fault::unsupported, "a graph that grows has at most ", most_growing_rows, " rows, got ",
          rows.rows);
  require_k(params.k);
  require(params.samples >= 1 && params.samples <= most_samples, Fault::invalid_argument, "samples must be in [1, ", most_samples,
          "], got ", params.samples);
  require(params.candidates >= 1 && params.candidates <= most_candidates &&
              std::has_single_bit(static_cast<std::uint64_t>(params.candidates)),
          Fault::invalid_argument, "candidates must be a power of two in [1, ", most_candidates, "], got ", params.candidates);
}
inline void require_fill(std::int64_t n, std::int64_t first, std::int64_t count, const RowId* ids, std::int64_t width,
                         const RunOptions& run) {
  require(first >= 0 && count >= 0 && first + count <= n && width >= 0, Fault::invalid_argument, "lists [", first, ", ", first + count,
          ") are not of the ", n, " rows");
  parallel_for(run, count * width, 1 << 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      require(value_of(ids[i]) >= -1 && value_of(ids[i]) < n, Fault::invalid_argument, "row ", value_of(ids[i]), " must be in [-1, ",
              n - 1, "]");
    }
  });
}
inline void require_mask(std::int64_t rows, RowMask allowed) {
  require(allowed.words.empty() || allowed.words.size() == RowMask::words_for(rows), Fault::invalid_argument, "a mask of ",
          allowed.words.size(), " words is not that of ", rows, " rows");
}
inline void require_probes(std::int64_t cells, std::int64_t queries, const RowId* probes, std::int64_t width,
                           const RunOptions& run) {
  require(width >= 0, Fault::invalid_argument, "a query cannot look into ", width, " cells");
  parallel_for(run, queries, 4096, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<std::int64_t> seen(static_cast<std::size_t>(cells), -1);  // the last query of each cell
    for (std::int64_t i = begin * width; i < end * width; ++i) {
      const std::int64_t cell = value_of(probes[i]);
      require(cell >= -1 && cell < cells, Fault::invalid_argument, "cell ", cell, " must be in [-1, ", cells - 1, "]");
      if (cell < 0) continue;
      require(seen[static_cast<std::size_t>(cell)] != i / width, Fault::invalid_argument, "query ", i / width,
              " looks into cell ", cell, " twice");
      seen[static_cast<std::size_t>(cell)] = i / width;
    }
  });
}
inline void require_probing(const PreparedCells& base, MatrixRef queries, const RowId* probes, std::int64_t width,
                            std::int64_t k, RowMask allowed, const RunOptions& run) {
  require_k(k);
  require_same_rows(queries, base.cols(), base.dtype());
  require_mask(base.rows(), allowed);
  require_probes(base.cells(), queries.rows, probes, width, run);
}
inline void require_encoding(MatrixRef rows, MatrixRef codewords) {
  require(rows.dtype == DType::f32 && codewords.dtype == DType::f32, Fault::unsupported, "rows and codewords must be f32, got ",
          name_of(rows.dtype), " and ", name_of(codewords.dtype));
  const std::int64_t parts = codewords.cols >= 1 ? rows.cols / codewords.cols : 0;
  require(parts >= 1 && rows.cols == parts * codewords.cols && codewords.rows >= parts && codewords.rows % parts == 0 &&
              codewords.rows / parts <= most_codewords,
          Fault::invalid_argument, codewords.rows, " x ", codewords.cols, " codewords are not 1 to ", most_codewords,
          " of each part of rows of ", rows.cols);
}
inline void require_codes(const ProductCodes& codes, Metric metric) {
  require(metric == Metric::l2 || metric == Metric::euclidean || metric == Metric::inner_product, Fault::unsupported,
          "codes are searched by l2, euclidean or inner_product, not ", name_of(metric));
  require(codes.m <= most_code_parts, Fault::unsupported, "codes have at most ", most_code_parts, " parts, got ", codes.m);
  const CellRows& cells = codes.cells;
  require(cells.begins.size() >= 2 && cells.begins.front() == 0 && std::is_sorted(cells.begins.begin(), cells.begins.end()) &&
              cells.order.empty(),
          Fault::invalid_argument, "cells of codes must ascend from 0, and have no order");
  require(cells.begins.back() >= 1 && cells.begins.back() < std::int64_t{0xFFFFFFFF}, Fault::invalid_argument, "cannot search ",
          cells.begins.back(), " codes");
  const CodeShape shape = codes.shape();
  require(shape.planes == 1 || (shape.planes >= 2 && shape.planes <= 8 && shape.scaled && shape.bits == 8 && shape.m % shape.planes == 0),
          Fault::invalid_argument, "codes of ", shape.m, " parts of ", shape.bits, " bits have no ", shape.planes, " planes");
  require(shape.m >= 1 && is_part_bits(shape.bits) && shape.m % parts_together(shape.bits) == 0 &&
              codes.codewords.rows == shape.codewords() && shape.d >= 1 && shape.d <= shape.padded() &&
              codes.codewords.dtype == DType::f32 && codes.centroids.dtype == DType::f32,
          Fault::invalid_argument, codes.codewords.rows, " x ", codes.codewords.cols, " codewords are not those of ", shape.m, " parts of ",
          shape.bits, " bits of ", shape.d, " dimensions");
  require(codes.centroids.rows == cells.count() && codes.centroids.cols == codes.d, Fault::invalid_argument, "centroids are ",
          codes.centroids.rows, " x ", codes.centroids.cols, ", expected ", cells.count(), " x ", codes.d);
  require(std::ssize(codes.codes) == codes.block_begins().back() * codes.code_bytes() * code_block_rows, Fault::invalid_argument,
          codes.codes.size(), " bytes are not the codes of ", cells.begins.back(), " rows");
  require_permutation(cells.names, cells.begins.back(), "a naming");
}
inline void require_code_probing(const PreparedCodes& base, MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k,
                                 RowMask allowed, const RunOptions& run) {
  require_k(k);
  require_same_rows(queries, base.cols(), DType::f32);
  require_mask(base.rows(), allowed);
  require_probes(base.cells(), queries.rows, probes, width, run);
}
inline void require_joining(const PreparedCells& base, std::span<const RowId> rows, const RowId* own, const RowId* probes,
                            std::int64_t width, std::int64_t k, const RunOptions& run) {
  require_k(k);
  require_probes(base.cells(), std::ssize(rows), probes, width, run);
  std::vector<bool> seen(static_cast<std::size_t>(base.rows()));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t row = value_of(rows[i]);
    require(row >= 0 && row < base.rows() && !seen[static_cast<std::size_t>(row)], Fault::invalid_argument, "row ", row,
            " must be in [0, ", base.rows() - 1, "] and once among rows that are joined");
    seen[static_cast<std::size_t>(row)] = true;
    require(value_of(own[i]) >= 0 && value_of(own[i]) < base.cells(), Fault::invalid_argument, "cell ", value_of(own[i]),
            " must be in [0, ", base.cells() - 1, "]");
  }
}
inline void require_radius(float radius) {
  require(!std::isnan(radius), Fault::invalid_argument, "the radius must be a number, got ",
          radius);
}
inline void require_pairs(MatrixRef queries, MatrixRef base, Metric metric, std::int64_t width) {
  require_same_rows(queries, base.cols, base.dtype);
  require_metric(base, metric);
  require(width >= 0, Fault::invalid_argument, "a query cannot be paired with ", width, " rows");
}
inline void require_products(MatrixRef rows, MatrixRef directions) {
  require_pairs(rows, directions, Metric::inner_product, directions.rows);
  require(rows.dtype == DType::f32 || rows.dtype == DType::i8, Fault::unsupported, "products are of f32 or i8 rows, got ",
          name_of(rows.dtype));
}
inline void require_assignment(MatrixRef rows, Metric metric, DType centroids, std::int64_t clusters) {
  require_metric(rows, metric);
  require(rows.rows >= 1 && rows.cols >= 1 && rows.rows < std::int64_t{0xFFFFFFFF}, Fault::invalid_argument, "cannot assign ", rows.rows,
          " x ", rows.cols, " rows to centroids; allowed: 1 to 4294967294 of 1 column or more");
  require(clusters >= 1, Fault::invalid_argument, "rows need at least 1 centroid, got ", clusters);
  require(centroids == rows.dtype || (centroids == DType::f32 && !on_bits(metric)), Fault::unsupported, "centroids of ",
          name_of(rows.dtype), " rows are ", on_bits(metric) ? "" : "f32 or ", name_of(rows.dtype), " under ", name_of(metric), ", not ",
          name_of(centroids));
}
inline void require_centroids(MatrixRef centroids, std::int64_t clusters, std::int64_t cols, DType dtype) {
  require(centroids.rows == clusters && centroids.cols == cols && centroids.dtype == dtype, Fault::invalid_argument, "centroids are ",
          centroids.rows, " x ", centroids.cols, " ", name_of(centroids.dtype), ", expected ", clusters, " x ", cols, " ", name_of(dtype));
}
inline void require_labelled(MatrixRef rows, std::int64_t label_count) {
  require(holds_vectors(rows.dtype), Fault::unsupported, "rows of ", name_of(rows.dtype),
          " cannot be summed");
  require(label_count >= 1 && rows.cols >= 1 && rows.rows < std::int64_t{0xFFFFFFFF},
          Fault::invalid_argument, "cannot sum ", rows.rows, " x ", rows.cols, " rows of ",
          label_count, " labels");
}
inline void require_values(MatrixRef values, std::int64_t k) {
  require_k(k);
  require(values.dtype == DType::f32, Fault::unsupported, "values of ", name_of(values.dtype),
          " cannot be selected from");
  require(values.cols < std::int64_t{1} << 31 && k < std::int64_t{1} << 31, Fault::invalid_argument,
          "cannot select ", k, " of ", values.cols, " values");
}
inline void require_pair_id(std::int64_t id, std::int64_t rows) {
  require(id >= -1 && id < rows, Fault::invalid_argument, "id ", id, " must be in [-1, ", rows - 1,
          "]");
}

}  // namespace gigaknn
