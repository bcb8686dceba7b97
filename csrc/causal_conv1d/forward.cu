// The causal convolution: one thread an output element, and the state after x.
#include <cstdint>
#include <stdexcept>

#include "causal_conv1d/causal_conv1d.h"
#include "causal_conv1d/taps.h"
#include "common/cuda/launch.h"
#include "common/math.h"

namespace memops {
namespace {

template <class T>
__global__ void __launch_bounds__(kCausalThreads)
    causal_kernel(const __grid_constant__ CausalTaps<T> taps, const CausalTensor<T> y,
                  const std::int64_t elements, const std::int64_t channels,
                  const std::int64_t length, const bool channels_last, const bool with_silu) {
  const std::int64_t index = causal_thread();
  if (index >= elements) return;
  const auto [batch, channel, position] = place_of(index, channels, length, channels_last);
  const auto sum = taps.sum(batch, channel, position);
  element(y, batch, channel, position) = static_cast<T>(with_silu ? silu(sum) : sum);
}

/// The last width - 1 values of the line. Copied, not summed: every bit stays as it is.
template <class T>
__global__ void __launch_bounds__(kCausalThreads)
    causal_state_kernel(const __grid_constant__ CausalTaps<T> taps, const CausalTensor<T> state,
                        const std::int64_t elements, const std::int64_t channels,
                        const std::int64_t length) {
  const std::int64_t index = causal_thread();
  if (index >= elements) return;
  const auto [batch, channel, entry] = place_of(index, channels, taps.width - 1, false);
  T& out = element(state, batch, channel, entry);
  const std::int64_t position = length + entry - (taps.width - 1);
  if (position >= 0) {
    out = element(taps.x, batch, channel, position);
  } else if (taps.initial_state.data != nullptr) {
    out = element(taps.initial_state, batch, channel, length + entry);
  } else {
    out = static_cast<T>(0.0F);
  }
}

template <class T>
void launch_typed(const CausalProblem& p, bool channels_last, const CausalParams& params,
                  cudaStream_t stream) {
  const CausalTaps<T> taps = taps_of<T>(params.operands, p.width);
  const std::int64_t elements = p.batch * p.channels * p.length;
  if (elements > 0) {
    const unsigned grid = grid_blocks(ceil_div<std::int64_t>(elements, kCausalThreads), "causal");
    causal_kernel<T><<<grid, kCausalThreads, 0, stream>>>(
        taps, typed<T>(params.y), elements, p.channels, p.length, channels_last, p.silu);
    check_launch("causal");
  }
  const std::int64_t entries = p.batch * p.channels * (p.width - 1);
  if (params.final_state.data != nullptr && entries > 0) {
    const unsigned grid =
        grid_blocks(ceil_div<std::int64_t>(entries, kCausalThreads), "causal_state");
    causal_state_kernel<T><<<grid, kCausalThreads, 0, stream>>>(taps, typed<T>(params.final_state),
                                                                entries, p.channels, p.length);
    check_launch("causal_state");
  }
}

}  // namespace

void launch_causal(const CausalPlan& plan, const CausalParams& params, cudaStream_t stream) {
  switch (plan.kernel) {
    case CausalKernel::kAlongLength:
    case CausalKernel::kAlongChannels:
      return by_float_type(plan.problem.dtype, [&](auto zero) {
        const bool channels_last = plan.kernel == CausalKernel::kAlongChannels;
        launch_typed<decltype(zero)>(plan.problem, channels_last, params, stream);
      });
  }
  throw std::runtime_error("memops: the causal convolution's plan names no kernel");
}

}  // namespace memops
