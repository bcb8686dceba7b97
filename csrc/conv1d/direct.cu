// The general convolution: one thread a result, any shape, any strides of input and weight.
#include <cstdint>
#include <stdexcept>

#include "common/cuda/float_type.h"
#include "common/cuda/launch.h"
#include "common/math.h"
#include "conv1d/conv1d.h"
#include "conv1d/sums.h"

namespace memops {
namespace {

constexpr int kThreads = 256;
// Blocks a multiprocessor: left alone, ptxas makes room for five and spills in float64.
constexpr int kBlocks = 4;

struct TapRange {
  std::int64_t begin;
  std::int64_t end;
};

/// The taps k whose position first + k * dilation lies in [0, length).
__device__ TapRange taps_inside(std::int64_t first, const Conv1dProblem& problem) {
  const std::int64_t begin = first >= 0 ? 0 : (-first - 1) / problem.dilation + 1;
  const std::int64_t room = problem.length - first;
  const std::int64_t end = room <= 0 ? 0 : (room - 1) / problem.dilation + 1;
  return {begin, end < problem.width ? end : problem.width};
}

template <class T, class Index>
__global__ void __launch_bounds__(kThreads, kBlocks)
    conv1d_direct_kernel(const Index elements, const __grid_constant__ Conv1dParams params) {
  const Conv1dProblem& problem = params.problem;
  const Index index = static_cast<Index>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= elements) return;
  const auto out_length = static_cast<Index>(problem.out_length);
  const auto out_channels = static_cast<Index>(problem.out_channels);
  const Index row = index / out_length;
  const std::int64_t position = index - row * out_length;
  const std::int64_t sample = row / out_channels;
  const std::int64_t out_channel = row % out_channels;

  const std::int64_t channels = problem.in_channels / problem.groups;
  const std::int64_t group = out_channel / (problem.out_channels / problem.groups);
  const std::int64_t first = position * problem.stride - problem.left;
  const TapRange taps = taps_inside(first, problem);
  const auto& [x_sample, x_channel, x_position] = params.input.strides;
  const auto& [w_out, w_channel, w_tap] = params.weight.strides;
  const std::int64_t x_step = problem.dilation * x_position;

  std::int64_t x_at = sample * x_sample + group * channels * x_channel +
                      (first + taps.begin * problem.dilation) * x_position;
  std::int64_t w_at = out_channel * w_out + taps.begin * w_tap;
  const auto* const x = static_cast<const T*>(params.input.data);
  const auto* const w = static_cast<const T*>(params.weight.data);
  TwoLevelSum<Accumulator<T>> sum;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    std::int64_t x_tap_at = x_at;
    std::int64_t w_tap_at = w_at;
    for (std::int64_t tap = taps.begin; tap < taps.end; ++tap) {
      sum.add(widen(x[x_tap_at]), widen(w[w_tap_at]));
      x_tap_at += x_step;
      w_tap_at += w_tap;
    }
    x_at += x_channel;
    w_at += w_channel;
  }
  Accumulator<T> result = sum.total();
  if (params.bias != nullptr) {
    result += widen(static_cast<const T*>(params.bias)[out_channel * params.bias_stride]);
  }
  static_cast<T*>(params.output)[index] = narrow<T>(result);
}

void launch_direct(const Conv1dPlan& plan, const Conv1dParams& params, cudaStream_t stream) {
  const std::int64_t elements = params.problem.outputs();
  const unsigned grid = grid_blocks(ceil_div<std::int64_t>(elements, kThreads), "conv1d_direct");
  by_float_type(params.problem.type, [&](auto element) {
    using T = decltype(element);
    if (plan.wide_index) {
      conv1d_direct_kernel<T, std::int64_t><<<grid, kThreads, 0, stream>>>(elements, params);
    } else {
      conv1d_direct_kernel<T, std::uint32_t><<<grid, kThreads, 0, stream>>>(elements, params);
    }
  });
  check_launch("conv1d_direct");
}

}  // namespace

void launch_conv1d(const Conv1dPlan& plan, const Conv1dParams& params, cudaStream_t stream) {
  switch (plan.kernel) {
    case Conv1dKernel::kDirect:
      return launch_direct(plan, params, stream);
  }
  throw std::runtime_error("memops: the conv1d plan names no kernel");
}

}  // namespace memops
