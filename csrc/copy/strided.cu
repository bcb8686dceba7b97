// Any view to any view, one element a thread in the destination's order.
#include <cstdint>
#include <string>

#include "common/cuda/launch.h"
#include "common/math.h"
#include "copy/copy.h"
#include "copy/views.h"

namespace memops {
namespace {

constexpr int kThreads = 256;

template <class Element, class Offset>
__global__ void __launch_bounds__(kThreads)
    copy_strided_kernel(Element* dst, const Element* src, const std::int64_t elements,
                        const __grid_constant__ StridedViews views) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= elements) return;
  const ViewOffsets<Offset> at = offsets_of(views, static_cast<Offset>(index));
  dst[at.dst] = src[at.src];
}

}  // namespace

void launch_copy_strided(const CopyPlan& plan, const CopyParams& params, cudaStream_t stream) {
  StridedViews views{};
  for (const CopyDimension& d : plan.layout.dimensions) views.append(d);
  const std::int64_t elements = plan.layout.elements();
  const unsigned grid = grid_blocks(ceil_div<std::int64_t>(elements, kThreads), "copy_strided");
  by_element_width(plan.layout.element_bytes, [&](auto element) {
    using Element = decltype(element);
    auto* const dst = static_cast<Element*>(params.dst);
    const auto* const src = static_cast<const Element*>(params.src);
    if (plan.wide_offsets) {
      copy_strided_kernel<Element, std::int64_t>
          <<<grid, kThreads, 0, stream>>>(dst, src, elements, views);
    } else {
      copy_strided_kernel<Element, std::uint32_t>
          <<<grid, kThreads, 0, stream>>>(dst, src, elements, views);
    }
  });
  check_launch("copy_strided");
}

}  // namespace memops
