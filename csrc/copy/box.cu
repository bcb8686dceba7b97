// Boxes through shared memory, read in the source's order and written in the destination's. A block
// works out once where the elements of a box lie, and then moves one box after the other.
#include <cuda_pipeline_primitives.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
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

/// A position in the box to one or two sums over its coordinates.
struct BoxOrder {
  int rank = 0;
  FastDivisor sizes[kMostBoxDimensions + 1];
  std::int32_t strides[kMostBoxDimensions + 1];  // bytes in a view
  std::int32_t places[kMostBoxDimensions + 1];   // bytes in shared memory

  void append(std::int64_t size, std::int64_t stride, std::int64_t place) {
    sizes[rank] = FastDivisor(size);
    strides[rank] = static_cast<std::int32_t>(stride);
    places[rank] = static_cast<std::int32_t>(place);
    ++rank;
  }
};

struct BoxPosition {
  std::int32_t offset;
  std::int32_t place;
};

__device__ BoxPosition locate(const BoxOrder& order, std::uint32_t index) {
  BoxPosition at{0, 0};
  for (int d = 0; d < order.rank; ++d) {
    const auto [rest, coordinate] = divide(index, order.sizes[d]);
    at.offset += static_cast<std::int32_t>(coordinate) * order.strides[d];
    at.place += static_cast<std::int32_t>(coordinate) * order.places[d];
    index = rest;
  }
  return at;
}

struct BoxCut {
  FastDivisor boxes;
  std::uint32_t tile;
  std::uint32_t last;  // where the last box begins: it may overlap the one before
  std::int64_t dst_stride;
  std::int64_t src_stride;
};

struct BoxArguments {
  char* dst;
  const char* src;
  const char* src_end;
  std::uint32_t boxes;
  std::uint32_t loads;   // of a box: elements, or words
  std::uint32_t stores;  // of a box: elements, or words
  std::uint32_t run_bytes;  // of the destination
  FastDivisor run_words;    // of the destination, and one more
  BoxOrder load;     // strides of the source
  BoxOrder store;    // strides of the destination
  BoxOrder element;  // of the destination's order, places in the source's
  int cuts;
  BoxCut cut[kMostBoxDimensions];
  StridedViews<kMostBatchDimensions> batch;
};

__device__ ViewOffsets<std::int64_t> box_begin(const BoxArguments& a, std::uint32_t box) {
  ViewOffsets<std::int64_t> begin{0, 0};
  for (int c = 0; c < a.cuts; ++c) {
    const auto [rest, index] = divide(box, a.cut[c].boxes);
    const std::int64_t at = min(index * a.cut[c].tile, a.cut[c].last);
    begin.dst += at * a.cut[c].dst_stride;
    begin.src += at * a.cut[c].src_stride;
    box = rest;
  }
  const auto batch = offsets_of<std::int64_t>(a.batch, box);
  return {begin.dst + batch.dst, begin.src + batch.src};
}

/// A unit of padding behind every 128 bytes: steps of a power of two meet all banks.
template <int kUnit>
__device__ std::int32_t skewed(std::int32_t byte) {
  return byte + (byte >> 7) * kUnit;
}

template <class Element>
struct BoxShape {
  static constexpr int kUnit = sizeof(Element) < 4 ? 4 : sizeof(Element);
  static constexpr int kItems = box_items(sizeof(Element)) / kBoxThreads;  // of a thread
  static constexpr int kBytes = kItems * kBoxThreads * kUnit;
  static constexpr int kSkewedBytes = kBytes + kBytes / 128 * kUnit;
};

template <class Element>
__global__ void __launch_bounds__(kBoxThreads, kBoxBlocks)
    copy_box_kernel(const __grid_constant__ BoxArguments a) {
  constexpr int kItems = BoxShape<Element>::kItems;
  __shared__ alignas(128) unsigned char buffers[2][BoxShape<Element>::kSkewedBytes];
  std::int32_t load_offsets[kItems];
  std::int32_t store_offsets[kItems];
  std::int32_t places[kItems];
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const std::uint32_t i = threadIdx.x + k * kBoxThreads;
    load_offsets[k] = locate(a.load, i).offset;
    const BoxPosition at = locate(a.store, i);
    store_offsets[k] = at.offset;
    places[k] = skewed<sizeof(Element)>(at.place);
  }
  const auto load = [&](std::uint32_t box, unsigned char* buffer) {
    if (box < a.boxes) {
      const char* const src = a.src + box_begin(a, box).src;
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const std::uint32_t i = threadIdx.x + k * kBoxThreads;
        if (i >= a.loads) break;
        __pipeline_memcpy_async(buffer + skewed<sizeof(Element)>(i * sizeof(Element)),
                                src + load_offsets[k], sizeof(Element));
      }
    }
    __pipeline_commit();
  };
  int turn = 0;
  load(blockIdx.x, buffers[0]);
  for (std::uint32_t box = blockIdx.x; box < a.boxes; box += gridDim.x) {
    load(box + gridDim.x, buffers[turn ^ 1]);
    __pipeline_wait_prior(1);
    __syncthreads();
    char* const dst = a.dst + box_begin(a, box).dst;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      if (threadIdx.x + k * kBoxThreads >= a.stores) break;
      *reinterpret_cast<Element*>(dst + store_offsets[k]) =
          *reinterpret_cast<const Element*>(buffers[turn] + places[k]);
    }
    __syncthreads();
    turn ^= 1;
  }
}

