// gather_aos and gather_soa: CPU, Meta, Autograd and the composites.
#include "gather/op.h"

#include "common/torch/bits.h"
#include "gather/checks.h"

namespace memops {
namespace {

using at::Tensor;
using c10::SymInt;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// at::index_select for every dtype; repeated rows' gradients are summed in sum_type.
Tensor select(const Tensor& source, int64_t dim, const Tensor& index) {
  const at::ScalarType type = source.scalar_type();
  if (!has_gradient(type)) {
    return at::index_select(source.view(bits_type(source)), dim, index).view(type);
  }
  if (source.is_complex()) {
    return at::view_as_complex(select(at::view_as_real(source.resolve_conj()), dim, index));
  }
  return at::index_select(source.to(sum_type(type)), dim, index).to(type);
}

Tensor gather_aos_composite(const Tensor& aos, const Tensor& index, SymInt padding_index) {
  check_gather_aos(aos, index, padding_index);
  const Tensor rows = select(aos, 0, index.reshape({-1}))
                          .reshape_symint(concatenate(index.sym_sizes(), aos.sym_sizes().slice(1)));
  if (TORCH_GUARD_OR_FALSE(padding_index.sym_lt(0))) return rows;
  return at::where(padding_mask(index, padding_index, rows.dim()), rows.detach(), rows);
}

Tensor gather_soa_composite(const Tensor& soa, const Tensor& index) {
  check_gather_soa(soa, index);
  return select(soa, 1, index.reshape({-1}))
      .reshape_symint(concatenate(soa.sym_sizes().slice(0, 1), index.sym_sizes()));
}

/// source.index_select(dim, index) into `out` under the shape `sizes`, bit for bit.
void select_into(const Tensor& out, at::IntArrayRef sizes, const Tensor& source, int64_t dim,
                 const Tensor& index) {
  // Along dimension 1 ATen moves single elements of float32, and of no other 4-byte type, without
  // a memcpy for each; it loads and stores them, which keeps the bits.
  const at::ScalarType type = out.element_size() == 4 ? at::kFloat : bits_type(out);
  Tensor bits = out.view(sizes).view(type);
  at::index_select_out(bits, source.view(type), dim, index.reshape({-1}));
}

Tensor gather_aos_cpu(const Tensor& aos, const Tensor& index, int64_t padding_index) {
  check_gather_aos(aos, index, padding_index);
  check_index_range("gather_aos", index, aos.size(0));
  Tensor out = empty_gather_aos(aos, index);
  if (out.numel() == 0) return out;
  at::DimVector sizes(aos.sizes());
  sizes[0] = index.numel();
  select_into(out, sizes, aos, 0, index);
  return out;
}

Tensor gather_soa_cpu(const Tensor& soa, const Tensor& index) {
  check_gather_soa(soa, index);
  check_index_range("gather_soa", index, soa.size(1));
  Tensor out = empty_gather_soa(soa, index);
  if (out.numel() == 0) return out;
  if (soa.is_contiguous()) {
    select_into(out, {soa.size(0), index.numel()}, soa, 1, index);
    return out;
  }
  // Along any but the first dimension index_select would first make the whole table contiguous.
  const Tensor columns = at::index_select(soa.t().view(bits_type(soa)), 0, index.reshape({-1}));
  out.view({soa.size(0), index.numel()}).view(bits_type(out)).copy_(columns.t());
  return out;
}

Tensor gather_aos_meta(const Tensor& aos, const Tensor& index, SymInt padding_index) {
  check_gather_aos(aos, index, padding_index);
  return empty_gather_aos(aos, index);
}

Tensor gather_soa_meta(const Tensor& soa, const Tensor& index) {
  check_gather_soa(soa, index);
  return empty_gather_soa(soa, index);
}

struct GatherAosFunction : torch::autograd::Function<GatherAosFunction> {
  static constexpr bool is_traceable = true;
  static Tensor forward(AutogradContext* context, const Tensor& aos, const Tensor& index,
                        const SymInt& padding_index) {
    check_gather_aos(aos, index, padding_index);
    context->save_for_backward({index});
    context->saved_data["rows"] = aos.sym_size(0);
    context->saved_data["padding_index"] = padding_index;
    const at::AutoDispatchBelowADInplaceOrView guard;
    return gather_aos_op().call(aos, index, padding_index);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined() || !context->needs_input_grad(0)) return variable_list(3);
    return {gather_aos_backward_op().call(grads[0], context->get_saved_variables()[0],
                                          context->saved_data["rows"].toSymInt(),
                                          context->saved_data["padding_index"].toSymInt()),
            Tensor(), Tensor()};
  }
};

struct GatherSoaFunction : torch::autograd::Function<GatherSoaFunction> {
  static constexpr bool is_traceable = true;
  static Tensor forward(AutogradContext* context, const Tensor& soa, const Tensor& index) {
    check_gather_soa(soa, index);
    context->save_for_backward({index});
    context->saved_data["columns"] = soa.sym_size(1);
    const at::AutoDispatchBelowADInplaceOrView guard;
    return gather_soa_op().call(soa, index);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    if (!grads[0].defined() || !context->needs_input_grad(0)) return variable_list(2);
    return {gather_soa_backward_op().call(grads[0], context->get_saved_variables()[0],
                                          context->saved_data["columns"].toSymInt()),
            Tensor()};
  }
};

Tensor gather_aos_autograd(c10::DispatchKeySet keys, const Tensor& aos, const Tensor& index,
                           SymInt padding_index) {
  return differentiable<GatherAosFunction>(keys, gather_aos_op(), gather_aos_composite, aos, index,
                                           padding_index);
}

Tensor gather_soa_autograd(c10::DispatchKeySet keys, const Tensor& soa, const Tensor& index) {
  return differentiable<GatherSoaFunction>(keys, gather_soa_op(), gather_soa_composite, soa, index);
}

Tensor gather_aos(const Tensor& aos, const Tensor& index) {
  check_gather_aos(aos, index, -1);
  return gather_aos_op().call(aos, index, -1);
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CPU, m) {
  m.impl("_gather_aos", gather_aos_cpu);
  m.impl("gather_soa", gather_soa_cpu);
}

TORCH_LIBRARY_IMPL(memops, Meta, m) {
  m.impl("_gather_aos", gather_aos_meta);
  m.impl("gather_soa", gather_soa_meta);
}

TORCH_LIBRARY_IMPL(memops, Autograd, m) {
  m.impl("_gather_aos", gather_aos_autograd);
  m.impl("gather_soa", gather_soa_autograd);
}

TORCH_LIBRARY_IMPL(memops, CompositeImplicitAutograd, m) { m.impl("gather_aos", gather_aos); }

TORCH_LIBRARY_IMPL(memops, FuncTorchBatchedDecomposition, m) {
  m.impl("gather_aos", gather_aos);
  m.impl("_gather_aos", gather_aos_composite);
  m.impl("gather_soa", gather_soa_composite);
}

}  // namespace memops
