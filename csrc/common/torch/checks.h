// Argument checks shared by the ops. Each message names the op, the argument, what was given and
// what is accepted; all raise before anything is launched or written.
#pragma once

#include <initializer_list>
#include <optional>

#include "common/torch/precompiled.h"

namespace memops {

/// Strided, not nested: everything else has no kernel. Raises NotImplementedError.
inline void check_strided(const char* op, const char* argument, const at::Tensor& tensor) {
  TORCH_CHECK_NOT_IMPLEMENTED(!tensor.is_nested(), op, ": ", argument,
                              " is a nested tensor; a strided tensor is accepted");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.layout() == at::kStrided, op, ": ", argument, " has layout ",
                              tensor.layout(), "; a strided tensor is accepted");
  TORCH_CHECK_NOT_IMPLEMENTED(!tensor.is_quantized(), op, ": ", argument,
                              " is a quantized tensor; dequantize it first");
}

/// Both tensors on one device. Raises RuntimeError.
inline void check_same_device(const char* op, const char* name, const at::Tensor& tensor,
                              const char* other_name, const at::Tensor& other) {
  TORCH_CHECK(tensor.device() == other.device(), op, ": ", other_name, " is on ", other.device(),
              " and ", name, " on ", tensor.device(), "; expected both on one device");
}

/// Both tensors of one dtype. Raises RuntimeError.
inline void check_same_dtype(const char* op, const char* name, const at::Tensor& tensor,
                             const char* other_name, const at::Tensor& other) {
  TORCH_CHECK(tensor.scalar_type() == other.scalar_type(), op, ": ", other_name, " is ",
              other.scalar_type(), " and ", name, " ", tensor.scalar_type(),
              "; expected the same dtype");
}

/// int32 or int64. Raises RuntimeError.
inline void check_index_dtype(const char* op, const char* argument, const at::Tensor& index) {
  TORCH_CHECK(index.scalar_type() == at::kInt || index.scalar_type() == at::kLong, op, ": ",
              argument, " is ", index.scalar_type(), "; int32 or int64 is accepted");
}

/// The floating types that the arithmetic CUDA kernels take. Raises NotImplementedError.
inline void check_floating_on_cuda(const char* op, const char* argument, const at::Tensor& tensor) {
  const at::ScalarType type = tensor.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(
      type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16, op,
      ": ", argument, " is ", type,
      "; on CUDA float16, bfloat16, float32 and float64 are supported");
}

}  // namespace memops
