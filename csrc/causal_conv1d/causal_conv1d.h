// The causal convolution kernels' host interface: no PyTorch in it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "causal_conv1d/plan.h"
#include "common/export.h"

namespace memops {

/// A tensor of batch, channel and position (position means tap for the weight); strides in
/// elements, 0 along a dimension that the tensor lacks.
template <class Element>
struct CausalTensor {
  Element* data;  // null where the tensor is absent
  std::int64_t batch;
  std::int64_t channel;
  std::int64_t position;
};
using CausalInput = CausalTensor<const void>;
using CausalOutput = CausalTensor<void>;
using CausalIndex = CausalTensor<const std::int32_t>;

struct CausalOperands {
  CausalInput x;              // [B, C, L]
  CausalInput weight;         // [C, K]
  CausalInput bias;           // [C], or absent
  CausalInput initial_state;  // [B, C, K - 1], or absent: zeros
  CausalIndex seq_idx;        // [B, L], or absent: one sequence
};

struct CausalParams {
  CausalOperands operands;
  CausalOutput y;            // [B, C, L]
  CausalOutput final_state;  // [B, C, K - 1], or absent
};

/// Launches the planned convolution on `stream`. Throws std::runtime_error when a launch is refused
/// or the plan names no kernel.
MEMOPS_API void launch_causal(const CausalPlan& plan, const CausalParams& params,
                              cudaStream_t stream);

struct CausalBackwardParams {
  CausalOperands operands;
  CausalInput grad;              // [B, C, L]
  CausalInput grad_final_state;  // [B, C, K - 1], or absent
  // Those that the plan's problem does not want are not touched.
  CausalOutput grad_x;              // [B, C, L]
  CausalOutput grad_weight;         // [C, K]
  CausalOutput grad_bias;           // [C]
  CausalOutput grad_initial_state;  // [B, C, K - 1]
  void* scratch;                    // plan.scratch.bytes() bytes
};

/// As launch_causal. The same bits on every call.
MEMOPS_API void launch_causal_backward(const CausalBackwardPlan& plan,
                                       const CausalBackwardParams& params, cudaStream_t stream);

struct CausalUpdateParams {
  CausalInput x;        // [B, C, S]
  CausalOutput state;   // [N, C, W]; its batch stride is that of a row
  CausalInput weight;   // [C, K]
  CausalInput bias;     // [C], or absent
  CausalIndex seqlens;  // [B]; absent for kShift
  CausalIndex rows;     // [B], or absent: in order
  CausalOutput y;       // [B, C, S]
};

/// As launch_causal. A row outside the state ends in a device-side assertion and reads nothing.
MEMOPS_API void launch_causal_update(const CausalUpdatePlan& plan, const CausalUpdateParams& params,
                                     cudaStream_t stream);

}  // namespace memops
