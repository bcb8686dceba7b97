// PyTorch tensors as the causal kernels address them.
#pragma once

#include "causal_conv1d/causal_conv1d.h"
#include "causal_conv1d/op.h"

namespace memops {

/// [B, C, L]-like: x, a state, a gradient.
inline CausalInput line_view(const at::Tensor& t) {
  return {t.const_data_ptr(), t.stride(0), t.stride(1), t.stride(2)};
}
inline CausalInput line_view(const OptionalTensor& t) {
  return t.has_value() ? line_view(*t) : CausalInput{};
}
inline CausalOutput line_output(const at::Tensor& t) {
  return {t.mutable_data_ptr(), t.stride(0), t.stride(1), t.stride(2)};
}

/// [C, K].
inline CausalInput weight_view(const at::Tensor& t) {
  return {t.const_data_ptr(), 0, t.stride(0), t.stride(1)};
}
inline CausalOutput weight_output(const at::Tensor& t) {
  return {t.mutable_data_ptr(), 0, t.stride(0), t.stride(1)};
}

/// [C].
inline CausalInput channel_view(const OptionalTensor& t) {
  return t.has_value() ? CausalInput{t->const_data_ptr(), 0, t->stride(0), 0} : CausalInput{};
}
inline CausalOutput channel_output(const at::Tensor& t) {
  return {t.mutable_data_ptr(), 0, t.stride(0), 0};
}

/// int32, [B] or [B, L].
inline CausalIndex index_view(const OptionalTensor& t) {
  if (!t.has_value()) return {};
  return {t->const_data_ptr<int32_t>(), t->stride(0), 0, t->dim() == 2 ? t->stride(1) : 0};
}

}  // namespace memops
