#include "ops/cpu/cpu_codes.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

#include "core/cancelled.hpp"
#include "core/threads.hpp"
#include "ops/cpu/cell_visits.hpp"
#include "ops/list_writer.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t block_rows = code_block_rows;
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t table_bytes = 3000;
constexpr std::int64_t tile_queries = 3;
constexpr std::int64_t strands = 8;
#else
constexpr std::int64_t table_bytes = std::int64_t{1} << 19;  // of the queries of a block: half of L2
constexpr std::int64_t tile_queries = 16;                    // whose products with all codewords stay there too
constexpr std::int64_t strands = 64;  // of a list, of whose estimates the least stand for all
#endif
constexpr std::int64_t most_block_queries = 512;

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t queries_of_tables(std::int64_t m, std::int64_t words) {
  return std::clamp<std::int64_t>(table_bytes / (m * words), 1, most_block_queries);
}

// Candidates of a query between two looks at which are left.
std::int64_t candidate_room(std::int64_t k) { return 4 * k + 64; }

// Of scaled codes of bytes, whose halves may be looked up each in a table of its own; of others the same.
CodeShape as_nibbles(const CodeShape& shape) {
  if (!shape.scaled || shape.bits != 8 || shape.part_dims % 2 != 0) return shape;
  return {shape.d, 2 * shape.m, shape.part_dims / 2, 4, true, shape.planes};
}

// The codewords of one part [words, part_dims] as [part_dims, padded_cols], zeros behind.
void transpose_codewords(MatrixRef codewords, float* out) {
  const std::int64_t width = padded_cols(codewords.rows);
  std::fill_n(out, codewords.cols * width, 0.0f);
  for (std::int64_t w = 0; w < codewords.rows; ++w) {
    for (std::int64_t i = 0; i < codewords.cols; ++i) out[i * width + w] = codewords.row<float>(w)[i];
  }
}

// Of codes that are scanned as they stand.
std::size_t bytes_of_scan(std::int64_t n, const CodeShape& shape, std::int64_t cells, const PrepareHints& hints, int threads) {
  const std::int64_t m = shape.m, words = shape.words(), width = padded_cols(words);
  const std::int64_t rows = n + cells * (block_rows - 1);
  const std::int64_t candidates = 12 * candidate_room(std::min(hints.k, n)) * 2;  // twice as they grow, which they do where rounding tells little
  const std::int64_t at_once = std::min(queries_of_tables(m, words) * threads, std::max<std::int64_t>(1, hints.batch));
  const std::int64_t a_query = m * words + 64 + 2 * std::min<std::int64_t>(cells, 512) * 8 + candidates + m * shape.part_dims * 4;
  const std::int64_t a_block = tile_queries * m * width * 4 +
                               cells * 64 + n / std::max<std::int64_t>(1, cells) * 64 + shape.d * 8;
  return at((shape.scaled ? 1 : m) * shape.part_dims * width * 4 + rows * (shape.scaled ? 8 : 4) + n * 4 + cells * 24 + at_once * a_query +
            threads * a_block) +
         TopK::bytes_of(at_once, std::min(hints.k, n));
}

// Of codes that are read as levels.
std::size_t bytes_of_levels(std::int64_t n, const CodeShape& shape, std::int64_t cells, const PrepareHints& hints, int threads) {
  const std::int64_t rows = n + cells * (block_rows - 1), k = std::min(hints.k, n);
  const std::int64_t at_once = std::min(most_block_queries * threads, std::max<std::int64_t>(1, hints.batch));
  const std::int64_t a_query = 96 + 2 * std::min<std::int64_t>(cells, 512) * 8 + 24 * candidate_room(k);
  const std::int64_t a_block =
      static_cast<std::int64_t>(LevelCodes::visit_bytes_needed(shape)) + cells * 64 + LevelCodes::chunk_rows(shape) * 16 + shape.d * 8;
  return at(rows * 4 + n * 4 + cells * 48 + at_once * a_query + threads * a_block) + LevelCodes::bytes_needed(shape) +
         TopK::bytes_of(at_once, k);
}

