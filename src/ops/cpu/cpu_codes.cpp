#include "ops/cpu/cpu_codes.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <mutex>

#include "core/cancelled.hpp"
#include "core/threads.hpp"
#include "ops/cpu/cell_visits.hpp"
#include "ops/cpu/cpu_codes_block.hpp"
#include "ops/list_writer.hpp"

namespace gigaknn::cpu {
namespace {

constexpr std::int64_t block_rows = code_block_rows;
#ifdef GIGAKNN_TINY_TILES
constexpr std::int64_t table_bytes = 3000;
constexpr std::int64_t strands = 8;
constexpr std::int64_t scanned_rows = 2 * block_rows;
#else
constexpr std::int64_t table_bytes = std::int64_t{1} << 19;  // of the queries of a block: half of L2
constexpr std::int64_t strands = 64;  // of a list, of whose estimates the least stand for all
constexpr std::int64_t scanned_rows = 512 * block_rows;  // of a list, at once: a list may be all rows
#endif
constexpr std::int64_t most_block_queries = 512;
constexpr std::size_t prefetched_rows = 3;       // that are decoded next
constexpr std::int64_t prefetched_bytes = 4096;  // of a list, while the one before it is looked into

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
  const std::int64_t a_block = codes_tile_queries * (m * (width + 1) + shape.part_dims) * 4 + cells * 64 +
                               std::min(rows, scanned_rows) * 64 + shape.d * 12;
  const std::int64_t prepared =
      (shape.scaled ? 1 : m) * shape.part_dims * width * 4 + shape.d * 4 + rows * (shape.scaled ? 8 : 4) + n * 4 + cells * 24;
  return at(prepared + at_once * a_query + threads * a_block) + TopK::bytes_of(at_once, std::min(hints.k, n));
}

// Of codes that are read as levels.
std::size_t bytes_of_levels(std::int64_t n, const CodeShape& shape, std::int64_t cells, const PrepareHints& hints, int threads) {
  const std::int64_t rows = n + cells * (block_rows - 1), k = std::min(hints.k, n);
  const std::int64_t at_once = std::min(most_block_queries * threads, std::max<std::int64_t>(1, hints.batch));
  const std::int64_t a_query = 96 + 2 * std::min<std::int64_t>(cells, 512) * 8 + 24 * candidate_room(k);
  const std::int64_t a_block =
      static_cast<std::int64_t>(LevelCodes::visit_bytes_needed(shape)) + cells * 64 + LevelCodes::chunk_rows(shape) * 32 + shape.d * 8;
  return at(rows * 4 + n * 4 + cells * 48 + at_once * a_query + threads * a_block) + LevelCodes::bytes_needed(shape) +
         TopK::bytes_of(at_once, k);
}

// A value that `rank` of the values at least are not above, and, of values spread as estimates are, few others: the interval that holds the
// rank-th is halved until it is a 4096th of all. Counting is what processors do by vectors; a selection waits for its branches.
float value_of_rank(std::vector<float>& values, std::int64_t rank) {
  const auto [least, largest] = std::minmax_element(values.begin(), values.end());
  float below = *least, found = *largest;
  if (!std::isfinite(below) || !std::isfinite(found)) {
    std::nth_element(values.begin(), values.begin() + (rank - 1), values.end());
    return values[at(rank - 1)];
  }
  for (int step = 0; step < 12; ++step) {
    const float middle = below + (found - below) / 2;
    if (!(middle < found)) break;
    std::int32_t count = 0;
    for (const float value : values) count += value <= middle;
    if (count < rank) {
      below = middle;
    } else {
      found = middle;
      if (count <= rank + rank / 8) break;
    }
  }
  return found;
}

constexpr auto every_row = [](std::int64_t) { return true; };

// Row r of a block among its lanes.
std::int64_t lane_of(std::int64_t r) { return r / 2 + r % 2 * (block_rows / 2); }

}  // namespace

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
  if (!levels_) find_middle();
  std::mutex mutex;
  parallel_for(run, cells(), 4, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> row(at(codes_.d));
    Largest largest;
    std::vector<LocalRow> far;
    for (std::int64_t cell = begin; cell < end; ++cell) {
      const auto dot = [&](const float* x, const float* y) { return pair_.kernels().dot_f32(x, y, codes_.d); };
      const float* const centroid = codes_.centroids.row<float>(cell);
      const double centroid_length = std::sqrt(dot(centroid, centroid));
      for (std::int64_t i = 0; i < begins_[at(cell + 1)] - begins_[at(cell)]; ++i) {
        const std::int64_t block = block_begins_[at(cell)] + i / block_rows;
        codes_.decode(cell, block, i % block_rows, row.data());
        if (!std::all_of(row.begin(), row.end(), [](float x) { return std::isfinite(x); })) {
          far.push_back(static_cast<LocalRow>(begins_[at(cell)] + i));
          continue;
        }
        const double square = dot(row.data(), row.data());
        const RowScale scaling = codes_.scale(block, i % block_rows);
        const std::size_t place = term_place(block, i % block_rows);
        if (levels_) {
          const LevelCodes::Row of_row = levels_->row(codes_, cell, block, i % block_rows);
          terms_[place] = static_cast<float>(scale_ == -2 ? of_row.square : -of_row.with_centroid);
          reaches_[at(cell)].add(of_row);
        } else if (scale_ == -2) {
          const double with_middle = dot(middle_.data(), row.data()) - dot(middle_.data(), centroid);
          terms_[place] = static_cast<float>(square + static_cast<double>(scaling.shift) - 2 * with_middle);
        }
        if (codes_.scaled) factors_[place] = scaling.factor;
        largest.take({.row = std::sqrt(square),
                      .centroid = centroid_length,
                      .factor = static_cast<double>(scaling.factor),
                      .shift = scale_ == -2 ? std::abs(static_cast<double>(scaling.shift)) : 0});
      }
    }
    const std::lock_guard lock(mutex);
    largest_.take(largest);
    far_.insert(far_.end(), far.begin(), far.end());
  });
  std::sort(far_.begin(), far_.end());
  // Tables are made of all codewords, also of those that no row has; and what planes say of a dimension may cancel in the row, but not in
  // the rounding of their sum.
  const double weights = (1 << codes_.planes) - 1;
  double squares = 0;
  for (std::int64_t part = 0; part < codes_.m / codes_.planes; ++part) {
    double most = 0;
    for (std::int64_t word = codes_.first_word(part); word < codes_.first_word(part) + codes_.words(); ++word) {
      const float* const x = codes_.codewords.row<float>(word);
      const double square = pair_.kernels().dot_f32(x, x, codes_.part_dims());
      most = std::isnan(square) ? std::numeric_limits<double>::infinity() : std::max(most, square);
    }
    squares += weights * weights * most;
  }
  longest_words_ = std::sqrt(squares);
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
  return (transposed_.size() + middle_.size() + terms_.size() + factors_.size() + names_.size()) * 4 +
         (begins_.size() + block_begins_.size()) * 8 +
         reaches_.size() * sizeof(LevelCodes::Reach) + (levels_ ? LevelCodes::bytes_needed(scanned_) : 0);
}

