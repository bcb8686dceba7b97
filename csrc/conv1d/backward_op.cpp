// _conv1d_backward, the gradients of _conv1d: checks, CPU, Meta, Autograd and the composite.
#include <algorithm>

#include "common/math.h"
#include "common/torch/checks.h"
#include "common/torch/plan_op.h"
#include "conv1d/op.h"
#include "conv1d/plan_op.h"

namespace memops {
namespace {

using at::Tensor;
using c10::SymInt;
using c10::SymIntArrayRef;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Mask = std::array<bool, 3>;

/// oneDNN, ATen's way on the CPU, reads and writes outside its tensors in the input's gradient
/// where results * stride * stride nears 2^27: the process crashes, or the values are wrong.
bool aten_reaches_outside(const Tensor& input, const SymInt& results, const SymInt& stride) {
  constexpr int64_t kSafe = int64_t{1} << 24;
  const auto count = results.maybe_as_int();
  const auto step = stride.maybe_as_int();
  if (!input.is_cpu() || !count || !step || *step == 1) return false;
  if (TORCH_GUARD_OR_FALSE(input.sym_numel().sym_eq(0))) return false;
  return *count > kSafe / (*step * *step);
}

/// The input's gradient tap by tap, in float32 or wider, without a convolution.
Tensor grad_input_by_taps(const Tensor& grad, const Tensor& input, const Tensor& weight,
                          int64_t stride, int64_t left, int64_t dilation, int64_t groups) {
  const auto type = at::promote_types(input.scalar_type(), at::kFloat);
  const int64_t length = input.sym_size(2).guard_int(__FILE__, __LINE__);
  const int64_t results = grad.sym_size(2).guard_int(__FILE__, __LINE__);
  const int64_t taps = weight.sym_size(2).guard_int(__FILE__, __LINE__);
  const Tensor g = grad.to(type).unflatten(1, {groups, -1});    // [B, groups, out, results]
  const Tensor w = weight.to(type).unflatten(0, {groups, -1});  // [groups, out, in, K]
  Tensor sum = at::zeros_symint(input.sym_sizes(), input.options().dtype(type));
  for (int64_t tap = 0; tap < taps; ++tap) {
    // The results whose tap lies inside: 0 <= result * stride + shift < length.
    const int64_t shift = tap * dilation - left;
    const int64_t begin = shift >= 0 ? 0 : ceil_div(-shift, stride);
    const int64_t end = shift >= length ? 0 : std::min((length - 1 - shift) / stride + 1, results);
    if (begin >= end) continue;
    const Tensor shares = at::matmul(w.select(3, tap).mT(), g.slice(3, begin, end)).flatten(1, 2);
    const Tensor count = at::arange(begin, end, input.options().dtype(at::kLong));
    sum = sum.index_add(2, count * stride + shift, shares);
  }
  return sum.to(input.scalar_type());
}

Conv1dGradients conv1d_backward_composite(const Tensor& grad, const Tensor& input,
                                          const Tensor& weight, SymInt stride,
                                          SymIntArrayRef padding, SymInt dilation, SymInt groups,
                                          Mask wanted) {
  const SymInt results =
      check_conv1d_backward(grad, input, weight, stride, padding, dilation, groups);
  const SymInt length = input.sym_size(2);
  const bool by_taps = wanted[0] && aten_reaches_outside(input, results, stride);
  // As in the forward direction: ATen pads both sides alike, and refuses length 0.
  const bool alike =
      TORCH_GUARD_OR_FALSE(padding[0].sym_eq(padding[1])) && TORCH_GUARD_OR_TRUE(length.sym_ne(0));
  const Tensor padded = alike ? input : at::constant_pad_nd_symint(input, padding, 0);
  const SymInt both = alike ? padding[0] : SymInt(0);
  const std::array<SymInt, 1> bias_sizes{weight.sym_size(0)};
  auto [grad_input, grad_weight, grad_bias] = at::convolution_backward_symint(
      grad, padded, weight, SymIntArrayRef(bias_sizes), stride, both, dilation,
      /*transposed=*/false, /*output_padding=*/SymInt(0), groups,
      Mask{wanted[0] && !by_taps, wanted[1], wanted[2]});
  if (by_taps) {
    grad_input =
        grad_input_by_taps(grad, input, weight, stride.expect_int(), padding[0].expect_int(),
                           dilation.expect_int(), groups.expect_int());
  } else if (wanted[0] && !alike) {
    grad_input = at::slice_symint(grad_input, 2, padding[0], padding[0] + length);
  }
  return {wanted[0] ? grad_input : no_gradient(input), wanted[1] ? grad_weight : no_gradient(input),
          wanted[2] ? grad_bias : no_gradient(input)};
}

Conv1dGradients conv1d_backward_cpu(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                    SymInt stride, SymIntArrayRef padding, SymInt dilation,
                                    SymInt groups, Mask wanted) {
  const auto [grad_input, grad_weight, grad_bias] =
      conv1d_backward_composite(grad, input, weight, stride, padding, dilation, groups, wanted);
  return {with_contiguous_strides(grad_input), with_contiguous_strides(grad_weight),
          with_contiguous_strides(grad_bias)};
}

Conv1dGradients conv1d_backward_meta(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                     SymInt stride, SymIntArrayRef padding, SymInt dilation,
                                     SymInt groups, Mask wanted) {
  check_conv1d_backward(grad, input, weight, stride, padding, dilation, groups);
  const auto empty = [&](SymIntArrayRef sizes) { return at::empty_symint(sizes, input.options()); };
  return {wanted[0] ? empty(input.sym_sizes()) : no_gradient(input),
          wanted[1] ? empty(weight.sym_sizes()) : no_gradient(input),
          wanted[2] ? empty(weight.sym_size(0)) : no_gradient(input)};
}

/// Each gradient is linear in two of grad, input and weight, so the gradients of the gradients are
/// convolutions and their gradients again.
struct Conv1dBackwardFunction : torch::autograd::Function<Conv1dBackwardFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const Tensor& grad, const Tensor& input,
                               const Tensor& weight, const SymInt& stride, SymIntArrayRef padding,
                               const SymInt& dilation, const SymInt& groups, const Mask& wanted) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [grad_input, grad_weight, grad_bias] =
        conv1d_backward_op().call(grad, input, weight, stride, padding, dilation, groups, wanted);
    variable_list result{grad_input, grad_weight, grad_bias};
    variable_list constant;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (!wanted[i]) constant.push_back(result[i]);
    }
    ctx->mark_non_differentiable(constant);
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({grad, input, weight});
    Conv1dNumbers{stride, {padding[0], padding[1]}, dilation, groups}.save(ctx);
    return result;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor& grad = saved[0];
    const Tensor& input = saved[1];
    const Tensor& weight = saved[2];
    const Conv1dNumbers n = Conv1dNumbers::saved(ctx);
    const auto convolve = [&](const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias) {
      return conv1d_op().call(x, w, bias, n.stride, n.padding, n.dilation, n.groups);
    };
    const auto gradients = [&](const Tensor& x, const Tensor& w, const Mask& mask) {
      return conv1d_backward_op().call(grad, x, w, n.stride, n.padding, n.dilation, n.groups, mask);
    };
    const Tensor& for_input = grads[0];
    const Tensor& for_weight = grads[1];
    const Tensor& for_bias = grads[2];

    variable_list result(8);
    if (ctx->needs_input_grad(0)) {
      const auto bias = for_bias.defined() ? std::optional(for_bias) : std::nullopt;
      if (for_input.defined()) result[0] = convolve(for_input, weight, bias);
      if (for_weight.defined()) {
        const Tensor more = convolve(input, for_weight, result[0].defined() ? std::nullopt : bias);
        result[0] = result[0].defined() ? result[0] + more : more;
      }
      if (!result[0].defined() && bias) {
        // Where the input has no channels, grad has none either.
        const Tensor channels = at::slice_symint(for_bias, 0, 0, grad.sym_size(1));
        result[0] = channels.unsqueeze(1).expand_symint(grad.sym_sizes());
      }
    }
    if (ctx->needs_input_grad(1) && for_weight.defined()) {
      result[1] = std::get<0>(gradients(input, for_weight, {true, false, false}));
    }
    if (ctx->needs_input_grad(2) && for_input.defined()) {
      result[2] = std::get<1>(gradients(for_input, weight, {false, true, false}));
    }
    return result;
  }
};