// Row r of a block among its lanes.
std::int64_t lane_of(std::int64_t r) { return r / 2 + r % 2 * (block_rows / 2); }

}  // namespace

/// A query as bounds know it. Distances are squared, or products negated.
struct CpuCodes::CodedQuery {
  const float* row = nullptr;
  float step = 0;
  double norm = 0;     // |q|, beside levels
  double square = 0;   // |q|^2, where distances have it; beside levels |q - centroid|^2
  double base = 0;     // what the table's entries start from, in units of distance
  double margin = 0;   // that rounding may take away; not finite: bounds say nothing
  float coarse = 0;    // its product with the centroid of the cell at hand
  double slack = 0;    // of the cell at hand, that levels may take away beside the margin
};

/// A row that may be among the nearest.
struct CpuCodes::Candidate {
  float distance;  // in float32
  std::uint32_t cell;
  LocalRow row;    // of the cell
};

struct CpuCodes::Block {
  std::vector<std::int64_t> query;      // [count] rows of the query matrix; those that are far from everything are not among them
  std::vector<CodedQuery> coded;        // [count]
  std::unique_ptr<std::uint8_t[]> tables;  // [count][m][words]
  std::vector<std::vector<Candidate>> candidates;  // [count]
  std::vector<float> padded;            // [count][m * part_dims] queries, zeros behind
  std::vector<std::uint32_t> masks;
  std::vector<float> estimates;
  std::vector<float> sorted;
  std::vector<float> decoded;
  std::vector<std::uint8_t> levels;     // of a chunk of the cell at hand
  std::vector<std::int8_t> asked_levels;
  std::vector<LevelCodes::Asked> asked;
  std::vector<std::int32_t> sums;
  RowMask allowed;
};

CpuCodes::CpuCodes(const ProductCodes& codes, const PairDistance& pair, const ProductKernels& products, const CodeScan& nibbles, const CodeKernels* levels,
                   ReadLevels read, const FloatKernels& floats, const RunOptions& run)
    : codes_(codes), scanned_(codes.shape()), scanned_words_(codes.codewords), begins_(codes.cells.begins.begin(), codes.cells.begins.end()), names_(codes.cells.names.begin(), codes.cells.names.end()),
      block_begins_(codes.block_begins()), pair_(pair), products_(&products), floats_(&floats), scale_(pair.metric() == Metric::inner_product ? -1.0f : -2.0f),
      terms_(at(block_begins_.back() * block_rows)), factors_(codes.scaled ? terms_.size() : 0) {
  codes_.cells = {{}, begins_, names_};
  if (LevelCodes::suits(codes.shape(), levels)) {
    levels_ = std::make_unique<LevelCodes>(codes, *levels, read);
    reaches_.resize(at(cells()));
  } else if (!products.quick_bytes) {
    read_as_nibbles();
  }
  scan_ = scanned_.bits == 8 ? products.of_bytes : scanned_.bits == 6 ? products.of_sixes : nibbles;
  const std::int64_t words = scanned_.words();
  width_ = padded_cols(words);
  const std::int64_t parts_of_words = levels_ ? 0 : codes_.scaled ? 1 : scanned_.m;
  transposed_.resize(at(parts_of_words * scanned_.part_dims * width_));
  for (std::int64_t part = 0; part < parts_of_words; ++part) {
    transpose_codewords(scanned_words_.slice(part * words, (part + 1) * words), transposed_.data() + part * scanned_.part_dims * width_);
  }
  std::mutex mutex;
  parallel_for(run, cells(), 4, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> row(at(codes_.d));
    double largest = 0, largest_factor = 0;
    std::vector<LocalRow> far;
    for (std::int64_t cell = begin; cell < end; ++cell) {
      const auto square_of = [&](const float* x) { return pair_.kernels().dot_f32(x, x, codes_.d); };
      const double centroid = std::sqrt(square_of(codes_.centroids.row<float>(cell)));
      for (std::int64_t i = 0; i < begins_[at(cell + 1)] - begins_[at(cell)]; ++i) {
        const std::int64_t block = block_begins_[at(cell)] + i / block_rows;
        codes_.decode(cell, block, i % block_rows, row.data());
        if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) {
          far.push_back(static_cast<LocalRow>(begins_[at(cell)] + i));
          continue;
        }
        const double square = square_of(row.data());
        largest = std::max(largest, std::sqrt(square) + 2 * centroid);
        const RowScale scaling = codes_.scale(block, i % block_rows);
        const std::size_t place = term_place(block, i % block_rows);
        if (levels_) {
          const LevelCodes::Row of_row = levels_->row(codes_, cell, block, i % block_rows);
          terms_[place] = static_cast<float>(scale_ == -2 ? of_row.square : -of_row.with_centroid);
          reaches_[at(cell)].add(of_row);
        } else if (scale_ == -2) {
          terms_[place] = static_cast<float>(square + static_cast<double>(scaling.shift));
        }
        if (codes_.scaled) factors_[place] = scaling.factor;
        largest_factor = std::max(largest_factor, static_cast<double>(scaling.factor));
        if (scale_ == -2) largest = std::max(largest, std::sqrt(std::abs(static_cast<double>(scaling.shift))));
      }
    }
    const std::lock_guard lock(mutex);
    largest_norm_ = std::max(largest_norm_, largest);
    largest_factor_ = std::max(largest_factor_, largest_factor);
    far_.insert(far_.end(), far.begin(), far.end());
  });
  std::sort(far_.begin(), far_.end());
  // Tables are made of all codewords, also of those that no row has; and what planes say of a dimension may cancel in the row, but not in
  // the rounding of their sum.
  const double together = (1 << codes_.planes) - 1;
  double longest = 0;
  for (std::int64_t part = 0; part < codes_.m / codes_.planes; ++part) {
    double most = 0;
    for (std::int64_t word = codes_.first_word(part); word < codes_.first_word(part) + codes_.words(); ++word) {
      const float* const x = codes_.codewords.row<float>(word);
      most = std::max(most, pair_.kernels().dot_f32(x, x, codes_.part_dims()));
    }
    longest += together * together * most;
  }
  largest_norm_ = std::max(largest_norm_, largest_factor_ * std::sqrt(longest));
  check_cancelled(run);
}