std::string CpuCodes::description() const {
  if (levels_) return codes_.shape().description() + ", levels, " + levels_->name();
  return codes_.shape().description() + ", " + (scanned_.bits == 8 ? products_->name : scanned_.bits == 6 ? std::string("6 bits a part, ") + products_->name : "4 bits a part, shuffles");
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

// The distances in float32 of the rows `block.near` of a cell: those that may be nearest become candidates, and bound what follows.
void CpuCodes::screen(std::int64_t cell, std::int64_t i, Block& block, TopK& lists) const {
  const std::int64_t begin = begins_[at(cell)], first_block = block_begins_[at(cell)];
  if (!block.allowed.words.empty() || !far_.empty()) {
    std::erase_if(block.near, [&](LocalRow row) {
      const std::int64_t place = begin + std::int64_t{row};
      return !block.allowed.has(name_of(place)) || std::binary_search(far_.begin(), far_.end(), static_cast<LocalRow>(place));
    });
  }
  const CodedQuery& query = block.coded[at(i)];
  const float* const centroid = codes_.centroids.row<float>(cell);
  const auto* const codewords = static_cast<const float*>(scanned_words_.data);
  const float* const x = levels_ ? query.row : block.padded.data() + i * scanned_.m * scanned_.part_dims;
  const std::int64_t code_bytes = codes_.code_bytes(), words_of_part = next_part(scanned_.words());
  // All of them before the first is compared, so that none waits for a branch that is as often taken as not.
  block.distances.resize(block.near.size());
  for (std::size_t c = 0; c < block.near.size(); ++c) {
    const std::int64_t of_block = first_block + block.near[c] / block_rows, lane = block.near[c] % block_rows;
    const std::uint8_t* const codes = codes_.codes.data() + ProductCodes::place(of_block, code_bytes, 0, lane);
    const float of_words = levels_ ? levels_->product(x, centroid, codes)
                                   : scan_.product(x, codewords, words_of_part, scanned_.m, scanned_.part_dims, codes);
    const std::size_t place = term_place(of_block, lane);
    const float product = query.coarse + (codes_.scaled ? factors_[place] : 1) * of_words;
    const double without_term = query.square + static_cast<double>(scale_) * static_cast<double>(product);
    block.distances[c] = static_cast<float>(without_term + static_cast<double>(terms_[place]));
  }
  auto& candidates = block.candidates[at(i)];
  double limit = distance_limit(query, lists.bound(i));
  for (std::size_t c = 0; c < block.near.size(); ++c) {
    const float distance = block.distances[c];
    if (static_cast<double>(distance) > limit) continue;
    // What better bounds leave behind goes when there is much of it; and where that is little, as among equal rows, the nearest are found
    // here.
    if (const std::int64_t room = candidate_room(lists.k()); std::ssize(candidates) >= room) {
      std::erase_if(candidates, [&](const Candidate& candidate) { return static_cast<double>(candidate.distance) > limit; });
      if (2 * std::ssize(candidates) > room) keep_nearest(i, lists.k(), block);
    }
    candidates.push_back({distance, static_cast<std::uint32_t>(cell), block.near[c]});
    if (!names_.empty()) __builtin_prefetch(&names_[at(begin + std::int64_t{block.near[c]})]);
    lists.push(i, pack_neighbor(distance, block.near[c]));
    limit = distance_limit(query, lists.bound(i));
  }
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
  auto& candidates = block.candidates[at(i)];
  std::erase_if(candidates, [&](const Candidate& candidate) { return static_cast<double>(candidate.distance) > limit; });
  found.clear();
  found.reserve(candidates.size());
  std::int64_t sure = 0;
  const std::int64_t code_bytes = codes_.code_bytes();
  for (std::size_t c = 0; c < candidates.size(); ++c) {
    const Candidate& candidate = candidates[c];
    // Other lists have been scanned since this one's codes were looked at.
    if (order == ListOrder::by_distance && c + prefetched_rows < candidates.size()) {
      const Candidate& next = candidates[c + prefetched_rows];
      const std::int64_t of_block = block_begins_[next.cell] + next.row / block_rows;
      const std::uint8_t* const code = codes_.codes.data() + ProductCodes::place(of_block, code_bytes, 0, next.row % block_rows);
      for (std::int64_t byte = 0; byte < code_bytes; byte += 2) __builtin_prefetch(code + byte * block_rows);
    }
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

// What a look into a cell reads first: lists are short, and the processor's own prefetching begins anew with each.
void CpuCodes::prefetch(std::int64_t cell) const {
  const std::int64_t first = block_begins_[at(cell)], rows = (block_begins_[at(cell + 1)] - first) * block_rows;
  const std::int64_t bytes = std::min(rows * codes_.code_bytes(), prefetched_bytes);
  const std::uint8_t* const codes = codes_.codes.data() + first * block_rows * codes_.code_bytes();
  const float* const terms = terms_.data() + first * block_rows;
  for (std::int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(codes + byte, 0, 2);
  for (std::int64_t row = 0; row < bytes / codes_.code_bytes(); row += 16) __builtin_prefetch(terms + row, 0, 2);
}

void CpuCodes::look_into(std::int64_t cell, std::int64_t i, Block& block, TopK& lists) const {
  const std::int64_t count = begins_[at(cell + 1)] - begins_[at(cell)];
  if (count == 0) return;
  CodedQuery& query = block.coded[at(i)];
  const float* const centroid = codes_.centroids.row<float>(cell);
  query.coarse = pair_.kernels().fast_dot_f32(query.row, centroid, codes_.d);
  for (std::int64_t row = 0; row < count; row += scanned_rows) {
    const std::int64_t rows = std::min(scanned_rows, count - row), blocks = ProductCodes::blocks_of(rows);
    const std::int64_t first = block_begins_[at(cell)] + row / block_rows;
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
      if (rows % block_rows != 0) block.masks.back() &= (std::uint32_t{1} << (rows % block_rows)) - 1;
      block.near.clear();
      add_masked(block, row, every_row);
      screen(cell, i, block, lists);
    } else {
      block.estimates.resize(at(blocks * block_rows));
      scan_.estimates(tile, block.estimates.data());
      block.estimates.resize(at(rows));
      take_estimated(cell, row, i, block, lists);
    }
  }
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

// What may be near of the rows of a cell whose estimates are at hand, from `first_row` on.
void CpuCodes::take_estimated(std::int64_t cell, std::int64_t first_row, std::int64_t i, Block& block, TopK& lists) const {
  const CodedQuery& query = block.coded[at(i)];
  const auto take = [&](float most, const auto& wanted) {
    block.near.clear();
    add_up_to(block, most, first_row, wanted);
    screen(cell, i, block, lists);
  };
  if (lists.bound(i) != no_neighbor) return take(limit_of(query, lists.bound(i)), every_row);
  // The list has room: as many rows as it holds, those first whose estimates are least, give a bound for the others.
  const float cut = cut_of(block, std::min(lists.k(), std::ssize(block.estimates)));
  take(cut, every_row);
  lists.settle(i);
  const float limit = limit_of(query, lists.bound(i));
  if (!(limit <= cut)) take(limit, [&](std::int64_t row) { return block.estimates[at(row)] > cut; });
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
  return value_of_rank(block.sorted, wanted);
}

// Adds to block.near the rows that have a bit in block.masks and are wanted.
template <class Wanted>
void CpuCodes::add_masked(Block& block, std::int64_t first_row, const Wanted& wanted) {
  for (std::size_t b = 0; b < block.masks.size(); ++b) {
    for (std::uint32_t mask = block.masks[b]; mask != 0; mask &= mask - 1) {
      const std::int64_t row = static_cast<std::int64_t>(b) * block_rows + std::countr_zero(mask);
      if (wanted(row)) block.near.push_back(static_cast<LocalRow>(first_row + row));
    }
  }
}

// Those whose estimates are not above `most`.
template <class Wanted>
void CpuCodes::add_up_to(Block& block, float most, std::int64_t first_row, const Wanted& wanted) const {
  const std::int64_t count = std::ssize(block.estimates);
  block.masks.resize(at(ProductCodes::blocks_of(count)));
  products_->up_to(block.estimates.data(), count, most, block.masks.data());
  add_masked(block, first_row, wanted);
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
          if (v + 1 < visits.cells.size()) prefetch(visits.cells[v + 1]);
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
