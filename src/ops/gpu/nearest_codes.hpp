// Product codes on a device, and the search of some of their cells.
//
//   |q - x|^2 = |q|^2 - (2 <q, centroid> + 2 sum over parts <q part, codeword> - |x|^2)      (l2; equation 11 of Johnson, Douze,
//                                                                                             Jégou 2017, by what depends on whom)
//   a query         table [word_bytes][256] of its products with the codewords of a byte: of one part, or of two of 4 bits; of 6 bits
//                   [m][64]; of planes times what each counts; float32, in shared memory where it fits, else in steps of 16 bits where
//                   these fit
//   a row           |x|^2 in float32 beside its code; NaN: its decoding overflows, or no row stands there
//                   scaled codes: a factor, by which the sum of its table entries is multiplied, and |x|^2 + shift
//   both            number = what stands in brackets, in float32; of inner_product <q, x>, without a term
//
// A number decides as those of scans do (LimitForm::at_least, survivor_lists.cuh): what may be among the k nearest is decoded, and takes
// the canonical distance. By how much is it wrong? Let L be the most that |x| + 2 |centroid| is of any row, R = |q| + L, u = 2^-24.
// Then the codewords of a row are together no longer than |x| + |centroid| (1 + u), so that no sum of absolute products exceeds R^2 / 4,
// and
//   products of a part, and their sum over m parts    (part_dims + m + 3) u R^2 / 4, and twice that in a number
//   <q, centroid>, rounded once, and its addition     4 u R^2 / 4
//   x = centroid + codewords, rounded to float32      2 u R^2 / 4
//   |x|^2, and the number itself                      2 u R^2
// What planes say of a dimension may cancel in x, but not in the rounding of sums: their L is no less than all they can say by the largest
// factor. Of scaled codes the codewords times the factor are no longer than that, and L is no less than the root of any shift: the factor
// and the shift round four more sums, of the row and of its key, each of 2 R^2 at most. margin = (part_dims + m + 32) u R^2 is more than
// that, and than what rounding a key may hide; 2^-124 a step is added, where products vanish. Where R^2 is so large that float32 could
// overflow, numbers say nothing and every row of the query is computed.
//
// Tables in steps (TableForm::steps): an entry is a multiple of one step, 2^e, of a query: no product exceeds W = |q| * the longest
// codewords of a byte, and 2^e is the least power of two of which 2^15 are more than W. An entry errs by a step at most (half of one by
// rounding; one where 2^15 - 1 is the most that 16 bits hold), sums of integers by nothing, so that a number errs by 2 * word_bytes * 2^e *
// the largest factor more, of 6 bits by 2 * m * 2^e. The longest codewords may be those of no row: then the margin is wide, and right.
#pragma once

#include <cstdint>

#include "ops/gpu/survivors.hpp"
#include "ops/product_codes.hpp"

namespace gigaknn::gpu {

inline constexpr std::int64_t byte_values = 256;
inline constexpr std::int64_t entries_of_codes(std::int64_t m, int bits) { return bits == 6 ? m * 64 : m * bits / 8 * byte_values; }

/// Borrowed by kernels. Codes are those of ops/product_codes.hpp as they stand.
struct CodedRows {
  const std::uint8_t* codes = nullptr;          ///< [blocks][code_bytes][32]
  const float* terms = nullptr;                 ///< [blocks][32]
  const float* factors = nullptr;               ///< [blocks][32] of scaled codes
  const float* codewords = nullptr;             ///< [m * words][part_dims]; scaled: [words][part_dims]
  const float* centroids = nullptr;             ///< [cells][d]
  const std::int64_t* begins = nullptr;         ///< [cells + 1] rows
  const std::int64_t* block_begins = nullptr;   ///< [cells + 1]
  const LocalRow* names = nullptr;              ///< [rows]; null: their numbers
  const unsigned* largest = nullptr;            ///< L, and the largest factor: floats' bits
  std::int64_t blocks = 0;
  std::int32_t cells = 0;
  std::int32_t d = 0;
  std::int32_t m = 0;
  std::int32_t part_dims = 0;
  std::int32_t bits = 8;
  bool scaled = false;
  std::int32_t planes = 1;
  double longest_words = 0;                     ///< a byte's, added up in length: of planes the last, times what it counts
  double most_said = 0;                         ///< of planes: the length of the longest codewords of a row, all that they say of a dimension of one sign; else 0

  constexpr std::int32_t word_bytes() const { return m * bits / 8; }
  constexpr std::int32_t code_bytes() const { return word_bytes() + (scaled ? static_cast<std::int32_t>(scale_bytes) : 0); }
  constexpr std::int64_t table_entries() const { return entries_of_codes(m, bits); }
};

/// Writes terms and factors [blocks][32] and what is largest [2]. Of inner_product a term is 0, or NaN.
void find_terms(const CodedRows& rows, Metric metric, float* terms, float* factors, unsigned* largest, simt::Stream* stream);

/// How a query's table stands.
enum class TableForm {
  floats,         ///< float32 in a block's shared memory
  steps,          ///< in steps of 16 bits there: half the room
  device_floats,  ///< float32 in the device's memory
};
/// The first of them that fits.
TableForm table_form(std::int64_t table_entries, int device);

/// Some queries, and the cells they look into.
struct CodeQueries {
  RowsView rows;                             ///< f32, with facts
  const std::int32_t* probes = nullptr;      ///< [q, width]; -1: none
  std::int64_t width = 0;
  std::int32_t end_rank = 0;                 ///< of each query's probes the first so many, at most `width`, are looked into
  const std::uint64_t* allowed = nullptr;    ///< [rows] bits by name; null: all are
  QueryTerms* terms = nullptr;               ///< [q] to be written
  double* doubts = nullptr;                  ///< [q] to be written: by how much a number may exceed what it stands for, the margin in `terms` included
  TableForm form = TableForm::floats;
  float* tables = nullptr;                   ///< [lists][table_entries] of device_floats
};

/// Writes rows [first, first + out.rows) of codes that are not scaled as what they stand for, f32, with squared norms; what is not finite
/// as zeros that are far. `out` has memory for all of it.
struct DecodedRows {
  std::byte* data = nullptr;
  double* squared_norms = nullptr;
  std::uint8_t* far = nullptr;
};
void decode_rows(const CodedRows& rows, std::int64_t first, std::int64_t count, std::int64_t pitch, const DecodedRows& out,
                 simt::Stream* stream);

/// Leaves the k nearest rows of the probed cells in the lists, with their keys, and what bounds them. List i belongs to query i / splits
/// and looks into every splits-th of its cells, from the (i % splits)-th on.
void nearest_codes(const CodedRows& rows, const CodeQueries& queries, Metric metric, int splits, const Survivors& lists,
                   simt::Stream* stream);

}  // namespace gigaknn::gpu
