// conv1d_constant and _conv1d_constant: checks, CPU, Meta, Autograd, Autocast and the composites.
#include <algorithm>

#include "common/torch/autocast.h"
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
using Taps = at::ArrayRef<double>;

constexpr const char* kOp = "conv1d_constant";

const auto& conv1d_constant_op() {
  static const auto op =
      find_op<Tensor(const Tensor&, SymIntArrayRef, Taps)>("memops::_conv1d_constant");
  return op;
}

/// The taps as a tensor [1, 1, K] of the type that sums are kept in.
Tensor taps_like(const Tensor& input, Taps taps) {
  Tensor values;
  {
    // Memory that is written here must be real, also under FakeTensor and functorch; lift_fresh
    // then hands it to them.
    const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::DispatchKeySet(
        {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot,
         c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
         c10::DispatchKey::FuncTorchDynamicLayerBackMode, c10::DispatchKey::Functionalize}));
    values = at::empty({1, 1, static_cast<int64_t>(taps.size())}, at::kDouble);
    std::copy(taps.begin(), taps.end(), values.mutable_data_ptr<double>());
  }
  const auto type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::lift_fresh(values).to(input.options().dtype(type));
}

Tensor conv1d_constant_composite(const Tensor& input, SymIntArrayRef padding, Taps taps) {
  const SymInt length = check_conv1d_constant(input, padding, taps);
  c10::SymDimVector sizes(input.sym_sizes());
  const SymInt rows = c10::multiply_integers(sizes.begin(), sizes.end() - 1);
  const Tensor weight = taps_like(input, taps);
  const Tensor lines = input.reshape_symint({rows, 1, input.sym_size(-1)}).to(weight.scalar_type());
  const Tensor padded = at::constant_pad_nd_symint(lines, padding, 0);
  const bool empty = TORCH_GUARD_OR_FALSE(length.sym_eq(0));
  const Tensor result = empty ? at::slice(padded, 2, 0, 0) : at::conv1d(padded, weight);
  sizes.back() = length;
  return result.reshape_symint(sizes).to(input.scalar_type());
}

Tensor conv1d_constant_cpu(const Tensor& input, SymIntArrayRef padding, Taps taps) {
  return with_contiguous_strides(conv1d_constant_composite(input, padding, taps));
}

Tensor conv1d_constant_meta(const Tensor& input, SymIntArrayRef padding, Taps taps) {
  const SymInt length = check_conv1d_constant(input, padding, taps);
  c10::SymDimVector sizes(input.sym_sizes());
  sizes.back() = length;
  return at::empty_symint(sizes, input.options());
}

/// Linear in the input, so the gradient is the reversed filter and its own gradient this one.
struct Conv1dConstantFunction : torch::autograd::Function<Conv1dConstantFunction> {
  static constexpr bool is_traceable = true;

  static Tensor forward(AutogradContext* ctx, const Tensor& input, SymIntArrayRef padding,
                        Taps taps) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    ctx->saved_data["left"] = padding[0];
    ctx->saved_data["right"] = padding[1];
    ctx->saved_data["taps"] = taps.vec();
    return conv1d_constant_op().call(input, padding, taps);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    variable_list result(3);
    if (!grads[0].defined()) return result;
    std::vector<double> taps = ctx->saved_data["taps"].toDoubleVector();
    std::reverse(taps.begin(), taps.end());
    const SymInt reach = static_cast<int64_t>(taps.size()) - 1;
    const Sides padding{reach - ctx->saved_data["left"].toSymInt(),
                        reach - ctx->saved_data["right"].toSymInt()};
    result[0] = conv1d_constant_op().call(grads[0], padding, taps);
    return result;
  }
};

Tensor conv1d_constant_autograd(c10::DispatchKeySet keys, const Tensor& input,
                                SymIntArrayRef padding, Taps taps) {
  return differentiable<Conv1dConstantFunction>(keys, conv1d_constant_op(),
                                                conv1d_constant_composite, input, padding, taps);
}

template <c10::DeviceType kDevice>
Tensor conv1d_constant_autocast(const Tensor& input, SymIntArrayRef padding, Taps taps) {
  return autocast<kDevice>(conv1d_constant_op(), input, padding, taps);
}

