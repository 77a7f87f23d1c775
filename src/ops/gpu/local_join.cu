// The join of a round: a block has a row, and compares its new samples with each other and with the old ones (GNND, section 4.2).
//
//   rows of bytes   samples in shared memory; tensor cores multiply 16 new ones by 32 a warp at a time. Keys are made of products and norms,
//                   integers that float64 holds: they are the canonical ones
//   all others      a warp a pair, in float64
//   two sides       samples are parted first: what nobody of the other side is to meet is not read
//
// A join of 2p new and 2p old samples reads 4p rows once, for at most 6 p^2 pairs.
#include <bit>

#include "ops/gpu/canonical.cuh"
#include "ops/gpu/growth.cuh"
#include "ops/gpu/launching.hpp"
#include "ops/gpu/product_codes.hpp"
#include "simt/mma.cuh"

namespace gigaknn::gpu {
namespace {

constexpr int block_threads = 128;
[[maybe_unused]] constexpr int blocks_an_sm = 8;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
[[maybe_unused]] constexpr int product_blocks_an_sm = 7;  // the compiler would not do with 64 registers
#else
[[maybe_unused]] constexpr int product_blocks_an_sm = blocks_an_sm;
#endif
constexpr int column_frags = 4;  // of 8 samples
constexpr int tile_columns = 8 * column_frags;
constexpr int tile_rows = 16;

/// The samples of a row, and the nearest that each has found; in dynamic shared memory.
struct JoinMemory {
  GrowingEntry* among_new;  // [4p] nearest among the new ones
  GrowingEntry* among_old;  // [2p] of the new ones: nearest among the old
  GrowingEntry* last;       // [4p] the last entry of each one's list
  double* squared_norms;    // [4p] where products are multiplied
  std::uint32_t* norms;     // [4p] the same of l2 and euclidean, modulo 2^32
  std::uint32_t* limits;    // [4p] squared distances beyond which its list takes none
  std::uint32_t* drawn;     // [4p] all, `no_sample` where there is none: own new, reverse new, own old, reverse old
  std::uint32_t* rows;      // [4p] each once, the new ones first
  std::uint32_t* seen;      // [table_size(p)] samples, where their hash or the next free place is
  std::byte* codes;         // [4p] rows of bytes, where there is room for them

  /// At least twice the samples, so that places are near hashes.
  static __host__ __device__ constexpr unsigned table_size(int p) { return std::bit_ceil(8 * static_cast<unsigned>(p)); }
  static __host__ __device__ std::size_t bytes(int p, int code_pitch) {
    return static_cast<std::size_t>(p) * (14 * 8 + 16 * 4 + 4 * static_cast<std::size_t>(code_pitch)) +
           table_size(p) * sizeof(std::uint32_t);
  }
  __device__ JoinMemory(unsigned char* memory, int p) {
    among_new = reinterpret_cast<GrowingEntry*>(memory);
    among_old = among_new + 4 * p;
    last = among_old + 2 * p;
    squared_norms = reinterpret_cast<double*>(last + 4 * p);
    norms = reinterpret_cast<std::uint32_t*>(squared_norms + 4 * p);
    limits = norms + 4 * p;
    drawn = limits + 4 * p;
    rows = drawn + 4 * p;
    seen = rows + 4 * p;
    codes = reinterpret_cast<std::byte*>(seen + table_size(p));
  }
};

/// The first warp puts the row's own samples into `drawn`, all threads the reverse ones.
__device__ __forceinline__ void draw_samples(const GrowthView& graph, std::int64_t row, const JoinMemory& memory) {
  const int p = graph.samples;
  for (int i = static_cast<int>(threadIdx.x); i < 4 * p; i += block_threads) {
    const int kind = i / p;  // 1 and 3 are reverse ones
    const std::uint32_t hash = (kind == 1 ? graph.named_by_new : graph.named_by_old)[row * p + i % p];
    memory.drawn[i] = kind % 2 == 0 || hash == no_sample ? no_sample : sample_of_hash(static_cast<LocalRow>(row), hash, graph.salt);
  }
  __syncthreads();
  if (warp_id() > 0) return;
  visit_own_samples(graph, row,
                    [&](int, GrowingEntry entry, int place) { memory.drawn[(is_new(entry) ? 0 : 2 * p) + place] = row_of_entry(entry); });
}

/// Puts each sample once into `rows`, as new if it was drawn as such; says how many there are, and how many of them are new. In
/// any order: what is made of them does not depend on it.
__device__ __forceinline__ void gather_samples(int p, const JoinMemory& memory, unsigned* counts) {
  for (const bool old : {false, true}) {
    const int begin = old ? 2 * p : 0;
    for (int i = begin + static_cast<int>(threadIdx.x); i < begin + 2 * p; i += block_threads) {
      const std::uint32_t sample = memory.drawn[i];
      if (sample == no_sample) continue;
      const unsigned last = JoinMemory::table_size(p) - 1;
      unsigned place = mix_bits32(sample) & last;
      std::uint32_t there;
      while ((there = atomicCAS(&memory.seen[place], no_sample, sample)) != no_sample && there != sample) place = (place + 1) & last;
      if (there == sample) continue;
      memory.rows[atomicAdd(&counts[0], 1u)] = sample;
      if (!old) atomicAdd(&counts[1], 1u);
    }
    __syncthreads();
  }
}

/// Samples [first_row, end_row), all new, meet those of [first_column, end_column) that stand behind them.
struct Meeting {
  int first_row = 0, end_row = 0;
  int first_column = 0, end_column = 0;

