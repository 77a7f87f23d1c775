#include "io/validate.hpp"

#include <algorithm>
#include <bit>
#include <vector>

#include "core/half.hpp"
#include "core/require.hpp"
#include "core/threads.hpp"

namespace gigaknn {
namespace {

// How the bits of an element type say sign, zero and infinity. Rows are scanned as signed integers:
// their comparisons are what even SSE2 has, so that the loop below becomes SIMD on every machine.
struct Bits32 {
  using Word = std::int32_t;
  static constexpr Word magnitude = 0x7FFFFFFF;
  static constexpr Word infinity = 0x7F800000;
  static double value(Word bits) { return std::bit_cast<float>(bits); }
};
struct Bits16 {
  using Word = std::int16_t;
  static constexpr Word magnitude = 0x7FFF;
  static constexpr Word infinity = 0x7C00;
  static double value(Word bits) { return float_of_half(static_cast<std::uint16_t>(bits)); }
};
struct BitsOfBf16 {
  using Word = std::int16_t;
  static constexpr Word magnitude = 0x7FFF;
  static constexpr Word infinity = 0x7F80;
  static double value(Word bits) { return float_of_bf16(static_cast<std::uint16_t>(bits)); }
};
// i8, and u8 where only zeros are looked for. There is no -0: every bit counts as magnitude.
struct Bits8 {
  using Word = std::int8_t;
  static constexpr Word magnitude = -1;
  static double value(Word bits) { return bits; }
};

template <class Bits>
bool is_nonfinite(typename Bits::Word bits) {
  if constexpr (sizeof(bits) == 1)
    return false;
  else
    return (bits & Bits::magnitude) >= Bits::infinity;
}
template <class Bits>
bool is_negative(typename Bits::Word bits) {
  return bits < 0 && (bits & Bits::magnitude) != 0;
}

struct Wanted {
  bool negative;
  bool zero_rows;
};

void keep_first(std::optional<ValuePlace>& first, const ValuePlace& place, std::int64_t& count) {
  ++count;
  if (!first || place.row < first->row) first = place;
}

template <class Bits>
void scan_row(MatrixRef matrix, std::int64_t row, Wanted wanted, ValueFaults& faults) {
  using Word = typename Bits::Word;
  const Word* values = matrix.row<Word>(row);
  Word nonfinite = 0;
  Word any = 0;
  Word negative = 0;
  for (std::int64_t j = 0; j < matrix.cols; ++j) {
    const auto magnitude = static_cast<Word>(values[j] & Bits::magnitude);
    nonfinite = static_cast<Word>(nonfinite | is_nonfinite<Bits>(values[j]));
    any = static_cast<Word>(any | magnitude);
    negative = static_cast<Word>(negative | (magnitude != 0 ? values[j] : Word{0}));
  }
  if (nonfinite != 0) {
    const auto* at = std::find_if(values, values + matrix.cols, is_nonfinite<Bits>);
    keep_first(faults.first_nonfinite, {row, at - values, Bits::value(*at)}, faults.nonfinite_rows);
  }
  if (wanted.negative && negative < 0) {
    const auto* at = std::find_if(values, values + matrix.cols, is_negative<Bits>);
    keep_first(faults.first_negative, {row, at - values, Bits::value(*at)}, faults.negative_rows);
  }
  if (wanted.zero_rows && any == 0) {
    ++faults.zero_rows;
    faults.first_zero_row = std::min(row, faults.first_zero_row.value_or(row));
  }
}

void merge_place(std::optional<ValuePlace>& into, const std::optional<ValuePlace>& from) {
  if (from && (!into || from->row < into->row)) into = from;
}

ValueFaults merge(const std::vector<ValueFaults>& parts) {
  ValueFaults all;
  for (const ValueFaults& part : parts) {
    all.nonfinite_rows += part.nonfinite_rows;
    all.negative_rows += part.negative_rows;
    all.zero_rows += part.zero_rows;
    merge_place(all.first_nonfinite, part.first_nonfinite);
    merge_place(all.first_negative, part.first_negative);
    if (part.first_zero_row) {
      all.first_zero_row =
          std::min(*part.first_zero_row, all.first_zero_row.value_or(*part.first_zero_row));
    }
  }
  return all;
}

template <class Bits>
ValueFaults scan(MatrixRef matrix, Wanted wanted, const RunOptions& run) {
  constexpr std::int64_t values_per_chunk = 1 << 20;
  const std::int64_t grain =
      std::max<std::int64_t>(1, values_per_chunk / std::max<std::int64_t>(1, matrix.cols));
  std::vector<ValueFaults> parts(static_cast<std::size_t>(threads_of(run)));
  parallel_for(run, matrix.rows, grain, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t row = begin; row < end; ++row) {
      scan_row<Bits>(matrix, row, wanted, parts[static_cast<std::size_t>(worker)]);
    }
  });
  return merge(parts);
}

}  // namespace

ValueFaults find_value_faults(MatrixRef matrix, Metric metric, const RunOptions& run) {
  const Wanted wanted{needs_nonnegative(metric), metric == Metric::cosine};
  switch (matrix.dtype) {
    case DType::f32:
      return scan<Bits32>(matrix, wanted, run);
    case DType::f16:
      return scan<Bits16>(matrix, wanted, run);
    case DType::bf16:
      return scan<BitsOfBf16>(matrix, wanted, run);
    case DType::i8:
      return wanted.negative || wanted.zero_rows ? scan<Bits8>(matrix, wanted, run) : ValueFaults();
    case DType::u8:
      return wanted.zero_rows ? scan<Bits8>(matrix, wanted, run) : ValueFaults();
    case DType::i32:
    case DType::i64:
      break;
  }
  fail(Fault::invalid_argument, "vectors cannot hold ", name_of(matrix.dtype),
       ", expected f32, f16, bf16, u8 or i8");
}

void require_columns(MatrixRef matrix, std::string_view what) {
  require_columns_of(matrix, what);
  require(matrix.space == MemorySpace::host, Fault::unsupported, what,
          ": rows in the memory of a GPU are taken by exact searches and exact graphs only, copy them to the host for this");
}

void require_columns_of(MatrixRef matrix, std::string_view what) {
  require(matrix.cols >= 1, Fault::invalid_argument, what, ": ", matrix.cols, " columns, expected at least 1");
}

void require_usable_values(MatrixRef matrix, Metric metric, bool allow_nonfinite, std::string_view what,
                           const RunOptions& run, std::int64_t first_row) {
  require_columns(matrix, what);
  const ValueFaults faults = find_value_faults(matrix, metric, run);
  if (faults.first_nonfinite && !allow_nonfinite) {
    fail(Fault::invalid_data, what, ": ", faults.first_nonfinite->value, " at row ",
         first_row + faults.first_nonfinite->row, ", column ", faults.first_nonfinite->col,
         ": values must be finite (or allowed to be farthest by allow_nonfinite)");
  }
  if (faults.first_negative) {
    fail(Fault::invalid_data, what, ": ", faults.first_negative->value, " at row ",
         first_row + faults.first_negative->row, ", column ", faults.first_negative->col, ": metric ", name_of(metric),
         " takes no value below zero");
  }
}

void require_directions(MatrixRef matrix, std::string_view what, const RunOptions& run) {
  const ValueFaults faults = find_value_faults(matrix, Metric::cosine, run);
  require(!faults.first_zero_row, Fault::invalid_data, what, ": row ", faults.first_zero_row.value_or(0),
          " is all zeros and has no direction: by cosine codes and transformed rows cannot stand for it");
}

}  // namespace gigaknn
