// The gradients of the general convolution, without atomics: the same bits every time.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "common/cuda/float_type.h"
#include "common/cuda/launch.h"
#include "common/math.h"
#include "conv1d/conv1d.h"
#include "conv1d/sums.h"

namespace memops {
namespace {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;

/// One thread an element of the input: it gathers from every result that the element reached.
template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    conv1d_grad_input_kernel(const Index elements,
                             const __grid_constant__ Conv1dBackwardParams params) {
  const Conv1dProblem& problem = params.problem;
  const Index index = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= elements) return;
  const auto length = static_cast<Index>(problem.length);
  const auto in_channels = static_cast<Index>(problem.in_channels);
  const Index row = index / length;
  const std::int64_t position = index - row * length;
  const std::int64_t sample = row / in_channels;
  const std::int64_t channel = row % in_channels;

  const std::int64_t channels = problem.in_channels / problem.groups;
  const std::int64_t out_channels = problem.out_channels / problem.groups;
  const std::int64_t group = channel / channels;
  const auto& [g_sample, g_channel, g_position] = params.grad.strides;
  const auto& [w_out, w_channel, w_tap] = params.weight.strides;
  const auto* const grad = static_cast<const T*>(params.grad.data);
  const auto* const weight = static_cast<const T*>(params.weight.data);
  const std::int64_t g_first = sample * g_sample + group * out_channels * g_channel;
  const std::int64_t w_first = group * out_channels * w_out + channel % channels * w_channel;

  TwoLevelSum<Accumulator<T>> sum;
  for (std::int64_t tap = 0; tap < problem.width; ++tap) {
    const std::int64_t start = position + problem.left - tap * problem.dilation;
    if (start < 0) break;
    const std::int64_t result = problem.stride == 1 ? start : start / problem.stride;
    if (result * problem.stride != start || result >= problem.out_length) continue;
    std::int64_t g_at = g_first + result * g_position;
    std::int64_t w_at = w_first + tap * w_tap;
    for (std::int64_t out_channel = 0; out_channel < out_channels; ++out_channel) {
      sum.add(widen(grad[g_at]), widen(weight[w_at]));
      g_at += g_channel;
      w_at += w_out;
    }
  }
  static_cast<T*>(params.grad_input)[index] = narrow<T>(sum.total());
}

/// The sum over a block, in thread 0. Every thread must call it; the order never changes.
template <class A>
__device__ A block_sum(A value) {
  __shared__ A warp_sums[kWarps];
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, offset);
  }
  if (threadIdx.x % kWarp == 0) warp_sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  A total = 0;
  if (threadIdx.x == 0) {
    for (int warp = 0; warp < kWarps; ++warp) total += warp_sums[warp];
  }
  __syncthreads();  // warp_sums is free for the next sum
  return total;
}

/// Partial sums over batch and positions: of grad * input for one weight, or of grad for one bias.
/// A block makes one at a time: number `item % splits` of sum `item / splits`.
template <class T, bool kBias>
__global__ void __launch_bounds__(kThreads)
    conv1d_partial_sums_kernel(const __grid_constant__ Conv1dBackwardParams params,
                               const __grid_constant__ Conv1dReduction reduction) {
  using A = Accumulator<T>;
  const Conv1dProblem& problem = params.problem;
  const std::int64_t channels = problem.in_channels / problem.groups;
  const std::int64_t out_channels = problem.out_channels / problem.groups;
  const auto& [g_sample, g_channel, g_position] = params.grad.strides;
  const auto& [x_sample, x_channel, x_position] = params.input.strides;
  const std::int64_t sample_step = kThreads / problem.out_length;
  const std::int64_t result_step = kThreads % problem.out_length;

  for (std::int64_t item = blockIdx.x; item < reduction.sums * reduction.splits;
       item += gridDim.x) {
    const std::int64_t number = item / reduction.splits;
    std::int64_t out_channel = number;
    std::int64_t channel = 0;
    std::int64_t shift = 0;
    if constexpr (!kBias) {
      const std::int64_t row = number / problem.width;
      out_channel = row / channels;
      channel = out_channel / out_channels * channels + row % channels;
      shift = number % problem.width * problem.dilation - problem.left;
    }
    const auto* const grad = static_cast<const T*>(params.grad.data) + out_channel * g_channel;
    const auto* const input = static_cast<const T*>(params.input.data) + channel * x_channel;

    const std::int64_t begin = item % reduction.splits * reduction.segment;
    const std::int64_t end = min(begin + reduction.segment, reduction.terms);
    std::int64_t sample = (begin + threadIdx.x) / problem.out_length;
    std::int64_t result = (begin + threadIdx.x) % problem.out_length;
    TwoLevelSum<A> sum;
    for (std::int64_t term = begin + threadIdx.x; term < end; term += kThreads) {
      const auto grad_value = [&] { return widen(grad[sample * g_sample + result * g_position]); };
      if constexpr (kBias) {
        sum.add(grad_value(), 1);
      } else {
        const std::int64_t position = result * problem.stride + shift;
        if (position >= 0 && position < problem.length) {
          sum.add(grad_value(), widen(input[sample * x_sample + position * x_position]));
        }
      }
      sample += sample_step;
      result += result_step;
      if (result >= problem.out_length) {
        result -= problem.out_length;
        ++sample;
      }
    }
    const A total = block_sum(sum.total());
    if (threadIdx.x != 0) continue;
    if (reduction.splits == 1) {
      static_cast<T*>(kBias ? params.grad_bias : params.grad_weight)[number] = narrow<T>(total);
    } else {
      static_cast<A*>(kBias ? params.bias_partials : params.weight_partials)[item] = total;
    }
  }
}

