// Rows contiguous in both views, converted: a thread loads up to 32 bytes and makes one store on
// the destination's grid.
#include <cstdint>

#include "common/cuda/launch.h"
#include "copy/convert.h"
#include "copy/kernels.h"
#include "copy/views.h"
#include "copy/words.h"

namespace memops {
namespace {

struct CastRowsArguments {
  char* dst;
  const char* src;
  std::uint32_t count;  // vectors in all rows
  std::int64_t run;     // elements
  FastDivisor vectors;  // of a row
};

/// A pack that begins anywhere. `words_inside`: up to three bytes more on either side are the
/// source's.
template <class Pack>
__device__ Pack load_pack(const char* src, bool words_inside) {
  using Access = typename Pack::Access;
  using Bits = typename Pack::Bits;
  Pack pack;
  if (reinterpret_cast<std::uintptr_t>(src) % sizeof(Access) == 0) {
#pragma unroll
    for (int i = 0; i < Pack::kAccesses; ++i) {
      pack.accesses[i] = __ldg(reinterpret_cast<const Access*>(src) + i);
    }
    return pack;
  }
  if constexpr (sizeof(Bits) < 4 && Pack::kWords > 0) {
    if (words_inside) {
      load_words(src, pack.words);
      return pack;
    }
  }
#pragma unroll
  for (int i = 0; i < Pack::kBytes / static_cast<int>(sizeof(Bits)); ++i) {
    pack.bits[i] = __ldg(reinterpret_cast<const Bits*>(src) + i);
  }
  return pack;
}

template <class Dst, class Src>
constexpr int kCastVector = cast_vector(sizeof(Dst), sizeof(Src));
template <class Dst, class Src>
constexpr int kCastSteps = cast_steps(sizeof(Dst), sizeof(Src));

template <class Dst, class Src>
__global__ void __launch_bounds__(kFlatThreads)
    cast_rows_kernel(const CastRowsArguments rows,
                     const __grid_constant__ StridedViews<kFewDimensions> views) {
  constexpr int kVector = kCastVector<Dst, Src>;
  constexpr int kSteps = kCastSteps<Dst, Src>;
  using Loaded = ElementPack<Src, kVector>;
  using Made = ElementPack<Dst, kVector>;
  static_assert(Made::kAccesses == 1);
  Dst* dst[kSteps] = {};
  const Src* src[kSteps] = {};
  std::int64_t begin[kSteps];  // of the vector, in its row
  Loaded loaded[kSteps];
  bool whole[kSteps];
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    const std::uint32_t index = (blockIdx.x * kSteps + i) * kFlatThreads + threadIdx.x;
    begin[i] = rows.run;  // nothing to do
    whole[i] = false;
    if (index >= rows.count) continue;
    const auto [row, vector] = divide(index, rows.vectors);
    const auto at = offsets_of<std::int64_t>(views, row);
    dst[i] = reinterpret_cast<Dst*>(rows.dst + at.dst);
    src[i] = reinterpret_cast<const Src*>(rows.src + at.src);
    // The first vector may begin before the row, the last may end behind it.
    const auto behind_boundary =
        static_cast<int>(reinterpret_cast<std::uintptr_t>(dst[i]) / sizeof(Dst)) & (kVector - 1);
    begin[i] = std::int64_t{vector} * kVector - behind_boundary;
    whole[i] = begin[i] >= 0 && begin[i] + kVector <= rows.run;
    if (whole[i]) {
      constexpr int kMore = 4 / sizeof(Src);  // elements that reach three bytes on either side
      const bool words_inside = begin[i] >= kMore && begin[i] + kVector + kMore <= rows.run;
      loaded[i] = load_pack<Loaded>(reinterpret_cast<const char*>(src[i] + begin[i]), words_inside);
    }
  }
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if (whole[i]) {
      const Made made = convert<Dst>(loaded[i]);
      *reinterpret_cast<typename Made::Access*>(dst[i] + begin[i]) = made.accesses[0];
    } else {
      const std::int64_t stop = min(begin[i] + kVector, rows.run);
#pragma unroll 1
      for (std::int64_t e = max(begin[i], std::int64_t{0}); e < stop; ++e) {
        dst[i][e] = convert<Dst>(src[i][e]);
      }
    }
  }
}

}  // namespace

void launch(const CastRows& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const CastRowsArguments rows{static_cast<char*>(params.dst), static_cast<const char*>(params.src),
                               static_cast<std::uint32_t>(copy.vectors * elements(copy.rows)),
                               copy.run, FastDivisor(copy.vectors)};
  const unsigned grid = grid_blocks(plan.blocks, "cast_rows");
  by_cast(plan.cast.value(), [&](auto dst, auto src) {
    using Dst = Stored<dst()>;
    using Src = Stored<src()>;
    const StridedViews<kFewDimensions> views(copy.rows, sizeof(Dst), sizeof(Src));
    cast_rows_kernel<Dst, Src><<<grid, kFlatThreads, 0, stream>>>(rows, views);
  });
}

}  // namespace memops
