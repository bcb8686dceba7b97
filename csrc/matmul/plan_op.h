// Tensors to a matrix product's problem, for the CUDA kernels and for _plan.
#pragma once

#include <optional>

#include "common/torch/float_type.h"
#include "common/torch/precompiled.h"
#include "matmul/plan.h"

namespace memops {

inline MatrixStrides matrix_strides(const at::Tensor& matrix) {
  return {.row = matrix.stride(-2), .column = matrix.stride(-1)};
}

/// The stride of a batch dimension; a matrix that the batch shares has none.
inline std::int64_t batch_stride(const at::Tensor& operand, int64_t dimension) {
  return operand.dim() == 2 ? 0 : operand.stride(dimension);
}

/// The product of checked arguments, whose result has the shape `shape`.
inline MatmulProblem matmul_problem(FloatType element, at::IntArrayRef shape, const at::Tensor& a,
                                    const at::Tensor& b, const std::optional<at::Tensor>& bias) {
  MatmulProblem problem{.element = element,
                        .m = a.size(-2),
                        .n = b.size(-1),
                        .k = a.size(-1),
                        .a = matrix_strides(a),
                        .b = matrix_strides(b),
                        .bias = std::nullopt,
                        .batch = {}};
  const auto batch_dimensions = static_cast<int64_t>(shape.size()) - 2;
  for (int64_t d = 0; d < batch_dimensions; ++d) {
    problem.batch.push_back({shape[d], batch_stride(a, d), batch_stride(b, d), 0});
  }
  if (bias) {
    const at::Tensor spread = bias->expand(shape);
    problem.bias = matrix_strides(spread);
    for (int64_t d = 0; d < batch_dimensions; ++d) {
      problem.batch[d].bias_stride = spread.stride(d);
    }
  }
  return problem;
}

}  // namespace memops
