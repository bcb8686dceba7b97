// matmul and linear: composite fronts over the cores.
#include <ATen/TensorUtils.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <utility>

#include "common/torch/checks.h"
#include "common/torch/plan_op.h"
#include "matmul/op.h"

namespace memops {
namespace {

using at::Tensor;

constexpr MatmulNames kMatmul{"matmul", "a", "b", ""};
constexpr MatmulNames kLinear{"linear", "input", "weight", "bias"};

/// A front's arguments in the form that the cores take.
struct CoreCall {
  std::optional<Tensor> bias;
  Tensor a;
  Tensor b;
  c10::SymDimVector shape;  // of the front's result
  bool reshaped;            // the core's result has another
};

/// Whether autocast will bring the dtypes together below the front.
bool autocast_is_on(const Tensor& tensor) {
  return (tensor.is_cpu() || tensor.is_cuda()) &&
         at::autocast::is_autocast_enabled(tensor.device().type());
}

void check_arguments(const MatmulNames& names, const Tensor& a, const Tensor& b,
                     const std::optional<Tensor>& bias) {
  check_strided(names.op, names.a, a);
  check_strided(names.op, names.b, b);
  if (bias) check_strided(names.op, names.bias, *bias);
  TORCH_CHECK(a.dim() >= 1 && b.dim() >= 1, names.op, ": ", names.a, " and ", names.b,
              " need to be at least 1D; they are ", a.dim(), "D and ", b.dim(), "D");
  if (!autocast_is_on(a)) check_matmul_types(names, a, b, bias);
}

void check_inner_sizes(const MatmulNames& names, const Tensor& a, const c10::SymInt& a_size,
                       const Tensor& b, const c10::SymInt& b_size) {
  TORCH_SYM_CHECK(a_size.sym_eq(b_size), names.op, ": ", names.a, " of shape ", a.sym_sizes(),
                  " and ", names.b, " of shape ", b.sym_sizes(), " do not fit: sums over ", a_size,
                  " and ", b_size, " elements");
}

/// [..., M, K] as [rows, K] where that is a view.
std::optional<Tensor> fold(const Tensor& matrices) {
  c10::SymInt rows = 1;
  for (int64_t d = 0; d < matrices.dim() - 1; ++d) rows *= matrices.sym_size(d);
  const c10::SymInt columns = matrices.sym_size(-1);
  if (matrices.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) {
    if (!TORCH_GUARD_OR_FALSE(matrices.sym_is_contiguous())) return std::nullopt;
  } else {
    const at::DimVector shape{rows.expect_int(), columns.expect_int()};
    if (!at::detail::computeStride(matrices.sizes(), matrices.strides(), shape)) {
      return std::nullopt;
    }
  }
  return matrices.view_symint({rows, columns});
}

/// The batch dimensions of [..., M, K] and [..., K, N], broadcast.
c10::SymDimVector broadcast_batches(const Tensor& a, const Tensor& b) {
  const int64_t dimensions = std::max(a.dim(), b.dim()) - 2;
  const auto size = [&](const Tensor& t, int64_t d) -> c10::SymInt {
    const int64_t own = d - (dimensions - (t.dim() - 2));
    return own < 0 ? c10::SymInt(1) : t.sym_size(own);
  };
  c10::SymDimVector batch;
  for (int64_t d = 0; d < dimensions; ++d) {
    const c10::SymInt from_a = size(a, d);
    const c10::SymInt from_b = size(b, d);
    if (TORCH_GUARD_OR_FALSE(from_a.sym_eq(1))) {
      batch.push_back(from_b);
    } else if (TORCH_GUARD_OR_FALSE(from_b.sym_eq(1))) {
      batch.push_back(from_a);
    } else {
      TORCH_SYM_CHECK(from_a.sym_eq(from_b), "matmul: the batch dimensions of a of shape ",
                      a.sym_sizes(), " and b of shape ", b.sym_sizes(), " do not broadcast");
      batch.push_back(from_a);
    }
  }
  return batch;
}

/// A view of matrices [..., R, C] with these batch dimensions.
Tensor expand_batches(const Tensor& matrices, const c10::SymDimVector& batch) {
  c10::SymDimVector shape = batch;
  shape.push_back(matrices.sym_size(-2));
  shape.push_back(matrices.sym_size(-1));
  bool unchanged = static_cast<int64_t>(shape.size()) == matrices.dim();
  for (int64_t d = 0; unchanged && d < matrices.dim() - 2; ++d) {
    const auto have = matrices.sym_size(d).maybe_as_int();
    unchanged = have.has_value() && have == shape[static_cast<std::size_t>(d)].maybe_as_int();
  }
  return unchanged ? matrices : matrices.expand_symint(shape);
}

/// a[..., M, K] @ b[..., K, N] with batch dimensions that broadcast. A product by one matrix is a
/// product of two matrices where `a` folds and the bias does not differ from row to row.
CoreCall lower(const std::optional<Tensor>& bias, const Tensor& a, const Tensor& b) {
  if (a.dim() == 2 && b.dim() == 2) {
    return {bias, a, b, {a.sym_size(0), b.sym_size(1)}, false};
  }
  c10::SymDimVector batch = broadcast_batches(a, b);
  c10::SymDimVector shape = batch;
  shape.push_back(a.sym_size(-2));
  shape.push_back(b.sym_size(-1));
  if (b.dim() == 2 && (!bias || bias->dim() <= 1)) {
    if (std::optional<Tensor> rows = fold(a)) {
      return {bias, *std::move(rows), b, std::move(shape), true};
    }
  }
  if (a.dim() == 2 || b.dim() == 2) return {bias, a, b, std::move(shape), false};
  return {bias, expand_batches(a, batch), expand_batches(b, batch), std::move(shape), false};
}

CoreCall lower_matmul(const Tensor& a, const Tensor& b) {
  check_arguments(kMatmul, a, b, std::nullopt);
  check_inner_sizes(kMatmul, a, a.sym_size(-1), b, b.sym_size(b.dim() == 1 ? 0 : -2));
  CoreCall call =
      lower(std::nullopt, a.dim() == 1 ? a.unsqueeze(0) : a, b.dim() == 1 ? b.unsqueeze(1) : b);
  // A vector has no dimension in the result.
  if (a.dim() == 1) call.shape.erase(call.shape.end() - 2);
  if (b.dim() == 1) call.shape.pop_back();
  call.reshaped |= a.dim() == 1 || b.dim() == 1;
  return call;
}

CoreCall lower_linear(const Tensor& input, const Tensor& weight,
                      const std::optional<Tensor>& bias) {
  check_arguments(kLinear, input, weight, bias);
  TORCH_CHECK(weight.dim() <= 2, "linear: weight has ", weight.dim(),
              " dimensions; [out_features, in_features] or [in_features] is accepted");
  check_inner_sizes(kLinear, input, input.sym_size(-1), weight, weight.sym_size(-1));
  const bool one_output = weight.dim() == 1;
  c10::SymDimVector shape(input.sym_sizes());
  shape.pop_back();
  if (!one_output) shape.push_back(weight.sym_size(0));
  if (bias) {
    // As in F.linear, a single row of input takes a bias with a row dimension too.
    const bool row = input.dim() == 1 && !one_output;
    check_bias("linear", *bias, row ? c10::SymDimVector{1, shape[0]} : shape);
  }
  CoreCall call = lower(bias && one_output ? bias->unsqueeze(-1) : bias,
                        input.dim() == 1 ? input.unsqueeze(0) : input,
                        one_output ? weight.unsqueeze(1) : weight.t());
  call.shape = std::move(shape);
  call.reshaped |= input.dim() == 1 || one_output;
  return call;
}

Tensor run(const CoreCall& call) {
  Tensor out = call_matmul(call.bias, call.a, call.b);
  // Not view(): a module whose result is a view cannot be followed by an in-place op under FSDP2.
  return call.reshaped ? at::_unsafe_view_symint(out, call.shape) : out;
}

Tensor matmul(const Tensor& a, const Tensor& b) { return run(lower_matmul(a, b)); }

Tensor linear(const Tensor& input, const Tensor& weight, const std::optional<Tensor>& bias) {
  return run(lower_linear(input, weight, bias));
}

PlanReport plan_call(const MatmulNames& names, const CoreCall& call, const DeviceFacts& device) {
  return report_matmul(names, call.bias, call.a, call.b, device);
}

PlanReport plan_of_matmul(const PlanArguments& arguments, const DeviceFacts& device) {
  return plan_call(
      kMatmul, lower_matmul(arguments.tensor("matmul", 0), arguments.tensor("matmul", 1)), device);
}

PlanReport plan_of_linear(const PlanArguments& arguments, const DeviceFacts& device) {
  const std::optional<Tensor> bias =
      arguments.tensors.size() > 2 ? arguments.tensors[2] : std::nullopt;
  return plan_call(kLinear,
                   lower_linear(arguments.tensor("linear", 0), arguments.tensor("linear", 1), bias),
                   device);
}

const PlanRegistration kPlans[] = {{"matmul", plan_of_matmul}, {"linear", plan_of_linear}};

}  // namespace

TORCH_LIBRARY_IMPL(memops, CompositeImplicitAutograd, m) {
  m.impl("matmul", matmul);
  m.impl("linear", linear);
}

TORCH_LIBRARY_IMPL(memops, FuncTorchBatchedDecomposition, m) {
  m.impl("matmul", matmul);
  m.impl("linear", linear);
}

}  // namespace memops
