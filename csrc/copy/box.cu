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
  SourceBytes source;
  std::uint32_t boxes;
  std::uint32_t loads;   // of a box: elements, or parts of the source's runs
  std::uint32_t stores;  // of a box: elements, or parts of the destination's runs
  BoxOrder load;         // strides of the source
  BoxOrder store;        // strides of the destination
  // For elements shorter than a word, which are put into the destination's order in words.
  std::uint32_t words;
  std::uint32_t run_bytes;  // of the destination
  FastDivisor run_words;    // of the destination
  FastDivisor run_parts;    // of the destination, one more than it holds: it may begin anywhere
  BoxOrder element;         // of the destination's order, places in the source's
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
struct LongBox {
  static constexpr int kItems = kLongBoxBytes / sizeof(Element) / kLongBoxThreads;  // of a thread
  static constexpr int kSkewedBytes = kLongBoxBytes + kLongBoxBytes / 128 * sizeof(Element);
};

template <class Element>
struct ShortBox {
  static constexpr int kBytes = kShortBoxBytes;
  static constexpr int kSkewedBytes = kBytes + kBytes / 128 * 4;
  static constexpr int kPlacesBytes = kBytes / sizeof(Element) * sizeof(std::uint16_t);
  static constexpr int kTurnedBytes = kSkewedBytes + kVectorBytes;
  static constexpr int kSharedBytes = kSkewedBytes + kTurnedBytes + kPlacesBytes;
};

template <class Element>
__global__ void __launch_bounds__(kLongBoxThreads, kLongBoxBlocks)
    copy_long_box_kernel(const __grid_constant__ BoxArguments a) {
  using Shape = LongBox<Element>;
  constexpr int kItems = Shape::kItems;
  __shared__ alignas(128) unsigned char buffers[2][Shape::kSkewedBytes];
  std::int32_t load_offsets[kItems];
  std::int32_t store_offsets[kItems];
  std::int32_t places[kItems];
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    const std::uint32_t i = threadIdx.x + k * kLongBoxThreads;
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
        const std::uint32_t i = threadIdx.x + k * kLongBoxThreads;
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
      if (threadIdx.x + k * kLongBoxThreads >= a.stores) break;
      *reinterpret_cast<Element*>(dst + store_offsets[k]) =
          *reinterpret_cast<const Element*>(buffers[turn] + places[k]);
    }
    __syncthreads();
    turn ^= 1;
  }
}

/// kBytes (4 or 16) from any address, as far as they are the source's.
template <int kBytes>
__device__ void load_part(std::uint32_t (&words)[kBytes / 4], const char* from,
                          const SourceBytes& source) {
  if constexpr (kBytes == 4) {
    words[0] = load_word(from, source.end);
  } else {
    const uint4 vector = source.load(from);
    words[0] = vector.x;
    words[1] = vector.y;
    words[2] = vector.z;
    words[3] = vector.w;
  }
}