/// Elements shorter than a word: runs are read in words into `read`, their elements put into the
/// destination's order in `turned`, and written in words from there, wherever the runs begin.
template <class Element>
__global__ void __launch_bounds__(kBoxThreads, kBoxBlocks)
    copy_box_words_kernel(const __grid_constant__ BoxArguments a) {
  constexpr int kItems = BoxShape<Element>::kItems;
  constexpr int kPerWord = 4 / sizeof(Element);
  constexpr int kBatch = 2;  // loads in flight
  using Places = std::conditional_t<kPerWord == 4, ushort4, ushort2>;
  extern __shared__ __align__(128) unsigned char shared[];
  auto* const read = shared;
  auto* const turned = reinterpret_cast<std::uint32_t*>(read + BoxShape<Element>::kSkewedBytes);
  auto* const places = reinterpret_cast<Places*>(turned + kItems * kBoxThreads);

  std::int32_t load_offsets[kItems];
  std::int32_t store_offsets[kItems];
  unsigned inner = 0;  // a bit for each word that lies inside its run wherever that begins
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const std::uint32_t i = threadIdx.x + k * kBoxThreads;
    load_offsets[k] = locate(a.load, i).offset;
    store_offsets[k] = locate(a.store, i).offset;
    const auto [row, word] = divide(i, a.run_words);
    if (word > 0 && 4 * word + 4 <= a.run_bytes) inner |= 1u << k;
    alignas(8) std::uint16_t at[kPerWord];
#pragma unroll
    for (int e = 0; e < kPerWord; ++e) {
      const std::uint32_t of_run = word * kPerWord + e;
      const std::uint32_t run = a.run_bytes / sizeof(Element);
      const std::int32_t place = of_run < run ? locate(a.element, row * run + of_run).place : 0;
      at[e] = static_cast<std::uint16_t>(skewed<4>(place));
    }
    if (i < a.stores) places[i] = *reinterpret_cast<const Places*>(at);
  }

  for (std::uint32_t box = blockIdx.x; box < a.boxes; box += gridDim.x) {
    const auto begin = box_begin(a, box);
    const char* const src = a.src + begin.src;
#pragma unroll
    for (int k0 = 0; k0 < kItems; k0 += kBatch) {
      std::uint32_t words[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        if (threadIdx.x + (k0 + k) * kBoxThreads >= a.loads) break;
        const char* const from = src + load_offsets[k0 + k];
        if (from + 8 <= a.src_end) {
          const auto at = reinterpret_cast<std::uintptr_t>(from);
          const auto* const aligned =
              reinterpret_cast<const std::uint32_t*>(at & ~std::uintptr_t{3});
          words[k] = __funnelshift_r(__ldg(aligned), __ldg(aligned + 1), 8 * (at & 3));
        } else {
          words[k] = load_word(from, a.src_end);
        }
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        const std::uint32_t i = threadIdx.x + (k0 + k) * kBoxThreads;
        if (i >= a.loads) break;
        *reinterpret_cast<std::uint32_t*>(read + skewed<4>(4 * i)) = words[k];
      }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const std::uint32_t i = threadIdx.x + k * kBoxThreads;
      if (i >= a.stores) break;
      const Places at = places[i];
      const auto element = [&](std::uint16_t place) -> std::uint32_t {
        return *reinterpret_cast<const Element*>(read + place);
      };
      if constexpr (kPerWord == 4) {
        turned[i] = __byte_perm(__byte_perm(element(at.x), element(at.y), 0x0040),
                                __byte_perm(element(at.z), element(at.w), 0x0040), 0x5410);
      } else {
        turned[i] = __byte_perm(element(at.x), element(at.y), 0x5410);
      }
    }
    __syncthreads();
    char* const dst = a.dst + begin.dst;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const std::uint32_t i = threadIdx.x + k * kBoxThreads;
      if (i >= a.stores) break;
      char* const to = dst + store_offsets[k];
      const auto before = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(to) & 3);
      // The aligned word there begins `before` bytes ahead of the run's word.
      const std::uint32_t value = __funnelshift_rc(i == 0 ? 0 : turned[i - 1], turned[i],
                                                   8 * (4 - before));
      if (inner >> k & 1) {
        *reinterpret_cast<std::uint32_t*>(to - before) = value;
      } else {
        const int first = static_cast<int>(4 * divide(i, a.run_words).remainder - before);
#pragma unroll
        for (int b = 0; b < 4; b += sizeof(Element)) {
          if (first + b >= 0 && first + b < static_cast<int>(a.run_bytes)) {
            *reinterpret_cast<Element*>(to - before + b) = static_cast<Element>(value >> (8 * b));
          }
        }
      }
    }
  }
}