// Where the words that all parts share are those of a grid.
void CpuCodes::read_as_nibbles() {
  const CodeShape bytes = scanned_, nibbles = as_nibbles(bytes);
  if (nibbles.bits == bytes.bits) return;
  const std::int64_t dims = nibbles.part_dims;
  nibble_words_ = Matrix(16, dims, DType::f32);
  for (std::int64_t word = 0; word < 16; ++word) std::copy_n(codes_.codewords.row<float>(word), dims, nibble_words_.row<float>(word));
  for (std::int64_t word = 0; word < bytes.words(); ++word) {
    const float* const whole = codes_.codewords.row<float>(word);
    const float *const low = nibble_words_.row<float>(word & 15), *const high = nibble_words_.row<float>(word >> 4);
    if (!std::equal(whole, whole + dims, low) || !std::equal(whole + dims, whole + 2 * dims, high)) return;
  }
  scanned_ = nibbles;
  scanned_words_ = nibble_words_;
}

std::size_t CpuCodes::term_place(std::int64_t block, std::int64_t r) const { return at(block * block_rows + (levels_ ? r : lane_of(r))); }

std::int64_t CpuCodes::block_queries() const { return levels_ ? most_block_queries : queries_of_tables(scanned_.m, scanned_.words()); }

std::size_t CpuCodes::bytes_needed(std::int64_t n, const CodeShape& shape, bool quick_bytes, const CodeKernels* levels, std::int64_t cells,
                                   const PrepareHints& hints, int threads) {
  if (LevelCodes::suits(shape, levels)) return bytes_of_levels(n, shape, cells, hints, threads);
  const std::size_t as_they_stand = bytes_of_scan(n, shape, cells, hints, threads);
  return quick_bytes ? as_they_stand : std::max(as_they_stand, bytes_of_scan(n, as_nibbles(shape), cells, hints, threads));
}