  __device__ __forceinline__ int rows() const { return end_row - first_row; }
  __device__ __forceinline__ int columns() const { return end_column - first_column; }
};
struct JoinSize {
  int count;  ///< samples
  int fresh;  ///< of them, those that are new
  Meeting meetings[2];  ///< all pairs; the second has none where there is no split

  __device__ __forceinline__ const Meeting& meeting(bool second) const { return second ? meetings[1] : meetings[0]; }  // registers
};

/// Samples stand in `rows`, the new ones first. Puts those of the side before `split` that are new first, then those new beyond it, then the
/// old ones beyond it, then those before it; what nobody is to meet is left out. All threads call it and get what is left.
__device__ __forceinline__ JoinSize part_samples(const JoinMemory& memory, std::int64_t split, int count, int fresh) {
  struct Sides {
    unsigned found[4];  // new before, new beyond, old beyond, old before
  };
  unsigned* const found = simt::shared<Sides>().found;
  if (threadIdx.x < 4) found[threadIdx.x] = 0;
  __syncthreads();
  // What a sample is, and where among its like, stands where limits will.
  for (int i = static_cast<int>(threadIdx.x); i < count; i += block_threads) {
    const bool beyond = memory.rows[i] >= split;
    const unsigned kind = i < fresh ? beyond : 3 - beyond;
    memory.drawn[i] = memory.rows[i];
    memory.limits[i] = kind << 16 | atomicAdd(&found[kind], 1u);
  }
  __syncthreads();
  const int new_before = static_cast<int>(found[0]), new_beyond = static_cast<int>(found[1]);
  const int old_beyond = new_before > 0 ? static_cast<int>(found[2]) : 0, old_before = new_beyond > 0 ? static_cast<int>(found[3]) : 0;
  const int a = new_beyond + old_beyond > 0 ? new_before : 0;
  const int b = a + (new_before + old_before > 0 ? new_beyond : 0);
  const int c = b + old_beyond;
  const int d = c + old_before;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += block_threads) {
    const unsigned kind = memory.limits[i] >> 16;
    const int begin = kind == 0 ? 0 : kind == 1 ? a : kind == 2 ? b : c;
    const int end = kind == 0 ? a : kind == 1 ? b : kind == 2 ? c : d;
    const int place = begin + static_cast<int>(memory.limits[i] & 0xFFFF);
    if (place < end) memory.rows[place] = memory.drawn[i];
  }
  __syncthreads();
  return {d, b, {{0, a, a, c}, {a, b, c, d}}};
}

/// Draws a row's samples, each once, with what is known of them. All threads call it and get their number.
__device__ __forceinline__ JoinSize begin_join(const GrowthView& graph, std::int64_t row, std::int64_t split, const JoinMemory& memory) {
  struct Counts {
    unsigned found[2];  // samples, new ones
  };
  unsigned* const counts = simt::shared<Counts>().found;
  const int p = graph.samples;
  if (threadIdx.x < 2) counts[threadIdx.x] = 0;
  for (int i = static_cast<int>(threadIdx.x); i < 6 * p; i += block_threads) memory.among_new[i] = no_entry;
  for (unsigned i = threadIdx.x; i < JoinMemory::table_size(p); i += block_threads) memory.seen[i] = no_sample;
  draw_samples(graph, row, memory);
  __syncthreads();
  gather_samples(p, memory, counts);
  const int count = static_cast<int>(counts[0]), fresh = static_cast<int>(counts[1]);
  const JoinSize size = split > 0 ? part_samples(memory, split, count, fresh) : JoinSize{count, fresh, {{0, fresh, 0, count}, {}}};
  for (int i = static_cast<int>(threadIdx.x); i < size.count; i += block_threads) {
    const LocalRow sample = memory.rows[i];
    memory.last[i] = graph.lists[std::int64_t{sample} * graph.k + graph.k - 1];
  }
  return size;
}

__device__ __forceinline__ void keep_least(GrowingEntry* place, GrowingEntry entry) {
  static_assert(sizeof(GrowingEntry) == sizeof(unsigned long long));
  atomicMin(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(entry));
}

/// To the candidates of sample `i`, if its list has room for it.
__device__ __forceinline__ void offer(const GrowthView& graph, const JoinMemory& memory, int i, GrowingEntry entry) {
  if (entry >= memory.last[i]) return;
  const LocalRow row = memory.rows[i];
  const std::uint32_t place = place_of_candidate(row, row_of_entry(entry), graph.salt, graph.candidate_places);
  keep_least(graph.candidates + std::int64_t{row} * graph.candidate_places + place, entry);
}

/// Samples i < j, of which i is new, have met.
__device__ __forceinline__ void meet(const GrowthView& graph, const JoinMemory& memory, int i, int j, int fresh, std::uint32_t key_bits) {
  const GrowingEntry j_of_i = entry_of(key_bits, memory.rows[j], true);
  const GrowingEntry i_of_j = entry_of(key_bits, memory.rows[i], true);
  if (!graph.selective) {
    offer(graph, memory, i, j_of_i);
    offer(graph, memory, j, i_of_j);
    return;
  }
  keep_least(j < fresh ? memory.among_new + i : memory.among_old + i, j_of_i);
  keep_least(memory.among_new + j, i_of_j);
}

/// A squared distance not below any whose key comes before an entry: keys are rounded to float32, of roots twice.
__device__ __forceinline__ std::uint32_t limit_of(Metric metric, GrowingEntry last) {
  const float key = last == no_entry ? __uint_as_float(0x7F800000u) : unpack_key(last);  // whose upper half is a key
  const double squared = metric == Metric::euclidean ? double{key} * key : double{key};
  return static_cast<std::uint32_t>(fmin(squared * (1 + 0x1p-20) + 1, 4294967295.0));
}

/// Offers what was kept, and lets the block go on to its next row.
__device__ __forceinline__ void end_join(const GrowthView& graph, const JoinMemory& memory, const JoinSize& size) {
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < size.count && graph.selective; i += block_threads) {
    if (memory.among_new[i] != no_entry) offer(graph, memory, i, memory.among_new[i]);
    if (i < size.fresh && memory.among_old[i] != no_entry) offer(graph, memory, i, memory.among_old[i]);
  }
  __syncthreads();
}

