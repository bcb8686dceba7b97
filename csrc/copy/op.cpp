// copy, copy_, aos_to_soa, soa_to_aos: checks, CPU, Meta, Autograd and the composites.
#include "copy/op.h"

#include <ATen/MemoryOverlap.h>

#include "common/torch/autograd.h"
#include "common/torch/bits.h"
#include "common/torch/checks.h"
#include "common/torch/overlap.h"
#include "common/torch/plan_op.h"
#include "copy/plan_op.h"

namespace memops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor empty_contiguous(const Tensor& like) {
  return at::empty_symint(like.sym_sizes(), like.options().memory_format(std::nullopt));
}

Tensor copy_composite(const Tensor& src) {
  check_strided("copy", "src", src);
  return at::clone(src, at::MemoryFormat::Contiguous);
}

Tensor copy_cpu(const Tensor& src) {
  check_copy(src);
  Tensor out = empty_contiguous(src);
  out.view(bits_type(out)).copy_(src.view(bits_type(src)));
  return out;
}

Tensor copy_meta(const Tensor& src) {
  check_copy(src);
  return empty_contiguous(src);
}

const auto& copy_op() {
  static const auto op = find_op<Tensor(const Tensor&)>("memops::copy");
  return op;
}

struct CopyFunction : torch::autograd::Function<CopyFunction> {
  static constexpr bool is_traceable = true;
  static Tensor forward(AutogradContext*, const Tensor& src) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return copy_op().call(src);
  }
  static variable_list backward(AutogradContext*, const variable_list& grads) { return {grads[0]}; }
};

Tensor copy_autograd(c10::DispatchKeySet keys, const Tensor& src) {
  return differentiable<CopyFunction>(keys, copy_op(), copy_composite, src);
}

void copy_into_cpu(const Tensor& dst, const Tensor& src) {
  check_copy_into(dst, src);
  const Tensor source = src.expand(dst.sizes());
  const Tensor safe = overlap(dst, source) == Overlap::kPossible ? source.clone() : source;
  if (dst.scalar_type() == src.scalar_type()) {
    dst.view(bits_type(dst)).copy_(safe.view(bits_type(safe)));
  } else {
    dst.copy_(safe);
  }
}

void copy_into_composite(const Tensor& dst, const Tensor& src) { dst.copy_(src); }

void copy_into_meta(const Tensor& dst, const Tensor& src) { check_copy_into(dst, src); }

const auto& copy_into_op() {
  static const auto op = find_op<void(const Tensor&, const Tensor&)>("memops::_copy_into");
  return op;
}

void copy_into_autograd(c10::DispatchKeySet keys, const Tensor& dst, const Tensor& src) {
  TORCH_CHECK(!torch::autograd::compute_requires_grad(dst, src),
              "_copy_into: dst or src requires a gradient, which it does not carry; call copy_");
  const at::AutoDispatchBelowAutograd guard;
  copy_into_op().redispatch(keys & c10::after_autograd_keyset, dst, src);
}

// Without this an overwritten saved tensor goes unnoticed and gradients come out wrong.
void copy_into_inplace(c10::DispatchKeySet keys, const Tensor& dst, const Tensor& src) {
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    copy_into_op().redispatch(keys & c10::after_ADInplaceOrView_keyset, dst, src);
  }
  dst.unsafeGetTensorImpl()->bump_version();
}

Tensor& copy_inplace_composite(Tensor& dst, const Tensor& src) {
  check_strided("copy_", "dst", dst);
  check_strided("copy_", "src", src);
  const bool lazy = dst.is_conj() || dst.is_neg();
  if (lazy || inside_functorch() || dst.device() != src.device() || has_forward_gradient(dst) ||
      has_forward_gradient(src) || torch::autograd::compute_requires_grad(dst, src)) {
    return dst.copy_(src);
  }
  copy_into_op().call(dst, src);
  return dst;
}

Tensor aos_to_soa(const Tensor& aos) {
  check_strided("aos_to_soa", "aos", aos);
  TORCH_CHECK(aos.dim() >= 2, "aos_to_soa: aos has ", aos.dim(),
              " dimensions; [..., N, F] is accepted");
  return copy_op().call(aos.mT());
}

Tensor soa_to_aos(const Tensor& soa) {
  check_strided("soa_to_aos", "soa", soa);
  TORCH_CHECK(soa.dim() >= 2, "soa_to_aos: soa has ", soa.dim(),
              " dimensions; [..., F, N] is accepted");
  return copy_op().call(soa.mT());
}

