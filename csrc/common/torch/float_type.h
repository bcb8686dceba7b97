// PyTorch's dtypes as the kernels' floating types.
#pragma once

#include <optional>

#include "common/float_type.h"
#include "common/torch/precompiled.h"

namespace memops {

/// Empty for a dtype that the arithmetic kernels do not take.
inline std::optional<FloatType> float_type(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kHalf:
      return FloatType::kHalf;
    case at::kBFloat16:
      return FloatType::kBFloat16;
    case at::kFloat:
      return FloatType::kFloat;
    case at::kDouble:
      return FloatType::kDouble;
    default:
      return std::nullopt;
  }
}

}  // namespace memops
