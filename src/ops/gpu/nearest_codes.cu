// A block a list: it makes its query's table, then its warps take blocks of 32 codes. The four groups of 8 lanes of a warp read a byte of
// the code each, four rows a lane: 128 bytes that lie side by side in one load, and no lane idles where the bytes are a multiple of four.
// Three shuffles add the groups' sums so that every lane ends with the row 4 * (lane % 8) + lane / 8.
//
// A row costs word_bytes + 4 bytes read, of a scaled code 4 more, and word_bytes lookups in shared memory; what does not pass its query's
// limit costs nothing more.
#include "ops/gpu/nearest_codes.hpp"

#include <type_traits>

#include "ops/gpu/canonical.cuh"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/survivor_lists.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 256;
[[maybe_unused]] constexpr int blocks_an_sm = 2;  // 128 registers a thread: with fewer the list spills
constexpr int block_rows = 32;  // of codes
constexpr std::int64_t most_steps = 1 << 20;  // of float32 that a margin is proven for

// The last cell that begins at `at` or before: not one without rows, since `at` is in it.
__device__ __forceinline__ int cell_at(const std::int64_t* begins, int cells, std::int64_t at) {
  int low = 0, high = cells;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (begins[middle] <= at) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// ---- a row

struct CodePlace {
  int cell;
  std::int64_t block;
  int row;  // of the block
};

__device__ __forceinline__ CodePlace place_of(const CodedRows& rows, LocalRow row) {
  const int cell = cell_at(rows.begins, rows.cells, row);
  const std::int64_t in_cell = row - rows.begins[cell];
  return {cell, rows.block_begins[cell] + in_cell / block_rows, static_cast<int>(in_cell % block_rows)};
}

/// What kernels know of codes: where all of it were decided as they run, registers would not do.
enum class Kind { bytes, sixes, planes };  // parts of 8 bits, or 4; of 6; of 8 in planes

/// Calls kernel<kind>().
template <class Call>
void with_kind(const CodedRows& rows, const Call& call) {
  if (rows.bits == 6) return call.template operator()<Kind::sixes>();
  if (rows.planes > 1) return call.template operator()<Kind::planes>();
  call.template operator()<Kind::bytes>();
}

template <Kind kind>
__device__ __forceinline__ int code_of(const CodedRows& rows, std::int64_t block, int part, int row) {
  const std::uint8_t* const byte =
      rows.codes + (block * rows.code_bytes() + part * (kind == Kind::sixes ? 6 : rows.bits) / 8) * block_rows + row;
  if constexpr (kind != Kind::sixes) return rows.bits == 8 ? byte[0] : part % 2 == 0 ? byte[0] & 15 : byte[0] >> 4;
  const int shift = part * 6 % 8;
  const int next = shift > 2 ? byte[block_rows] : 0;
  return (byte[0] | next << 8) >> shift & 63;
}

/// The codewords of a part.
__device__ __forceinline__ const float* words_of(const CodedRows& rows, int part) {
  return rows.codewords + (rows.scaled ? 0 : std::int64_t{part} << rows.bits) * rows.part_dims;
}

struct Scale {
  float factor, shift;
};

/// As gigaknn::RowScale.
__device__ __forceinline__ Scale scale_of(const CodedRows& rows, const CodePlace& place) {
  if (!rows.scaled) return {1, 0};
  const std::uint8_t* const bytes = rows.codes + (place.block * rows.code_bytes() + rows.word_bytes()) * block_rows + place.row;
  unsigned words[2] = {0, 0};
  GIGAKNN_UNROLL for (int byte = 0; byte < 8; ++byte) words[byte / 4] |= unsigned{bytes[byte * block_rows]} << 8 * (byte % 4);
  return {__uint_as_float(words[0]), __uint_as_float(words[1])};
}
__device__ __forceinline__ bool usable(const Scale& scale) {
  return scale.factor >= 0 && scale.factor < infinity() && fabsf(scale.shift) < infinity();
}

/// Element i of the row that a code stands for.
template <Kind kind>
__device__ __forceinline__ float decoded(const CodedRows& rows, const CodePlace& place, float factor, int i) {
  const int planes = kind == Kind::planes ? rows.planes : 1;
  const int part = i / rows.part_dims * planes;
  float word = 0;
  for (int plane = planes - 1; plane >= 0; --plane) {
    const float said =
        words_of(rows, part)[code_of<kind>(rows, place.block, part + plane, place.row) * rows.part_dims + i % rows.part_dims];
    word = kind == Kind::planes ? __fadd_rn(word + word, said) : said;
  }
  return __fadd_rn(rows.centroids[std::int64_t{place.cell} * rows.d + i], __fmul_rn(factor, word));
}

/// As gigaknn::shifted_key.
__device__ __forceinline__ float shifted(Metric metric, float key, float shift) {
  if (!has_difference(metric) || shift == 0) return key;
  if (metric != Metric::euclidean) return __fadd_rn(key, shift);
  const double square = __dadd_rn(__dmul_rn(key, key), shift);
  return __double2float_rn(copysign(sqrt(fabs(square)), square));
}

/// Its key to a query, and its name. All lanes of a quarter of a warp call it together.
template <Kind kind>
__device__ __forceinline__ PackedNeighbor neighbor_of(const CodedRows& rows, Metric metric, const float* query, LocalRow row) {
  const CodePlace place = place_of(rows, row);
  const Scale scale = scale_of(rows, place);
  const auto at_query = [=](int i) { return double{query[i]}; };
  const auto at_row = [=](int i) { return double{decoded<kind>(rows, place, scale.factor, i)}; };
  const float key =
      has_difference(metric) ? difference_key<quarter>(metric, rows.d, at_query, at_row) : product_key<quarter>(rows.d, at_query, at_row);
  return pack(shifted(metric, key, scale.shift), rows.names ? rows.names[row] : row);
}

// ---- a query's table

template <Kind kind>
__device__ __forceinline__ float product_with_word(const CodedRows& rows, const float* query, int part, int word) {
  const float* const words = words_of(rows, part) + word * rows.part_dims;
  const int planes = kind == Kind::planes ? rows.planes : 1;
  const int first = part / planes * rows.part_dims;
  const int dims = min(rows.part_dims, rows.d - first);  // the last parts may end early
  float sum = 0;
  for (int j = 0; j < dims; ++j) sum = __fmaf_rn(query[first + j], words[j], sum);
  return kind == Kind::planes ? static_cast<float>(1 << part % planes) * sum : sum;
}

template <TableForm form>
using Entry = std::conditional_t<form == TableForm::steps, std::int16_t, float>;

/// The step of a query's table, 2^e (nearest_codes.hpp). Where numbers are of use, no sum of entries exceeds 2^118.
__device__ __forceinline__ int step_exponent(const CodedRows& rows, double squared_norm) {
  const double most = sqrt(squared_norm) * rows.longest_words;
  if (!(most < 1e300)) return 120;
  const int exponent = static_cast<int>(__double_as_longlong(most) >> 52 & 2047) - 1023;  // most < 2^(exponent + 1)
  return min(120, max(-120, exponent - 14));
}
__device__ __forceinline__ float power_of_two(int e) { return __uint_as_float(static_cast<unsigned>(e + 127) << 23); }

template <Kind kind, TableForm form>
__device__ __forceinline__ void make_table(const CodedRows& rows, const float* query, float steps_a_unit, Entry<form>* table) {
  const auto entry = [=](float product) {
    if constexpr (form == TableForm::steps) {
      return static_cast<std::int16_t>(rintf(fminf(fmaxf(product * steps_a_unit, -32767.0f), 32767.0f)));
    } else {
      return product;
    }
  };
  for (int i = static_cast<int>(threadIdx.x); i < rows.table_entries(); i += block_threads) {
    const int byte = i / static_cast<int>(byte_values), value = i % static_cast<int>(byte_values);
    if constexpr (kind == Kind::sixes) {
      table[i] = entry(product_with_word<kind>(rows, query, i / 64, i % 64));
    } else {
      table[i] = entry(rows.bits == 8 ? product_with_word<kind>(rows, query, byte, value)
                                      : product_with_word<kind>(rows, query, 2 * byte, value & 15) +
                                            product_with_word<kind>(rows, query, 2 * byte + 1, value >> 4));
    }
  }
}

/// The sum of the table's entries for this lane's row of a block. All lanes of a warp call it together.
template <Kind kind, class Entry>
__device__ __forceinline__ float sum_of_entries(const std::uint8_t* block, int word_bytes, const Entry* table) {
  using Sum = std::conditional_t<std::is_same_v<Entry, float>, float, int>;
  const int group = lane_id() / 8, quad = lane_id() % 8;
  const auto* const fours = reinterpret_cast<const std::uint32_t*>(block) + quad;
  Sum sums[4] = {0, 0, 0, 0};  // the j-th of row j ^ group of the quad, so that what lanes exchange stands in the same register everywhere
  if constexpr (kind == Kind::sixes) {
    // Three bytes have four parts, whose tables stand where those of one byte do else.
    for (int three = group; three < word_bytes / 3; three += 4) {
      const std::uint32_t* const bytes = fours + 3 * three * (block_rows / 4);
      const std::uint32_t a = bytes[0], b = bytes[block_rows / 4], c = bytes[2 * (block_rows / 4)];
      const Entry* const entries = table + three * byte_values;
      GIGAKNN_UNROLL for (int j = 0; j < 4; ++j) {
        const int shift = 8 * (j ^ group);
        const std::uint32_t code = (a >> shift & 255) | (b >> shift & 255) << 8 | (c >> shift & 255) << 16;
        sums[j] += (entries[code & 63] + entries[64 + (code >> 6 & 63)]) + (entries[128 + (code >> 12 & 63)] + entries[192 + (code >> 18)]);
      }
    }
  } else {
    for (int byte = group; byte < word_bytes; byte += 4) {
      const std::uint32_t codes = fours[byte * (block_rows / 4)];
      const Entry* const entries = table + byte * byte_values;
      GIGAKNN_UNROLL for (int j = 0; j < 4; ++j) sums[j] += entries[codes >> 8 * (j ^ group) & 255];
    }
  }
  sums[0] += simt::shfl_xor(sums[2], 16);
  sums[1] += simt::shfl_xor(sums[3], 16);
  return static_cast<float>(sums[0] + simt::shfl_xor(sums[1], 8));
}
__device__ __forceinline__ int row_of_lane() { return 4 * (lane_id() % 8) + lane_id() / 8; }

// ---- kernels

// A warp a block of codes, row after row.
template <Kind kind>
__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    find_terms_kernel(CodedRows rows, Metric metric, float* terms, float* factors, unsigned* largest) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  for (std::int64_t block = std::int64_t{blockIdx.x} * block_warps() + warp_id(); block < rows.blocks; block += step) {
    const int cell = cell_at(rows.block_begins, rows.cells, block);
    const float* const centroid = rows.centroids + std::int64_t{cell} * rows.d;
    const double centroid_squared = canonical_sum(rows.d, [=](int i) { return __dmul_rn(centroid[i], centroid[i]); });
    const std::int64_t first = (block - rows.block_begins[cell]) * block_rows;
    const std::int64_t count = rows.begins[cell + 1] - rows.begins[cell] - first;
    float own = __uint_as_float(0x7FC00000u);  // NaN
    float factor = 0;
    double most = -1, most_factor = 0;  // no row
    for (int row = 0; row < block_rows && row < count; ++row) {
      const CodePlace place{cell, block, row};
      const Scale scale = scale_of(rows, place);
      const double squared = canonical_sum(rows.d, [=](int i) {
        const double value = decoded<kind>(rows, place, scale.factor, i);
        return __dmul_rn(value, value);
      });
      if (!(squared < 1e300) || !usable(scale)) continue;  // infinity or NaN: float64 has room for what is finite
      most = fmax(fmax(most, scale.factor * rows.most_said), fmax(sqrt(squared), sqrt(fabs(double{scale.shift}))));
      most_factor = fmax(most_factor, scale.factor);
      if (lane_id() == row) {
        own = has_difference(metric) ? __double2float_rn(squared + scale.shift) : 0.0f;
        factor = scale.factor;
      }
    }
    terms[block * block_rows + lane_id()] = own;
    if (factors) factors[block * block_rows + lane_id()] = factor;
    if (lane_id() == 0 && most >= 0) {
      atomicMax(largest, __float_as_uint(__double2float_ru(most + 2 * sqrt(centroid_squared))));
      atomicMax(largest + 1, __float_as_uint(__double2float_ru(most_factor)));
    }
  }
}

