// Rows contiguous in both views: 16-byte stores on the destination's grid, row by row.
#include <cstdint>

#include "common/cuda/launch.h"
#include "copy/kernels.h"
#include "copy/views.h"
#include "copy/words.h"

namespace memops {
namespace {

struct RowsArguments {
  char* dst;
  const char* src;
  std::uint32_t count;  // vectors in all rows
  std::int64_t run_bytes;
  FastDivisor vectors;  // of a row
  SourceBytes source;
};

template <bool kAligned, int kCapacity>
__global__ void __launch_bounds__(kFlatThreads)
    copy_rows_kernel(const RowsArguments rows,
                     const __grid_constant__ StridedViews<kCapacity> views) {
  const std::uint32_t index = blockIdx.x * kFlatThreads + threadIdx.x;
  if (index >= rows.count) return;
  const auto [row, vector] = divide(index, rows.vectors);
  const auto at = offsets_of<std::int64_t>(views, row);
  char* const dst = rows.dst + at.dst;
  const char* const src = rows.src + at.src;
  if constexpr (kAligned) {
    reinterpret_cast<uint4*>(dst)[vector] = __ldg(reinterpret_cast<const uint4*>(src) + vector);
  } else {
    // The first vector may begin before the row, the last may end behind it.
    const std::int64_t begin =
        vector * kVectorBytes - (reinterpret_cast<std::uintptr_t>(dst) & (kVectorBytes - 1));
    const std::int64_t end = begin + kVectorBytes;
    if (begin >= 0 && end <= rows.run_bytes) {
      *reinterpret_cast<uint4*>(dst + begin) = rows.source.load(src + begin);
    } else {
      const std::int64_t stop = min(end, rows.run_bytes);
      for (std::int64_t b = max(begin, std::int64_t{0}); b < stop; ++b) dst[b] = src[b];
    }
  }
}

}  // namespace

void launch(const RowsCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const RowsArguments rows{static_cast<char*>(params.dst),
                           static_cast<const char*>(params.src),
                           static_cast<std::uint32_t>(copy.vectors * elements(copy.rows)),
                           copy.run_bytes,
                           FastDivisor(copy.vectors),
                           source_bytes(plan.layout, params.src)};
  const unsigned grid = grid_blocks(plan.blocks, "copy_rows");
  by_capacity(copy.rows, plan.layout.element_bytes, [&](const auto& views) {
    constexpr int kCapacity = std::remove_cvref_t<decltype(views)>::kCapacity;
    const auto kernel =
        copy.aligned ? copy_rows_kernel<true, kCapacity> : copy_rows_kernel<false, kCapacity>;
    kernel<<<grid, kFlatThreads, 0, stream>>>(rows, views);
  });
}

}  // namespace memops
