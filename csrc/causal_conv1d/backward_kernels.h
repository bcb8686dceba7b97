// The kernels of the causal convolution's backward; causal_backward.cu launches them.
#pragma once

#include <cstdint>

#include "causal_conv1d/causal_conv1d.h"
#include "causal_conv1d/taps.h"

namespace memops {

/// The part of [B, C, L] that one round of launches covers. Tensors are given to the kernels moved
/// to its first batch entry and channel; positions stay those of the whole.
struct CausalWindow {
  std::int64_t batch, channel, position;   // where it begins
  std::int64_t batches, channels, length;  // what it owns
  std::int64_t reach;  // length and the later positions that the taps of its own reach
};

/// dz = grad * silu'(z), z computed again. `grad` and `dz` begin at the window's position.
template <class T>
__global__ void __launch_bounds__(kCausalThreads)
    causal_dz_kernel(const __grid_constant__ CausalTaps<T> taps, const CausalTensor<const T> grad,
                     const CausalTensor<Accumulator<T>> dz, const CausalWindow window,
                     const bool channels_last) {
  const std::int64_t index = causal_thread();
  if (index >= window.batches * window.channels * window.reach) return;
  const auto [batch, channel, i] = place_of(index, window.channels, window.reach, channels_last);
  const auto z = taps.sum(batch, channel, window.position + i);
  element(dz, batch, channel, i) = silu_gradient(value(grad, batch, channel, i), z);
}

/// The gradient of `count` values of the line from position `first` on (those before x are
/// negative). `dz` begins at the window's position and holds every position that they reach.
template <class T, class D>
__global__ void __launch_bounds__(kCausalThreads)
    causal_gather_kernel(const __grid_constant__ CausalTaps<T> taps, const CausalTensor<const D> dz,
                         const CausalTensor<const T> grad_final_state, const CausalTensor<T> out,
                         const CausalWindow window, const std::int64_t first,
                         const std::int64_t count, const std::int64_t length,
                         const bool channels_last) {
  using Sum = Accumulator<T>;
  const std::int64_t index = causal_thread();
  if (index >= window.batches * window.channels * count) return;
  const auto [batch, channel, i] = place_of(index, window.channels, count, channels_last);
  const std::int64_t position = first + i;
  const std::int64_t last = position + taps.width - 1;
  const std::int64_t begin = position < 0 ? 0 : position;
  const std::int64_t end = last < length ? last + 1 : length;
  const std::int32_t own = taps.sequence(batch, position);
  Sum total = 0;
  for (std::int64_t from = begin; from < end; from += kTermsPerPartial) {
    const std::int64_t to = from + kTermsPerPartial < end ? from + kTermsPerPartial : end;
    Sum partial = 0;
    for (std::int64_t t = from; t < to; ++t) {
      if (taps.sequence(batch, t) == own) {
        partial += value(taps.weight, 0, channel, last - t) *
                   value(dz, batch, channel, t - window.position);
      }
    }
    total += partial;
  }
  if (grad_final_state.data != nullptr && last >= length) {
    total += value(grad_final_state, batch, channel, last - length);
  }
  element(out, batch, channel, i) = static_cast<T>(total);
}

/// A row of sums is [channels, columns]; threads take it in the order in which dz is contiguous.
/// Column k is the weight's tap k, column `width` the bias.
struct CausalColumns {
  std::int64_t first;
  std::int64_t count;
};

/// partials[row]: the sums over a segment of the window's positions, its batch entries counted
/// through, of dz times what the column is multiplied with.
template <class T, class D>
__global__ void __launch_bounds__(kCausalThreads)
    causal_partials_kernel(const __grid_constant__ CausalTaps<T> taps,
                           const CausalTensor<const D> dz, Accumulator<T>* partials,
                           const CausalWindow window, const CausalColumns columns,
                           const std::int64_t segment, const std::int64_t rows,
                           const bool channels_last) {
  using Sum = LongSum<T>;
  const std::int64_t index = causal_thread();
  if (index >= rows * window.channels * columns.count) return;
  const auto [row, channel, column] =
      place_of(index, window.channels, columns.count, channels_last);
  const std::int64_t k = columns.first + column;
  const std::int64_t positions = window.batches * window.length;
  const std::int64_t begin = row * segment;
  const std::int64_t end = begin + segment < positions ? begin + segment : positions;
  std::int64_t batch = begin / window.length;
  std::int64_t i = begin - batch * window.length;
  Sum total = 0;
  for (std::int64_t from = begin; from < end; from += kTermsPerPartial) {
    const std::int64_t to = from + kTermsPerPartial < end ? from + kTermsPerPartial : end;
    Sum partial = 0;
    for (std::int64_t n = from; n < to; ++n) {
      const Sum d = value(dz, batch, channel, i);
      const std::int64_t t = window.position + i;
      const std::int64_t source = t - (taps.width - 1) + k;
      if (k == taps.width) {
        partial += d;
      } else if (taps.sequence(batch, source) == taps.sequence(batch, t)) {
        partial += d * taps.line(batch, channel, source);
      }
      if (++i == window.length) {
        i = 0;
        ++batch;
      }
    }
    total += partial;
  }
  partials[index] = static_cast<Accumulator<T>>(total);
}

/// sums[row] = the sum of up to 64 rows of partials, added to what is there if `add`.
template <class Sum>
__global__ void __launch_bounds__(kCausalThreads)
    causal_reduce_kernel(const Sum* partials, Sum* sums, const std::int64_t rows,
                         const std::int64_t row_size, const std::int64_t sum_rows, const bool add) {
  const std::int64_t index = causal_thread();
  if (index >= sum_rows * row_size) return;
  const std::int64_t row = index / row_size;
  const std::int64_t i = index - row * row_size;
  const std::int64_t begin = row * kCausalPartialsPerSum;
  const std::int64_t end =
      begin + kCausalPartialsPerSum < rows ? begin + kCausalPartialsPerSum : rows;
  LongSum<Sum> total = 0;
  for (std::int64_t r = begin; r < end; ++r) total += partials[r * row_size + i];
  sums[index] = static_cast<Sum>(add ? sums[index] + total : total);
}

/// Rounds a row of totals into the gradients.
template <class T>
__global__ void __launch_bounds__(kCausalThreads)
    causal_round_kernel(const Accumulator<T>* totals, const CausalTensor<T> grad_weight,
                        const CausalTensor<T> grad_bias, const std::int64_t width,
                        const std::int64_t channels, const CausalColumns columns,
                        const bool channels_last) {
  const std::int64_t index = causal_thread();
  if (index >= channels * columns.count) return;
  const auto [row, channel, column] = place_of(index, channels, columns.count, channels_last);
  const std::int64_t k = columns.first + column;
  T& out = k == width ? element(grad_bias, 0, channel, 0) : element(grad_weight, 0, channel, k);
  out = static_cast<T>(totals[index]);
}

}  // namespace memops