std::size_t CpuCodes::bytes() const {
  return (transposed_.size() + terms_.size() + factors_.size() + names_.size()) * 4 + (begins_.size() + block_begins_.size()) * 8 +
         reaches_.size() * sizeof(LevelCodes::Reach) + (levels_ ? LevelCodes::bytes_needed(scanned_) : 0);
}

std::string CpuCodes::description() const {
  if (levels_) return codes_.shape().description() + ", levels, " + levels_->name();
  return codes_.shape().description() + ", " + (scanned_.bits == 8 ? products_->name : scanned_.bits == 6 ? std::string("6 bits a part, ") + products_->name : "4 bits a part, shuffles");
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
  const std::int64_t most = std::min(tile_queries, count);
  std::vector<float> parts(at(most * part_dims)), dots(at(m * most * width_)), largest(at(m));
  const auto steps = static_cast<double>(m * part_dims + m + 32);
  // What of a row stands before the codewords of a part, as often as they count. The last part of a row may end early: zeros behind it.
  const auto copy_part = [&](const float* row, std::int64_t part, float* to) {
    const std::int64_t begin = scanned_.first_dim(part), dims = std::clamp<std::int64_t>(codes_.d - begin, 0, part_dims);
    const float weight = scanned_.weight(part);
    for (std::int64_t j = 0; j < dims; ++j) to[j] = weight * row[begin + j];
  };
  for (std::int64_t first = 0; first < count; first += tile_queries) {
    const std::int64_t some = std::min(tile_queries, count - first);
    for (std::int64_t part = 0; part < m; ++part) {
      std::fill(parts.begin(), parts.end(), 0.0f);
      for (std::int64_t i = 0; i < some; ++i) copy_part(queries.row<float>(block.query[at(first + i)]), part, parts.data() + i * part_dims);
      floats_->multiply({.a = parts.data(), .rows = some, .depth = part_dims, .b = transposed_.data() + part * next_part(width_), .cols = width_,
                         .out = dots.data() + part * most * width_});
    }
    for (std::int64_t i = 0; i < some; ++i) {
      CodedQuery& query = block.coded[at(first + i)];
      query.row = queries.row<float>(block.query[at(first + i)]);
      float* const padded = block.padded.data() + (first + i) * m * part_dims;
      if (scanned_.planes == 1) {
        std::copy_n(query.row, codes_.d, padded);
      } else {
        for (std::int64_t part = 0; part < m; ++part) copy_part(query.row, part, padded + part * part_dims);
      }
      const auto dots_of = [&](std::int64_t part) { return dots.data() + (part * most + i) * width_; };
      float widest = 0;
      double sum = 0;
      for (std::int64_t part = 0; part < m; ++part) {
        float least = 0;
        products_->range(dots_of(part), words, &largest[at(part)], &least);
        widest = std::max(widest, largest[at(part)] - least);
        sum += static_cast<double>(largest[at(part)]);
      }
      const double square = pair_.kernels().dot_f32(query.row, query.row, codes_.d), reach = std::sqrt(square) + largest_norm_;
      // Below the least normal number float32 has no relative errors.
      query.margin = 8 * steps * 0x1p-24 * reach * reach + 4 * steps * 0x1p-126 * std::max(1.0, largest_factor_);
      query.square = scale_ == -2 ? square : 0;
      query.base = static_cast<double>(scale_) * sum;  // of scaled codes once a factor
      const bool usable = query.margin < 1e30 && widest >= 0 && widest < 1e30f && std::isfinite(query.base);
      if (!usable) query.margin = std::numeric_limits<double>::infinity();
      const float factor = usable && widest > 0 ? 255 / widest : 0;
      query.step = factor > 0 && factor < 1e30f ? -scale_ * widest / 255 : 0;
      for (std::int64_t part = 0; part < m; ++part) {
        std::uint8_t* const table = block.tables.get() + ((first + i) * m + part) * words;
        if (query.step > 0) {
          products_->quantize(dots_of(part), words, largest[at(part)], factor, table);
        } else {
          std::fill_n(table, words, std::uint8_t{0});
        }
      }
    }
  }
}

