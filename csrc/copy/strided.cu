// Any view to any view, in the destination's order.
#include <cstdint>

#include "common/cuda/element_width.h"
#include "common/cuda/launch.h"
#include "copy/kernels.h"
#include "copy/views.h"

namespace memops {
namespace {

template <class Element, class Offset, int kCapacity>
__global__ void __launch_bounds__(kCopyThreads)
    copy_strided_kernel(char* const dst, const char* const src, const std::uint32_t elements,
                        const __grid_constant__ StridedViews<kCapacity> views) {
  const std::uint32_t first = blockIdx.x * (kCopyThreads * kStridedElements) + threadIdx.x;
  Element values[kStridedElements];
  Offset dst_offsets[kStridedElements];
#pragma unroll
  for (int i = 0; i < kStridedElements; ++i) {
    const std::uint32_t index = first + i * kCopyThreads;
    if (index < elements) {
      const auto at = offsets_of<Offset>(views, index);
      dst_offsets[i] = at.dst;
      values[i] = __ldg(reinterpret_cast<const Element*>(src + at.src));
    }
  }
#pragma unroll
  for (int i = 0; i < kStridedElements; ++i) {
    const std::uint32_t index = first + i * kCopyThreads;
    if (index < elements) *reinterpret_cast<Element*>(dst + dst_offsets[i]) = values[i];
  }
}

}  // namespace

void launch(const StridedCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const unsigned grid = grid_blocks(plan.blocks, "copy_strided");
  const auto elements = static_cast<std::uint32_t>(plan.layout.elements());
  by_element_width(plan.layout.element_bytes, [&](auto element) {
    using Element = decltype(element);
    by_capacity(plan.layout.dimensions, plan.layout.element_bytes, [&](const auto& views) {
      constexpr int kCapacity = std::remove_cvref_t<decltype(views)>::kCapacity;
      const auto kernel = copy.wide_offsets ? copy_strided_kernel<Element, std::int64_t, kCapacity>
                                            : copy_strided_kernel<Element, std::uint32_t, kCapacity>;
      kernel<<<grid, kCopyThreads, 0, stream>>>(static_cast<char*>(params.dst),
                                                static_cast<const char*>(params.src), elements,
                                                views);
    });
  });
}

}  // namespace memops
