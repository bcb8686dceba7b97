// The causal convolution's gradients, panel by panel: dz in scratch where silu asks for it, the
// gradients of x and the initial state gathered from it, weight and bias summed in a fixed order.
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "causal_conv1d/backward_kernels.h"
#include "causal_conv1d/causal_conv1d.h"
#include "common/cuda/launch.h"
#include "common/math.h"

namespace memops {
namespace {

unsigned grid_for(std::int64_t threads, const char* kernel) {
  return grid_blocks(ceil_div<std::int64_t>(threads, kCausalThreads), kernel);
}

template <class T>
class Backward {
 public:
  using Sum = Accumulator<T>;

  Backward(const CausalBackwardPlan& plan, const CausalBackwardParams& params, bool channels_last,
           cudaStream_t stream)
      : plan_(plan),
        problem_(plan.problem.forward),
        params_(params),
        channels_last_(channels_last),
        stream_(stream),
        dz_(static_cast<Sum*>(params.scratch)),
        partials_(dz_ + plan.scratch.dz),
        reduced_(partials_ + plan.scratch.partials),
        totals_(reduced_ + plan.scratch.reduced) {}

  void launch() const {
    const CausalPanel& panel = plan_.panel;
    for (std::int64_t c = 0; c < problem_.channels; c += panel.channels) {
      std::int64_t column = 0;
      do {
        const CausalColumns columns{plan_.first_column + column,
                                    std::min(panel.columns, plan_.columns - column)};
        for (std::int64_t b = 0; b < problem_.batch; b += panel.batch) {
          for (std::int64_t t = 0; t < problem_.length; t += panel.length) {
            launch_panel(window_at(b, c, t), columns, column == 0);
          }
        }
        if (columns.count > 0) launch_round(c, columns);
        column += columns.count;
      } while (column < plan_.columns);
    }
  }

 private:
  CausalWindow window_at(std::int64_t b, std::int64_t c, std::int64_t t) const {
    const std::int64_t length = std::min(plan_.panel.length, problem_.length - t);
    const auto [x, weight, bias, state] = plan_.problem.wanted;
    const std::int64_t halo = x || state ? problem_.width - 1 : 0;
    return {.batch = b,
            .channel = c,
            .position = t,
            .batches = std::min(plan_.panel.batch, problem_.batch - b),
            .channels = std::min(plan_.panel.channels, problem_.channels - c),
            .length = length,
            .reach = length + std::min(halo, problem_.length - t - length)};
  }

  void launch_panel(const CausalWindow& window, const CausalColumns& columns,
                    bool with_gathers) const {
    const CausalTaps<T> taps =
        taps_of<T>(params_.operands, problem_.width, window.batch, window.channel);
    const auto grad = typed<const T>(params_.grad, window.batch, window.channel, window.position);
    if (!problem_.silu) return use(taps, grad, window, columns, with_gathers);

    const CausalTensor<Sum> dz =
        channels_last_ ? CausalTensor<Sum>{dz_, window.channels * window.reach, 1, window.channels}
                       : CausalTensor<Sum>{dz_, window.channels * window.reach, window.reach, 1};
    const unsigned grid = grid_for(window.batches * window.channels * window.reach, "causal_dz");
    causal_dz_kernel<T>
        <<<grid, kCausalThreads, 0, stream_>>>(taps, grad, dz, window, channels_last_);
    check_launch("causal_dz");
    const CausalTensor<const Sum> kept{dz.data, dz.batch, dz.channel, dz.position};
    use(taps, kept, window, columns, with_gathers);
  }

  template <class D>
  void use(const CausalTaps<T>& taps, const CausalTensor<const D>& dz, const CausalWindow& window,
           const CausalColumns& columns, bool with_gathers) const {
    const auto [x, weight, bias, state] = plan_.problem.wanted;
    if (with_gathers && x) {
      launch_gather(taps, dz, window, window.position, window.length,
                    typed<T>(params_.grad_x, window.batch, window.channel, window.position));
    }
    if (with_gathers && state && window.position == 0) {
      launch_gather(taps, dz, window, 1 - problem_.width, problem_.width - 1,
                    typed<T>(params_.grad_initial_state, window.batch, window.channel));
    }
    if (columns.count > 0) launch_sums(taps, dz, window, columns);
  }