/// One warp a sum: adds its partial sums in the order of their numbers, lane by lane.
template <class T>
__global__ void __launch_bounds__(kThreads)
    conv1d_finish_sums_kernel(T* const out, const Accumulator<T>* const partials,
                              const __grid_constant__ Conv1dReduction reduction) {
  const std::int64_t number = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (number >= reduction.sums) return;
  const int lane = threadIdx.x % kWarp;
  Accumulator<T> total = 0;
  for (std::int64_t split = lane; split < reduction.splits; split += kWarp) {
    total += partials[number * reduction.splits + split];
  }
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    total += __shfl_down_sync(0xffffffffu, total, offset);
  }
  if (lane == 0) out[number] = narrow<T>(total);
}

template <class T>
void launch_grad_input(bool wide_index, const Conv1dBackwardParams& params, cudaStream_t stream) {
  const std::int64_t elements = params.problem.inputs();
  const unsigned grid =
      grid_blocks(ceil_div<std::int64_t>(elements, kThreads), "conv1d_grad_input");
  if (wide_index) {
    conv1d_grad_input_kernel<T, std::int64_t><<<grid, kThreads, 0, stream>>>(elements, params);
  } else {
    conv1d_grad_input_kernel<T, std::uint32_t><<<grid, kThreads, 0, stream>>>(elements, params);
  }
  check_launch("conv1d_grad_input");
}

template <class T, bool kBias>
void launch_sums(const Conv1dReduction& reduction, const Conv1dBackwardParams& params,
                 cudaStream_t stream) {
  const std::int64_t items = reduction.sums * reduction.splits;
  constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
  const unsigned grid = grid_blocks(std::min(items, kMostBlocks), "conv1d_partial_sums");
  conv1d_partial_sums_kernel<T, kBias><<<grid, kThreads, 0, stream>>>(params, reduction);
  check_launch("conv1d_partial_sums");
  if (reduction.splits == 1) return;
  const unsigned finish =
      grid_blocks(ceil_div<std::int64_t>(reduction.sums, kWarps), "conv1d_finish_sums");
  conv1d_finish_sums_kernel<T><<<finish, kThreads, 0, stream>>>(
      static_cast<T*>(kBias ? params.grad_bias : params.grad_weight),
      static_cast<const Accumulator<T>*>(kBias ? params.bias_partials : params.weight_partials),
      reduction);
  check_launch("conv1d_finish_sums");
}

}  // namespace

void launch_conv1d_backward(const Conv1dBackwardPlan& plan, const Conv1dBackwardParams& params,
                            cudaStream_t stream) {
  if (plan.kernel != Conv1dKernel::kDirect) {
    throw std::runtime_error("memops: the conv1d backward plan names no kernel");
  }
  by_float_type(params.problem.type, [&](auto element) {
    using T = decltype(element);
    if (params.grad_input != nullptr && params.problem.inputs() > 0) {
      launch_grad_input<T>(plan.wide_index, params, stream);
    }
    if (params.grad_weight != nullptr && plan.weight.sums > 0) {
      launch_sums<T, false>(plan.weight, params, stream);
    }
    if (params.grad_bias != nullptr && plan.bias.sums > 0) {
      launch_sums<T, true>(plan.bias, params, stream);
    }
  });
}

}  // namespace memops
