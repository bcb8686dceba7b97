// What the torch side of the convolutions shares.
#pragma once

#include <c10/util/strides.h>

#include <array>
#include <optional>
#include <tuple>

#include "common/export.h"
#include "common/torch/autograd.h"
#include "common/torch/precompiled.h"

namespace memops {

using Sides = std::array<c10::SymInt, 2>;                                // padding left and right
using Conv1dGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;  // input, weight, bias

/// (left, right) from a padding of one entry, which means both sides, or two.
Sides both_sides(const char* op, c10::SymIntArrayRef padding);

/// length + left + right; refused where it passes 2^63.
c10::SymInt padded_length(const char* op, const c10::SymInt& length, c10::SymIntArrayRef padding);

/// What _conv1d refuses, on every device; the length of its result. The numbers come first, so that
/// nothing is divided by a zero.
MEMOPS_API c10::SymInt check_conv1d(const char* op, const at::Tensor& input,
                                    const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                    const c10::SymInt& stride, c10::SymIntArrayRef padding,
                                    const c10::SymInt& dilation, const c10::SymInt& groups);

/// The same for _conv1d_backward.
MEMOPS_API c10::SymInt check_conv1d_backward(const at::Tensor& grad, const at::Tensor& input,
                                             const at::Tensor& weight, const c10::SymInt& stride,
                                             c10::SymIntArrayRef padding,
                                             const c10::SymInt& dilation,
                                             const c10::SymInt& groups);

/// What _conv1d_constant refuses, on every device; the length of its result.
MEMOPS_API c10::SymInt check_conv1d_constant(const at::Tensor& input, c10::SymIntArrayRef padding,
                                             at::ArrayRef<double> taps);

/// The result's channels: as in PyTorch none where the input has none.
MEMOPS_API c10::SymInt conv1d_channels(const at::Tensor& input, const at::Tensor& weight);

/// A gradient that was not asked for.
inline at::Tensor no_gradient(const at::Tensor& like) { return at::empty({0}, like.options()); }

/// A fresh result with the strides that Meta promises: contiguous, those of unit dimensions too.
inline at::Tensor with_contiguous_strides(const at::Tensor& result) {
  const bool exact = result.strides() == c10::contiguous_strides(result.sizes());
  return exact ? result : at::clone(result, at::MemoryFormat::Contiguous);
}

inline const auto& conv1d_op() {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                         c10::SymInt, c10::SymIntArrayRef, c10::SymInt, c10::SymInt)>(
          "memops::_conv1d");
  return op;
}

inline const auto& conv1d_backward_op() {
  static const auto op =
      find_op<Conv1dGradients(const at::Tensor&, const at::Tensor&, const at::Tensor&, c10::SymInt,
                              c10::SymIntArrayRef, c10::SymInt, c10::SymInt, std::array<bool, 3>)>(
          "memops::_conv1d_backward");
  return op;
}

/// A convolution's numbers, kept between a Function's forward and backward.
struct Conv1dNumbers {
  c10::SymInt stride;
  Sides padding;
  c10::SymInt dilation;
  c10::SymInt groups;

  void save(torch::autograd::AutogradContext* ctx) const {
    ctx->saved_data["stride"] = stride;
    ctx->saved_data["left"] = padding[0];
    ctx->saved_data["right"] = padding[1];
    ctx->saved_data["dilation"] = dilation;
    ctx->saved_data["groups"] = groups;
  }
  static Conv1dNumbers saved(torch::autograd::AutogradContext* ctx) {
    const auto number = [&](const char* name) { return ctx->saved_data[name].toSymInt(); };
    return {
        number("stride"), {number("left"), number("right")}, number("dilation"), number("groups")};
  }
};

}  // namespace memops
