// Tensors to a copy problem, for the CUDA kernels and for _plan.
#pragma once

#include "common/export.h"
#include "common/torch/precompiled.h"
#include "copy/plan.h"

namespace memops {

/// The copy from src to dst: one shape, one element size, not empty.
inline CopyProblem copy_problem(const at::Tensor& dst, const at::Tensor& src,
                                std::uint64_t dst_address, std::uint64_t src_address) {
  return {coalesce(dst.sizes(), dst.strides(), src.strides(), static_cast<int>(dst.element_size())),
          dst_address, src_address};
}

}  // namespace memops
