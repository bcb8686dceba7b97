// Any view to any view in the destination's order, converted.
#include <cstdint>

#include "common/cuda/launch.h"
#include "copy/convert.h"
#include "copy/kernels.h"
#include "copy/views.h"

namespace memops {
namespace {

/// The byte offsets of kStridedElements elements, a block's width apart.
template <class Offset, int kCapacity>
__device__ void offsets_of_elements(const StridedViews<kCapacity>& views, std::uint32_t first,
                                    ViewOffsets<Offset> (&at)[kStridedElements]) {
  std::uint32_t rest[kStridedElements];
#pragma unroll
  for (int i = 0; i < kStridedElements; ++i) {
    rest[i] = first + i * kCopyThreads;
    at[i] = {0, 0};
  }
#pragma unroll 1
  for (int d = 0; d < views.rank; ++d) {
    const FastDivisor size = views.sizes[d];
    const auto dst_stride = static_cast<Offset>(views.dst_strides[d]);
    const auto src_stride = static_cast<Offset>(views.src_strides[d]);
#pragma unroll
    for (int i = 0; i < kStridedElements; ++i) {
      const auto [quotient, coordinate] = divide(rest[i], size);
      at[i].dst += static_cast<Offset>(coordinate) * dst_stride;
      at[i].src += static_cast<Offset>(coordinate) * src_stride;
      rest[i] = quotient;
    }
  }
}

template <class Src>
__device__ Src load_element(const char* src) {
  using Pack = ElementPack<Src, 1>;
  Pack pack;
  pack.bits[0] = __ldg(reinterpret_cast<const typename Pack::Bits*>(src));
  return pack.values[0];
}

/// A source whose type the compiler knows.
template <class Dst, class Src>
struct KnownSource {
  __device__ Dst operator()(const char* src) const { return convert<Dst>(load_element<Src>(src)); }
};

/// Any source: rare layouts are not worth a kernel for each pair.
template <class Dst>
struct AnySource {
  ElementType type;

  __device__ Dst operator()(const char* src) const {
    return load(src, std::make_index_sequence<std::tuple_size_v<StoredTypes>>{});
  }

 private:
  template <std::size_t... kIndices>
  __device__ Dst load(const char* src, std::index_sequence<kIndices...>) const {
    Dst value{};
    ((static_cast<std::size_t>(type) == kIndices &&
      (value = convert<Dst>(load_element<std::tuple_element_t<kIndices, StoredTypes>>(src)),
       true)) ||
     ...);
    return value;
  }
};

template <class Dst, class Source, class Offset, int kCapacity>
__global__ void __launch_bounds__(kCopyThreads)
    cast_strided_kernel(char* const dst, const char* const src, const Source source,
                        const std::uint32_t elements,
                        const __grid_constant__ StridedViews<kCapacity> views) {
  const std::uint32_t first = blockIdx.x * (kCopyThreads * kStridedElements) + threadIdx.x;
  ViewOffsets<Offset> at[kStridedElements];
  offsets_of_elements(views, first, at);
  Dst values[kStridedElements];
#pragma unroll
  for (int i = 0; i < kStridedElements; ++i) {
    if (first + i * kCopyThreads < elements) values[i] = source(src + at[i].src);
  }
#pragma unroll
  for (int i = 0; i < kStridedElements; ++i) {
    if (first + i * kCopyThreads < elements) {
      *reinterpret_cast<Dst*>(dst + at[i].dst) = values[i];
    }
  }
}

}  // namespace

void launch(const CastStrided& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const unsigned grid = grid_blocks(plan.blocks, "cast_strided");
  const auto elements = static_cast<std::uint32_t>(plan.layout.elements());
  const auto& dimensions = plan.layout.dimensions;
  const Cast cast = plan.cast.value();
  auto* const to = static_cast<char*>(params.dst);
  const auto* const from = static_cast<const char*>(params.src);
  if (copy.wide_offsets) {
    by_element_type(cast.dst, [&](auto dst) {
      using Dst = Stored<dst()>;
      cast_strided_kernel<Dst, AnySource<Dst>, std::int64_t, kAllDimensions>
          <<<grid, kCopyThreads, 0, stream>>>(
              to, from, {cast.src}, elements,
              StridedViews<kAllDimensions>(dimensions, sizeof(Dst), bytes_of(cast.src)));
    });
    return;
  }
  by_cast(cast, [&](auto dst, auto src) {
    using Dst = Stored<dst()>;
    using Src = Stored<src()>;
    cast_strided_kernel<Dst, KnownSource<Dst, Src>, std::uint32_t, kFewDimensions>
        <<<grid, kCopyThreads, 0, stream>>>(
            to, from, {}, elements,
            StridedViews<kFewDimensions>(dimensions, sizeof(Dst), sizeof(Src)));
  });
}

}  // namespace memops
