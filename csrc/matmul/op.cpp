// The matrix product's cores, _mm, _bmm and _addmm: checks, CPU, Meta, Autograd, Autocast and the
// composites. The fronts are in front_op.cpp.
#include "matmul/op.h"

#include <algorithm>
#include <string>

#include "common/torch/autocast.h"
#include "common/torch/autograd.h"
#include "common/torch/checks.h"
#include "common/torch/plan_op.h"
#include "matmul/plan_op.h"

namespace memops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr MatmulNames kMatmul{"matmul", "a", "b", "bias"};
constexpr MatmulNames kLinear{"linear", "a", "b", "bias"};

/// Dimensions and sizes of [..., M, K] and [..., K, N]: equal batch dimensions, or none on one
/// side.
void check_shapes(const MatmulNames& names, const Tensor& a, const Tensor& b) {
  TORCH_CHECK(a.dim() == b.dim() || a.dim() == 2 || b.dim() == 2, names.op, ": ", names.a, " has ",
              a.dim(), " dimensions and ", names.b, " ", b.dim(),
              "; as many, or two in one of them, are accepted");
  const int64_t batch_dimensions = std::min(a.dim(), b.dim()) - 2;
  for (int64_t d = 0; d < batch_dimensions; ++d) {
    TORCH_SYM_CHECK(a.sym_size(d).sym_eq(b.sym_size(d)), names.op, ": ", names.a, " of shape ",
                    a.sym_sizes(), " and ", names.b, " of shape ", b.sym_sizes(),
                    " differ in batch dimension ", d);
  }
  TORCH_SYM_CHECK(a.sym_size(-1).sym_eq(b.sym_size(-2)), names.op, ": ", names.a, " of shape ",
                  a.sym_sizes(), " and ", names.b, " of shape ", b.sym_sizes(),
                  " do not fit: ", a.sym_size(-1), " columns and ", b.sym_size(-2), " rows");
}

Tensor empty_product(const Tensor& a, const Tensor& b) {
  return at::empty_symint(product_shape(a, b), a.options().memory_format(std::nullopt));
}

const auto& mm_op() {
  static const auto op = find_op<Tensor(const Tensor&, const Tensor&)>("memops::_mm");
  return op;
}

const auto& bmm_op() {
  static const auto op = find_op<Tensor(const Tensor&, const Tensor&)>("memops::_bmm");
  return op;
}

const auto& addmm_op() {
  static const auto op =
      find_op<Tensor(const Tensor&, const Tensor&, const Tensor&)>("memops::_addmm");
  return op;
}

Tensor mm_composite(const Tensor& a, const Tensor& b) {
  check_mm(a, b);
  return at::mm(a, b);
}

Tensor bmm_composite(const Tensor& a, const Tensor& b) {
  check_bmm(a, b);
  return at::matmul(a, b);
}

Tensor addmm_composite(const Tensor& bias, const Tensor& a, const Tensor& b) {
  check_addmm(bias, a, b);
  if (a.dim() == 2 && b.dim() == 2) return at::addmm(bias, a, b);
  // ATen has no N-D product that adds the bias before it rounds.
  const at::ScalarType type = a.scalar_type();
  const at::ScalarType wide = at::isReducedFloatingType(type) ? at::kFloat : type;
  return at::add(at::matmul(a.to(wide), b.to(wide)), bias.to(wide)).to(type);
}

Tensor mm_meta(const Tensor& a, const Tensor& b) {
  check_mm(a, b);
  return empty_product(a, b);
}

Tensor bmm_meta(const Tensor& a, const Tensor& b) {
  check_bmm(a, b);
  return empty_product(a, b);
}

Tensor addmm_meta(const Tensor& bias, const Tensor& a, const Tensor& b) {
  check_addmm(bias, a, b);
  return empty_product(a, b);
}

/// [..., R, C] as [rows, C]; a copy where no view will do.
Tensor rows(const Tensor& matrices) {
  c10::SymInt count = 1;
  for (int64_t d = 0; d < matrices.dim() - 1; ++d) count *= matrices.sym_size(d);
  return matrices.reshape_symint({count, matrices.sym_size(-1)});
}

// An operand is saved only where the other one's gradient is wanted. A matrix that the whole batch
// shares gets its gradient as one product over the batch, not as a sum of rounded products for
// which the batch would have to be held in memory.
void save_operands(AutogradContext* context, const Tensor& a, const Tensor& b) {
  context->save_for_backward({b.requires_grad() ? a : Tensor(), a.requires_grad() ? b : Tensor()});
  context->saved_data["a_dim"] = a.dim();
  context->saved_data["b_dim"] = b.dim();
}

Tensor gradient_of_a(const Tensor& grad, const Tensor& b, int64_t a_dim) {
  if (a_dim == grad.dim()) return call_matmul(std::nullopt, grad, b.mT().conj());
  return call_matmul(std::nullopt, rows(grad.mT()).mT(), rows(b.mT()).conj());
}

Tensor gradient_of_b(const Tensor& grad, const Tensor& a, int64_t b_dim) {
  if (b_dim == grad.dim()) return call_matmul(std::nullopt, a.mT().conj(), grad);
  return call_matmul(std::nullopt, rows(a).mT().conj(), rows(grad));
}

