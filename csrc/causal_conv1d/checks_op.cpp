// What the causal ops refuse and what memory their results take, the same on every device.
#include <ATen/MemoryOverlap.h>

#include "causal_conv1d/op.h"
#include "common/torch/checks.h"

namespace memops {
namespace {

using at::Tensor;

constexpr const char* kOp = "causal_conv1d";
constexpr const char* kUpdate = "causal_conv1d_update";

/// One check of all operands: strided, on x's device, of x's dtype.
void check_operand(const char* op, const Tensor& x, const char* argument, const Tensor& tensor) {
  check_strided(op, argument, tensor);
  check_same_device(op, "x", x, argument, tensor);
  check_same_dtype(op, "x", x, argument, tensor);
}

void check_x(const char* op, const Tensor& x) {
  check_strided(op, "x", x);
  const at::ScalarType type = x.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      type == at::kHalf || type == at::kBFloat16 || type == at::kFloat || type == at::kDouble, op,
      ": x is ", type, "; float16, bfloat16, float32 and float64 are supported");
}

void check_weight_and_bias(const char* op, const Tensor& x, const Tensor& weight,
                           const OptionalTensor& bias) {
  check_operand(op, x, "weight", weight);
  const c10::SymInt channels = x.sym_size(1);
  TORCH_CHECK(weight.dim() == 2, op, ": weight has ", weight.dim(),
              " dimensions; [C, K] is accepted");
  TORCH_SYM_CHECK(weight.sym_size(0).sym_eq(channels), op, ": weight of shape ", weight.sym_sizes(),
                  " does not fit x of shape ", x.sym_sizes(), "; [C, K] with C = ", channels,
                  " is accepted");
  TORCH_SYM_CHECK(weight.sym_size(1).sym_ge(1), op, ": weight of shape ", weight.sym_sizes(),
                  " has no taps; K >= 1 is accepted");
  if (!bias.has_value()) return;
  check_operand(op, x, "bias", *bias);
  TORCH_CHECK(bias->dim() == 1, op, ": bias has ", bias->dim(), " dimensions; [C] is accepted");
  TORCH_SYM_CHECK(bias->sym_size(0).sym_eq(channels), op, ": bias of shape ", bias->sym_sizes(),
                  " does not fit x of shape ", x.sym_sizes(), "; [C] with C = ", channels,
                  " is accepted");
}

void check_state(const char* argument, const Tensor& state, const Tensor& x, const Tensor& weight) {
  check_operand(kOp, x, argument, state);
  TORCH_CHECK(state.dim() == 3, kOp, ": ", argument, " has ", state.dim(),
              " dimensions; [B, C, K - 1] is accepted");
  TORCH_SYM_CHECK(state.sym_size(0)
                      .sym_eq(x.sym_size(0))
                      .sym_and(state.sym_size(1).sym_eq(x.sym_size(1)))
                      .sym_and(state.sym_size(2).sym_eq(weight.sym_size(1) - 1)),
                  kOp, ": ", argument, " of shape ", state.sym_sizes(), " does not fit x of shape ",
                  x.sym_sizes(), " and weight of shape ", weight.sym_sizes(),
                  "; [B, C, K - 1] is accepted");
}

void check_int32(const char* op, const Tensor& x, const char* argument, const Tensor& tensor) {
  check_strided(op, argument, tensor);
  check_same_device(op, "x", x, argument, tensor);
  TORCH_CHECK(tensor.scalar_type() == at::kInt, op, ": ", argument, " is ", tensor.scalar_type(),
              "; int32 is accepted");
}

void check_per_batch(const Tensor& x, const char* argument, const OptionalTensor& tensor) {
  if (!tensor.has_value()) return;
  check_int32(kUpdate, x, argument, *tensor);
  TORCH_CHECK(tensor->dim() == 1, kUpdate, ": ", argument, " has ", tensor->dim(),
              " dimensions; [B] is accepted");
  TORCH_SYM_CHECK(tensor->sym_size(0).sym_eq(x.sym_size(0)), kUpdate, ": ", argument, " of shape ",
                  tensor->sym_sizes(), " does not fit x of shape ", x.sym_sizes(),
                  "; [B] is accepted");
}

}  // namespace

Tensor empty_in_layout_of(const Tensor& x) {
  const auto sizes = x.sym_sizes();
  const at::TensorOptions options = x.options().memory_format(std::nullopt);
  if (!is_channels_last(x)) return at::empty_symint(sizes, options);
  return at::empty_symint({sizes[0], sizes[2], sizes[1]}, options).transpose(1, 2);
}

std::tuple<Tensor, Tensor> empty_causal(const Tensor& x, const Tensor& weight, bool final_state) {
  const auto sizes = x.sym_sizes();
  Tensor state = final_state
                     ? at::empty_symint({sizes[0], sizes[1], weight.sym_size(1) - 1}, x.options())
                     : at::empty({0}, x.options());
  return {empty_in_layout_of(x), std::move(state)};
}