/// One behind the last byte of the source's view.
const char* end_of_source(const CopyLayout& layout, const void* src) {
  std::int64_t last = 0;
  for (const CopyDimension& d : layout.dimensions) last += (d.size - 1) * d.src_stride;
  return static_cast<const char*>(src) + (last + 1) * layout.element_bytes;
}

/// Places of the box's dimensions in shared memory: `run` elements of the source side by side, the
/// next run `row_bytes` later.
std::vector<std::int64_t> places_of(const BoxCopy& copy, int element_bytes,
                                    std::int64_t row_bytes) {
  std::vector<std::int64_t> places;
  std::int64_t elements = 1;
  for (const BoxCopy::Part& part : copy.src_order) {
    places.push_back(elements < copy.src_run ? elements * element_bytes
                                             : elements / copy.src_run * row_bytes);
    elements *= part.tile;
  }
  return places;
}

}  // namespace

void launch(const BoxCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const int bytes = plan.layout.element_bytes;
  const bool words = bytes < 4;
  BoxArguments a{};
  a.dst = static_cast<char*>(params.dst);
  a.src = static_cast<const char*>(params.src);
  a.src_end = end_of_source(plan.layout, params.src);
  a.boxes = static_cast<std::uint32_t>(copy.boxes());
  a.batch = StridedViews<kMostBatchDimensions>(copy.batch, bytes);
  for (const BoxCopy::Part& part : copy.dst_order) {
    const CopyDimension& d = part.dimension;
    if (part.tile == d.size) continue;
    a.cut[a.cuts++] = {FastDivisor(ceil_div(d.size, part.tile)),
                       static_cast<std::uint32_t>(part.tile),
                       static_cast<std::uint32_t>(d.size - part.tile), d.dst_stride * bytes,
                       d.src_stride * bytes};
  }
  const std::int64_t src_words = ceil_div<std::int64_t>(copy.src_run * bytes, 4);
  const std::int64_t dst_words = ceil_div<std::int64_t>(copy.dst_run * bytes, 4) + 1;
  const std::vector<std::int64_t> places =
      places_of(copy, bytes, words ? 4 * src_words : copy.src_run * bytes);
  const auto place_of = [&](const BoxCopy::Part& part) {
    const auto same = [&](const BoxCopy::Part& other) { return other.dimension == part.dimension; };
    return places[std::ranges::find_if(copy.src_order, same) - copy.src_order.begin()];
  };
  const auto order = [&](std::span<const BoxCopy::Part> parts, std::int64_t run,
                         std::int64_t run_words, std::int64_t CopyDimension::*stride) {
    BoxOrder made;
    if (words) made.append(run_words, 4, 0);
    std::int64_t elements = 1;
    for (const BoxCopy::Part& part : parts) {
      if (!words || elements >= run) {
        made.append(part.tile, part.dimension.*stride * bytes, place_of(part));
      }
      elements *= part.tile;
    }
    return made;
  };
  a.load = order(copy.src_order, copy.src_run, src_words, &CopyDimension::src_stride);
  a.store = order(copy.dst_order, copy.dst_run, dst_words, &CopyDimension::dst_stride);
  for (const BoxCopy::Part& part : copy.dst_order) {
    a.element.append(part.tile, 0, place_of(part));
  }
  a.run_bytes = static_cast<std::uint32_t>(copy.dst_run * bytes);
  a.run_words = FastDivisor(dst_words);
  a.loads = static_cast<std::uint32_t>(words ? copy.elements / copy.src_run * src_words
                                             : copy.elements);
  a.stores = static_cast<std::uint32_t>(words ? copy.elements / copy.dst_run * dst_words
                                              : copy.elements);

  const unsigned grid = grid_blocks(plan.blocks, "copy_box");
  const auto run_words_kernel = [&](auto element) {
    using Element = decltype(element);
    using Shape = BoxShape<Element>;
    constexpr int kPlaces = Shape::kBytes / sizeof(Element) * sizeof(std::uint16_t);
    constexpr int kShared = Shape::kSkewedBytes + Shape::kBytes + kPlaces;
    const auto kernel = copy_box_words_kernel<Element>;
    allow_shared_bytes(kernel, kShared, "copy_box");
    kernel<<<grid, kBoxThreads, kShared, stream>>>(a);
  };
  switch (bytes) {
    case 1:
      return run_words_kernel(std::uint8_t{});
    case 2:
      return run_words_kernel(std::uint16_t{});
    case 4:
      return copy_box_kernel<std::uint32_t><<<grid, kBoxThreads, 0, stream>>>(a);
    case 8:
      return copy_box_kernel<std::uint64_t><<<grid, kBoxThreads, 0, stream>>>(a);
    case 16:
      return copy_box_kernel<uint4><<<grid, kBoxThreads, 0, stream>>>(a);
  }
  throw std::runtime_error("memops: no copy_box kernel for elements of " + std::to_string(bytes) +
                           " bytes");
}

}  // namespace memops
