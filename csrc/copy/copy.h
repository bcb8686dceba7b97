// The copy kernels' host interface: no PyTorch in it.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "copy/plan.h"

namespace memops {

struct CopyParams {
  void* dst;
  const void* src;
};

/// Launches the planned copy on `stream`; the views must not overlap. Throws std::runtime_error
/// when the launch is refused.
MEMOPS_API void launch_copy(const CopyPlan& plan, const CopyParams& params, cudaStream_t stream);

}  // namespace memops
