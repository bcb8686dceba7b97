// copy and _copy_into on CUDA.
#include "common/torch/device.h"
#include "copy/copy.h"
#include "copy/op.h"
#include "copy/plan_op.h"

namespace memops {
namespace {

using at::Tensor;

/// Copies between views of one shape that do not overlap, converting where the dtypes differ.
void copy_views(const Tensor& dst, const Tensor& src) {
  if (dst.numel() == 0) return;
  const auto problem = copy_problem(dst, src, address(dst), address(src));
  if (!problem) {
    dst.copy_(src);  // PyTorch's own conversion kernels
    return;
  }
  const DeviceScope scope(dst);
  auto* const to = static_cast<char*>(dst.mutable_data_ptr());
  const auto* const from = static_cast<const char*>(src.const_data_ptr());
  for (const CopyPiece& piece : split_copy(*problem)) {
    launch_copy(plan_copy(piece.problem, scope.facts()),
                {to + piece.dst_offset, from + piece.src_offset}, scope.stream());
  }
}

Tensor copy_cuda(const Tensor& src) {
  check_copy(src);
  Tensor out = at::empty(src.sizes(), src.options().memory_format(std::nullopt));
  copy_views(out, src);
  return out;
}

void copy_into_cuda(const Tensor& dst, const Tensor& src) {
  check_copy_into(dst, src);
  const Tensor source = src.expand(dst.sizes());
  switch (overlap(dst, source)) {
    case Overlap::kNone:
      return copy_views(dst, source);
    case Overlap::kSame:
      return;
    case Overlap::kPossible:
      return copy_views(dst, copy_cuda(source));
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CUDA, m) {
  m.impl("copy", copy_cuda);
  m.impl("_copy_into", copy_into_cuda);
}

}  // namespace memops
