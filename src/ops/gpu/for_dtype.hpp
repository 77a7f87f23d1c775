// From a dtype to a template argument: for_dtype(dtype, [&]<DType dtype>() { ... }).
#pragma once

#include <gigaknn/matrix.hpp>

#include "core/require.hpp"

namespace gigaknn::gpu {

template <class Run>
void for_dtype(DType dtype, Run run) {
  switch (dtype) {
    case DType::f32: return run.template operator()<DType::f32>();
    case DType::f16: return run.template operator()<DType::f16>();
    case DType::u8: return run.template operator()<DType::u8>();
    case DType::i8: return run.template operator()<DType::i8>();
    default: fail(Fault::unsupported, "rows of ", name_of(dtype), " cannot be searched");
  }
}

}  // namespace gigaknn::gpu