// What the distance in float32 of a row may be at most that is among the k nearest, where the k-th of those so far has `bound`'s.
double CpuCodes::distance_limit(const CodedQuery& query, PackedNeighbor bound) const {
  if (bound == no_neighbor || !std::isfinite(query.margin)) return std::numeric_limits<double>::infinity();
  return static_cast<double>(key_of(bound)) + 2 * query.margin;
}

// The largest estimate of such a row.
float CpuCodes::limit_of(const CodedQuery& query, PackedNeighbor bound) const {
  const double limit = distance_limit(query, bound) - query.square - (codes_.scaled ? 0 : query.base) -
                       static_cast<double>(scale_) * static_cast<double>(query.coarse) + query.margin + query.slack;
  return std::nextafter(static_cast<float>(limit), std::numeric_limits<float>::infinity());
}

// The distance of a row in float32, which bounds those of others.
void CpuCodes::screen(std::int64_t cell, std::int64_t row, std::int64_t i, Block& block, TopK& lists) const {
  if (!block.allowed.words.empty() || !far_.empty()) {
    const std::int64_t place = begins_[at(cell)] + row;
    if (!block.allowed.has(name_of(place)) || std::binary_search(far_.begin(), far_.end(), static_cast<LocalRow>(place))) return;
  }
  const CodedQuery& query = block.coded[at(i)];
  const std::uint8_t* const codes =
      codes_.codes.data() + ProductCodes::place(block_begins_[at(cell)] + row / block_rows, codes_.code_bytes(), 0, row % block_rows);
  const auto* const codewords = static_cast<const float*>(scanned_words_.data);
  const std::int64_t padded = scanned_.m * scanned_.part_dims;
  const std::size_t place = term_place(block_begins_[at(cell)] + row / block_rows, row % block_rows);
  const float factor = codes_.scaled ? factors_[place] : 1;
  const float of_words = levels_ ? levels_->product(query.row, codes_.centroids.row<float>(cell), codes)
                                 : scan_.product(block.padded.data() + i * padded, codewords, next_part(scanned_.words()), scanned_.m,
                                                 scanned_.part_dims, codes);
  const float product = query.coarse + factor * of_words;
  const float term = terms_[place];
  const auto distance =
      static_cast<float>(query.square + static_cast<double>(scale_) * static_cast<double>(product) + static_cast<double>(term));
  const PackedNeighbor bound = lists.bound(i);
  if (static_cast<double>(distance) > distance_limit(query, bound)) return;
  auto& candidates = block.candidates[at(i)];
  // What better bounds leave behind goes when there is much of it; and where that is little, as among equal rows, the nearest are found
  // here.
  if (const std::int64_t room = candidate_room(lists.k()); std::ssize(candidates) >= room) {
    const double limit = distance_limit(query, bound);
    std::erase_if(candidates, [&](const Candidate& candidate) { return static_cast<double>(candidate.distance) > limit; });
    if (2 * std::ssize(candidates) > room) keep_nearest(i, lists.k(), block);
  }
  candidates.push_back({distance, static_cast<std::uint32_t>(cell), static_cast<LocalRow>(row)});
  if (!names_.empty()) __builtin_prefetch(&names_[at(begins_[at(cell)] + row)]);
  lists.push(i, pack_neighbor(distance, static_cast<LocalRow>(row)));
}

PackedNeighbor CpuCodes::neighbor_of(const Candidate& candidate, const CodedQuery& query, float* decoded) const {
  const std::int64_t row = candidate.row;
  const std::int64_t block = block_begins_[candidate.cell] + row / block_rows;
  codes_.decode(candidate.cell, block, row % block_rows, decoded);
  const float key = shifted_key(pair_.metric(), pair_.key(query.row, decoded), codes_.scale(block, row % block_rows).shift);
  return pack_neighbor(key, name_of(begins_[candidate.cell] + row));
}