template <DType dtype>
__global__ void __launch_bounds__(block_threads, blocks_an_sm) local_join_kernel(GrowthView graph, std::int64_t split) {
  const JoinMemory memory(simt::dynamic_shared<unsigned char>(), graph.samples);
  for (std::int64_t row = blockIdx.x; row < graph.rows.rows; row += gridDim.x) {
    const JoinSize size = begin_join(graph, row, split, memory);
    __syncthreads();
    for (int which = 0; which < 2; ++which) {
      const Meeting meeting = size.meeting(which == 1);
      for (int pair = warp_id(); pair < meeting.rows() * meeting.columns(); pair += block_warps()) {
        const int i = meeting.first_row + pair / meeting.columns();
        const int j = meeting.first_column + pair % meeting.columns();
        if (j <= i) continue;
        const PackedNeighbor neighbor =
            canonical_neighbor<dtype>(graph.metric, graph.rows, memory.rows[i], graph.rows, memory.rows[j]);
        if (lane_id() == 0) meet(graph, memory, i, j, size.fresh, static_cast<std::uint32_t>(neighbor >> 32));
      }
    }
    end_join(graph, memory, size);
  }
}

// Elements of a byte, and the zeros behind them.
__host__ __device__ __forceinline__ int bytes_of_row(const RowsView& rows) { return (rows.cols + 15) / 16 * 16; }
__host__ __device__ __forceinline__ int steps_of(const RowsView& rows) { return (rows.cols + simt::mma_bytes - 1) / simt::mma_bytes; }
// 16 bytes more than a row holds: the eight rows of a fragment then lie in eight groups of banks.
__host__ __device__ __forceinline__ int code_pitch(const RowsView& rows) { return steps_of(rows) * simt::mma_bytes + 16; }

