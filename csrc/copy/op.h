// The copy ops for other rooms' torch side.
#pragma once

#include "common/export.h"
#include "common/torch/precompiled.h"

namespace memops {

/// torch.ops.memops.copy through the dispatcher: a contiguous tensor with src's elements.
MEMOPS_API at::Tensor call_copy(const at::Tensor& src);

/// What `copy` refuses, on every device.
MEMOPS_API void check_copy(const at::Tensor& src);

/// What `_copy_into` refuses, on every device.
MEMOPS_API void check_copy_into(const at::Tensor& dst, const at::Tensor& src);

}  // namespace memops