__global__ void __launch_bounds__(block_threads) find_query_terms_kernel(CodedRows rows, CodeQueries queries, Metric metric) {
  const std::int64_t query = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (query >= queries.rows.rows) return;
  const double squared = queries.rows.squared_norms[query];
  const double factor = __uint_as_float(rows.largest[1]);
  const double reach = sqrt(squared) + __uint_as_float(rows.largest[0]);
  const double steps = double(rows.part_dims) + rows.m + 32;
  double margin = steps * (0x1p-24 * reach * reach + 0x1p-124 * fmax(1.0, factor));
  if (queries.form == TableForm::steps) {
    margin += 2.0 * static_cast<double>(rows.table_entries() / (rows.bits == 6 ? 64 : byte_values)) *
              power_of_two(step_exponent(rows, squared)) * factor;
  }
  const bool usable = reach * reach < 1e36 && steps < most_steps && (!rows.scaled || sqrt(squared) * rows.longest_words < 1e35);  // false if it is NaN
  const double none = -double{infinity()};
  queries.terms[query] = usable ? QueryTerms{(has_difference(metric) ? squared : 0) - margin, 1} : QueryTerms{none, 0};
  queries.doubts[query] = 2 * margin;
}

template <TableForm form, Kind kind>
__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    nearest_codes_kernel(CodedRows rows, CodeQueries queries, LimitRule rule, int splits, Survivors lists) {
  const BlockTeam<block_threads> team;
  const std::int64_t query_count = lists.queries / splits;
  for (std::int64_t i = blockIdx.x; i < lists.queries; i += gridDim.x) {
    const std::int64_t query = i % query_count;
    const std::int64_t at = query * splits + i / query_count;
    if (rule.far[query] & far_row) continue;
    const auto* const x = reinterpret_cast<const float*>(queries.rows.data + query * queries.rows.pitch);
    Entry<form>* table;
    if constexpr (form == TableForm::device_floats) {
      table = queries.tables + at * rows.table_entries();
    } else {
      table = simt::dynamic_shared<Entry<form>>();
    }
    [[maybe_unused]] float step = 1;
    if constexpr (form == TableForm::steps) {
      const int exponent = step_exponent(rows, queries.rows.squared_norms[query]);
      step = power_of_two(exponent);
      make_table<kind, form>(rows, x, power_of_two(-exponent), table);
    } else {
      make_table<kind, form>(rows, x, 1, table);
    }
    const auto scaled_sum = [&](float sum) { return form == TableForm::steps ? step * sum : sum; };
    const QueryTerms terms = rule.terms[query];
    const double doubt = queries.doubts[query];
    const float scale = has_difference(rule.metric) ? 2.0f : 1.0f;
    const auto computed = [&](LocalRow row) { return neighbor_of<kind>(rows, rule.metric, x, row); };
    List list = list_of(lists, at);
    if (team.rank() == 0) team.found() = 0;
    team.sync();  // the table is made
    float limit = limit_of(rule, query, list.bound);
    // Places of the list that no row of the blocks under way may need.
    const auto room_behind = [&](std::int64_t count) { return static_cast<int>(min(lists.pitch - count, std::int64_t{1} << 30)); };
    int room = room_behind(0);
    // Past its cells the list is settled for good: here, and not behind the loop, so that the code stands once.
    bool last = false;
    for (int rank = static_cast<int>(i / query_count); !last; rank += splits) {
      last = rank >= queries.end_rank;
      const std::int32_t cell = last ? -1 : queries.probes[query * queries.width + rank];
      const std::int64_t first_block = cell < 0 ? 0 : rows.block_begins[cell];
      const int blocks = cell < 0 ? 0 : static_cast<int>(rows.block_begins[cell + 1] - first_block);
      float coarse = 0;
      if (cell >= 0) {
        const float* const centroid = rows.centroids + std::int64_t{cell} * rows.d;
        coarse = __double2float_rn(
            canonical_product(rows.d, [=](int j) { return double{x[j]}; }, [=](int j) { return double{centroid[j]}; }));
      }
      for (int begin = 0; last || begin < blocks;) {
        if (last || room < block_rows) {
          team.sync();
          list.count = team.found();
          team.sync();  // all have read
          // The first bound as soon as there is one; then rarely, since to find it takes longer than to scan as many rows.
          if (last || list.bound == no_neighbor || list.count > lists.k + (lists.pitch - lists.k) / 2) {
            tighten(team, rule, query, lists.k, lists.pitch, last, computed, list);
            limit = limit_of(rule, query, list.bound);
          }
          room = room_behind(list.count);
          if (last) break;
        }
        const int end = min(blocks, begin + room / block_rows);
        for (int of_cell = begin + team.warp(); of_cell < end; of_cell += team.warps()) {
          const std::int64_t block = first_block + of_cell;
          const float sum = scaled_sum(sum_of_entries<kind>(rows.codes + block * rows.code_bytes() * block_rows, rows.word_bytes(), table));
          const float term = rows.terms[block * block_rows + row_of_lane()];
          const float product = rows.scaled ? __fmaf_rn(rows.factors[block * block_rows + row_of_lane()], sum, coarse) : coarse + sum;
          const float number = terms.slope > 0 ? __fmaf_rn(scale, product, -term) : 0.0f;
          if (term != term || !passes(rule.form, number, limit)) continue;
          const auto row = static_cast<LocalRow>(rows.begins[cell] + std::int64_t{of_cell} * block_rows + row_of_lane());
          const LocalRow name = rows.names ? rows.names[row] : row;
          if (queries.allowed && !(queries.allowed[name / 64] >> (name % 64) & 1)) continue;
          const unsigned slot = atomicAdd(&team.found(), 1u);
          // One more than the most that the key can be: till it is computed, a row stands behind all of that key, whatever their names.
          const PackedNeighbor most = pack(most_key(rule.metric, terms, number - doubt), row);
          list.keys[slot] = most + (PackedNeighbor{1} << 32);
          list.numbers[slot] = number;
        }
        room -= (end - begin) * block_rows;
        begin = end;
      }
    }
    if (team.rank() == 0) {
      lists.held[at] = list.count;
      lists.bounds[at] = list.bound;
    }
  }
}