/// Samples in shared memory, with zeros behind their elements.
__device__ __forceinline__ void copy_samples(const RowsView& rows, const JoinMemory& memory, int count) {
  const int pitch = code_pitch(rows);
  const unsigned pieces = static_cast<unsigned>(steps_of(rows)) * (simt::mma_bytes / 16);  // 2 at least
  const unsigned piece_of_one = 0xFFFFFFFF / pieces + 1;                                    // i / pieces, of fewer than 2^32 / pieces
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(count) * pieces; i += block_threads) {
    const unsigned sample = static_cast<unsigned>(std::uint64_t{i} * piece_of_one >> 32);
    const int byte = static_cast<int>(i - sample * pieces) * 16;
    std::byte* const to = memory.codes + static_cast<int>(sample) * pitch + byte;
    if (byte < bytes_of_row(rows)) {
      simt::copy_async(to, rows.data + std::int64_t{memory.rows[sample]} * rows.pitch + byte);
    } else {
      GIGAKNN_UNROLL for (int word = 0; word < 4; ++word) reinterpret_cast<std::uint32_t*>(to)[word] = 0;
    }
  }
  simt::copy_async_commit();
  simt::copy_async_wait<0>();
}

/// `copied`: samples have room in shared memory; else they are read where they are.
/// `distances`: by l2 or euclidean, whose squares are integers: most pairs are told to be too far by them.
template <class Products, bool distances>
__global__ void __launch_bounds__(block_threads, product_blocks_an_sm) join_products_kernel(GrowthView graph, std::int64_t split, bool copied) {
  const RowsView& rows = graph.rows;
  const JoinMemory memory(simt::dynamic_shared<unsigned char>(), graph.samples);
  const int steps = steps_of(rows);
  const int there = copied ? steps * simt::mma_bytes : bytes_of_row(rows);  // bytes of a sample, of which what is missing is zero
  for (std::int64_t row = blockIdx.x; row < rows.rows; row += gridDim.x) {
    const JoinSize size = begin_join(graph, row, split, memory);
    const int count = size.count;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += block_threads) {
      memory.squared_norms[i] = rows.squared_norms[memory.rows[i]];
      if constexpr (distances) {
        memory.norms[i] = static_cast<std::uint32_t>(static_cast<unsigned long long>(memory.squared_norms[i]));
        memory.limits[i] = limit_of(graph.metric, memory.last[i]);
      }
    }
    if (copied) copy_samples(rows, memory, count);
    __syncthreads();
    // Past the last one: the last one once more.
    const auto sample_at = [&](int i) {
      const int last = min(i, count - 1);
      return copied ? memory.codes + last * code_pitch(rows) : rows.data + std::int64_t{memory.rows[last]} * rows.pitch;
    };
    const auto word_at = [&](const std::byte* sample, int byte) {
      return byte < there ? *reinterpret_cast<const std::uint32_t*>(sample + byte) : 0u;
    };
    const auto columns_of = [](const Meeting& meeting) { return (meeting.columns() + tile_columns - 1) / tile_columns; };
    const auto tiles_of = [&](const Meeting& meeting) { return (meeting.rows() + tile_rows - 1) / tile_rows * columns_of(meeting); };
    const int of_first = tiles_of(size.meetings[0]), tiles = of_first + tiles_of(size.meetings[1]);
    for (int tile = warp_id(); tile < tiles; tile += block_warps()) {
      const Meeting meeting = size.meeting(tile >= of_first);
      const int of_meeting = tile < of_first ? tile : tile - of_first;
      const int first = meeting.first_row + of_meeting / columns_of(meeting) * tile_rows;
      const int first_column = meeting.first_column + of_meeting % columns_of(meeting) * tile_columns;
      if (first_column + tile_columns - 1 <= first) continue;  // each pair once
      __syncwarp();  // lanes met others of their own
      const std::byte* const a_rows[2] = {sample_at(first + lane_id() / 4), sample_at(first + 8 + lane_id() / 4)};
      const std::byte* b_rows[column_frags];
      int sums[column_frags][4] = {};
      GIGAKNN_UNROLL for (int f = 0; f < column_frags; ++f) b_rows[f] = sample_at(first_column + 8 * f + lane_id() / 4);
      for (int step = 0; step < steps; ++step) {
        const int byte = step * simt::mma_bytes + lane_id() % 4 * 4;
        const std::uint32_t a[4] = {word_at(a_rows[0], byte), word_at(a_rows[1], byte), word_at(a_rows[0], byte + 16),
                                    word_at(a_rows[1], byte + 16)};
        GIGAKNN_UNROLL for (int f = 0; f < column_frags; ++f) {
          const std::uint32_t b[2] = {word_at(b_rows[f], byte), word_at(b_rows[f], byte + 16)};
          Products::add(sums[f], a, b);
        }
      }
      GIGAKNN_UNROLL for (int f = 0; f < column_frags; ++f) {
        GIGAKNN_UNROLL for (int s = 0; s < 4; ++s) {
          const int i = first + lane_id() / 4 + s / 2 * 8;
          const int j = first_column + 8 * f + lane_id() % 4 * 2 + s % 2;
          if (i >= meeting.end_row || j >= meeting.end_column || j <= i) continue;
          if constexpr (distances) {  // below 2^32 for d <= 2^16
            const std::uint32_t squared = memory.norms[i] + memory.norms[j] - 2 * static_cast<std::uint32_t>(sums[f][s]);
            if (squared > memory.limits[i] && squared > memory.limits[j]) continue;
          }
          const float key = key_of_product(graph.metric, sums[f][s], memory.squared_norms[i], memory.squared_norms[j]);
          meet(graph, memory, i, j, size.fresh, sortable(key));
        }
      }
    }
    end_join(graph, memory, size);
  }
}

