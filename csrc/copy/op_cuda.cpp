// copy and _copy_into on CUDA.
#include <optional>
#include <utility>

#include "common/torch/device.h"
#include "common/torch/overlap.h"
#include "common/torch/plan_op.h"
#include "copy/copy.h"
#include "copy/op.h"
#include "copy/plan_op.h"

namespace memops {
namespace {

using at::Tensor;

/// Copies between views of one shape that do not overlap, converting where the dtypes differ,
/// planned for the tensors' device or for a made-up one.
void copy_views(const Tensor& dst, const Tensor& src,
                const std::optional<DeviceFacts>& made_up = std::nullopt) {
  if (dst.numel() == 0) return;
  const auto problem = copy_problem(dst, src, address(dst), address(src));
  if (!problem) {
    dst.copy_(src);  // PyTorch's own conversion kernels
    return;
  }
  const DeviceScope scope(dst);
  const DeviceFacts& facts = made_up ? *made_up : scope.facts();
  auto* const to = static_cast<char*>(dst.mutable_data_ptr());
  const auto* const from = static_cast<const char*>(src.const_data_ptr());
  for (CopyPiece& piece : split_copy(*problem)) {
    launch_copy(plan_copy(std::move(piece.problem), facts),
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

void copy_into_planned_cuda(const Tensor& dst, const Tensor& src, at::IntArrayRef device) {
  check_copy_into(dst, src);
  TORCH_CHECK(dst.scalar_type() == src.scalar_type() && dst.sizes() == src.sizes() &&
                  overlap(dst, src) == Overlap::kNone,
              "_copy_into_planned: dst ", dst.scalar_type(), dst.sizes(), " and src ",
              src.scalar_type(), src.sizes(),
              "; one dtype, one shape and memory apart are accepted");
  copy_views(dst, src, given_device(device));
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CUDA, m) {
  m.impl("copy", copy_cuda);
  m.impl("_copy_into", copy_into_cuda);
  m.impl("_copy_into_planned", copy_into_planned_cuda);
}

}  // namespace memops
