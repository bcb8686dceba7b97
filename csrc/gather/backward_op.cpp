// The gathers' gradients: CPU, Meta, Autograd and the composites.
#include "gather/checks.h"
#include "gather/op.h"

namespace memops {
namespace {

using at::Tensor;
using c10::SymInt;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The rows of grad [M, F] summed by index [M] in sum_type: [rows, F].
Tensor sum_rows(const Tensor& grad, const Tensor& index, const SymInt& rows,
                const SymInt& padding_index) {
  const at::ScalarType type = grad.scalar_type();
  if (grad.is_complex()) {
    const SymInt fields = grad.sym_size(1);
    const Tensor real =
        at::view_as_real(grad.resolve_conj()).reshape_symint({grad.sym_size(0), fields * 2});
    return at::view_as_complex(
        sum_rows(real, index, rows, padding_index).reshape_symint({rows, fields, 2}));
  }
  return at::embedding_dense_backward_symint(grad.to(sum_type(type)), index, rows, padding_index,
                                             /*scale_grad_by_freq=*/false)
      .to(type);
}

Tensor gather_aos_backward_composite(const Tensor& grad, const Tensor& index, SymInt rows,
                                     SymInt padding_index) {
  check_gather_aos_backward(grad, index, rows, padding_index);
  const c10::SymIntArrayRef fields = grad.sym_sizes().slice(index.dim());
  SymInt width = 1;
  for (const SymInt& size : fields) width = width * size;
  const Tensor matrix = grad.reshape_symint({index.sym_numel(), width});
  return sum_rows(matrix, index.reshape({-1}), rows, padding_index)
      .reshape_symint(concatenate(rows, fields));
}

Tensor gather_soa_backward_composite(const Tensor& grad, const Tensor& index, SymInt columns) {
  check_gather_soa_backward(grad, index, columns);
  const Tensor matrix = grad.reshape_symint({grad.sym_size(0), index.sym_numel()}).t();
  return sum_rows(matrix, index.reshape({-1}), columns, -1).t().clone(at::MemoryFormat::Contiguous);
}

Tensor gather_aos_backward_cpu(const Tensor& grad, const Tensor& index, int64_t rows,
                               int64_t padding_index) {
  check_gather_aos_backward(grad, index, rows, padding_index);
  check_index_range("gather_aos_backward", index, rows);
  if (grad.numel() == 0) return zeros_gather_aos(grad, index, rows);
  return gather_aos_backward_composite(grad, index, rows, padding_index);
}

Tensor gather_soa_backward_cpu(const Tensor& grad, const Tensor& index, int64_t columns) {
  check_gather_soa_backward(grad, index, columns);
  check_index_range("gather_soa_backward", index, columns);
  if (grad.numel() == 0) return zeros_gather_soa(grad, columns);
  return gather_soa_backward_composite(grad, index, columns);
}

Tensor gather_aos_backward_meta(const Tensor& grad, const Tensor& index, SymInt rows,
                                SymInt padding_index) {
  check_gather_aos_backward(grad, index, rows, padding_index);
  return zeros_gather_aos(grad, index, rows);
}

Tensor gather_soa_backward_meta(const Tensor& grad, const Tensor& index, SymInt columns) {
  check_gather_soa_backward(grad, index, columns);
  return zeros_gather_soa(grad, columns);
}

struct GatherAosBackwardFunction : torch::autograd::Function<GatherAosBackwardFunction> {
  static constexpr bool is_traceable = true;
  static Tensor forward(AutogradContext* context, const Tensor& grad, const Tensor& index,
                        const SymInt& rows, const SymInt& padding_index) {
    context->save_for_backward({index});
    context->saved_data["padding_index"] = padding_index;
    const at::AutoDispatchBelowADInplaceOrView guard;
    return gather_aos_backward_op().call(grad, index, rows, padding_index);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined() || !context->needs_input_grad(0)) return variable_list(4);
    const Tensor index = context->get_saved_variables()[0];
    const SymInt padding_index = context->saved_data["padding_index"].toSymInt();
    Tensor rows = gather_aos_op().call(grads[0], index, padding_index);
    if (!TORCH_GUARD_OR_FALSE(padding_index.sym_lt(0))) {
      rows = at::masked_fill(rows, padding_mask(index, padding_index, rows.dim()), 0);
    }
    return {rows, Tensor(), Tensor(), Tensor()};
  }
};

struct GatherSoaBackwardFunction : torch::autograd::Function<GatherSoaBackwardFunction> {
  static constexpr bool is_traceable = true;
  static Tensor forward(AutogradContext* context, const Tensor& grad, const Tensor& index,
                        const SymInt& columns) {
    context->save_for_backward({index});
    const at::AutoDispatchBelowADInplaceOrView guard;
    return gather_soa_backward_op().call(grad, index, columns);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined() || !context->needs_input_grad(0)) return variable_list(3);
    return {gather_soa_op().call(grads[0], context->get_saved_variables()[0]), Tensor(), Tensor()};
  }
};

Tensor gather_aos_backward_autograd(c10::DispatchKeySet keys, const Tensor& grad,
                                    const Tensor& index, SymInt rows, SymInt padding_index) {
  return differentiable<GatherAosBackwardFunction>(keys, gather_aos_backward_op(),
                                                   gather_aos_backward_composite, grad, index, rows,
                                                   padding_index);
}

Tensor gather_soa_backward_autograd(c10::DispatchKeySet keys, const Tensor& grad,
                                    const Tensor& index, SymInt columns) {
  return differentiable<GatherSoaBackwardFunction>(
      keys, gather_soa_backward_op(), gather_soa_backward_composite, grad, index, columns);
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CPU, m) {
  m.impl("_gather_aos_backward", gather_aos_backward_cpu);
  m.impl("_gather_soa_backward", gather_soa_backward_cpu);
}

TORCH_LIBRARY_IMPL(memops, Meta, m) {
  m.impl("_gather_aos_backward", gather_aos_backward_meta);
  m.impl("_gather_soa_backward", gather_soa_backward_meta);
}

TORCH_LIBRARY_IMPL(memops, Autograd, m) {
  m.impl("_gather_aos_backward", gather_aos_backward_autograd);
  m.impl("_gather_soa_backward", gather_soa_backward_autograd);
}

TORCH_LIBRARY_IMPL(memops, FuncTorchBatchedDecomposition, m) {
  m.impl("_gather_aos_backward", gather_aos_backward_composite);
  m.impl("_gather_soa_backward", gather_soa_backward_composite);
}

}  // namespace memops
