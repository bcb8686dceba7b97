// causal_conv1d: checks, CPU, Meta, Autograd, Autocast, the front and the plans.
#include "causal_conv1d/op.h"

#include "causal_conv1d/plan_op.h"
#include "common/torch/autocast.h"
#include "common/torch/autograd.h"
#include "common/torch/plan_op.h"

namespace memops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using CausalResults = std::tuple<Tensor, Tensor>;
using CausalSignature = CausalResults(const Tensor&, const Tensor&, const OptionalTensor&,
                                      const OptionalTensor&, const OptionalTensor&, int64_t,
                                      int64_t);
using CausalBackwardSignature = CausalGradients(const Tensor&, const OptionalTensor&, const Tensor&,
                                                const Tensor&, const OptionalTensor&,
                                                const OptionalTensor&, const OptionalTensor&,
                                                int64_t, std::array<bool, 4>);

constexpr const char* kOp = "causal_conv1d";

const auto& causal_op() {
  static const auto op = find_op<CausalSignature>("memops::_causal_conv1d");
  return op;
}

const auto& causal_backward_op() {
  static const auto op = find_op<CausalBackwardSignature>("memops::_causal_conv1d_backward");
  return op;
}

CausalResults causal_meta(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                          const OptionalTensor& initial_state, const OptionalTensor& seq_idx,
                          int64_t, int64_t final_state) {
  check_causal(x, weight, bias, initial_state, seq_idx);
  return empty_causal(x, weight, final_state != 0);
}

CausalResults causal_cpu(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                         const OptionalTensor& initial_state, const OptionalTensor& seq_idx,
                         int64_t silu, int64_t final_state) {
  auto [y, state] = causal_composite(x, weight, bias, initial_state, seq_idx, silu, final_state);
  return {empty_in_layout_of(x).copy_(y), state};
}

CausalGradients causal_backward_meta(const Tensor& grad, const OptionalTensor& grad_final_state,
                                     const Tensor& x, const Tensor& weight,
                                     const OptionalTensor& bias,
                                     const OptionalTensor& initial_state,
                                     const OptionalTensor& seq_idx, int64_t,
                                     std::array<bool, 4> output_mask) {
  check_causal(x, weight, bias, initial_state, seq_idx);
  check_causal_gradients(grad, grad_final_state, x, weight);
  return empty_causal_gradients(x, weight, output_mask);
}

CausalGradients causal_backward_cpu(const Tensor& grad, const OptionalTensor& grad_final_state,
                                    const Tensor& x, const Tensor& weight,
                                    const OptionalTensor& bias, const OptionalTensor& initial_state,
                                    const OptionalTensor& seq_idx, int64_t silu,
                                    std::array<bool, 4> output_mask) {
  const CausalGradients computed = causal_backward_composite(
      grad, grad_final_state, x, weight, bias, initial_state, seq_idx, silu, output_mask);
  CausalGradients out = empty_causal_gradients(x, weight, output_mask);
  std::get<0>(out).copy_(std::get<0>(computed));
  std::get<1>(out).copy_(std::get<1>(computed));
  std::get<2>(out).copy_(std::get<2>(computed));
  std::get<3>(out).copy_(std::get<3>(computed));
  return out;
}

struct CausalFunction : torch::autograd::Function<CausalFunction> {
  static constexpr bool is_traceable = true;

  static variable_list forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                               const OptionalTensor& bias, const OptionalTensor& initial_state,
                               const OptionalTensor& seq_idx, int64_t silu, int64_t final_state) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    const auto [y, state] =
        causal_op().call(x, weight, bias, initial_state, seq_idx, silu, final_state);
    // The bias is read again for silu's derivative only.
    const Tensor read_bias = silu != 0 ? bias.value_or(Tensor()) : Tensor();
    ctx->save_for_backward(
        {x, weight, read_bias, initial_state.value_or(Tensor()), seq_idx.value_or(Tensor())});
    ctx->saved_data["silu"] = silu;
    ctx->saved_data["has_bias"] = bias.has_value();
    ctx->set_materialize_grads(false);
    if (final_state == 0) ctx->mark_non_differentiable({state});
    return {y, state};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto optional = [](const Tensor& tensor) {
      return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
    };
    const Tensor& x = saved[0];
    const bool has_bias = ctx->saved_data["has_bias"].toBool();
    const bool has_state = saved[3].defined();
    // needs_input_grad counts the tensors that were given.
    const std::array<bool, 4> wanted = {ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                                        has_bias && ctx->needs_input_grad(2),
                                        has_state && ctx->needs_input_grad(has_bias ? 3 : 2)};
    variable_list out(7);
    if (!grads[0].defined() && !grads[1].defined()) return out;
    const Tensor grad =
        grads[0].defined() ? grads[0] : at::zeros_symint(x.sym_sizes(), x.options());
    const auto [dx, dweight, dbias, dstate] = causal_backward_op().call(
        grad, optional(grads[1]), x, saved[1], optional(saved[2]), optional(saved[3]),
        optional(saved[4]), ctx->saved_data["silu"].toInt(), wanted);
    if (wanted[0]) out[0] = dx;
    if (wanted[1]) out[1] = dweight;
    if (wanted[2]) out[2] = dbias;
    if (wanted[3]) out[3] = dstate;
    return out;
  }
};

