// The conv1d kernels' host interface: no PyTorch in it.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "conv1d/plan.h"

namespace memops {

/// A tensor of three dimensions with any strides, in elements.
struct Conv1dOperand {
  const void* data;
  std::int64_t strides[3];
};

struct Conv1dParams {
  Conv1dProblem problem;
  Conv1dOperand input;   // [batch, in_channels, length]
  Conv1dOperand weight;  // [out_channels, in_channels / groups, width]
  const void* bias;      // [out_channels], or null
  std::int64_t bias_stride;
  void* output;  // [batch, out_channels, out_length], contiguous
};

/// The gradients are contiguous; null where not wanted.
struct Conv1dBackwardParams {
  Conv1dProblem problem;
  Conv1dOperand grad;    // [batch, out_channels, out_length]
  Conv1dOperand input;   // [batch, in_channels, length]
  Conv1dOperand weight;  // [out_channels, in_channels / groups, width]
  void* grad_input;
  void* grad_weight;
  void* grad_bias;
  void* weight_partials;  // plan.weight.partials accumulators
  void* bias_partials;    // plan.bias.partials accumulators
};

/// Launches the planned convolution on `stream`; the result must not be empty. Throws
/// std::runtime_error when the launch is refused or the plan names no kernel.
MEMOPS_API void launch_conv1d(const Conv1dPlan& plan, const Conv1dParams& params,
                              cudaStream_t stream);

/// Launches the kernels of the gradients that are wanted and not empty, on `stream`.
MEMOPS_API void launch_conv1d_backward(const Conv1dBackwardPlan& plan,
                                       const Conv1dBackwardParams& params, cudaStream_t stream);

}  // namespace memops