CausalGradients empty_causal_gradients(const Tensor& x, const Tensor& weight,
                                       const std::array<bool, 4>& wanted) {
  const auto sizes = x.sym_sizes();
  const c10::SymInt width = weight.sym_size(1);
  const auto empty = [&](bool wants, c10::SymIntArrayRef shape) {
    return wants ? at::empty_symint(shape, x.options()) : at::empty({0}, x.options());
  };
  return {wanted[0] ? empty_in_layout_of(x) : at::empty({0}, x.options()),
          empty(wanted[1], {sizes[1], width}), empty(wanted[2], {sizes[1]}),
          empty(wanted[3], {sizes[0], sizes[1], width - 1})};
}

void check_causal(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                  const OptionalTensor& initial_state, const OptionalTensor& seq_idx) {
  check_x(kOp, x);
  TORCH_CHECK(x.dim() == 3, kOp, ": x has ", x.dim(), " dimensions; [B, C, L] is accepted");
  check_weight_and_bias(kOp, x, weight, bias);
  if (initial_state.has_value()) check_state("initial_state", *initial_state, x, weight);
  if (!seq_idx.has_value()) return;
  check_int32(kOp, x, "seq_idx", *seq_idx);
  TORCH_CHECK(seq_idx->dim() == 2, kOp, ": seq_idx has ", seq_idx->dim(),
              " dimensions; [B, L] is accepted");
  TORCH_SYM_CHECK(seq_idx->sym_size(0)
                      .sym_eq(x.sym_size(0))
                      .sym_and(seq_idx->sym_size(1).sym_eq(x.sym_size(2))),
                  kOp, ": seq_idx of shape ", seq_idx->sym_sizes(), " does not fit x of shape ",
                  x.sym_sizes(), "; [B, L] is accepted");
}

void check_causal_gradients(const Tensor& grad, const OptionalTensor& grad_final_state,
                            const Tensor& x, const Tensor& weight) {
  check_operand(kOp, x, "grad", grad);
  TORCH_CHECK(grad.dim() == 3, kOp, ": grad has ", grad.dim(),
              " dimensions; [B, C, L] is accepted");
  TORCH_SYM_CHECK(grad.sym_size(0)
                      .sym_eq(x.sym_size(0))
                      .sym_and(grad.sym_size(1).sym_eq(x.sym_size(1)))
                      .sym_and(grad.sym_size(2).sym_eq(x.sym_size(2))),
                  kOp, ": grad of shape ", grad.sym_sizes(), " does not fit x of shape ",
                  x.sym_sizes());
  if (grad_final_state.has_value()) {
    check_state("grad_final_state", *grad_final_state, x, weight);
  }
}

void check_causal_update(const Tensor& x, const Tensor& conv_state, const Tensor& weight,
                         const OptionalTensor& bias, const OptionalTensor& cache_seqlens,
                         const OptionalTensor& conv_state_indices) {
  check_x(kUpdate, x);
  TORCH_CHECK(x.dim() == 2 || x.dim() == 3, kUpdate, ": x has ", x.dim(),
              " dimensions; [B, C] or [B, C, S] is accepted");
  check_weight_and_bias(kUpdate, x, weight, bias);
  check_operand(kUpdate, x, "conv_state", conv_state);
  TORCH_CHECK(conv_state.dim() == 3, kUpdate, ": conv_state has ", conv_state.dim(),
              " dimensions; [N, C, W] is accepted");
  TORCH_SYM_CHECK(conv_state.sym_size(1)
                      .sym_eq(x.sym_size(1))
                      .sym_and(conv_state.sym_size(2).sym_ge(weight.sym_size(1) - 1)),
                  kUpdate, ": conv_state of shape ", conv_state.sym_sizes(),
                  " does not fit x of shape ", x.sym_sizes(), " and weight of shape ",
                  weight.sym_sizes(), "; [N, C, W] with W >= K - 1 is accepted");
  check_per_batch(x, "cache_seqlens", cache_seqlens);
  check_per_batch(x, "conv_state_indices", conv_state_indices);
  if (!conv_state_indices.has_value()) {
    TORCH_SYM_CHECK(conv_state.sym_size(0).sym_eq(x.sym_size(0)), kUpdate, ": conv_state of shape ",
                    conv_state.sym_sizes(), " does not fit x of shape ", x.sym_sizes(),
                    "; without conv_state_indices N = B is accepted");
  }
  // Symbolic strides are left to the run: their overlap is not known.
  if (conv_state.unsafeGetTensorImpl()->has_symbolic_sizes_strides()) return;
  TORCH_CHECK(at::has_internal_overlap(conv_state) != at::MemOverlap::Yes, kUpdate,
              ": conv_state of shape ", conv_state.sizes(), " and strides ", conv_state.strides(),
              " holds one memory location more than once; clone() it first");
}

Tensor empty_causal_update(const Tensor& x) {
  return x.dim() == 3 ? empty_in_layout_of(x)
                      : at::empty_symint(x.sym_sizes(), x.options().memory_format(std::nullopt));
}

}  // namespace memops
