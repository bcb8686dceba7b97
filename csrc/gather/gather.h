// The gather kernels' host interface: no PyTorch in it. All launchers throw std::runtime_error when
// the launch is refused or the plan names no kernel of theirs. An index out of range is a
// device-side assertion; nothing is read or written for it.
#pragma once

#include <cuda_runtime_api.h>

#include "common/export.h"
#include "gather/plan.h"

namespace memops {

/// A contiguous index, aligned to its own width.
struct GatherIndex {
  const void* data;
  int bytes;  // 4 or 8, of one index
};

struct GatherParams {
  void* out;  // contiguous, aligned to 16 bytes
  const void* table;
  GatherIndex index;
};

struct GatherSumParams {
  void* out;  // contiguous, aligned to 16 bytes, all zero
  const void* grad;
  GatherIndex index;          // sorted for kRuns
  const std::int64_t* order;  // kRuns: where each sorted index stood
};

MEMOPS_API void launch_gather_rows(const GatherRowsPlan& plan, const GatherParams& params,
                                   cudaStream_t stream);
MEMOPS_API void launch_gather_fields(const GatherFieldsPlan& plan, const GatherParams& params,
                                     cudaStream_t stream);
MEMOPS_API void launch_gather_sum(const GatherSumPlan& plan, const GatherSumParams& params,
                                  cudaStream_t stream);

// The kernels that several of them use.
void launch_gather_check(GatherOp op, const GatherIndex& index, std::int64_t count,
                         std::int64_t limit, cudaStream_t stream);
void launch_gather_add(const GatherSumPlan& plan, const GatherSumParams& params,
                       cudaStream_t stream);
void launch_gather_runs(const GatherSumPlan& plan, const GatherSumParams& params,
                        cudaStream_t stream);

}  // namespace memops