// Of more than k candidates the k nearest by canonical distance and name: the others are not among the k nearest of all.
void CpuCodes::keep_nearest(std::int64_t i, std::int64_t k, Block& block) const {
  auto& candidates = block.candidates[at(i)];
  block.decoded.resize(at(codes_.d));
  std::vector<std::pair<PackedNeighbor, std::uint32_t>> nearest;
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    nearest.emplace_back(neighbor_of(candidates[c], block.coded[at(i)], block.decoded.data()), static_cast<std::uint32_t>(c));
  }
  std::nth_element(nearest.begin(), nearest.begin() + (k - 1), nearest.end());
  std::vector<Candidate> kept;
  for (std::int64_t c = 0; c < k; ++c) kept.push_back(candidates[nearest[at(c)].second]);
  std::copy(kept.begin(), kept.end(), candidates.begin());
  candidates.resize(kept.size());
}

// The k nearest of the candidates. Only where they are asked for in their order, or where float32 leaves open who is among them, does a row
// take its canonical distance.
void CpuCodes::finish(std::int64_t i, ListOrder order, Block& block, TopK& lists, std::vector<PackedNeighbor>& found) const {
  lists.settle(i);
  const CodedQuery& query = block.coded[at(i)];
  const PackedNeighbor bound = lists.bound(i);
  const double limit = distance_limit(query, bound);
  // Nearer than all that may be the k-th.
  const double surely = order == ListOrder::by_id && std::isfinite(limit) ? static_cast<double>(key_of(bound)) - 2 * query.margin
                                                                          : -std::numeric_limits<double>::infinity();
  block.decoded.resize(at(codes_.d));
  found.clear();
  found.reserve(block.candidates[at(i)].size());
  std::int64_t sure = 0;
  for (const Candidate& candidate : block.candidates[at(i)]) {
    if (static_cast<double>(candidate.distance) > limit) continue;
    if (static_cast<double>(candidate.distance) < surely) {
      found.push_back(name_of(begins_[candidate.cell] + std::int64_t{candidate.row}));  // before every key
      ++sure;
      continue;
    }
    found.push_back(neighbor_of(candidate, query, block.decoded.data()));
  }
  const auto kept = std::min<std::int64_t>(lists.k(), std::ssize(found));
  if (sure > 0) std::partition(found.begin(), found.end(), [](PackedNeighbor neighbor) { return neighbor >> 32 == 0; });
  std::partial_sort(found.begin() + sure, found.begin() + std::max(sure, kept), found.end());
  found.resize(at(kept));
  if (order == ListOrder::by_id) {
    std::sort(found.begin(), found.end(), [](PackedNeighbor a, PackedNeighbor b) { return row_of(a) < row_of(b); });
  }
}

void CpuCodes::look_into(std::int64_t cell, std::int64_t i, Block& block, TopK& lists) const {
  const std::int64_t count = begins_[at(cell + 1)] - begins_[at(cell)];
  if (count == 0) return;
  const std::int64_t first = block_begins_[at(cell)], blocks = block_begins_[at(cell + 1)] - first;
  CodedQuery& query = block.coded[at(i)];
  const float* const centroid = codes_.centroids.row<float>(cell);
  query.coarse = pair_.kernels().fast_dot_f32(query.row, centroid, codes_.d);
  const ProductTile tile{.codes = codes_.codes.data() + ProductCodes::place(first, codes_.code_bytes(), 0, 0),
                         .blocks = blocks,
                         .m = scanned_.m,
                         .block_bytes = codes_.code_bytes() * block_rows,
                         .table = block.tables.get() + i * scanned_.m * scanned_.words(),
                         .terms = terms_.data() + first * block_rows,
                         .step = query.step,
                         .factors = codes_.scaled ? factors_.data() + first * block_rows : nullptr,
                         .base = static_cast<float>(query.base)};
  if (lists.bound(i) != no_neighbor) {
    block.masks.resize(at(blocks));
    scan_.survivors(tile, limit_of(query, lists.bound(i)), block.masks.data());
    for (std::int64_t b = 0; b < blocks; ++b) {
      std::uint32_t mask = block.masks[at(b)];
      if (b == blocks - 1 && count % block_rows != 0) mask &= (std::uint32_t{1} << (count % block_rows)) - 1;
      for (; mask != 0; mask &= mask - 1) screen(cell, b * block_rows + std::countr_zero(mask), i, block, lists);
    }
    return;
  }
  block.estimates.resize(at(blocks * block_rows));
  scan_.estimates(tile, block.estimates.data());
  block.estimates.resize(at(count));
  take_estimated(cell, 0, i, block, lists);
}