/// The gradients of the operands, of which the first is input `first` of the function.
void set_operand_gradients(AutogradContext* context, const Tensor& grad, std::size_t first,
                           variable_list& results) {
  const variable_list saved = context->get_saved_variables();
  if (context->needs_input_grad(first)) {
    results[first] = gradient_of_a(grad, saved[1], context->saved_data["a_dim"].toInt());
  }
  if (context->needs_input_grad(first + 1)) {
    results[first + 1] = gradient_of_b(grad, saved[0], context->saved_data["b_dim"].toInt());
  }
}

/// `_mm` and `_bmm`.
template <const auto& (*kOp)()>
struct ProductFunction : torch::autograd::Function<ProductFunction<kOp>> {
  static constexpr bool is_traceable = true;
  static Tensor forward(AutogradContext* context, const Tensor& a, const Tensor& b) {
    save_operands(context, a, b);
    const at::AutoDispatchBelowADInplaceOrView guard;
    return kOp().call(a, b);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    variable_list results(2);
    if (!grads[0].defined()) return results;
    set_operand_gradients(context, grads[0], 0, results);
    return results;
  }
};

struct AddmmFunction : torch::autograd::Function<AddmmFunction> {
  static constexpr bool is_traceable = true;
  static Tensor forward(AutogradContext* context, const Tensor& bias, const Tensor& a,
                        const Tensor& b) {
    save_operands(context, a, b);
    context->saved_data["bias_dim"] = bias.dim();
    for (int64_t d = 0; d < bias.dim(); ++d) {
      context->saved_data["bias_" + std::to_string(d)] = bias.sym_size(d);
    }
    const at::AutoDispatchBelowADInplaceOrView guard;
    return addmm_op().call(bias, a, b);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    variable_list results(3);
    if (!grads[0].defined()) return results;
    if (context->needs_input_grad(0)) results[0] = grads[0].sum_to_size_symint(bias_shape(context));
    set_operand_gradients(context, grads[0], 1, results);
    return results;
  }

 private:
  static c10::SymDimVector bias_shape(AutogradContext* context) {
    c10::SymDimVector shape;
    const int64_t dimensions = context->saved_data["bias_dim"].toInt();
    for (int64_t d = 0; d < dimensions; ++d) {
      shape.push_back(context->saved_data["bias_" + std::to_string(d)].toSymInt());
    }
    return shape;
  }
};

Tensor mm_autograd(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  return differentiable<ProductFunction<mm_op>>(keys, mm_op(), mm_composite, a, b);
}

Tensor bmm_autograd(c10::DispatchKeySet keys, const Tensor& a, const Tensor& b) {
  return differentiable<ProductFunction<bmm_op>>(keys, bmm_op(), bmm_composite, a, b);
}

Tensor addmm_autograd(c10::DispatchKeySet keys, const Tensor& bias, const Tensor& a,
                      const Tensor& b) {
  return differentiable<AddmmFunction>(keys, addmm_op(), addmm_composite, bias, a, b);
}

template <at::DeviceType kDevice>
Tensor mm_autocast(const Tensor& a, const Tensor& b) {
  return autocast<kDevice>(mm_op(), a, b);
}

template <at::DeviceType kDevice>
Tensor bmm_autocast(const Tensor& a, const Tensor& b) {
  return autocast<kDevice>(bmm_op(), a, b);
}

template <at::DeviceType kDevice>
Tensor addmm_autocast(const Tensor& bias, const Tensor& a, const Tensor& b) {
  return autocast<kDevice>(addmm_op(), bias, a, b);
}

template <at::DeviceType kDevice>
void register_autocast(torch::Library& m) {
  m.impl("_mm", mm_autocast<kDevice>);
  m.impl("_bmm", bmm_autocast<kDevice>);
  m.impl("_addmm", addmm_autocast<kDevice>);
}

PlanReport plan_of_mm(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& a = arguments.tensor("_mm", 0);
  const Tensor& b = arguments.tensor("_mm", 1);
  check_mm(a, b);
  return report_matmul(kMatmul, std::nullopt, a, b, device);
}

PlanReport plan_of_bmm(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& a = arguments.tensor("_bmm", 0);
  const Tensor& b = arguments.tensor("_bmm", 1);
  check_bmm(a, b);
  return report_matmul(kMatmul, std::nullopt, a, b, device);
}

PlanReport plan_of_addmm(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& bias = arguments.tensor("_addmm", 0);
  const Tensor& a = arguments.tensor("_addmm", 1);
  const Tensor& b = arguments.tensor("_addmm", 2);
  check_addmm(bias, a, b);
  return report_matmul(kLinear, bias, a, b, device);
}

const PlanRegistration kPlans[] = {
    {"_mm", plan_of_mm}, {"_bmm", plan_of_bmm}, {"_addmm", plan_of_addmm}};

}  // namespace

