// Whether two tensors share memory.
#pragma once

#include "common/export.h"
#include "common/torch/precompiled.h"

namespace memops {

enum class Overlap {
  kNone,
  kSame,     // they are one view
  kPossible  // their byte ranges meet
};

/// How the memory of two strided tensors meets; of any shapes.
MEMOPS_API Overlap overlap(const at::Tensor& dst, const at::Tensor& src);

}  // namespace memops
