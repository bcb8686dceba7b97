// Tensors as integers of the same width, so that ATen moves them bit for bit whatever their dtype.
#pragma once

#include "common/torch/precompiled.h"

namespace memops {

/// The integer type as wide as a tensor's elements; complex128 has none and its own copies keep the
/// bits.
inline at::ScalarType bits_type(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    case 8:
      return at::kLong;
    default:
      return tensor.scalar_type();
  }
}

}  // namespace memops