// All queries of a block that look into a cell, by levels.
void CpuCodes::look_into_levels(std::int64_t cell, std::span<const std::int64_t> queries, Block& block, TopK& lists) const {
  const std::int64_t count = begins_[at(cell + 1)] - begins_[at(cell)], first = block_begins_[at(cell)], stride = levels_->stride();
  const float* const centroid = codes_.centroids.row<float>(cell);
  for (std::size_t begin = 0; begin < queries.size() && count > 0; begin += LevelCodes::most_queries) {
    const auto some = queries.subspan(begin, std::min<std::size_t>(queries.size() - begin, LevelCodes::most_queries));
    block.asked.resize(some.size());
    block.asked_levels.resize(some.size() * at(stride));
    for (std::size_t q = 0; q < some.size(); ++q) {
      CodedQuery& query = block.coded[at(some[q])];
      LevelCodes::Asked& asked = block.asked[q];
      asked = levels_->ask(query.row, centroid, reaches_[at(cell)], block.asked_levels.data() + q * at(stride));
      query.square = scale_ == -2 ? asked.square : 0;
      query.coarse = scale_ == -2 ? 0 : pair_.kernels().fast_dot_f32(query.row, centroid, codes_.d);
      query.margin = std::max(query.margin, margin_of_levels(query, asked, cell));
      query.slack = -static_cast<double>(scale_) * asked.slack;
    }
    const std::int64_t chunk = LevelCodes::chunk_rows(scanned_);
    for (std::int64_t row = 0; row < count; row += chunk) {
      const std::int64_t rows = std::min(chunk, count - row), from = first + row / block_rows;
      levels_->read_levels(codes_.codes.data() + ProductCodes::place(from, codes_.code_bytes(), 0, 0), ProductCodes::blocks_of(rows),
                           codes_.code_bytes() * block_rows, block.levels);
      levels_->multiply(block.levels, rows, block.asked_levels.data(), std::ssize(some), block.sums);
      block.estimates.resize(at(rows));
      for (std::size_t q = 0; q < some.size(); ++q) {
        levels_->estimate(block.sums, std::ssize(some), static_cast<std::int64_t>(q), block.asked[q], scale_,
                          std::span(terms_).subspan(at(from * block_rows), at(rows)), block.estimates.data());
        take_estimated(cell, row, some[q], block, lists);
      }
    }
  }
}

// What float32 may take away of a distance in a cell. Differences from the centroid are rounded by what they are, words of decoded rows by
// what these are, and sums of products go by lanes of 4 at least.
double CpuCodes::margin_of_levels(const CodedQuery& query, const LevelCodes::Asked& asked, std::int64_t cell) const {
  const double steps = static_cast<double>(codes_.d) / 4 + 32, left = std::sqrt(asked.square) + reaches_[at(cell)].words;
  double squares = steps * left * left + 2 * left * largest_norm_;
  if (scale_ == -1) {
    const double reach = query.norm + largest_norm_;
    squares += steps * reach * reach;
  }
  const double margin = 4 * 0x1p-24 * squares + 4 * steps * 0x1p-126;
  return margin < 1e30 ? margin : std::numeric_limits<double>::infinity();
}

// What may be near of the rows of a cell whose estimates are at hand, from `first_row` on.
void CpuCodes::take_estimated(std::int64_t cell, std::int64_t first_row, std::int64_t i, Block& block, TopK& lists) const {
  const CodedQuery& query = block.coded[at(i)];
  const auto take = [&](std::int64_t row) { screen(cell, first_row + row, i, block, lists); };
  if (lists.bound(i) != no_neighbor) return for_each_up_to(block, limit_of(query, lists.bound(i)), take);
  // The list has room: as many rows as it holds, those first whose estimates are least, give a bound for the others.
  const float cut = cut_of(block, std::min(lists.k(), std::ssize(block.estimates)));
  for_each_up_to(block, cut, take);
  lists.settle(i);
  const float limit = limit_of(query, lists.bound(i));
  if (!(limit <= cut)) {
    for_each_up_to(block, limit, [&](std::int64_t row) {
      if (block.estimates[at(row)] > cut) take(row);
    });
  }
}