struct CausalAutograd {
  template <class... Arguments>
  static CausalResults apply(const Arguments&... arguments) {
    const variable_list results = CausalFunction::apply(arguments...);
    return {results[0], results[1]};
  }
};

CausalResults causal_autograd(c10::DispatchKeySet keys, const Tensor& x, const Tensor& weight,
                              const OptionalTensor& bias, const OptionalTensor& initial_state,
                              const OptionalTensor& seq_idx, int64_t silu, int64_t final_state) {
  return differentiable<CausalAutograd>(keys, causal_op(), causal_composite, x, weight, bias,
                                        initial_state, seq_idx, silu, final_state);
}

/// Its own gradient is that of the composite.
struct CausalBackwardAutograd {
  template <class... Arguments>
  static CausalGradients apply(const Arguments&... arguments) {
    return causal_backward_composite(arguments...);
  }
};

CausalGradients causal_backward_autograd(c10::DispatchKeySet keys, const Tensor& grad,
                                         const OptionalTensor& grad_final_state, const Tensor& x,
                                         const Tensor& weight, const OptionalTensor& bias,
                                         const OptionalTensor& initial_state,
                                         const OptionalTensor& seq_idx, int64_t silu,
                                         std::array<bool, 4> output_mask) {
  return differentiable<CausalBackwardAutograd>(
      keys, causal_backward_op(), causal_backward_composite, grad, grad_final_state, x, weight,
      bias, initial_state, seq_idx, silu, output_mask);
}

template <c10::DeviceType kDevice>
CausalResults causal_autocast(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                              const OptionalTensor& initial_state, const OptionalTensor& seq_idx,
                              int64_t silu, int64_t final_state) {
  return autocast<kDevice>(causal_op(), x, weight, bias, initial_state, seq_idx, silu, final_state);
}

CausalResults causal_conv1d(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                            const OptionalTensor& initial_state, const OptionalTensor& seq_idx,
                            bool silu, bool final_state) {
  return causal_op().call(x, weight, bias, initial_state, seq_idx, silu ? 1 : 0,
                          final_state ? 1 : 0);
}

PlanReport nothing_to_compute() { return {.kernel = "none", .reason = "nothing to compute"}; }

PlanReport plan_of_causal(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& x = arguments.tensor(kOp, 0);
  const Tensor& weight = arguments.tensor(kOp, 1);
  const auto& t = arguments.tensors;
  check_causal(x, weight, t.at(2), t.at(3), t.at(4));
  const bool final_state = arguments.integers.at(1) != 0;
  if (x.numel() == 0 && !final_state) return nothing_to_compute();
  return plan_causal(causal_problem(x, weight, t.at(2), t.at(3), t.at(4),
                                    arguments.integers.at(0) != 0, final_state),
                     device)
      .report();
}

PlanReport plan_of_causal_backward(const PlanArguments& arguments, const DeviceFacts& device) {
  constexpr const char* op = "_causal_conv1d_backward";
  const Tensor& x = arguments.tensor(op, 2);
  const Tensor& weight = arguments.tensor(op, 3);
  const auto& t = arguments.tensors;
  const auto& n = arguments.integers;
  check_causal(x, weight, t.at(4), t.at(5), t.at(6));
  check_causal_gradients(arguments.tensor(op, 0), t.at(1), x, weight);
  if (x.numel() == 0) return nothing_to_compute();
  const CausalBackwardProblem problem{
      causal_problem(x, weight, t.at(4), t.at(5), t.at(6), n.at(0) != 0, false),
      {n.at(1) != 0, n.at(2) != 0, n.at(3) != 0, n.at(4) != 0}};
  return plan_causal_backward(problem, device).report();
}

const PlanRegistration kPlans[] = {{"causal_conv1d", plan_of_causal},
                                   {"_causal_conv1d", plan_of_causal},
                                   {"_causal_conv1d_backward", plan_of_causal_backward}};

}  // namespace

TORCH_LIBRARY_IMPL(memops, CPU, m) {
  m.impl("_causal_conv1d", causal_cpu);
  m.impl("_causal_conv1d_backward", causal_backward_cpu);
}

TORCH_LIBRARY_IMPL(memops, Meta, m) {
  m.impl("_causal_conv1d", causal_meta);
  m.impl("_causal_conv1d_backward", causal_backward_meta);
}

TORCH_LIBRARY_IMPL(memops, Autograd, m) {
  m.impl("_causal_conv1d", causal_autograd);
  m.impl("_causal_conv1d_backward", causal_backward_autograd);
}

TORCH_LIBRARY_IMPL(memops, AutocastCPU, m) { m.impl("_causal_conv1d", causal_autocast<at::kCPU>); }

TORCH_LIBRARY_IMPL(memops, AutocastCUDA, m) {
  m.impl("_causal_conv1d", causal_autocast<at::kCUDA>);
}

TORCH_LIBRARY_IMPL(memops, CompositeImplicitAutograd, m) { m.impl("causal_conv1d", causal_conv1d); }

TORCH_LIBRARY_IMPL(memops, FuncTorchBatchedDecomposition, m) {
  m.impl("causal_conv1d", causal_conv1d);
  m.impl("_causal_conv1d", causal_composite);
  m.impl("_causal_conv1d_backward", causal_backward_composite);
}

}  // namespace memops
