// Runs that share dimensions, or are short: boxes through shared memory, read in the source's
// order and written in the destination's.
#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "common/cuda/element_width.h"
#include "common/cuda/launch.h"
#include "common/math.h"
#include "copy/kernels.h"
#include "copy/views.h"
#include "copy/words.h"

namespace memops {
namespace {

/// A dimension that is cut into boxes, and how the numbers of runs and rows follow from its part.
struct CutDimension {
  FastDivisor boxes;
  std::uint32_t size;
  std::uint32_t tile;
  std::int64_t dst_stride;  // bytes
  std::int64_t src_stride;
};

/// A count of elements or rows: `inner` times the extent of a cut dimension, if one is in it.
struct Count {
  std::uint32_t inner;
  int cut;  // index into BoxArguments::cuts, or -1
};

struct BoxArguments {
  char* dst;
  const char* src;
  CutDimension cuts[2];
  Count load_elements;  // a load row's
  Count load_rows;
  Count store_elements;
  Count store_rows;
  int load_group;  // threads that share a row, a power of two
  int store_group;
  std::int32_t row_bytes;
  NestedOffsets<std::int64_t> src_of_row;
  NestedOffsets<std::int64_t> dst_of_row;
  NestedOffsets<std::int32_t> box_of_row;
  NestedOffsets<std::int32_t> box_of_run;
  StridedViews<kMostBatchDimensions> batch;
};

template <class Element, bool kSkewed>
struct Box {
  static constexpr int kUnit = sizeof(Element) < 4 ? 4 : sizeof(Element);
  static constexpr int kPerUnit = kUnit / sizeof(Element);

  /// Where the box's byte lies: with skew, a unit of padding follows every 128 bytes.
  static __device__ std::int32_t place(std::int32_t byte) {
    if constexpr (kSkewed) return byte + (byte >> 7) * kUnit;
    return byte;
  }
};

template <class Element, bool kSkewed>
__device__ void load_box(unsigned char* box, const BoxArguments& a, const char* src,
                         std::uint32_t run, std::uint32_t rows) {
  using B = Box<Element, kSkewed>;
  constexpr int kBatch = 4;
  const std::uint32_t lane = threadIdx.x & (a.load_group - 1);
  const std::uint32_t groups = kCopyThreads / a.load_group;
  const std::uint32_t units = (run + B::kPerUnit - 1) / B::kPerUnit;
  for (std::uint32_t row = threadIdx.x / a.load_group; row < rows; row += groups) {
    const char* const from = src + a.src_of_row(row);
    const std::int32_t to = row * a.row_bytes;
    if constexpr (sizeof(Element) >= 4) {
#pragma unroll 4
      for (std::uint32_t u = lane; u < units; u += a.load_group) {
        const std::int32_t byte = u * B::kUnit;
        __pipeline_memcpy_async(box + B::place(to + byte), from + byte, B::kUnit);
      }
    } else {
      const char* const end = from + run * sizeof(Element);
      const auto misalignment = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) & 3);
      const auto* const aligned = reinterpret_cast<const std::uint32_t*>(from - misalignment);
      for (std::uint32_t u = lane; u < units; u += kBatch * a.load_group) {
        std::uint32_t words[kBatch];
        if ((u + (kBatch - 1) * a.load_group + 2) * B::kUnit <= run * sizeof(Element)) {
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
            const std::uint32_t at = u + i * a.load_group;
            words[i] = __funnelshift_r(__ldg(aligned + at), __ldg(aligned + at + 1), 8 * misalignment);
          }
        } else {
#pragma unroll
          for (int i = 0; i < kBatch; ++i) {
            const std::uint32_t at = u + i * a.load_group;
            if (at < units) words[i] = load_word(from + at * B::kUnit, end);
          }
        }
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          const std::uint32_t at = u + i * a.load_group;
          if (at < units) {
            *reinterpret_cast<std::uint32_t*>(box + B::place(to + at * B::kUnit)) = words[i];
          }
        }
      }
    }
  }
}

template <class Element, bool kSkewed, int kRunRank>
__device__ void store_box(const unsigned char* box, const BoxArguments& a, char* dst,
                          std::int32_t run, std::uint32_t rows) {
  using B = Box<Element, kSkewed>;
  const std::int32_t lane = threadIdx.x & (a.store_group - 1);
  const std::uint32_t groups = kCopyThreads / a.store_group;
  for (std::uint32_t row = threadIdx.x / a.store_group; row < rows; row += groups) {
    char* const to = dst + a.dst_of_row(row);
    const std::int32_t from = a.box_of_row(row);
    const auto element = [&](std::int32_t x) {
      const std::int32_t byte = from + a.box_of_run.template at<kRunRank>(x);
      return *reinterpret_cast<const Element*>(box + B::place(byte));
    };
    // The first unit may begin before the run, the last may end behind it.
    const auto before = static_cast<std::int32_t>(
        (reinterpret_cast<std::uintptr_t>(to) & (B::kUnit - 1)) / sizeof(Element));
    for (std::int32_t first = lane * B::kPerUnit - before; first < run;
         first += a.store_group * B::kPerUnit) {
      if (B::kPerUnit == 1 || (first >= 0 && first + B::kPerUnit <= run)) {
        alignas(B::kUnit) Element values[B::kPerUnit];
#pragma unroll
        for (int k = 0; k < B::kPerUnit; ++k) values[k] = element(first + k);
        using Unit = std::conditional_t<B::kPerUnit == 1, Element, std::uint32_t>;
        *reinterpret_cast<Unit*>(to + first * static_cast<std::int32_t>(sizeof(Element))) =
            *reinterpret_cast<const Unit*>(values);
      } else {
        const std::int32_t stop = min(first + B::kPerUnit, run);
        for (std::int32_t x = max(first, 0); x < stop; ++x) {
          reinterpret_cast<Element*>(to)[x] = element(x);
        }
      }
    }
  }
}