void check_matmul_types(const MatmulNames& names, const Tensor& a, const Tensor& b,
                        const std::optional<Tensor>& bias) {
  check_same_device(names.op, names.a, a, names.b, b);
  check_same_dtype(names.op, names.a, a, names.b, b);
  if (a.is_cuda()) check_floating_on_cuda(names.op, names.a, a);
  if (!bias) return;
  check_same_device(names.op, names.a, a, names.bias, *bias);
  check_same_dtype(names.op, names.a, a, names.bias, *bias);
}

void check_mm(const Tensor& a, const Tensor& b) {
  check_strided(kMatmul.op, kMatmul.a, a);
  check_strided(kMatmul.op, kMatmul.b, b);
  check_matmul_types(kMatmul, a, b, std::nullopt);
  TORCH_CHECK(a.dim() == 2 && b.dim() == 2, "matmul: _mm takes matrices; a has ", a.dim(),
              " dimensions and b ", b.dim());
  check_shapes(kMatmul, a, b);
}

void check_bmm(const Tensor& a, const Tensor& b) {
  check_strided(kMatmul.op, kMatmul.a, a);
  check_strided(kMatmul.op, kMatmul.b, b);
  check_matmul_types(kMatmul, a, b, std::nullopt);
  TORCH_CHECK(a.dim() >= 2 && b.dim() >= 2 && a.dim() + b.dim() > 4,
              "matmul: _bmm takes batches of matrices, and a matrix on one side; a has ", a.dim(),
              " dimensions and b ", b.dim());
  check_shapes(kMatmul, a, b);
}

void check_addmm(const Tensor& bias, const Tensor& a, const Tensor& b) {
  check_strided(kLinear.op, kLinear.bias, bias);
  check_strided(kLinear.op, kLinear.a, a);
  check_strided(kLinear.op, kLinear.b, b);
  check_matmul_types(kLinear, a, b, bias);
  TORCH_CHECK(a.dim() >= 2 && b.dim() >= 2, "linear: _addmm takes two dimensions or more; a has ",
              a.dim(), " and b ", b.dim());
  check_shapes(kLinear, a, b);
  check_bias("linear", bias, product_shape(a, b));
}

c10::SymDimVector product_shape(const Tensor& a, const Tensor& b) {
  c10::SymDimVector shape((a.dim() >= b.dim() ? a : b).sym_sizes());
  shape[shape.size() - 2] = a.sym_size(-2);
  shape.back() = b.sym_size(-1);
  return shape;
}

void check_bias(const char* op, const Tensor& bias, c10::SymIntArrayRef shape) {
  const auto missing = static_cast<int64_t>(shape.size()) - bias.dim();
  TORCH_CHECK(missing >= 0, op, ": bias of shape ", bias.sym_sizes(),
              " does not broadcast to the result's shape ", shape);
  for (int64_t d = 0; d < bias.dim(); ++d) {
    const c10::SymInt from = bias.sym_size(d);
    const c10::SymInt& to = shape[static_cast<std::size_t>(d + missing)];
    TORCH_SYM_CHECK(from.sym_eq(to).sym_or(from.sym_eq(1)), op, ": bias of shape ",
                    bias.sym_sizes(), " does not broadcast to the result's shape ", shape);
  }
}

Tensor call_matmul(const std::optional<Tensor>& bias, const Tensor& a, const Tensor& b) {
  if (bias) return addmm_op().call(*bias, a, b);
  return a.dim() == 2 && b.dim() == 2 ? mm_op().call(a, b) : bmm_op().call(a, b);
}

PlanReport report_matmul(const MatmulNames& names, const std::optional<Tensor>& bias,
                         const Tensor& a, const Tensor& b, const DeviceFacts& device) {
  check_floating_on_cuda(names.op, names.a, a);
  const c10::SymDimVector sizes = product_shape(a, b);
  const at::IntArrayRef shape = C10_AS_INTARRAYREF_SLOW(sizes);
  if (std::count(shape.begin(), shape.end(), 0) != 0) {
    return {.kernel = "none", .reason = "the result is empty"};
  }
  return plan_matmul(matmul_problem(float_type(a).value(), shape, a, b, bias), device).report();
}

TORCH_LIBRARY_IMPL(memops, CPU, m) {
  m.impl("_mm", mm_composite);
  m.impl("_bmm", bmm_composite);
  m.impl("_addmm", addmm_composite);
}

TORCH_LIBRARY_IMPL(memops, Meta, m) {
  m.impl("_mm", mm_meta);
  m.impl("_bmm", bmm_meta);
  m.impl("_addmm", addmm_meta);
}

TORCH_LIBRARY_IMPL(memops, Autograd, m) {
  m.impl("_mm", mm_autograd);
  m.impl("_bmm", bmm_autograd);
  m.impl("_addmm", addmm_autograd);
}

TORCH_LIBRARY_IMPL(memops, AutocastCPU, m) { register_autocast<at::kCPU>(m); }
TORCH_LIBRARY_IMPL(memops, AutocastCUDA, m) { register_autocast<at::kCUDA>(m); }

TORCH_LIBRARY_IMPL(memops, FuncTorchBatchedDecomposition, m) {
  m.impl("_mm", mm_composite);
  m.impl("_bmm", bmm_composite);
  m.impl("_addmm", addmm_composite);
}

}  // namespace memops
