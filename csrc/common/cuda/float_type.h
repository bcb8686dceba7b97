// The floating types in .cu files: the accumulator's type, conversions, dispatch by type.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>
#include <type_traits>

#include "common/float_type.h"

namespace memops {

template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// For long sums in kernels that memory bounds: f32 terms in f64, whose additions cost nothing
/// there.
template <class T>
using LongSum = std::conditional_t<std::is_same_v<T, float>, double, Accumulator<T>>;

__device__ inline float widen(__half value) { return __half2float(value); }
__device__ inline float widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ inline float widen(float value) { return value; }
__device__ inline double widen(double value) { return value; }

/// An accumulator rounded to T, to nearest even.
template <class T>
__device__ T narrow(Accumulator<T> value) {
  if constexpr (std::is_same_v<T, __half>) {
    return __float2half_rn(value);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __float2bfloat16_rn(value);
  } else {
    return value;
  }
}

/// Calls `launch` with a value of the type.
template <class Launch>
void by_float_type(FloatType type, Launch&& launch) {
  switch (type) {
    case FloatType::kHalf:
      return launch(__half{});
    case FloatType::kBFloat16:
      return launch(__nv_bfloat16{});
    case FloatType::kFloat:
      return launch(float{});
    case FloatType::kDouble:
      return launch(double{});
  }
  throw std::runtime_error("memops: no kernel for this floating type");
}

}  // namespace memops