  template <class D>
  void launch_gather(const CausalTaps<T>& taps, const CausalTensor<const D>& dz,
                     const CausalWindow& window, std::int64_t first, std::int64_t count,
                     const CausalTensor<T>& out) const {
    const std::int64_t threads = window.batches * window.channels * count;
    if (threads == 0) return;
    const auto grad_final_state =
        typed<const T>(params_.grad_final_state, window.batch, window.channel);
    const unsigned grid = grid_for(threads, "causal_gather");
    causal_gather_kernel<T, D><<<grid, kCausalThreads, 0, stream_>>>(
        taps, dz, grad_final_state, out, window, first, count, problem_.length, channels_last_);
    check_launch("causal_gather");
  }

  template <class D>
  void launch_sums(const CausalTaps<T>& taps, const CausalTensor<const D>& dz,
                   const CausalWindow& window, const CausalColumns& columns) const {
    const std::int64_t row_size = window.channels * columns.count;
    std::int64_t rows = ceil_div(window.batches * window.length, plan_.segment);
    const unsigned grid = grid_for(rows * row_size, "causal_partials");
    causal_partials_kernel<T, D><<<grid, kCausalThreads, 0, stream_>>>(
        taps, dz, partials_, window, columns, plan_.segment, rows, channels_last_);
    check_launch("causal_partials");
    Sum* from = partials_;
    Sum* to = reduced_;
    while (rows > kCausalPartialsPerSum) {
      rows = launch_reduce(from, to, rows, row_size, false);
      std::swap(from, to);
    }
    const bool first_of_totals = window.batch == 0 && window.position == 0;
    launch_reduce(from, totals_, rows, row_size, !first_of_totals);
  }

  std::int64_t launch_reduce(const Sum* from, Sum* to, std::int64_t rows, std::int64_t row_size,
                             bool add) const {
    const std::int64_t sum_rows = ceil_div(rows, kCausalPartialsPerSum);
    const unsigned grid = grid_for(sum_rows * row_size, "causal_reduce");
    causal_reduce_kernel<Sum>
        <<<grid, kCausalThreads, 0, stream_>>>(from, to, rows, row_size, sum_rows, add);
    check_launch("causal_reduce");
    return sum_rows;
  }

  void launch_round(std::int64_t channel, const CausalColumns& columns) const {
    const std::int64_t channels = std::min(plan_.panel.channels, problem_.channels - channel);
    const unsigned grid = grid_for(channels * columns.count, "causal_round");
    causal_round_kernel<T><<<grid, kCausalThreads, 0, stream_>>>(
        totals_, typed<T>(params_.grad_weight, 0, channel), typed<T>(params_.grad_bias, 0, channel),
        problem_.width, channels, columns, channels_last_);
    check_launch("causal_round");
  }

  const CausalBackwardPlan& plan_;
  const CausalProblem& problem_;
  const CausalBackwardParams& params_;
  const bool channels_last_;
  const cudaStream_t stream_;
  Sum* const dz_;
  Sum* const partials_;
  Sum* const reduced_;
  Sum* const totals_;
};

}  // namespace

void launch_causal_backward(const CausalBackwardPlan& plan, const CausalBackwardParams& params,
                            cudaStream_t stream) {
  switch (plan.kernel) {
    case CausalKernel::kAlongLength:
    case CausalKernel::kAlongChannels:
      return by_float_type(plan.problem.forward.dtype, [&](auto zero) {
        const bool channels_last = plan.kernel == CausalKernel::kAlongChannels;
        Backward<decltype(zero)>(plan, params, channels_last, stream).launch();
      });
  }
  throw std::runtime_error("memops: the causal convolution's backward plan names no kernel");
}

}  // namespace memops
