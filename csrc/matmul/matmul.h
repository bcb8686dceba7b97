// The matrix product kernels' host interface: no PyTorch in it.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "matmul/plan.h"

namespace memops {

/// The arguments' memory; each points at its element [0, ..., 0].
struct MatmulParams {
  void* out;  // packed [batch..., M, N]
  const void* a;
  const void* b;
  const void* bias;  // null where the problem has none
};

/// Launches the planned product on `stream`; `out` must not overlap the others. Throws
/// std::runtime_error when the launch is refused or the plan names no kernel.
MEMOPS_API void launch_matmul(const MatmulPlan& plan, const MatmulParams& params,
                              cudaStream_t stream);

// The kernels behind it, one a file.
void launch_matmul_tiled(const MatmulPlan& plan, const MatmulParams& params, cudaStream_t stream);

}  // namespace memops