// A warp a row.
template <Kind kind>
__global__ void __launch_bounds__(block_threads, blocks_an_sm)
    decode_rows_kernel(CodedRows rows, std::int64_t first, std::int64_t count, std::int64_t pitch, DecodedRows out) {
  const std::int64_t step = std::int64_t{gridDim.x} * block_warps();
  for (std::int64_t i = std::int64_t{blockIdx.x} * block_warps() + warp_id(); i < count; i += step) {
    const CodePlace place = place_of(rows, static_cast<LocalRow>(first + i));
    const float term = rows.terms[place.block * block_rows + place.row];
    const bool finite = term == term;
    auto* const to = reinterpret_cast<float*>(out.data + i * pitch);
    for (int j = lane_id(); j < pitch / static_cast<std::int64_t>(sizeof(float)); j += 32) {
      to[j] = finite && j < rows.d ? decoded<kind>(rows, place, 1, j) : 0.0f;
    }
    __syncwarp();
    const double squared = canonical_sum(rows.d, [=](int j) { return __dmul_rn(to[j], to[j]); });
    if (lane_id() == 0) {
      out.squared_norms[i] = squared;
      out.far[i] = finite ? 0 : far_row;
    }
  }
}

}  // namespace

void find_terms(const CodedRows& rows, Metric metric, float* terms, float* factors, unsigned* largest, simt::Stream* stream) {
  simt::fill(largest, 0, 2 * sizeof(unsigned), stream);
  with_kind(rows, [&]<Kind kind>() {
    simt::launch({blocks_for(rows.blocks, block_threads / 32), block_threads, 0, stream, "find_code_terms"}, find_terms_kernel<kind>, rows,
                 metric, terms, factors, largest);
  });
}

