// The matrix product's torch side: what its files share.
#pragma once

#include <optional>

#include "common/device_facts.h"
#include "common/export.h"
#include "common/plan_report.h"
#include "common/torch/precompiled.h"

namespace memops {

/// What `_mm`, `_bmm` and `_addmm` refuse, on every device.
MEMOPS_API void check_mm(const at::Tensor& a, const at::Tensor& b);
MEMOPS_API void check_bmm(const at::Tensor& a, const at::Tensor& b);
MEMOPS_API void check_addmm(const at::Tensor& bias, const at::Tensor& a, const at::Tensor& b);

/// How an op calls its arguments in messages.
struct MatmulNames {
  const char* op;
  const char* a;
  const char* b;
  const char* bias;
};

/// One device, one dtype, and one that the device's kernels take. The cores check it, for fronts
/// take mixed dtypes under autocast.
void check_matmul_types(const MatmulNames& names, const at::Tensor& a, const at::Tensor& b,
                        const std::optional<at::Tensor>& bias);

/// The bias broadcasts to the result's shape.
void check_bias(const char* op, const at::Tensor& bias, c10::SymIntArrayRef shape);

/// The result's shape: the batch dimensions of the operand that has them, and [M, N].
MEMOPS_API c10::SymDimVector product_shape(const at::Tensor& a, const at::Tensor& b);

/// A core's call through the dispatcher: `_addmm` with a bias, else `_mm` for two matrices and
/// `_bmm` for more dimensions.
at::Tensor call_matmul(const std::optional<at::Tensor>& bias, const at::Tensor& a,
                       const at::Tensor& b);

/// The plan of that call on CUDA. Raises NotImplementedError for a dtype without kernels, as the
/// call does.
PlanReport report_matmul(const MatmulNames& names, const std::optional<at::Tensor>& bias,
                         const at::Tensor& a, const at::Tensor& b, const DeviceFacts& device);

}  // namespace memops
