// conv1d and _conv1d: checks, CPU, Meta, Autograd, Autocast and the composites.
#include "conv1d/op.h"

#include "common/torch/autocast.h"
#include "common/torch/checks.h"
#include "common/torch/plan_op.h"
#include "conv1d/plan_op.h"

namespace memops {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ATen's CPU convolutions crash the process from 2^30 on; one limit for all devices.
constexpr int64_t kLargestNumber = int64_t{1} << 29;

/// The numbers by themselves: what F.conv1d refuses, or divides by, or counts past 32 bits.
void check_numbers(const char* op, const SymInt& stride, SymIntArrayRef padding,
                   const SymInt& dilation, const SymInt& groups) {
  const auto inside = [](const SymInt& number, int64_t least) {
    return number.sym_ge(least).sym_and(number.sym_le(kLargestNumber));
  };
  TORCH_SYM_CHECK(groups.sym_ge(1), op, ": groups is ", groups, "; a positive number is accepted");
  TORCH_SYM_CHECK(inside(stride, 1), op, ": stride is ", stride, "; 1 to ", kLargestNumber,
                  " is accepted");
  TORCH_SYM_CHECK(inside(dilation, 1), op, ": dilation is ", dilation, "; 1 to ", kLargestNumber,
                  " is accepted");
  TORCH_CHECK(padding.size() == 2, op, ": padding has ", padding.size(),
              " entries; left and right are accepted");
  for (const SymInt& side : padding) {
    TORCH_SYM_CHECK(inside(side, 0), op, ": padding is ", padding, "; 0 to ", kLargestNumber,
                    " is accepted");
  }
}

/// The positions from a window's first to its last tap.
SymInt window_length(const char* op, const SymInt& width, const SymInt& dilation) {
  const auto taps = width.maybe_as_int();
  const auto step = dilation.maybe_as_int();
  if (taps && step) {
    int64_t reach = 0;
    TORCH_CHECK(!__builtin_mul_overflow(*taps - 1, *step, &reach) &&
                    !__builtin_add_overflow(reach, int64_t{1}, &reach),
                op, ": weight of width ", width, " with dilation ", dilation,
                " spans more than 2^63 - 1 positions");
    return reach;
  }
  return (width - 1) * dilation + 1;
}

Tensor conv1d_aten(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   const SymInt& stride, SymIntArrayRef padding, const SymInt& dilation,
                   const SymInt& groups) {
  // ATen pads both sides alike, and refuses length 0 even with padding.
  const bool alike = TORCH_GUARD_OR_FALSE(padding[0].sym_eq(padding[1])) &&
                     TORCH_GUARD_OR_TRUE(input.sym_size(2).sym_ne(0));
  const Tensor padded = alike ? input : at::constant_pad_nd_symint(input, padding, 0);
  const SymInt both = alike ? padding[0] : SymInt(0);
  return at::conv1d_symint(padded, weight, bias, stride, both, dilation, groups);
}

Tensor conv1d_composite(const Tensor& input, const Tensor& weight,
                        const std::optional<Tensor>& bias, SymInt stride, SymIntArrayRef padding,
                        SymInt dilation, SymInt groups) {
  check_conv1d("conv1d", input, weight, bias, stride, padding, dilation, groups);
  return conv1d_aten(input, weight, bias, stride, padding, dilation, groups);
}

Tensor conv1d_cpu(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                  SymInt stride, SymIntArrayRef padding, SymInt dilation, SymInt groups) {
  return with_contiguous_strides(
      conv1d_composite(input, weight, bias, stride, padding, dilation, groups));
}

Tensor conv1d_meta(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                   SymInt stride, SymIntArrayRef padding, SymInt dilation, SymInt groups) {
  const SymInt length =
      check_conv1d("conv1d", input, weight, bias, stride, padding, dilation, groups);
  return at::empty_symint({input.sym_size(0), conv1d_channels(input, weight), length},
                          input.options());
}

struct Conv1dFunction : torch::autograd::Function<Conv1dFunction> {
  static constexpr bool is_traceable = true;