void decode_rows(const CodedRows& rows, std::int64_t first, std::int64_t count, std::int64_t pitch, const DecodedRows& out,
                 simt::Stream* stream) {
  with_kind(rows, [&]<Kind kind>() {
    simt::launch({blocks_for(count, block_threads / 32), block_threads, 0, stream, "decode_rows"}, decode_rows_kernel<kind>, rows, first,
                 count, pitch, out);
  });
}

TableForm table_form(std::int64_t table_entries, int device) {
#ifdef GIGAKNN_TINY_TILES
  constexpr std::size_t most_bytes = 3 * byte_values * sizeof(float);
#else
  constexpr std::size_t most_bytes = ~std::size_t{0};
#endif
  const auto fits = [&](std::size_t entry_bytes) {
    const std::size_t bytes = static_cast<std::size_t>(table_entries) * entry_bytes;
    return bytes <= most_bytes && bytes + sizeof(BlockTeam<block_threads>::Shared) + 1024 <= simt::shared_bytes_a_block(device);
  };
  return fits(sizeof(float)) ? TableForm::floats : fits(sizeof(std::int16_t)) ? TableForm::steps : TableForm::device_floats;
}

void nearest_codes(const CodedRows& rows, const CodeQueries& queries, Metric metric, int splits, const Survivors& lists,
                   simt::Stream* stream) {
  if (lists.queries == 0) return;
  const LimitRule rule{.form = LimitForm::at_least, .metric = metric, .terms = queries.terms, .far = queries.rows.far};
  const auto query_blocks = static_cast<unsigned>((queries.rows.rows + block_threads - 1) / block_threads);
  simt::launch({query_blocks, block_threads, 0, stream, "find_code_query_terms"}, find_query_terms_kernel, rows, queries, metric);
  set_bounds({}, no_neighbor, lists, stream);  // no limits: the kernel keeps its own
  with_kind(rows, [&]<Kind kind>() {
    const auto launch = [&]<TableForm form>() {
      const std::size_t shared = form == TableForm::device_floats ? 0 : static_cast<std::size_t>(rows.table_entries()) * sizeof(Entry<form>);
      simt::launch({blocks_for(lists.queries), block_threads, shared, stream, "nearest_codes"}, nearest_codes_kernel<form, kind>, rows,
                   queries, rule, splits, lists);
    };
    switch (queries.form) {
      case TableForm::floats: return launch.template operator()<TableForm::floats>();
      case TableForm::steps: return launch.template operator()<TableForm::steps>();
      case TableForm::device_floats: return launch.template operator()<TableForm::device_floats>();
    }
  });
}

}  // namespace gigaknn::gpu
