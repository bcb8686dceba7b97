// Decoding steps: one thread a batch entry and channel computes its steps and rewrites its row of
// the state.
#include <cstdint>
#include <stdexcept>

#include "causal_conv1d/causal_conv1d.h"
#include "causal_conv1d/taps.h"
#include "common/cuda/device_assert.h"
#include "common/cuda/launch.h"
#include "common/math.h"

namespace memops {
namespace {

template <class T>
struct UpdateArguments {
  CausalTensor<const T> x;
  CausalTensor<T> state;
  CausalTensor<const T> weight;
  CausalTensor<const T> bias;
  CausalIndex seqlens;
  CausalIndex rows;
  CausalTensor<T> y;
};

/// The entry of a state's row that is `step` steps after the first of this call (before it where
/// negative, down to -window). The first is at `next`, 0 <= next < window.
template <bool kRing>
__device__ std::int64_t entry_of(std::int64_t step, std::int64_t next, std::int64_t window) {
  if constexpr (kRing) {
    return next + step < 0 ? next + step + window : next + step;
  } else {
    return window + step;
  }
}

// Four blocks a multiprocessor: left to itself ptxas aims at more and spills.
template <class T, bool kRing>
__global__ void __launch_bounds__(kCausalThreads, 4)
    causal_update_kernel(const __grid_constant__ UpdateArguments<T> a,
                         const __grid_constant__ CausalUpdateProblem p) {
  using Sum = Accumulator<T>;
  const std::int64_t index = causal_thread();
  if (index >= p.batch * p.channels) return;
  const std::int64_t batch = index / p.channels;
  const std::int64_t channel = index - batch * p.channels;
  const std::int64_t row = a.rows.data == nullptr ? batch : element(a.rows, batch, 0, 0);
  if (row < 0 || row >= p.rows) {
    fail_assertion("causal_conv1d_update: conv_state_indices holds a row out of range");
    return;
  }

  std::int64_t next = 0;
  if (kRing && p.window > 0) {
    next = element(a.seqlens, batch, 0, 0) % p.window;
    if (next < 0) next += p.window;
  }
  for (std::int64_t s = 0; s < p.steps; ++s) {
    Sum total = 0;
    Sum partial = a.bias.data == nullptr ? Sum{0} : value(a.bias, 0, channel, 0);
    for (std::int64_t first = 0; first < p.width; first += kTermsPerPartial) {
      const std::int64_t end =
          first + kTermsPerPartial < p.width ? first + kTermsPerPartial : p.width;
      for (std::int64_t k = first; k < end; ++k) {
        const std::int64_t step = s - (p.width - 1) + k;
        const Sum before =
            step >= 0 ? value(a.x, batch, channel, step)
                      : value(a.state, row, channel, entry_of<kRing>(step, next, p.window));
        partial += value(a.weight, 0, channel, k) * before;
      }
      total += partial;
      partial = 0;
    }
    element(a.y, batch, channel, s) = static_cast<T>(p.silu ? silu(total) : total);
  }

  // Only now: the steps above read the old entries. A step that does not last is not written.
  const std::int64_t lost = p.steps > p.window ? p.steps - p.window : 0;
  std::int64_t entry = p.window - (p.steps - lost);
  if constexpr (kRing) {
    entry = p.window > 0 ? (next + lost) % p.window : 0;
  } else {
    for (std::int64_t w = 0; w < entry; ++w) {
      element(a.state, row, channel, w) = element(a.state, row, channel, w + p.steps);
    }
  }
  for (std::int64_t s = lost; s < p.steps; ++s) {
    element(a.state, row, channel, entry) = element(a.x, batch, channel, s);
    if (++entry == p.window) entry = 0;
  }
}

template <class T, bool kRing>
void launch_typed(const CausalUpdateProblem& problem, const CausalUpdateParams& params,
                  cudaStream_t stream) {
  const UpdateArguments<T> arguments{.x = typed<const T>(params.x),
                                     .state = typed<T>(params.state),
                                     .weight = typed<const T>(params.weight),
                                     .bias = typed<const T>(params.bias),
                                     .seqlens = params.seqlens,
                                     .rows = params.rows,
                                     .y = typed<T>(params.y)};
  const unsigned grid = grid_blocks(
      ceil_div<std::int64_t>(problem.batch * problem.channels, kCausalThreads), "causal_update");
  causal_update_kernel<T, kRing><<<grid, kCausalThreads, 0, stream>>>(arguments, problem);
  check_launch("causal_update");
}

}  // namespace

void launch_causal_update(const CausalUpdatePlan& plan, const CausalUpdateParams& params,
                          cudaStream_t stream) {
  switch (plan.kernel) {
    case CausalUpdateKernel::kShift:
      return by_float_type(plan.problem.dtype, [&](auto zero) {
        launch_typed<decltype(zero), false>(plan.problem, params, stream);
      });
    case CausalUpdateKernel::kRing:
      return by_float_type(plan.problem.dtype, [&](auto zero) {
        launch_typed<decltype(zero), true>(plan.problem, params, stream);
      });
  }
  throw std::runtime_error("memops: the causal update's plan names no kernel");
}

}  // namespace memops
