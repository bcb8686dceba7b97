// The conv1d_constant kernels' host interface: no PyTorch in it.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "common/export.h"
#include "conv1d/constant_plan.h"

namespace memops {

struct Conv1dConstantParams {
  void* output;                        // [rows, out_length], contiguous; those of one step
  const void* input;                   // [rows, length]
  std::int64_t step;                   // elements between neighbours of a row of the input
  std::int64_t left;                   // zeros before each row; negative: elements left out
  std::span<const RowDimension> rows;  // at most kMaxRowDimensions, outermost first
  std::span<const double> taps;
  void* scratch;  // plan.scratch_bytes
};

/// Launches one step of the planned filter on `stream`. The taps are read before this returns.
/// Throws std::runtime_error when a launch is refused or the plan names no kernel.
MEMOPS_API void launch_conv1d_constant(const Conv1dConstantPlan& plan,
                                       const Conv1dConstantParams& params, cudaStream_t stream);

}  // namespace memops