Tensor conv1d_constant(const Tensor& input, Taps taps, SymIntArrayRef padding) {
  const Sides sides = both_sides(kOp, padding);
  for (const SymInt& side : sides) {
    TORCH_SYM_CHECK(side.sym_ge(0), kOp, ": padding is ", padding, "; numbers from 0 are accepted");
  }
  TORCH_SYM_CHECK(check_conv1d_constant(input, sides, taps).sym_ge(1), kOp, ": ", taps.size(),
                  " taps are wider than the padded input, which has ",
                  padded_length(kOp, input.sym_size(-1), sides), " positions");
  return conv1d_constant_op().call(input, sides, taps);
}

PlanReport plan_of_conv1d_constant(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& input = arguments.tensor(kOp, 0);
  const auto& n = arguments.integers;
  TORCH_CHECK(n.size() == 2, kOp, ": the plan has ", n.size(),
              " integers; left and right are accepted");
  const int64_t length =
      check_conv1d_constant(input, Sides{n[0], n[1]}, arguments.floats).expect_int();
  const bool rows = c10::multiply_integers(input.sizes().slice(0, input.dim() - 1)) != 0;
  if (!rows || length == 0) return {.kernel = "none", .reason = "the result is empty"};
  const auto taps = static_cast<int64_t>(arguments.floats.size());
  return plan_conv1d_constant(conv1d_constant_problem(input, length, taps), device).report();
}

const PlanRegistration kPlans[] = {{"conv1d_constant", plan_of_conv1d_constant},
                                   {"_conv1d_constant", plan_of_conv1d_constant}};

}  // namespace

SymInt check_conv1d_constant(const Tensor& input, SymIntArrayRef padding, Taps taps) {
  TORCH_CHECK(!taps.empty(), kOp, ": taps is empty; at least one is accepted");
  TORCH_CHECK(padding.size() == 2, kOp, ": padding has ", padding.size(),
              " entries; left and right are accepted");
  check_strided(kOp, "input", input);
  TORCH_CHECK(input.dim() >= 1, kOp, ": input has 0 dimensions; [..., L] is accepted");
  TORCH_CHECK_NOT_IMPLEMENTED(float_type(input).has_value(), kOp, ": input is ",
                              input.scalar_type(),
                              "; float16, bfloat16, float32 and float64 are supported");
  const SymInt length = input.sym_size(-1);
  const Sides left_out{padding[0].min(0), padding[1].min(0)};
  TORCH_SYM_CHECK(padded_length(kOp, length, left_out).sym_ge(0), kOp, ": padding ", padding,
                  " leaves out more than the ", length, " positions of the input");
  const SymInt padded = padded_length(kOp, length, padding);
  const SymInt results = padded - static_cast<int64_t>(taps.size()) + 1;
  TORCH_SYM_CHECK(results.sym_ge(0), kOp, ": ", taps.size(),
                  " taps are wider than the padded input, which has ", padded, " positions");
  return results;
}

TORCH_LIBRARY_IMPL(memops, CPU, m) { m.impl("_conv1d_constant", conv1d_constant_cpu); }
TORCH_LIBRARY_IMPL(memops, Meta, m) { m.impl("_conv1d_constant", conv1d_constant_meta); }
TORCH_LIBRARY_IMPL(memops, Autograd, m) { m.impl("_conv1d_constant", conv1d_constant_autograd); }
TORCH_LIBRARY_IMPL(memops, AutocastCPU, m) {
  m.impl("_conv1d_constant", conv1d_constant_autocast<at::kCPU>);
}
TORCH_LIBRARY_IMPL(memops, AutocastCUDA, m) {
  m.impl("_conv1d_constant", conv1d_constant_autocast<at::kCUDA>);
}
TORCH_LIBRARY_IMPL(memops, CompositeImplicitAutograd, m) {
  m.impl("conv1d_constant", conv1d_constant);
}
TORCH_LIBRARY_IMPL(memops, FuncTorchBatchedDecomposition, m) {
  m.impl("conv1d_constant", conv1d_constant);
  m.impl("_conv1d_constant", conv1d_constant_composite);
}

}  // namespace memops
