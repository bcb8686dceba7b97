// Any view to any view, in the destination's order.
#include <array>
#include <cstdint>
#include <utility>

#include "common/cuda/element_width.h"
#include "common/cuda/launch.h"
#include "copy/kernels.h"
#include "copy/views.h"

namespace memops {
namespace {

using FewViews = StridedViews<kFewDimensions>;

/// One element a thread and step. kRank 0: as many dimensions as the views have.
template <class Element, class Offset, int kRank, int kCapacity>
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
      ViewOffsets<Offset> at;
      if constexpr (kRank == 0) {
        at = offsets_of<Offset>(views, index);
      } else {
        at = offsets_of_rank<Offset, kRank>(views, index);
      }
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

/// A contiguous destination: kStridedElements side by side a thread, one store.
template <class Element, int kRank>
__global__ void __launch_bounds__(kCopyThreads)
    copy_packed_kernel(char* const dst, const char* const src, const std::uint32_t elements,
                       const __grid_constant__ FewViews views) {
  struct alignas(sizeof(Element) * kStridedElements) Pack {
    Element values[kStridedElements];
  };
  const std::uint32_t first = (blockIdx.x * kCopyThreads + threadIdx.x) * kStridedElements;
  if (first >= elements) return;
  const auto at = [&](int i) {
    const std::uint32_t offset = offsets_of_rank<std::uint32_t, kRank>(views, first + i).src;
    return __ldg(reinterpret_cast<const Element*>(src + offset));
  };
  auto* const to = reinterpret_cast<Element*>(dst) + first;
  if (first + kStridedElements <= elements) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < kStridedElements; ++i) pack.values[i] = at(i);
    *reinterpret_cast<Pack*>(to) = pack;
  } else {
    for (std::uint32_t i = 0; first + i < elements; ++i) to[i] = at(i);
  }
}

using FewKernel = void (*)(char*, const char*, std::uint32_t, FewViews);

/// The kernels of rank 1 to kFewDimensions.
template <class Element, bool kPacked, int... kIndices>
constexpr std::array<FewKernel, kFewDimensions> kernels_of(
    std::integer_sequence<int, kIndices...>) {
  if constexpr (kPacked) {
    return {copy_packed_kernel<Element, kIndices + 1>...};
  } else {
    return {copy_strided_kernel<Element, std::uint32_t, kIndices + 1, kFewDimensions>...};
  }
}

}  // namespace

void launch(const StridedCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const unsigned grid = grid_blocks(plan.blocks, "copy_strided");
  const auto elements = static_cast<std::uint32_t>(plan.layout.elements());
  const auto& dimensions = plan.layout.dimensions;
  auto* const dst = static_cast<char*>(params.dst);
  const auto* const src = static_cast<const char*>(params.src);
  by_element_width(plan.layout.element_bytes, [&](auto element) {
    using Element = decltype(element);
    constexpr std::make_integer_sequence<int, kFewDimensions> kRanks{};
    if (!copy.wide_offsets && !dimensions.empty() && dimensions.size() <= kFewDimensions) {
      const std::size_t rank = dimensions.size() - 1;
      if constexpr (sizeof(Element) <= 4) {
        if (copy.packed) {
          constexpr auto kKernels = kernels_of<Element, true>(kRanks);
          kKernels[rank]<<<grid, kCopyThreads, 0, stream>>>(dst, src, elements,
                                                            FewViews(dimensions, sizeof(Element)));
          return;
        }
      }
      constexpr auto kKernels = kernels_of<Element, false>(kRanks);
      kKernels[rank]<<<grid, kCopyThreads, 0, stream>>>(dst, src, elements,
                                                        FewViews(dimensions, sizeof(Element)));
      return;
    }
    by_capacity(dimensions, sizeof(Element), [&](const auto& views) {
      constexpr int kCapacity = std::remove_cvref_t<decltype(views)>::kCapacity;
      const auto kernel = copy.wide_offsets
                              ? copy_strided_kernel<Element, std::int64_t, 0, kCapacity>
                              : copy_strided_kernel<Element, std::uint32_t, 0, kCapacity>;
      kernel<<<grid, kCopyThreads, 0, stream>>>(dst, src, elements, views);
    });
  });
}

}  // namespace memops
