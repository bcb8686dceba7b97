// _conv1d and _conv1d_backward on CUDA.
#include "common/torch/checks.h"
#include "common/torch/device.h"
#include "conv1d/conv1d.h"
#include "conv1d/op.h"
#include "conv1d/plan_op.h"

namespace memops {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;

Conv1dOperand operand(const Tensor& tensor) {
  return {tensor.const_data_ptr(), {tensor.stride(0), tensor.stride(1), tensor.stride(2)}};
}

Tensor conv1d_cuda(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   SymInt stride, SymIntArrayRef padding, SymInt dilation, SymInt groups) {
  const int64_t length =
      check_conv1d("conv1d", input, weight, bias, stride, padding, dilation, groups).expect_int();
  check_floating_on_cuda("conv1d", "input", input);
  const DeviceScope scope(input);
  const int64_t channels = conv1d_channels(input, weight).expect_int();
  const Tensor out = at::empty({input.size(0), channels, length}, input.options());
  if (out.numel() == 0) return out;
  const bool has_bias = bias.has_value() && bias->defined();
  const Conv1dProblem problem =
      conv1d_problem(input, weight, length, stride.expect_int(), padding[0].expect_int(),
                     dilation.expect_int(), groups.expect_int(), has_bias);
  launch_conv1d(plan_conv1d(problem, scope.facts()),
                {.problem = problem,
                 .input = operand(input),
                 .weight = operand(weight),
                 .bias = has_bias ? bias->const_data_ptr() : nullptr,
                 .bias_stride = has_bias ? bias->stride(0) : 0,
                 .output = out.mutable_data_ptr()},
                scope.stream());
  return out;
}

Conv1dGradients conv1d_backward_cuda(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                     SymInt stride, SymIntArrayRef padding, SymInt dilation,
                                     SymInt groups, std::array<bool, 3> wanted) {
  const int64_t length =
      check_conv1d_backward(grad, input, weight, stride, padding, dilation, groups).expect_int();
  check_floating_on_cuda("_conv1d_backward", "input", input);
  const DeviceScope scope(input);
  const auto gradient = [&](bool is_wanted, at::IntArrayRef sizes) {
    return is_wanted ? at::empty(sizes, input.options()) : no_gradient(input);
  };
  const Tensor grad_input = gradient(wanted[0], input.sizes());
  const Tensor grad_weight = gradient(wanted[1], weight.sizes());
  Tensor grad_bias = gradient(wanted[2], weight.size(0));
  if (input.size(1) == 0) {
    // Without channels grad is empty, and so are all gradients but the bias's.
    grad_bias.zero_();
    return {grad_input, grad_weight, grad_bias};
  }
  const Conv1dProblem problem =
      conv1d_problem(input, weight, length, stride.expect_int(), padding[0].expect_int(),
                     dilation.expect_int(), groups.expect_int(), /*bias=*/false);
  const Conv1dBackwardPlan plan = plan_conv1d_backward(problem, wanted, scope.facts());
  const auto scratch_type = problem.type == FloatType::kDouble ? at::kDouble : at::kFloat;
  const auto scratch = [&](const Conv1dReduction& reduction) {
    return at::empty({reduction.partials}, input.options().dtype(scratch_type));
  };
  const Tensor weight_partials = scratch(plan.weight);
  const Tensor bias_partials = scratch(plan.bias);
  const auto target = [](const Tensor& tensor) {
    return tensor.numel() == 0 ? nullptr : tensor.mutable_data_ptr();
  };
  launch_conv1d_backward(plan,
                         {.problem = problem,
                          .grad = operand(grad),
                          .input = operand(input),
                          .weight = operand(weight),
                          .grad_input = target(grad_input),
                          .grad_weight = target(grad_weight),
                          .grad_bias = target(grad_bias),
                          .weight_partials = target(weight_partials),
                          .bias_partials = target(bias_partials)},
                         scope.stream());
  return {grad_input, grad_weight, grad_bias};
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CUDA, m) {
  m.impl("_conv1d", conv1d_cuda);
  m.impl("_conv1d_backward", conv1d_backward_cuda);
}

}  // namespace memops