// An estimate that `wanted` of a list's rows do not exceed, and few others: the so-many-th least, or, of few, that of the least of each
// strand.
float CpuCodes::cut_of(Block& block, std::int64_t wanted) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::int64_t count = std::ssize(block.estimates);
  if (wanted == count) return infinity;
  if (wanted <= strands / 2 && count >= 2 * strands) {
    block.sorted.assign(at(strands), infinity);
    for (std::int64_t row = 0; row < count; row += strands) {
      // A comparison with NaN is false: it is never the least.
      for (std::int64_t s = 0; s < std::min(strands, count - row); ++s) {
        block.sorted[at(s)] = block.estimates[at(row + s)] < block.sorted[at(s)] ? block.estimates[at(row + s)] : block.sorted[at(s)];
      }
    }
  } else {
    block.sorted = block.estimates;
    for (float& estimate : block.sorted) estimate = std::isnan(estimate) ? infinity : estimate;
  }
  std::nth_element(block.sorted.begin(), block.sorted.begin() + wanted - 1, block.sorted.end());
  return block.sorted[at(wanted - 1)];
}

// The rows of a list whose estimates are not above `most`.
template <class Visit>
void CpuCodes::for_each_up_to(Block& block, float most, const Visit& visit) const {
  const std::int64_t count = std::ssize(block.estimates), blocks = ProductCodes::blocks_of(count);
  block.masks.resize(at(blocks));
  products_->up_to(block.estimates.data(), count, most, block.masks.data());
  for (std::int64_t b = 0; b < blocks; ++b) {
    for (std::uint32_t mask = block.masks[at(b)]; mask != 0; mask &= mask - 1) visit(b * block_rows + std::countr_zero(mask));
  }
}

void CpuCodes::nearest(MatrixRef queries, const RowId* probes, std::int64_t width, std::int64_t k, NeighborsOut out, RowMask allowed,
                       ListOrder order, const RunOptions& run) const {
  const RowFacts facts = pair_.facts_of(queries, run);
  const std::int64_t kept = std::min(k, rows());
  const ListWriter writer(pair_.metric(), 0, {});
  std::atomic<std::int64_t> done{0};
  parallel_blocks(run, queries.rows, block_queries(), [&](std::int64_t begin, std::int64_t end) {
    Block block;
    block.allowed = allowed;
    for (std::int64_t i = begin; i < end; ++i) {
      if (!facts.far[at(i)]) block.query.push_back(i);
    }
    if (levels_) {
      take_queries(queries, block);
    } else {
      make_tables(queries, block);
    }
    block.candidates.resize(block.query.size());
    for (auto& candidates : block.candidates) candidates.reserve(at(candidate_room(kept)));
    TopK lists(std::ssize(block.query), kept);
    // Each query's nearest cell first: what follows is then held against a good bound.
    for (const std::int64_t first : {std::int64_t{0}, std::int64_t{1}}) {
      const std::int64_t last = first == 0 ? std::min<std::int64_t>(1, width) : width;
      if (first >= last) break;
      const CellVisits visits(block.query, probes, width, first, last, cells());
      for (std::size_t v = 0; v < visits.cells.size(); ++v) {
        check_cancelled(run);
        if (levels_) {
          look_into_levels(visits.cells[v], visits.of(v), block, lists);
        } else {
          for (const std::int64_t i : visits.of(v)) look_into(visits.cells[v], i, block, lists);
        }
      }
    }
    for (std::int64_t i = begin; i < end; ++i) writer.write(nullptr, 0, false, -1, i, out);
    std::vector<PackedNeighbor> found;
    for (std::int64_t i = 0; i < std::ssize(block.query); ++i) {
      finish(i, order, block, lists, found);
      writer.write(found.data(), std::ssize(found), false, -1, block.query[at(i)], out);
    }
    if (run.progress) run.progress->report("search", done.fetch_add(end - begin) + end - begin, queries.rows);
  });
}

}  // namespace gigaknn::cpu
