// Tensors to the problems that the plans take, for the CUDA kernels and for _plan.
#pragma once

#include "common/torch/float_type.h"
#include "conv1d/constant_plan.h"
#include "conv1d/plan.h"

namespace memops {

/// A checked convolution of 3-D tensors of a floating type.
inline Conv1dProblem conv1d_problem(const at::Tensor& input, const at::Tensor& weight,
                                    std::int64_t out_length, std::int64_t stride, std::int64_t left,
                                    std::int64_t dilation, std::int64_t groups, bool bias) {
  return {.type = float_type(input).value(),
          .batch = input.size(0),
          .in_channels = input.size(1),
          .out_channels = weight.size(0),
          .length = input.size(2),
          .width = weight.size(2),
          .out_length = out_length,
          .stride = stride,
          .left = left,
          .dilation = dilation,
          .groups = groups,
          .bias = bias};
}

/// The merged leading dimensions of a view from `first` on; the result must not be empty.
inline std::vector<RowDimension> rows_of(const at::Tensor& input, std::int64_t first) {
  const auto leading = static_cast<std::size_t>(input.dim() - 1 - first);
  return merge_rows({input.sizes().data() + first, leading},
                    {input.strides().data() + first, leading});
}

/// How many leading dimensions are walked launch by launch, since the others alone merge into what
/// one launch walks.
inline std::int64_t outer_dimensions(const at::Tensor& input) {
  std::int64_t outer = 0;
  while (rows_of(input, outer).size() > kMaxRowDimensions) ++outer;
  return outer;
}

/// A checked conv1d_constant of a floating type whose result is not empty.
inline Conv1dConstantProblem conv1d_constant_problem(const at::Tensor& input,
                                                     std::int64_t out_length, std::int64_t taps) {
  const std::int64_t outer = outer_dimensions(input);
  return {.type = float_type(input).value(),
          .steps = c10::multiply_integers(input.sizes().slice(0, outer)),
          .rows = c10::multiply_integers(input.sizes().slice(outer, input.dim() - 1 - outer)),
          .length = input.size(-1),
          .out_length = out_length,
          .taps = taps};
}

}  // namespace memops