  static Tensor forward(AutogradContext* ctx, const Tensor& input, const Tensor& weight,
                        const std::optional<Tensor>& bias, const SymInt& stride,
                        SymIntArrayRef padding, const SymInt& dilation, const SymInt& groups) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    Tensor out = conv1d_op().call(input, weight, bias, stride, padding, dilation, groups);
    ctx->save_for_backward({input, weight});
    ctx->saved_data["bias"] = bias.has_value() && bias->defined();
    Conv1dNumbers{stride, {padding[0], padding[1]}, dilation, groups}.save(ctx);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list result(7);
    if (!grads[0].defined()) return result;
    const variable_list saved = ctx->get_saved_variables();
    const Conv1dNumbers numbers = Conv1dNumbers::saved(ctx);
    const bool has_bias = ctx->saved_data["bias"].toBool();
    const std::array<bool, 3> wanted{ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                                     has_bias && ctx->needs_input_grad(2)};
    const auto [input, weight, bias] =
        conv1d_backward_op().call(grads[0], saved[0], saved[1], numbers.stride, numbers.padding,
                                  numbers.dilation, numbers.groups, wanted);
    if (wanted[0]) result[0] = input;
    if (wanted[1]) result[1] = weight;
    if (wanted[2]) result[2] = bias;
    return result;
  }
};

Tensor conv1d_autograd(c10::DispatchKeySet keys, const Tensor& input, const Tensor& weight,
                       const std::optional<Tensor>& bias, SymInt stride, SymIntArrayRef padding,
                       SymInt dilation, SymInt groups) {
  // On the CPU ATen makes a complex convolution of real ones; its gradient is theirs.
  if (input.is_complex() && input.is_cpu()) {
    return conv1d_composite(input, weight, bias, stride, padding, dilation, groups);
  }
  return differentiable<Conv1dFunction>(keys, conv1d_op(), conv1d_composite, input, weight, bias,
                                        stride, padding, dilation, groups);
}

template <c10::DeviceType kDevice>
Tensor conv1d_autocast(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
                       SymInt stride, SymIntArrayRef padding, SymInt dilation, SymInt groups) {
  return autocast<kDevice>(conv1d_op(), input, weight, bias, stride, padding, dilation, groups);
}

Tensor conv1d(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias,
              SymInt stride, SymIntArrayRef padding, SymInt dilation, SymInt groups) {
  const Sides sides = both_sides("conv1d", padding);
  check_numbers("conv1d", stride, sides, dilation, groups);
  check_strided("conv1d", "input", input);
  check_strided("conv1d", "weight", weight);
  if (bias.has_value() && bias->defined()) check_strided("conv1d", "bias", *bias);
  TORCH_CHECK(input.dim() == 2 || input.dim() == 3, "conv1d: input has ", input.dim(),
              " dimensions; [B, C, L] or [C, L] is accepted");
  if (input.dim() == 3) {
    return conv1d_op().call(input, weight, bias, stride, sides, dilation, groups);
  }
  const Tensor out =
      conv1d_op().call(input.unsqueeze(0), weight, bias, stride, sides, dilation, groups);
  return at::_unsafe_view_symint(out, {out.sym_size(1), out.sym_size(2)});
}

PlanReport plan_of_conv1d(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& given = arguments.tensor("conv1d", 0);
  const Tensor& weight = arguments.tensor("conv1d", 1);
  const auto& n = arguments.integers;
  TORCH_CHECK(n.size() == 5, "conv1d: the plan has ", n.size(),
              " integers; stride, left, right, dilation and groups are accepted");
  const Tensor input = given.dim() == 2 ? given.unsqueeze(0) : given;
  const std::optional<Tensor> bias =
      arguments.tensors.size() > 2 ? arguments.tensors[2] : std::nullopt;
  const SymInt length =
      check_conv1d("conv1d", input, weight, bias, n[0], Sides{n[1], n[2]}, n[3], n[4]);
  check_floating_on_cuda("conv1d", "input", input);
  if (input.size(0) == 0 || input.size(1) == 0) {
    return {.kernel = "none", .reason = "the result is empty"};
  }
  return plan_conv1d(conv1d_problem(input, weight, length.expect_int(), n[0], n[1], n[3], n[4],
                                    bias.has_value() && bias->defined()),
                     device)
      .report();
}

const PlanRegistration kPlans[] = {{"conv1d", plan_of_conv1d}, {"_conv1d", plan_of_conv1d}};

}  // namespace

Sides both_sides(const char* op, SymIntArrayRef padding) {
  TORCH_CHECK(padding.size() == 1 || padding.size() == 2, op, ": padding has ", padding.size(),
              " entries; one (both sides) or two (left, right) are accepted");
  return {padding.front(), padding.back()};
}

