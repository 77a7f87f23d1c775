// Loops unrolled before the optimizer looks, so that arrays of vectors stay in registers (GCC 12 keeps an
// array in memory where a loop over it is unrolled late).
#pragma once

namespace gigaknn::cpu {

template <int value_>
struct Constant {
  static constexpr int value = value_;
  constexpr operator int() const { return value_; }
};

template <int count, int at = 0, class Body>
[[gnu::always_inline]] inline void unroll(Body&& body) {
  if constexpr (at < count) {
    body(Constant<at>());
    unroll<count, at + 1>(body);
  }
}

}  // namespace gigaknn::cpu
