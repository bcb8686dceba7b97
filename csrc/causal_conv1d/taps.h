// What the causal kernels share: typed tensors, the line of values before a position, the sum over
// the taps. Device code, and the host code that types a launch.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <type_traits>

#include "causal_conv1d/causal_conv1d.h"
#include "common/cuda/float_type.h"

namespace memops {

constexpr int kCausalThreads = 128;
// Terms that are summed before they join the total: the error of a long sum stays small.
constexpr std::int64_t kTermsPerPartial = 32;

/// `offset_batch` and `offset_channel` move the origin: what a panel sees.
template <class T, class Element>
CausalTensor<T> typed(const CausalTensor<Element>& tensor, std::int64_t offset_batch = 0,
                      std::int64_t offset_channel = 0, std::int64_t offset_position = 0) {
  auto* data = static_cast<T*>(tensor.data);
  if (data != nullptr) {
    data += offset_batch * tensor.batch + offset_channel * tensor.channel +
            offset_position * tensor.position;
  }
  return {data, tensor.batch, tensor.channel, tensor.position};
}

struct CausalPlace {
  std::int64_t batch;
  std::int64_t channel;
  std::int64_t position;
};

/// The element of [B, channels, length] that thread `index` takes: the dimension along which x is
/// contiguous runs fastest.
__device__ inline CausalPlace place_of(std::int64_t index, std::int64_t channels,
                                       std::int64_t length, bool channels_last) {
  const std::int64_t inner = channels_last ? channels : length;
  const std::int64_t outer = channels_last ? length : channels;
  const std::int64_t rest = index / inner;
  const std::int64_t fast = index - rest * inner;
  const std::int64_t batch = rest / outer;
  const std::int64_t slow = rest - batch * outer;
  return channels_last ? CausalPlace{batch, fast, slow} : CausalPlace{batch, slow, fast};
}

__device__ inline std::int64_t causal_thread() {
  return std::int64_t{blockIdx.x} * kCausalThreads + threadIdx.x;
}

template <class T>
__device__ T& element(const CausalTensor<T>& tensor, std::int64_t batch, std::int64_t channel,
                      std::int64_t position) {
  return tensor.data[batch * tensor.batch + channel * tensor.channel + position * tensor.position];
}

template <class T>
__device__ auto value(const CausalTensor<T>& tensor, std::int64_t batch, std::int64_t channel,
                      std::int64_t position) {
  return static_cast<Accumulator<std::remove_const_t<T>>>(
      element(tensor, batch, channel, position));
}

template <class T>
struct CausalTaps {
  using Sum = Accumulator<T>;

  CausalTensor<const T> x;
  CausalTensor<const T> weight;
  CausalTensor<const T> bias;
  CausalTensor<const T> initial_state;
  CausalIndex seq_idx;
  std::int64_t width;

  /// x with the initial state (or zeros) before it; position >= 1 - width.
  __device__ Sum line(std::int64_t batch, std::int64_t channel, std::int64_t position) const {
    if (position >= 0) return value(x, batch, channel, position);
    if (initial_state.data == nullptr) return 0;
    return value(initial_state, batch, channel, position + width - 1);
  }

  /// The sequence of a position; positions before x belong to that of x's first.
  __device__ std::int32_t sequence(std::int64_t batch, std::int64_t position) const {
    if (seq_idx.data == nullptr) return 0;
    return element(seq_idx, batch, 0, position < 0 ? 0 : position);
  }

  /// What silu, if any, is applied to.
  __device__ Sum sum(std::int64_t batch, std::int64_t channel, std::int64_t position) const {
    const std::int32_t own = sequence(batch, position);
    Sum total = 0;
    // The bias begins the chain of multiply-adds: one rounding less than adding it to the total.
    Sum partial = bias.data == nullptr ? Sum{0} : value(bias, 0, channel, 0);
    for (std::int64_t first = 0; first < width; first += kTermsPerPartial) {
      const std::int64_t end = first + kTermsPerPartial < width ? first + kTermsPerPartial : width;
      for (std::int64_t k = first; k < end; ++k) {
        const std::int64_t at = position - (width - 1) + k;
        if (sequence(batch, at) == own) {
          partial += value(weight, 0, channel, k) * line(batch, channel, at);
        }
      }
      total += partial;
      partial = 0;
    }
    return total;
  }
};

/// The operands as a panel sees them whose first row is (batch, channel).
template <class T>
CausalTaps<T> taps_of(const CausalOperands& operands, std::int64_t width, std::int64_t batch = 0,
                      std::int64_t channel = 0) {
  return {.x = typed<const T>(operands.x, batch, channel),
          .weight = typed<const T>(operands.weight, batch, channel),
          .bias = typed<const T>(operands.bias, batch, channel),
          .initial_state = typed<const T>(operands.initial_state, batch, channel),
          .seq_idx = typed<const std::int32_t>(operands.seq_idx, batch, channel),
          .width = width};
}

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

template <class Sum>
__device__ Sum silu(Sum x) {
  return x / (1 + exponential(-x));
}

/// grad * silu'(x), in the order of operations of PyTorch's kernel: no less accurate.
template <class Sum>
__device__ Sum silu_gradient(Sum grad, Sum x) {
  const Sum sigmoid = 1 / (1 + exponential(-x));
  return grad * sigmoid * (1 + x * (1 - sigmoid));
}

}  // namespace memops
