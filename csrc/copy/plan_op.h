// Tensors to a copy problem, for the CUDA kernels and for _plan.
#pragma once

#include <optional>

#include "common/export.h"
#include "common/torch/precompiled.h"
#include "copy/plan.h"

namespace memops {

/// Empty for a dtype that no kernel converts.
inline std::optional<ElementType> element_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
      return ElementType::kBool;
    case at::kByte:
      return ElementType::kUInt8;
    case at::kChar:
      return ElementType::kInt8;
    case at::kShort:
      return ElementType::kInt16;
    case at::kInt:
      return ElementType::kInt32;
    case at::kLong:
      return ElementType::kInt64;
    case at::kHalf:
      return ElementType::kFloat16;
    case at::kBFloat16:
      return ElementType::kBFloat16;
    case at::kFloat:
      return ElementType::kFloat32;
    case at::kDouble:
      return ElementType::kFloat64;
    default:
      return std::nullopt;
  }
}

/// The copy from src to dst: one shape, not empty. Empty where the dtypes differ and no kernel
/// converts: one of them has no ElementType, or an address is no multiple of its width.
inline std::optional<CopyProblem> copy_problem(const at::Tensor& dst, const at::Tensor& src,
                                               std::uint64_t dst_address,
                                               std::uint64_t src_address) {
  CopyProblem problem{
      coalesce(dst.sizes(), dst.strides(), src.strides(), static_cast<int>(src.element_size())),
      dst_address, src_address};
  if (dst.scalar_type() == src.scalar_type()) return problem;
  const std::optional<ElementType> to = element_type(dst);
  const std::optional<ElementType> from = element_type(src);
  const auto aligned = [](const at::Tensor& tensor, std::uint64_t address) {
    return address % static_cast<std::uint64_t>(tensor.element_size()) == 0;
  };
  if (!to || !from || !aligned(dst, dst_address) || !aligned(src, src_address)) {
    return std::nullopt;
  }
  problem.cast = Cast{*to, *from};
  return problem;
}

}  // namespace memops