// Bytes whose keys are functions of a product.
bool has_byte_products(const GrowthView& graph) {
  const DType dtype = graph.rows.dtype;
  return (dtype == DType::u8 || dtype == DType::i8) && has_product_form(graph.metric) && ProductCodes::suits(graph.metric, graph.rows.cols);
}

// Where blocks share a multiprocessor, so that some are multiplied while others are copied.
std::size_t most_join_bytes(int device) {
#ifdef GIGAKNN_TINY_TILES
  static_cast<void>(device);
  return 4096;
#else
  return simt::shared_bytes_a_block(device) / 2 - 2048;
#endif
}

}  // namespace

void local_join(const GrowthView& graph, std::int64_t split, simt::Stream* stream) {
  const unsigned blocks = blocks_for(graph.rows.rows);
  const std::size_t bytes = JoinMemory::bytes(graph.samples, 0);
  if (has_byte_products(graph)) {
    const std::size_t with_codes = JoinMemory::bytes(graph.samples, code_pitch(graph.rows));
    const bool copied = with_codes <= most_join_bytes(simt::device_of(stream));
    const bool distances = graph.metric == Metric::l2 || graph.metric == Metric::euclidean;
    const auto join = graph.rows.dtype == DType::u8
                          ? distances ? join_products_kernel<simt::U8Products, true> : join_products_kernel<simt::U8Products, false>
                          : distances ? join_products_kernel<simt::S8Products, true> : join_products_kernel<simt::S8Products, false>;
    simt::launch({blocks, block_threads, copied ? with_codes : bytes, stream, copied ? "join_products" : "join_products_in_place"}, join,
                 graph, split, copied);
    return;
  }
  for_dtype(graph.rows.dtype, [&]<DType dtype>() {
    simt::launch({blocks, block_threads, bytes, stream, "local_join"}, local_join_kernel<dtype>, graph, split);
  });
}

}  // namespace gigaknn::gpu