/// The Function with the op's own return type.
struct Conv1dBackwardApply {
  template <class... Arguments>
  static Conv1dGradients apply(const Arguments&... arguments) {
    const variable_list result = Conv1dBackwardFunction::apply(arguments...);
    return {result[0], result[1], result[2]};
  }
};

Conv1dGradients conv1d_backward_autograd(c10::DispatchKeySet keys, const Tensor& grad,
                                         const Tensor& input, const Tensor& weight, SymInt stride,
                                         SymIntArrayRef padding, SymInt dilation, SymInt groups,
                                         Mask wanted) {
  return differentiable<Conv1dBackwardApply>(keys, conv1d_backward_op(), conv1d_backward_composite,
                                             grad, input, weight, stride, padding, dilation, groups,
                                             wanted);
}

PlanReport plan_of_conv1d_backward(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& grad = arguments.tensor("_conv1d_backward", 0);
  const Tensor& input = arguments.tensor("_conv1d_backward", 1);
  const Tensor& weight = arguments.tensor("_conv1d_backward", 2);
  const auto& n = arguments.integers;
  TORCH_CHECK(n.size() == 8, "_conv1d_backward: the plan has ", n.size(),
              " integers; stride, left, right, dilation, groups and the mask are accepted");
  const SymInt length =
      check_conv1d_backward(grad, input, weight, n[0], Sides{n[1], n[2]}, n[3], n[4]);
  check_floating_on_cuda("_conv1d_backward", "input", input);
  const Mask wanted{n[5] != 0, n[6] != 0, n[7] != 0};
  if (wanted == Mask{}) return {.kernel = "none", .reason = "no gradient is wanted"};
  if (input.size(1) == 0) {
    return {.kernel = "none", .reason = "without channels the gradients are empty or zero"};
  }
  return plan_conv1d_backward(conv1d_problem(input, weight, length.expect_int(), n[0], n[1], n[3],
                                             n[4], /*bias=*/false),
                              wanted, device)
      .report();
}