PlanReport plan_views(const Tensor& dst, const Tensor& src, const DeviceFacts& device) {
  if (dst.numel() == 0) return {.kernel = "none", .reason = "nothing to copy"};
  const auto problem = copy_problem(dst, src, planned_address(dst), planned_address(src));
  if (!problem) {
    return {.kernel = "aten::copy_",
            .reason =
                c10::str("PyTorch's own kernels convert ", src.scalar_type(), " to ",
                         dst.scalar_type(), ", or an address is no multiple of its dtype's width")};
  }
  const auto pieces = split_copy(*problem);
  PlanReport report = plan_copy(pieces.front().problem, device).report();
  report.facts.emplace_back("launches", static_cast<int64_t>(pieces.size()));
  return report;
}

PlanReport plan_of_contiguous(const Tensor& src, const DeviceFacts& device) {
  return plan_views(at::empty(src.sizes(), src.options().device(at::kMeta)), src, device);
}

PlanReport plan_of_copy(const PlanArguments& arguments, const DeviceFacts& device) {
  return plan_of_contiguous(arguments.tensor("copy", 0), device);
}

PlanReport plan_of_copy_into(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& dst = arguments.tensor("copy_", 0);
  const Tensor& src = arguments.tensor("copy_", 1);
  check_copy_into(dst, src);
  return plan_views(dst, src.expand(dst.sizes()), device);
}

PlanReport plan_of_transposed(const PlanArguments& arguments, const DeviceFacts& device) {
  return plan_of_contiguous(arguments.tensor("aos_to_soa", 0).mT(), device);
}

const PlanRegistration kPlans[] = {{"copy", plan_of_copy},
                                   {"copy_", plan_of_copy_into},
                                   {"_copy_into", plan_of_copy_into},
                                   {"aos_to_soa", plan_of_transposed},
                                   {"soa_to_aos", plan_of_transposed}};

}  // namespace

Tensor call_copy(const Tensor& src) { return copy_op().call(src); }

void check_copy(const Tensor& src) { check_strided("copy", "src", src); }

void check_copy_into(const Tensor& dst, const Tensor& src) {
  check_strided("copy_", "dst", dst);
  check_strided("copy_", "src", src);
  check_same_device("copy_", "dst", dst, "src", src);
  const int64_t missing = dst.dim() - src.dim();
  TORCH_CHECK(missing >= 0, "copy_: src of shape ", src.sym_sizes(),
              " does not broadcast to dst's shape ", dst.sym_sizes());
  for (int64_t d = 0; d < src.dim(); ++d) {
    const c10::SymInt from = src.sym_size(d);
    const c10::SymInt to = dst.sym_size(d + missing);
    TORCH_SYM_CHECK(from.sym_eq(to).sym_or(from.sym_eq(1)), "copy_: src of shape ", src.sym_sizes(),
                    " does not broadcast to dst's shape ", dst.sym_sizes());
  }
  // Symbolic strides are left to the run: their overlap is not known.
  if (dst.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return;
  TORCH_CHECK(at::has_internal_overlap(dst) != at::MemOverlap::Yes, "copy_: dst of shape ",
              dst.sizes(), " and strides ", dst.strides(),
              " holds one memory location more than once; clone() it first");
  if (dst.is_meta()) return;
  TORCH_CHECK(at::get_overlap_status(dst, src) != at::MemOverlapStatus::Partial,
              "copy_: dst and src overlap in part; clone() src first");
}

TORCH_LIBRARY_IMPL(memops, CPU, m) {
  m.impl("copy", copy_cpu);
  m.impl("_copy_into", copy_into_cpu);
}

TORCH_LIBRARY_IMPL(memops, Meta, m) {
  m.impl("copy", copy_meta);
  m.impl("_copy_into", copy_into_meta);
}

TORCH_LIBRARY_IMPL(memops, Autograd, m) {
  m.impl("copy", copy_autograd);
  m.impl("_copy_into", copy_into_autograd);
}

TORCH_LIBRARY_IMPL(memops, ADInplaceOrView, m) { m.impl("_copy_into", copy_into_inplace); }

TORCH_LIBRARY_IMPL(memops, CompositeImplicitAutograd, m) {
  m.impl("copy_", copy_inplace_composite);
  m.impl("aos_to_soa", aos_to_soa);
  m.impl("soa_to_aos", soa_to_aos);
}

TORCH_LIBRARY_IMPL(memops, FuncTorchBatchedDecomposition, m) {
  m.impl("copy", copy_composite);
  m.impl("copy_", copy_inplace_composite);
  m.impl("_copy_into", copy_into_composite);
  m.impl("aos_to_soa", aos_to_soa);
  m.impl("soa_to_aos", soa_to_aos);
}

}  // namespace memops
