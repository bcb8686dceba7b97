// Tensors to the problems of a causal convolution, for the CUDA kernels and for _plan.
#pragma once

#include "causal_conv1d/op.h"
#include "causal_conv1d/plan.h"
#include "common/torch/float_type.h"
#include "common/torch/precompiled.h"

namespace memops {

/// The kernels' type of x. Raises NotImplementedError where they have none.
inline FloatType causal_dtype(const at::Tensor& x) {
  const std::optional<FloatType> type = float_type(x);
  TORCH_CHECK_NOT_IMPLEMENTED(type, "causal_conv1d: no kernel for ", x.scalar_type());
  return *type;
}

inline CausalProblem causal_problem(const at::Tensor& x, const at::Tensor& weight,
                                    const OptionalTensor& bias, const OptionalTensor& initial_state,
                                    const OptionalTensor& seq_idx, bool silu, bool final_state) {
  return {.batch = x.size(0),
          .channels = x.size(1),
          .length = x.size(2),
          .width = weight.size(1),
          .dtype = causal_dtype(x),
          .channels_last = is_channels_last(x),
          .bias = bias.has_value(),
          .initial_state = initial_state.has_value(),
          .seq_idx = seq_idx.has_value(),
          .silu = silu,
          .final_state = final_state};
}

inline CausalUpdateProblem causal_update_problem(const at::Tensor& x, const at::Tensor& conv_state,
                                                 const at::Tensor& weight,
                                                 const OptionalTensor& bias, bool silu,
                                                 const OptionalTensor& cache_seqlens,
                                                 const OptionalTensor& conv_state_indices) {
  return {.batch = x.size(0),
          .channels = x.size(1),
          .steps = x.dim() == 3 ? x.size(2) : 1,
          .width = weight.size(1),
          .rows = conv_state.size(0),
          .window = conv_state.size(2),
          .dtype = causal_dtype(x),
          .bias = bias.has_value(),
          .ring = cache_seqlens.has_value(),
          .indexed = conv_state_indices.has_value(),
          .silu = silu};
}

}  // namespace memops