/// Elements shorter than a word: runs are read in parts of kLoadBytes into `read`, their elements
/// put into the destination's order in `turned`, and written from there in parts of kStoreBytes,
/// wherever the runs begin.
template <class Element, int kLoadBytes, int kStoreBytes>
__global__ void __launch_bounds__(kShortBoxThreads, 3)
    copy_short_box_kernel(const __grid_constant__ BoxArguments a) {
  using Shape = ShortBox<Element>;
  constexpr int kBytes = sizeof(Element);
  constexpr int kPerWord = 4 / kBytes;
  constexpr int kLoads = Shape::kBytes / kLoadBytes / kShortBoxThreads;
  constexpr int kStores = Shape::kBytes / kStoreBytes / kShortBoxThreads;
  using Places = std::conditional_t<kPerWord == 4, ushort4, ushort2>;
  extern __shared__ __align__(128) unsigned char shared[];
  unsigned char* const read = shared;
  unsigned char* const turned = read + Shape::kSkewedBytes;
  auto* const places = reinterpret_cast<Places*>(turned + Shape::kTurnedBytes);

  std::int32_t load_offsets[kLoads];
  std::int32_t store_offsets[kStores];
  std::int32_t store_places[kStores];
  unsigned inner = 0;  // a bit for each part that lies inside its run wherever that begins
#pragma unroll
  for (int k = 0; k < kLoads; ++k) {
    load_offsets[k] = locate(a.load, threadIdx.x + k * kShortBoxThreads).offset;
  }
#pragma unroll
  for (int k = 0; k < kStores; ++k) {
    const std::uint32_t i = threadIdx.x + k * kShortBoxThreads;
    store_offsets[k] = locate(a.store, i).offset;
    const auto [row, part] = divide(i, a.run_parts);
    store_places[k] = 4 * row * a.run_words.divisor + part * kStoreBytes;
    if (part > 0 && (part + 1) * kStoreBytes <= a.run_bytes) inner |= 1u << k;
  }
  for (std::uint32_t i = threadIdx.x; i < a.words; i += kShortBoxThreads) {
    const auto [row, word] = divide(i, a.run_words);
    const std::uint32_t run = a.run_bytes / kBytes;
    alignas(8) std::uint16_t at[kPerWord];
#pragma unroll
    for (int e = 0; e < kPerWord; ++e) {
      const std::uint32_t of_run = min(word * kPerWord + e, run - 1);
      at[e] = static_cast<std::uint16_t>(skewed<4>(locate(a.element, row * run + of_run).place));
    }
    places[i] = *reinterpret_cast<const Places*>(at);
  }

  for (std::uint32_t box = blockIdx.x; box < a.boxes; box += gridDim.x) {
    const auto begin = box_begin(a, box);
    const char* const src = a.src + begin.src;
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const std::uint32_t i = threadIdx.x + k * kShortBoxThreads;
      if (i >= a.loads) break;
      std::uint32_t words[kLoadBytes / 4];
      load_part<kLoadBytes>(words, src + load_offsets[k], a.source);
      auto* const to = reinterpret_cast<std::uint32_t*>(read + skewed<4>(i * kLoadBytes));
#pragma unroll
      for (int w = 0; w < kLoadBytes / 4; ++w) to[w] = words[w];
    }
    __syncthreads();
#pragma unroll 4
    for (std::uint32_t i = threadIdx.x; i < a.words; i += kShortBoxThreads) {
      const Places at = places[i];
      const auto element = [&](std::uint16_t place) -> std::uint32_t {
        return *reinterpret_cast<const Element*>(read + place);
      };
      auto* const to = reinterpret_cast<std::uint32_t*>(turned) + i + i / 32;
      if constexpr (kPerWord == 4) {
        *to = __byte_perm(__byte_perm(element(at.x), element(at.y), 0x0040),
                          __byte_perm(element(at.z), element(at.w), 0x0040), 0x5410);
      } else {
        *to = __byte_perm(element(at.x), element(at.y), 0x5410);
      }
    }
    __syncthreads();
    char* const dst = a.dst + begin.dst;
#pragma unroll
    for (int k = 0; k < kStores; ++k) {
      if (threadIdx.x + k * kShortBoxThreads >= a.stores) break;
      char* to = dst + store_offsets[k];
      // The aligned part there begins so many bytes ahead of the run's part.
      const auto before =
          static_cast<int>(reinterpret_cast<std::uintptr_t>(to) & (kStoreBytes - 1));
      to -= before;
      const int from = store_places[k] - before;
      if (inner >> k & 1) {
        const auto word = [&](int w) {
          return *reinterpret_cast<const std::uint32_t*>(turned + skewed<4>(4 * (from / 4 + w)));
        };
        const unsigned shift = 8 * (from % 4);
        alignas(kStoreBytes) std::uint32_t part[kStoreBytes / 4];
#pragma unroll
        for (int w = 0; w < kStoreBytes / 4; ++w) {
          part[w] = __funnelshift_r(word(w), word(w + 1), shift);
        }
        using Part = std::conditional_t<kStoreBytes == 4, std::uint32_t, uint4>;
        *reinterpret_cast<Part*>(to) = *reinterpret_cast<const Part*>(part);
      } else {
        const auto part =
            static_cast<int>(divide(threadIdx.x + k * kShortBoxThreads, a.run_parts).remainder);
        const int of_run = part * kStoreBytes - before;
        const int last = min(kStoreBytes, static_cast<int>(a.run_bytes) - of_run);
        for (int b = max(0, -of_run); b < last; b += kBytes) {
          *reinterpret_cast<Element*>(to + b) =
              *reinterpret_cast<const Element*>(turned + skewed<4>(from + b));
        }
      }
    }
  }
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
  const bool in_parts = bytes < 4;
  BoxArguments a{};
  a.dst = static_cast<char*>(params.dst);
  a.src = static_cast<const char*>(params.src);
  a.source = source_bytes(plan.layout, params.src);
  a.boxes = static_cast<std::uint32_t>(copy.boxes());
  a.batch = StridedViews<kMostBatchDimensions>(copy.batch, bytes);
  for (const BoxCopy::Part& part : copy.dst_order) {
    const CopyDimension& d = part.dimension;
    if (part.tile == d.size) continue;
    a.cut[a.cuts++] = {
        FastDivisor(ceil_div(d.size, part.tile)), static_cast<std::uint32_t>(part.tile),
        static_cast<std::uint32_t>(d.size - part.tile), d.dst_stride * bytes, d.src_stride * bytes};
  }
  const std::int64_t src_parts = ceil_div(copy.src_run * bytes, copy.load_bytes);
  const std::int64_t dst_parts = ceil_div(copy.dst_run * bytes, copy.store_bytes) + 1;
  const std::vector<std::int64_t> places =
      places_of(copy, bytes, in_parts ? copy.load_bytes * src_parts : copy.src_run * bytes);
  const auto place_of = [&](const BoxCopy::Part& part) {
    const auto same = [&](const BoxCopy::Part& other) { return other.dimension == part.dimension; };
    return places[std::ranges::find_if(copy.src_order, same) - copy.src_order.begin()];
  };
  // Elements one by one, or the parts of the runs and then the runs.
  const auto order = [&](std::span<const BoxCopy::Part> dimensions, std::int64_t run,
                         std::int64_t parts, std::int64_t part_bytes,
                         std::int64_t CopyDimension::* stride) {
    BoxOrder made;
    if (in_parts) made.append(parts, part_bytes, 0);
    std::int64_t elements = 1;
    for (const BoxCopy::Part& part : dimensions) {
      if (!in_parts || elements >= run) {
        made.append(part.tile, part.dimension.*stride * bytes, place_of(part));
      }
      elements *= part.tile;
    }
    return made;
  };
  a.load =
      order(copy.src_order, copy.src_run, src_parts, copy.load_bytes, &CopyDimension::src_stride);
  a.store =
      order(copy.dst_order, copy.dst_run, dst_parts, copy.store_bytes, &CopyDimension::dst_stride);
  a.loads = a.stores = static_cast<std::uint32_t>(copy.elements);
  if (in_parts) {
    const std::int64_t run_words = ceil_div<std::int64_t>(copy.dst_run * bytes, 4);
    for (const BoxCopy::Part& part : copy.dst_order) a.element.append(part.tile, 0, place_of(part));
    a.words = static_cast<std::uint32_t>(copy.elements / copy.dst_run * run_words);
    a.run_bytes = static_cast<std::uint32_t>(copy.dst_run * bytes);
    a.run_words = FastDivisor(run_words);
    a.run_parts = FastDivisor(dst_parts);
    a.loads = static_cast<std::uint32_t>(copy.elements / copy.src_run * src_parts);
    a.stores = static_cast<std::uint32_t>(copy.elements / copy.dst_run * dst_parts);
  }

  const unsigned grid = grid_blocks(plan.blocks, "copy_box");
  const auto run_short = [&](auto element) {
    using Element = decltype(element);
    const bool vector_stores = copy.store_bytes == kVectorBytes;
    const auto kernel = copy.load_bytes == kVectorBytes
                            ? (vector_stores ? copy_short_box_kernel<Element, 16, 16>
                                             : copy_short_box_kernel<Element, 16, 4>)
                            : (vector_stores ? copy_short_box_kernel<Element, 4, 16>
                                             : copy_short_box_kernel<Element, 4, 4>);
    kernel<<<grid, kShortBoxThreads, ShortBox<Element>::kSharedBytes, stream>>>(a);
  };
  switch (bytes) {
    case 1:
      return run_short(std::uint8_t{});
    case 2:
      return run_short(std::uint16_t{});
    case 4:
      return copy_long_box_kernel<std::uint32_t><<<grid, kLongBoxThreads, 0, stream>>>(a);
    case 8:
      return copy_long_box_kernel<std::uint64_t><<<grid, kLongBoxThreads, 0, stream>>>(a);
    case 16:
      return copy_long_box_kernel<uint4><<<grid, kLongBoxThreads, 0, stream>>>(a);
  }
  throw std::runtime_error("memops: no copy_box kernel for elements of " + std::to_string(bytes) +
                           " bytes");
}

}  // namespace memops