SymInt padded_length(const char* op, const SymInt& length, SymIntArrayRef padding) {
  const auto known = length.maybe_as_int();
  const auto left = padding[0].maybe_as_int();
  const auto right = padding[1].maybe_as_int();
  if (known && left && right) {
    int64_t sum = 0;
    TORCH_CHECK(
        !__builtin_add_overflow(*known, *left, &sum) && !__builtin_add_overflow(sum, *right, &sum),
        op, ": padding is ", padding, "; with the input's length ", length, " it passes 2^63 - 1");
    return sum;
  }
  return length + padding[0] + padding[1];
}

SymInt conv1d_channels(const Tensor& input, const Tensor& weight) {
  return TORCH_GUARD_OR_FALSE(input.sym_size(1).sym_eq(0)) ? SymInt(0) : weight.sym_size(0);
}

SymInt check_conv1d(const char* op, const Tensor& input, const Tensor& weight,
                    const std::optional<Tensor>& bias, const SymInt& stride, SymIntArrayRef padding,
                    const SymInt& dilation, const SymInt& groups) {
  check_numbers(op, stride, padding, dilation, groups);
  check_strided(op, "input", input);
  check_strided(op, "weight", weight);
  TORCH_CHECK(input.dim() == 3, op, ": input has ", input.dim(),
              " dimensions; [B, C, L] is accepted");
  TORCH_CHECK(weight.dim() == 3, op, ": weight has ", weight.dim(),
              " dimensions; [C_out, C / groups, K] is accepted");
  const SymInt out_channels = weight.sym_size(0);
  const SymInt width = weight.sym_size(2);
  TORCH_SYM_CHECK(width.sym_ge(1), op, ": weight has shape ", weight.sym_sizes(),
                  "; a width K from 1 is accepted");
  TORCH_SYM_CHECK(out_channels.sym_ge(1), op, ": weight has shape ", weight.sym_sizes(),
                  "; at least one output channel a group is accepted");
  TORCH_SYM_CHECK((out_channels % groups).sym_eq(0), op, ": weight has shape ", weight.sym_sizes(),
                  "; with ", groups, " groups a multiple of as many output channels is accepted");
  const SymInt channels = weight.sym_size(1) * groups;
  TORCH_SYM_CHECK(input.sym_size(1).sym_eq(channels), op, ": input has shape ", input.sym_sizes(),
                  "; with weight of shape ", weight.sym_sizes(), " and ", groups, " groups ",
                  channels, " channels are accepted");
  const SymInt padded = padded_length(op, input.sym_size(2), padding);
  const SymInt window = window_length(op, width, dilation);
  TORCH_SYM_CHECK(window.sym_le(padded), op, ": weight of width ", width, " with dilation ",
                  dilation, " spans ", window, " positions; the padded input has ", padded);
  check_same_device(op, "input", input, "weight", weight);
  check_same_dtype(op, "input", input, "weight", weight);
  if (bias.has_value() && bias->defined()) {
    check_strided(op, "bias", *bias);
    TORCH_CHECK(bias->dim() == 1, op, ": bias has ", bias->dim(),
                " dimensions; [C_out] is accepted");
    TORCH_SYM_CHECK(bias->sym_size(0).sym_eq(out_channels), op, ": bias has shape ",
                    bias->sym_sizes(), "; with weight of shape ", weight.sym_sizes(), " ",
                    out_channels, " values are accepted");
    check_same_device(op, "input", input, "bias", *bias);
    check_same_dtype(op, "input", input, "bias", *bias);
  }
  return (padded - window) / stride + 1;
}

TORCH_LIBRARY_IMPL(memops, CPU, m) { m.impl("_conv1d", conv1d_cpu); }
TORCH_LIBRARY_IMPL(memops, Meta, m) { m.impl("_conv1d", conv1d_meta); }
TORCH_LIBRARY_IMPL(memops, Autograd, m) { m.impl("_conv1d", conv1d_autograd); }
TORCH_LIBRARY_IMPL(memops, AutocastCPU, m) { m.impl("_conv1d", conv1d_autocast<at::kCPU>); }
TORCH_LIBRARY_IMPL(memops, AutocastCUDA, m) { m.impl("_conv1d", conv1d_autocast<at::kCUDA>); }
TORCH_LIBRARY_IMPL(memops, CompositeImplicitAutograd, m) { m.impl("conv1d", conv1d); }
TORCH_LIBRARY_IMPL(memops, FuncTorchBatchedDecomposition, m) {
  m.impl("conv1d", conv1d);
  m.impl("_conv1d", conv1d_composite);
}

}  // namespace memops
