// Tensors to a matrix product's problem, for the CUDA kernels and for _plan.
#pragma once

#include <optional>

#include "common/torch/precompiled.h"
#include "matmul/plan.h"

namespace memops {

/// The kernels' element type, or nothing where they have none.
inline std::optional<MatmulElement> matmul_element(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return MatmulElement::kFloat16;
    case at::kBFloat16:
      return MatmulElement::kBFloat16;
    case at::kFloat:
      return MatmulElement::kFloat32;
    case at::kDouble:
      return MatmulElement::kFloat64;
    default:
      return std::nullopt;
  }
}

inline MatrixStrides matrix_strides(const at::Tensor& matrix) {
  return {.row = matrix.stride(-2), .column = matrix.stride(-1)};
}

/// a[..., M, K] @ b[..., K, N] with equal batch dimensions and a bias that broadcasts to the
/// result.
inline MatmulProblem matmul_problem(MatmulElement element, const at::Tensor& a, const at::Tensor& b,
                                    const std::optional<at::Tensor>& bias) {
  MatmulProblem problem{.element = element,
                        .m = a.size(-2),
                        .n = b.size(-1),
                        .k = a.size(-1),
                        .a = matrix_strides(a),
                        .b = matrix_strides(b),
                        .bias = std::nullopt,
                        .batch = {}};
  for (int64_t d = 0; d < a.dim() - 2; ++d) {
    problem.batch.push_back({a.size(d), a.stride(d), b.stride(d), 0});
  }
  if (bias) {
    at::DimVector shape(a.sizes());
    shape.back() = problem.n;
    const at::Tensor spread = bias->expand(shape);
    problem.bias = matrix_strides(spread);
    for (std::size_t d = 0; d < problem.batch.size(); ++d) {
      problem.batch[d].bias_stride = spread.stride(static_cast<int64_t>(d));
    }
  }
  return problem;
}

}  // namespace memops
