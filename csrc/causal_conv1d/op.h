// What the causal convolution's CPU, CUDA and Meta sides share.
#pragma once

#include <array>
#include <optional>
#include <tuple>

#include "common/export.h"
#include "common/torch/precompiled.h"

namespace memops {

using CausalGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using OptionalTensor = std::optional<at::Tensor>;

/// The one rule of layout: true where the results are [B, L, C] in memory. A dimension of size 1
/// has a stride by which it cannot be told: such an x counts as channels-first.
inline bool is_channels_last(const at::Tensor& x) {
  const auto is_one = [](const c10::SymInt& n) { return TORCH_GUARD_OR_FALSE(n.sym_eq(1)); };
  return is_one(x.sym_stride(1)) && !is_one(x.sym_stride(2)) && !is_one(x.sym_size(1));
}

/// A tensor of x's sizes, dense in the layout of x.
MEMOPS_API at::Tensor empty_in_layout_of(const at::Tensor& x);

/// What `_causal_conv1d` refuses, on every device.
MEMOPS_API void check_causal(const at::Tensor& x, const at::Tensor& weight,
                             const OptionalTensor& bias, const OptionalTensor& initial_state,
                             const OptionalTensor& seq_idx);

/// What `_causal_conv1d_backward` refuses besides, on every device.
MEMOPS_API void check_causal_gradients(const at::Tensor& grad,
                                       const OptionalTensor& grad_final_state, const at::Tensor& x,
                                       const at::Tensor& weight);

/// What `causal_conv1d_update` refuses, on every device.
MEMOPS_API void check_causal_update(const at::Tensor& x, const at::Tensor& conv_state,
                                    const at::Tensor& weight, const OptionalTensor& bias,
                                    const OptionalTensor& cache_seqlens,
                                    const OptionalTensor& conv_state_indices);

/// The results' memory: y and the state after x, which is of shape (0,) where not wanted.
MEMOPS_API std::tuple<at::Tensor, at::Tensor> empty_causal(const at::Tensor& x,
                                                           const at::Tensor& weight,
                                                           bool final_state);

/// The gradients' memory; one that is not wanted is of shape (0,).
MEMOPS_API CausalGradients empty_causal_gradients(const at::Tensor& x, const at::Tensor& weight,
                                                  const std::array<bool, 4>& wanted);

/// The result of an update: x's sizes, and x's layout where x has steps.
MEMOPS_API at::Tensor empty_causal_update(const at::Tensor& x);

/// `_causal_conv1d` in ATen ops, differentiable to any order. Sums are kept in f32 for 16-bit types
/// and in f64 for all others, and rounded once.
std::tuple<at::Tensor, at::Tensor> causal_composite(const at::Tensor& x, const at::Tensor& weight,
                                                    const OptionalTensor& bias,
                                                    const OptionalTensor& initial_state,
                                                    const OptionalTensor& seq_idx, int64_t silu,
                                                    int64_t final_state);

/// `_causal_conv1d_backward`, likewise.
CausalGradients causal_backward_composite(
    const at::Tensor& grad, const OptionalTensor& grad_final_state, const at::Tensor& x,
    const at::Tensor& weight, const OptionalTensor& bias, const OptionalTensor& initial_state,
    const OptionalTensor& seq_idx, int64_t silu, std::array<bool, 4> output_mask);

}  // namespace memops
