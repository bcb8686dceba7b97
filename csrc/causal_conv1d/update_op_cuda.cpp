// causal_conv1d_update on CUDA.
#include "causal_conv1d/causal_conv1d.h"
#include "causal_conv1d/op.h"
#include "causal_conv1d/plan_op.h"
#include "causal_conv1d/views_op.h"
#include "common/torch/device.h"
#include "common/torch/overlap.h"

namespace memops {
namespace {

using at::Tensor;

/// [B, C, S], or [B, C] as one step.
template <class Line>
Line as_steps(Line (*view)(const Tensor&), const Tensor& t) {
  return view(t.dim() == 3 ? t : t.unsqueeze(2));
}

/// What is read while the state is written must not share its memory.
Tensor apart_from(const Tensor& conv_state, const Tensor& t) {
  return overlap(conv_state, t) == Overlap::kNone ? t : t.clone();
}

Tensor update_cuda(const Tensor& x, const Tensor& conv_state, const Tensor& weight,
                   const OptionalTensor& bias, bool silu, const OptionalTensor& cache_seqlens,
                   const OptionalTensor& conv_state_indices) {
  check_causal_update(x, conv_state, weight, bias, cache_seqlens, conv_state_indices);
  const DeviceScope scope(x);
  Tensor y = empty_causal_update(x);
  if (y.numel() == 0) return y;
  const CausalUpdatePlan plan = plan_causal_update(
      causal_update_problem(x, conv_state, weight, bias, silu, cache_seqlens, conv_state_indices),
      scope.facts());
  const Tensor steps = apart_from(conv_state, x);
  const Tensor taps = apart_from(conv_state, weight);
  const OptionalTensor added =
      bias.has_value() ? OptionalTensor(apart_from(conv_state, *bias)) : std::nullopt;
  launch_causal_update(plan,
                       {.x = as_steps<CausalInput>(line_view, steps),
                        .state = line_output(conv_state),
                        .weight = weight_view(taps),
                        .bias = channel_view(added),
                        .seqlens = index_view(cache_seqlens),
                        .rows = index_view(conv_state_indices),
                        .y = as_steps<CausalOutput>(line_output, y)},
                       scope.stream());
  return y;
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CUDA, m) { m.impl("causal_conv1d_update", update_cuda); }

}  // namespace memops
