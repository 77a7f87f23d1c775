// Loops over the dimensions of a part of product codes, unrolled where these are as usual.
#pragma once

#include <cstdint>
#include <type_traits>

namespace gigaknn {

/// work(d), where a compiler knows what d is if it is one of the usual dimensions of a part of product codes.
template <class Work>
void with_known_dims(std::int64_t d, const Work& work) {
  switch (d) {
    case 2: return work(std::integral_constant<std::int64_t, 2>());
    case 4: return work(std::integral_constant<std::int64_t, 4>());
    case 8: return work(std::integral_constant<std::int64_t, 8>());
    default: return work(d);
  }
}

}  // namespace gigaknn
