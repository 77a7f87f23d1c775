#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>

#include "core/half.hpp"
#include "core/require.hpp"
#include "io/convert.hpp"

namespace gigaknn {
namespace {

struct Half {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};

// Reals widen to double, integers to int64, both exactly.
inline double widen(float value) {
  return value;
}
inline double widen(Half value) {
  return float_of_half(value.bits);
}
inline double widen(Bf16 value) {
  return float_of_bf16(value.bits);
}
template <class T>
requires std::is_integral_v<T>
inline std::int64_t widen(T value) {
  return value;
}

enum class Fit { exact, rounded, impossible };

inline Fit narrow(double value, float& target) {
  target = static_cast<float>(value);  // reals come from f32, f16 or bf16: exact
  return Fit::exact;
}
inline Fit narrow(std::int64_t value, float& target) {
  target = static_cast<float>(value);
  // int64's largest values round up to 2^63, which __int128 still holds.
  return static_cast<__int128>(target) == value ? Fit::exact : Fit::rounded;
}
template <class Wide>
Fit narrow(Wide value, Half& target) {
  const auto single = static_cast<float>(value);
  target.bits = half_of_float(single);
  const double back = float_of_half(target.bits);
  if (std::isnan(static_cast<double>(value))) return Fit::exact;
  if (std::isinf(back) && !std::isinf(static_cast<double>(value))) return Fit::impossible;
  return back == static_cast<double>(value) ? Fit::exact : Fit::rounded;
}
inline Fit narrow(double value, Bf16& target) {
  target.bits = bf16_of_float(static_cast<float>(value));
  const double back = float_of_bf16(target.bits);
  if (std::isnan(value)) return Fit::exact;
  if (std::isinf(back) && !std::isinf(value)) return Fit::impossible;
  return back == value ? Fit::exact : Fit::rounded;
}
inline Fit narrow(std::int64_t value, Bf16& target) {
  auto single = static_cast<float>(value);
  const __int128 missing = value - static_cast<__int128>(single);
  // Of the two floats around it the one that ends in 1: rounded once more, it goes where the integer goes.
  const bool ends_in_0 = (std::bit_cast<std::uint32_t>(single) & 1u) == 0;
  if (missing != 0 && ends_in_0) single = std::nextafter(single, missing > 0 ? INFINITY : -INFINITY);
  target.bits = bf16_of_float(single);
  return static_cast<__int128>(float_of_bf16(target.bits)) == value ? Fit::exact : Fit::rounded;
}
template <class T>
requires std::is_integral_v<T> Fit narrow(std::int64_t value, T& target) {
  if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max())
    return Fit::impossible;
  target = static_cast<T>(value);
  return Fit::exact;
}
template <class T>
requires std::is_integral_v<T> Fit narrow(double value, T& target) {
  const double rounded = std::nearbyint(value);
  // 2^63 is the first double beyond int64; for the others max() + 1 is exact as well.
  const double low = static_cast<double>(std::numeric_limits<T>::min());
  const double beyond = std::ldexp(1.0, std::numeric_limits<T>::digits);
  if (!(rounded >= low && rounded < beyond)) return Fit::impossible;
  target = static_cast<T>(rounded);
  return rounded == value ? Fit::exact : Fit::rounded;
}

struct Place {
  const std::string& name;
  std::int64_t row;
  std::int64_t col;
};

template <class Wide>
[[noreturn]] void refuse(const Place& place, Wide value, Fit fit, DType dtype,
                         std::string_view range) {
  std::ostringstream digits;
  digits.precision(9);
  digits << value;
  fail(Fault::invalid_data, place.name, ": row ", place.row, ", column ", place.col, ": value ",
       digits.str(), fit == Fit::rounded ? " would be rounded as " : " does not fit ",
       name_of(dtype), " (", range, ")", fit == Fit::rounded ? "; allow rounding (--allow-rounding) to do so" : "");
}

std::string_view range_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "24 significant bits";
    case DType::f16:
      return "-65504 to 65504, 11 significant bits";
    case DType::bf16:
      return "-3.3895e38 to 3.3895e38, 8 significant bits";
    case DType::u8:
      return "integers 0 to 255";
    case DType::i8:
      return "integers -128 to 127";
    case DType::i32:
      return "integers -2147483648 to 2147483647";
    case DType::i64:
      return "64-bit integers";
  }
  return "";
}

template <class From, class To>
void convert_block(MatrixRef source, Matrix& target, bool allow_rounding, const std::string& name,
                   std::int64_t first_row) {
  for (std::int64_t i = 0; i < source.rows; ++i) {
    const From* from = source.row<From>(i);
    To* to = target.row<To>(i);
    for (std::int64_t j = 0; j < source.cols; ++j) {
      const Fit fit = narrow(widen(from[j]), to[j]);
      if (fit == Fit::exact || (fit == Fit::rounded && allow_rounding)) continue;
      refuse(Place{name, first_row + i, j}, widen(from[j]), fit, target.dtype(),
             range_of(target.dtype()));
    }
  }
}

/// Calls `action` with a value of the type that `dtype` names.
template <class Action>
void with_type(DType dtype, const Action& action) {
  switch (dtype) {
    case DType::f32:
      return action(float{});
    case DType::f16:
      return action(Half{});
    case DType::bf16:
      return action(Bf16{});
    case DType::u8:
      return action(std::uint8_t{});
    case DType::i8:
      return action(std::int8_t{});
    case DType::i32:
      return action(std::int32_t{});
    case DType::i64:
      return action(std::int64_t{});
  }
}

}  // namespace

void convert_values(MatrixRef source, Matrix& target, bool allow_rounding, const std::string& name,
                    std::int64_t first_row) {
  require(target.rows() >= source.rows && target.cols() == source.cols, Fault::invalid_argument,
          "cannot convert ", source.rows, " x ", source.cols, " values into ", target.rows(), " x ",
          target.cols());
  with_type(source.dtype, [&](auto from) {
    with_type(target.dtype(), [&](auto to) {
      convert_block<decltype(from), decltype(to)>(source, target, allow_rounding, name, first_row);
    });
  });
}

}  // namespace gigaknn
