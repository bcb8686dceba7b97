// causal_conv1d_update: CPU, Meta, Autograd, Autocast and the plan.
#include "causal_conv1d/op.h"
#include "causal_conv1d/plan_op.h"
#include "common/torch/autocast.h"
#include "common/torch/autograd.h"
#include "common/torch/plan_op.h"

namespace memops {
namespace {

using at::Tensor;
using UpdateSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const OptionalTensor&,
                               bool, const OptionalTensor&, const OptionalTensor&);

constexpr const char* kOp = "causal_conv1d_update";

const auto& update_op() {
  static const auto op = find_op<UpdateSignature>("memops::causal_conv1d_update");
  return op;
}

Tensor update_meta(const Tensor& x, const Tensor& conv_state, const Tensor& weight,
                   const OptionalTensor& bias, bool, const OptionalTensor& cache_seqlens,
                   const OptionalTensor& conv_state_indices) {
  check_causal_update(x, conv_state, weight, bias, cache_seqlens, conv_state_indices);
  return empty_causal_update(x);
}

void check_rows(const Tensor& indices, int64_t rows) {
  if (indices.numel() == 0) return;
  for (const int64_t row : {indices.min().item<int64_t>(), indices.max().item<int64_t>()}) {
    TORCH_CHECK_INDEX(row >= 0 && row < rows, kOp, ": conv_state_indices holds ", row,
                      "; 0 to N - 1 is accepted, with N = ", rows, " rows of conv_state");
  }
}

/// The rings' entries of the steps `first` to `last` of this call, [B, C, last - first].
Tensor ring_entries(const Tensor& rows, const Tensor& cache_seqlens, int64_t first, int64_t last) {
  const Tensor steps = at::arange(first, last, cache_seqlens.options().dtype(at::kLong));
  const Tensor at = at::remainder(cache_seqlens.to(at::kLong).unsqueeze(1) + steps, rows.size(2));
  return at.unsqueeze(1).expand({rows.size(0), rows.size(1), last - first});
}

Tensor update_cpu(const Tensor& x, const Tensor& conv_state, const Tensor& weight,
                  const OptionalTensor& bias, bool silu, const OptionalTensor& cache_seqlens,
                  const OptionalTensor& conv_state_indices) {
  check_causal_update(x, conv_state, weight, bias, cache_seqlens, conv_state_indices);
  Tensor y = empty_causal_update(x);
  if (conv_state_indices.has_value()) check_rows(*conv_state_indices, conv_state.size(0));
  const Tensor steps = x.dim() == 3 ? x : x.unsqueeze(2);
  const int64_t count = steps.size(2);
  const int64_t window = conv_state.size(2);
  const int64_t before = weight.size(1) - 1;
  const Tensor rows =
      conv_state_indices.has_value() ? conv_state.index_select(0, *conv_state_indices) : conv_state;
  // A ring without entries (W = 0, so K = 1) is as good as a state of length 0.
  const bool ring = cache_seqlens.has_value() && window > 0;
  const Tensor history = ring ? rows.gather(2, ring_entries(rows, *cache_seqlens, -before, 0))
                              : rows.narrow(2, window - before, before);
  const Tensor result =
      std::get<0>(causal_composite(steps, weight, bias, history, std::nullopt, silu ? 1 : 0, 0));
  y.copy_(x.dim() == 3 ? result : result.squeeze(2));

  const int64_t kept = std::min(count, window);
  const Tensor newest = steps.narrow(2, count - kept, kept);
  const Tensor state =
      ring ? rows.scatter(2, ring_entries(rows, *cache_seqlens, count - kept, count), newest)
           : at::cat({rows.narrow(2, kept, window - kept), newest}, 2);
  if (conv_state_indices.has_value()) {
    conv_state.index_copy_(0, conv_state_indices->to(at::kLong), state);
  } else {
    conv_state.copy_(state);
  }
  return y;
}

Tensor update_autograd(c10::DispatchKeySet keys, const Tensor& x, const Tensor& conv_state,
                       const Tensor& weight, const OptionalTensor& bias, bool silu,
                       const OptionalTensor& cache_seqlens,
                       const OptionalTensor& conv_state_indices) {
  const auto refuse = [](const char* argument, const OptionalTensor& tensor) {
    if (!tensor.has_value()) return;
    TORCH_CHECK(!torch::autograd::compute_requires_grad(*tensor), kOp, ": ", argument,
                " requires a gradient, which the op does not carry; call it under torch.no_grad(), "
                "or causal_conv1d");
    TORCH_CHECK_NOT_IMPLEMENTED(!has_forward_gradient(*tensor), kOp, ": ", argument,
                                " has a forward gradient, which the op does not carry; call "
                                "causal_conv1d");
  };
  refuse("x", x);
  refuse("conv_state", conv_state);
  refuse("weight", weight);
  refuse("bias", bias);
  const at::AutoDispatchBelowAutograd guard;
  return update_op().redispatch(keys & c10::after_autograd_keyset, x, conv_state, weight, bias,
                                silu, cache_seqlens, conv_state_indices);
}

// Without this an overwritten saved tensor goes unnoticed and gradients come out wrong.
Tensor update_inplace(c10::DispatchKeySet keys, const Tensor& x, const Tensor& conv_state,
                      const Tensor& weight, const OptionalTensor& bias, bool silu,
                      const OptionalTensor& cache_seqlens,
                      const OptionalTensor& conv_state_indices) {
  Tensor y;
  {
    const at::AutoDispatchBelowADInplaceOrView guard;
    y = update_op().redispatch(keys & c10::after_ADInplaceOrView_keyset, x, conv_state, weight,
                               bias, silu, cache_seqlens, conv_state_indices);
  }
  conv_state.unsafeGetTensorImpl()->bump_version();
  return y;
}

/// The state is written and cannot be cast, so its type is the one that the others take.
template <c10::DeviceType kDevice>
Tensor update_autocast(const Tensor& x, const Tensor& conv_state, const Tensor& weight,
                       const OptionalTensor& bias, bool silu, const OptionalTensor& cache_seqlens,
                       const OptionalTensor& conv_state_indices) {
  return autocast_to<kDevice>(conv_state.scalar_type(), update_op(), x, conv_state, weight, bias,
                              silu, cache_seqlens, conv_state_indices);
}

PlanReport plan_of_update(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& x = arguments.tensor(kOp, 0);
  const Tensor& conv_state = arguments.tensor(kOp, 1);
  const Tensor& weight = arguments.tensor(kOp, 2);
  const auto& t = arguments.tensors;
  check_causal_update(x, conv_state, weight, t.at(3), t.at(4), t.at(5));
  if (x.numel() == 0) return {.kernel = "none", .reason = "nothing to compute"};
  return plan_causal_update(causal_update_problem(x, conv_state, weight, t.at(3),
                                                  arguments.integers.at(0) != 0, t.at(4), t.at(5)),
                            device)
      .report();
}

const PlanRegistration kPlan(kOp, plan_of_update);

}  // namespace

TORCH_LIBRARY_IMPL(memops, CPU, m) { m.impl(kOp, update_cpu); }

TORCH_LIBRARY_IMPL(memops, Meta, m) { m.impl(kOp, update_meta); }

TORCH_LIBRARY_IMPL(memops, Autograd, m) { m.impl(kOp, update_autograd); }

TORCH_LIBRARY_IMPL(memops, ADInplaceOrView, m) { m.impl(kOp, update_inplace); }

TORCH_LIBRARY_IMPL(memops, AutocastCPU, m) { m.impl(kOp, update_autocast<at::kCPU>); }

TORCH_LIBRARY_IMPL(memops, AutocastCUDA, m) { m.impl(kOp, update_autocast<at::kCUDA>); }

}  // namespace memops
