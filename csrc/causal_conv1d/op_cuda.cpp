// _causal_conv1d and its backward on CUDA.
#include "causal_conv1d/causal_conv1d.h"
#include "causal_conv1d/op.h"
#include "causal_conv1d/plan_op.h"
#include "causal_conv1d/views_op.h"
#include "common/torch/device.h"

namespace memops {
namespace {

using at::Tensor;

CausalOperands operands_of(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                           const OptionalTensor& initial_state, const OptionalTensor& seq_idx) {
  return {.x = line_view(x),
          .weight = weight_view(weight),
          .bias = channel_view(bias),
          .initial_state = line_view(initial_state),
          .seq_idx = index_view(seq_idx)};
}

std::tuple<Tensor, Tensor> causal_cuda(const Tensor& x, const Tensor& weight,
                                       const OptionalTensor& bias,
                                       const OptionalTensor& initial_state,
                                       const OptionalTensor& seq_idx, int64_t silu,
                                       int64_t final_state) {
  check_causal(x, weight, bias, initial_state, seq_idx);
  const DeviceScope scope(x);
  auto [y, state] = empty_causal(x, weight, final_state != 0);
  if (y.numel() == 0 && state.numel() == 0) return {y, state};
  const CausalPlan plan = plan_causal(
      causal_problem(x, weight, bias, initial_state, seq_idx, silu != 0, final_state != 0),
      scope.facts());
  launch_causal(plan,
                {.operands = operands_of(x, weight, bias, initial_state, seq_idx),
                 .y = line_output(y),
                 .final_state = final_state != 0 ? line_output(state) : CausalOutput{}},
                scope.stream());
  return {y, state};
}

/// Without a position only the new state's gradient is left, and it is the old one's.
void fill_without_positions(const OptionalTensor& grad_final_state, CausalGradients& gradients) {
  std::get<1>(gradients).zero_();
  std::get<2>(gradients).zero_();
  Tensor& state = std::get<3>(gradients);
  if (state.dim() != 3) return;
  if (grad_final_state.has_value()) {
    state.copy_(*grad_final_state);
  } else {
    state.zero_();
  }
}

CausalGradients causal_backward_cuda(const Tensor& grad, const OptionalTensor& grad_final_state,
                                     const Tensor& x, const Tensor& weight,
                                     const OptionalTensor& bias,
                                     const OptionalTensor& initial_state,
                                     const OptionalTensor& seq_idx, int64_t silu,
                                     std::array<bool, 4> output_mask) {
  check_causal(x, weight, bias, initial_state, seq_idx);
  check_causal_gradients(grad, grad_final_state, x, weight);
  const DeviceScope scope(x);
  CausalGradients gradients = empty_causal_gradients(x, weight, output_mask);
  if (x.numel() == 0) {
    fill_without_positions(grad_final_state, gradients);
    return gradients;
  }
  const CausalBackwardPlan plan = plan_causal_backward(
      {causal_problem(x, weight, bias, initial_state, seq_idx, silu != 0, false), output_mask},
      scope.facts());
  const Tensor scratch = at::empty({plan.scratch.bytes()}, x.options().dtype(at::kByte));
  const auto& [grad_x, grad_weight, grad_bias, grad_state] = gradients;
  launch_causal_backward(
      plan,
      {.operands = operands_of(x, weight, bias, initial_state, seq_idx),
       .grad = line_view(grad),
       .grad_final_state = line_view(grad_final_state),
       .grad_x = output_mask[0] ? line_output(grad_x) : CausalOutput{},
       .grad_weight = output_mask[1] ? weight_output(grad_weight) : CausalOutput{},
       .grad_bias = output_mask[2] ? channel_output(grad_bias) : CausalOutput{},
       .grad_initial_state = output_mask[3] ? line_output(grad_state) : CausalOutput{},
       .scratch = scratch.mutable_data_ptr()},
      scope.stream());
  return gradients;
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CUDA, m) {
  m.impl("_causal_conv1d", causal_cuda);
  m.impl("_causal_conv1d_backward", causal_backward_cuda);
}

}  // namespace memops
