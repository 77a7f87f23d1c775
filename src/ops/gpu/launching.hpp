// What launchers share: from a dtype to a template argument, and how many blocks a work takes.
#pragma once

#include <cstdint>

#include <gigaknn/matrix.hpp>

#include "core/require.hpp"

namespace gigaknn::gpu {

/// for_dtype(dtype, [&]<DType dtype>() { ... })
template <class Run>
void for_dtype(DType dtype, Run run) {
  switch (dtype) {
    case DType::f32:
      return run.template operator()<DType::f32>();
    case DType::f16:
      return run.template operator()<DType::f16>();
    case DType::bf16:
      return run.template operator()<DType::bf16>();
    case DType::u8:
      return run.template operator()<DType::u8>();
    case DType::i8:
      return run.template operator()<DType::i8>();
    default:
      fail(Fault::unsupported, "rows of ", name_of(dtype), " cannot be searched");
  }
}

/// Blocks for `items` of which a block takes `a_block` at a time; kernels take further rounds
/// beyond.
inline unsigned blocks_for(std::int64_t items, std::int64_t a_block = 1) {
#if defined(GIGAKNN_TINY_TILES) || defined(GIGAKNN_SIMT_TSAN)
  constexpr std::int64_t most = 3;  // so that every block takes further rounds
#else
  constexpr std::int64_t most = 1 << 16;
#endif
  const std::int64_t blocks = (items + a_block - 1) / a_block;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

}  // namespace gigaknn::gpu
