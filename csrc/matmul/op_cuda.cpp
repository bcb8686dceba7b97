// _mm, _bmm and _addmm on CUDA.
#include "common/torch/device.h"
#include "matmul/matmul.h"
#include "matmul/op.h"
#include "matmul/plan_op.h"

namespace memops {
namespace {

using at::Tensor;

/// The product of checked arguments, in a new packed tensor.
Tensor product(const std::optional<Tensor>& bias, const Tensor& a, const Tensor& b) {
  const DeviceScope scope(a);
  Tensor out = at::empty_symint(product_shape(a, b), a.options().memory_format(std::nullopt));
  if (out.numel() == 0) return out;
  const std::optional<FloatType> element = float_type(a);
  TORCH_INTERNAL_ASSERT(element, "the checks let through ", a.scalar_type());
  const MatmulPlan plan =
      plan_matmul(matmul_problem(*element, out.sizes(), a, b, bias), scope.facts());
  launch_matmul(plan,
                {.out = out.mutable_data_ptr(),
                 .a = a.const_data_ptr(),
                 .b = b.const_data_ptr(),
                 .bias = bias ? bias->const_data_ptr() : nullptr},
                scope.stream());
  return out;
}

Tensor mm_cuda(const Tensor& a, const Tensor& b) {
  check_mm(a, b);
  return product(std::nullopt, a, b);
}

Tensor bmm_cuda(const Tensor& a, const Tensor& b) {
  check_bmm(a, b);
  return product(std::nullopt, a, b);
}

Tensor addmm_cuda(const Tensor& bias, const Tensor& a, const Tensor& b) {
  check_addmm(bias, a, b);
  return product(bias, a, b);
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CUDA, m) {
  m.impl("_mm", mm_cuda);
  m.impl("_bmm", bmm_cuda);
  m.impl("_addmm", addmm_cuda);
}

}  // namespace memops