template <class Element, bool kSkewed, int kRunRank>
__global__ void __launch_bounds__(kCopyThreads)
    copy_box_kernel(const __grid_constant__ BoxArguments a) {
  extern __shared__ __align__(128) unsigned char box[];
  std::uint32_t rest = blockIdx.x;
  std::uint32_t extents[2];
  std::int64_t dst_offset = 0;
  std::int64_t src_offset = 0;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    const CutDimension& cut = a.cuts[c];
    const auto [quotient, index] = divide(rest, cut.boxes);
    rest = quotient;
    extents[c] = min(cut.tile, cut.size - index * cut.tile);
    dst_offset += std::int64_t{index * cut.tile} * cut.dst_stride;
    src_offset += std::int64_t{index * cut.tile} * cut.src_stride;
  }
  const auto batch = offsets_of<std::int64_t>(a.batch, rest);
  const auto count = [&](const Count& of) {
    return of.cut < 0 ? of.inner : of.inner * (of.cut == 0 ? extents[0] : extents[1]);
  };
  load_box<Element, kSkewed>(box, a, a.src + batch.src + src_offset, count(a.load_elements),
                             count(a.load_rows));
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  store_box<Element, kSkewed, kRunRank>(box, a, a.dst + batch.dst + dst_offset,
                              static_cast<std::int32_t>(count(a.store_elements)),
                              count(a.store_rows));
}

/// The largest power of two that leaves no thread of a group without work.
int group_of(std::int64_t units) {
  const auto wanted = std::clamp<std::int64_t>(units, 1, kCopyThreads);
  return static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(wanted)));
}

}  // namespace

void launch(const BoxCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const int bytes = plan.layout.element_bytes;
  BoxArguments a{};
  a.dst = static_cast<char*>(params.dst);
  a.src = static_cast<const char*>(params.src);
  a.row_bytes = static_cast<std::int32_t>(copy.row_bytes);
  a.batch = StridedViews<kMostBatchDimensions>(copy.batch, bytes);

  std::vector<int> cut_of(copy.parts.size(), -1);
  const int cut_parts[] = {copy.src_run.back(), copy.dst_run.back()};
  for (int c = 0; c < 2; ++c) {
    const BoxCopy::Part& part = copy.parts[cut_parts[c]];
    const CopyDimension& d = part.dimension;
    if (cut_of[cut_parts[c]] >= 0) {  // both runs end in one dimension: it is cut once
      a.cuts[c] = {FastDivisor(1), 1, 1, 0, 0};
      continue;
    }
    cut_of[cut_parts[c]] = c;
    a.cuts[c] = {FastDivisor(ceil_div(d.size, part.tile)), static_cast<std::uint32_t>(d.size),
                 static_cast<std::uint32_t>(part.tile), d.dst_stride * bytes, d.src_stride * bytes};
  }
  const auto count = [&](const std::vector<int>& parts) {
    Count of{1, -1};
    for (const int p : parts) {
      if (cut_of[p] >= 0 && copy.parts[p].tile < copy.parts[p].dimension.size) {
        of.cut = cut_of[p];
      } else {
        of.inner *= static_cast<std::uint32_t>(copy.parts[p].tile);
      }
    }
    return of;
  };
  a.load_elements = count(copy.src_run);
  a.load_rows = count(copy.src_rows);
  a.store_elements = count(copy.dst_run);
  a.store_rows = count(copy.dst_rows);
  const auto tiles = [&](const std::vector<int>& parts) {
    std::int64_t n = 1;
    for (const int p : parts) n *= copy.parts[p].tile;
    return n;
  };
  const std::int64_t per_unit = std::max(1, 4 / bytes);
  a.load_group = group_of(tiles(copy.src_run) / per_unit);
  a.store_group = group_of(tiles(copy.dst_run) / per_unit);
  for (const int p : copy.src_rows) {
    a.src_of_row.append(copy.parts[p].tile, copy.parts[p].dimension.src_stride * bytes);
  }
  for (const int p : copy.dst_rows) {
    a.dst_of_row.append(copy.parts[p].tile, copy.parts[p].dimension.dst_stride * bytes);
    a.box_of_row.append(copy.parts[p].tile, copy.parts[p].box_stride);
  }
  for (const int p : copy.dst_run) a.box_of_run.append(copy.parts[p].tile, copy.parts[p].box_stride);

  const unsigned grid = grid_blocks(plan.blocks, "copy_box");
  const auto shared = static_cast<std::size_t>(copy.shared_bytes());
  by_element_width(bytes, [&](auto element) {
    using Element = decltype(element);
    const auto kernel = copy.skewed               ? copy_box_kernel<Element, true, 1>
                        : copy.dst_run.size() == 1 ? copy_box_kernel<Element, false, 1>
                        : copy.dst_run.size() == 2 ? copy_box_kernel<Element, false, 2>
                                                   : copy_box_kernel<Element, false, 3>;
    kernel<<<grid, kCopyThreads, shared, stream>>>(a);
  });
}

}  // namespace memops
