// The tables of queries that CpuCodes scans codes by, and what rounding may take away of the distances behind them.
//
//   query - middle --products with all codewords--> f32 --255 steps below the largest of each part--> table [m][words] u8
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ops/cpu/cpu_codes_block.hpp"
#include "ops/cpu/float_tiles.hpp"

namespace gigaknn::cpu {
namespace {

constexpr float clipped_range = 1.2f;  // the widest range of a part's entries, by that of 255 steps

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

}  // namespace

// The mean of the rows' centroids; of inner products, whose queries may lie anywhere, the origin.
void CpuCodes::find_middle() {
  middle_.resize(at(codes_.d));
  if (scale_ == -1) return;
  std::vector<double> sums(at(codes_.d));
  for (std::int64_t cell = 0; cell < cells(); ++cell) {
    const std::int64_t count = begins_[at(cell + 1)] - begins_[at(cell)];
    if (count == 0) continue;
    const double weight = static_cast<double>(count) / static_cast<double>(rows());
    for (std::int64_t j = 0; j < codes_.d; ++j) sums[at(j)] += weight * static_cast<double>(codes_.centroids.row<float>(cell)[j]);
  }
  for (std::int64_t j = 0; j < codes_.d; ++j) {
    // Of centroids that overflow, and the rows they make far, any middle will do.
    middle_[at(j)] = std::abs(sums[at(j)]) < 1e15 ? static_cast<float>(sums[at(j)]) : 0.0f;
  }
}

// The queries of a block that need no tables: what bounds them, the cells tell that they look into.
void CpuCodes::take_queries(MatrixRef queries, Block& block) const {
  for (const std::int64_t query : block.query) {
    const float* const row = queries.row<float>(query);
    block.coded.push_back({.row = row, .norm = std::sqrt(pair_.kernels().dot_f32(row, row, codes_.d))});
  }
}

// Tables and bounds of the queries of a block.
void CpuCodes::make_tables(MatrixRef queries, Block& block) const {
  const std::int64_t m = scanned_.m, part_dims = scanned_.part_dims, words = scanned_.words(), count = std::ssize(block.query);
  block.coded.resize(at(count));
  block.tables = std::make_unique_for_overwrite<std::uint8_t[]>(at(count * m * words));
  block.padded.assign(at(count * m * part_dims), 0.0f);
  const std::int64_t most = std::min(codes_tile_queries, count);
  std::vector<float> parts(at(most * part_dims)), dots(at(m * most * width_)), tops(at(most * m)), widest(at(most));
  std::vector<float> from_middle(at(codes_.d));
  // What of a row stands before the codewords of a part, as often as they count. The last part of a row may end early: zeros behind it.
  const auto copy_part = [&](const float* row, std::int64_t part, float* to) {
    const std::int64_t begin = scanned_.first_dim(part), dims = std::clamp<std::int64_t>(codes_.d - begin, 0, part_dims);
    const float weight = scanned_.weight(part);
    for (std::int64_t j = 0; j < dims; ++j) to[j] = weight * row[begin + j];
  };
  for (std::int64_t first = 0; first < count; first += codes_tile_queries) {
    const std::int64_t some = std::min(codes_tile_queries, count - first);
    const auto padded_of = [&](std::int64_t i) { return block.padded.data() + (first + i) * m * part_dims; };
    const auto dots_of = [&](std::int64_t i, std::int64_t part) { return dots.data() + (part * most + i) * width_; };
    for (std::int64_t i = 0; i < some; ++i) {
      CodedQuery& query = block.coded[at(first + i)];
      query.row = queries.row<float>(block.query[at(first + i)]);
      for (std::int64_t j = 0; j < codes_.d; ++j) from_middle[at(j)] = query.row[j] - middle_[at(j)];
      for (std::int64_t part = 0; part < m; ++part) copy_part(from_middle.data(), part, padded_of(i) + part * part_dims);
      const double square = pair_.kernels().dot_f32(query.row, query.row, codes_.d);
      const double apart = pair_.kernels().dot_f32(from_middle.data(), from_middle.data(), codes_.d);
      query.margin = margin_of_tables(std::sqrt(square), std::sqrt(apart));
      query.square = scale_ == -2 ? square : 0;
    }
    std::fill(widest.begin(), widest.end(), 0.0f);
    for (std::int64_t part = 0; part < m; ++part) {
      for (std::int64_t i = 0; i < some; ++i) std::copy_n(padded_of(i) + part * part_dims, part_dims, parts.data() + i * part_dims);
      floats_->multiply({.a = parts.data(),
                         .rows = some,
                         .depth = part_dims,
                         .b = transposed_.data() + part * next_part(width_),
                         .cols = width_,
                         .out = dots_of(0, part)});
      for (std::int64_t i = 0; i < some; ++i) {
        float least = 0;
        float& top = tops[at(i * m + part)];
        products_->range(dots_of(i, part), words, &top, &least);
        widest[at(i)] = std::max(widest[at(i)], top - least);
      }
    }
    for (std::int64_t i = 0; i < some; ++i) {
      CodedQuery& query = block.coded[at(first + i)];
      const float* const of_parts = tops.data() + i * m;
      query.base = static_cast<double>(scale_) * std::accumulate(of_parts, of_parts + m, 0.0);  // of scaled codes once a factor
      const bool usable = query.margin < 1e30 && widest[at(i)] < 1e30f && std::isfinite(query.base);
      if (!usable) query.margin = std::numeric_limits<double>::infinity();
      // Of the parts with the widest range the entries that are farthest count as less than they are: rows of many such are far all the
      // same, and of all others the sum loses less.
      const float range = widest[at(i)] / clipped_range;
      const float factor = usable && range > 0 ? 255 / range : 0;
      query.step = factor > 0 && factor < 1e30f ? -scale_ * range / 255 : 0;
      for (std::int64_t part = 0; part < m; ++part) {
        std::uint8_t* const table = block.tables.get() + ((first + i) * m + part) * words;
        if (query.step > 0) {
          products_->quantize(dots_of(i, part), words, of_parts[part], factor, table);
        } else {
          std::fill_n(table, words, std::uint8_t{0});
        }
      }
    }
  }
}

// What rounding may take away of a distance in float32, or of an estimate, of a query of length `length` that stands `from_middle` away
// from the middle: products of d and of m * part_dims numbers, in any order of their sums (Higham 2002, section 3.1); tables' entries,
// their steps and the decoded row's sums, counted as products more; and of what is added up a few ulps, the canonical distance's own among
// them. A row's term is the largest of these: |x|^2 and twice the product of the middle, which is no longer than length + from_middle, with
// what x has left of its centroid.
double CpuCodes::margin_of_tables(double length, double from_middle) const {
  // Codewords count before the row's factor does, and are not to overflow either.
  if (!(from_middle * longest_words_ < 1e35)) return std::numeric_limits<double>::infinity();
  const std::int64_t parts = scanned_.m, dims = parts * scanned_.part_dims;
  const double of_centroid = static_cast<double>(codes_.d + 4) * length * largest_.centroid;
  const double of_words = static_cast<double>(dims + parts + 64) * from_middle * largest_.factor * longest_words_;
  const double all = length + from_middle + largest_.row + 2 * largest_.centroid;
  const double sums = -static_cast<double>(scale_) * (of_centroid + of_words) + 8 * (all * all + largest_.shift);
  // Below the least normal number float32 has no relative errors.
  return 2 * 0x1p-24 * sums + 4 * static_cast<double>(dims + parts + 64) * 0x1p-126 * std::max(1.0, largest_.factor);
}

// What float32 may take away of a distance in a cell. Differences from the centroid are rounded by what they are, words of decoded rows by
// what these are, and sums of products go by lanes of 4 at least.
double CpuCodes::margin_of_levels(const CodedQuery& query, const LevelCodes::Asked& asked, std::int64_t cell) const {
  const double steps = static_cast<double>(codes_.d) / 4 + 32, left = std::sqrt(asked.square) + reaches_[at(cell)].words;
  const double rows_reach = std::max(largest_.row + 2 * largest_.centroid, longest_words_);
  double squares = steps * left * left + 2 * left * rows_reach;
  if (scale_ == -1) {
    const double reach = query.norm + rows_reach;
    squares += steps * reach * reach;
  }
  const double margin = 4 * 0x1p-24 * squares + 4 * steps * 0x1p-126;
  return margin < 1e30 ? margin : std::numeric_limits<double>::infinity();
}

}  // namespace gigaknn::cpu