const PlanRegistration kPlan("_conv1d_backward", plan_of_conv1d_backward);

}  // namespace

SymInt check_conv1d_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                             const SymInt& stride, SymIntArrayRef padding, const SymInt& dilation,
                             const SymInt& groups) {
  constexpr const char* kOp = "_conv1d_backward";
  const SymInt length =
      check_conv1d(kOp, input, weight, std::nullopt, stride, padding, dilation, groups);
  check_strided(kOp, "grad", grad);
  const std::array<SymInt, 3> sizes{input.sym_size(0), conv1d_channels(input, weight), length};
  bool same = grad.dim() == 3;
  TORCH_CHECK(same, kOp, ": grad has ", grad.dim(), " dimensions; the result's 3 are accepted");
  for (int64_t d = 0; d < 3; ++d) {
    TORCH_SYM_CHECK(grad.sym_size(d).sym_eq(sizes[d]), kOp, ": grad has shape ", grad.sym_sizes(),
                    "; the result's, ", SymIntArrayRef(sizes), ", is accepted");
  }
  check_same_device(kOp, "input", input, "grad", grad);
  check_same_dtype(kOp, "input", input, "grad", grad);
  TORCH_CHECK_NOT_IMPLEMENTED(at::isFloatingType(input.scalar_type()), kOp, ": input is ",
                              input.scalar_type(), "; real floating types are supported");
  return length;
}

TORCH_LIBRARY_IMPL(memops, CPU, m) { m.impl("_conv1d_backward", conv1d_backward_cpu); }
TORCH_LIBRARY_IMPL(memops, Meta, m) { m.impl("_conv1d_backward", conv1d_backward_meta); }
TORCH_LIBRARY_IMPL(memops, Autograd, m) { m.impl("_conv1d_backward", conv1d_backward_autograd); }
TORCH_LIBRARY_IMPL(memops, FuncTorchBatchedDecomposition, m) {
  m.impl("_conv1d_backward", conv1d_backward_composite);
}

}  // namespace memops
