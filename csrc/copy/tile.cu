// Source and destination contiguous along different dimensions: tiles through shared memory.
#include <cuda_pipeline_primitives.h>

#include <cstdint>

#include "common/cuda/element_width.h"
#include "common/cuda/launch.h"
#include "common/math.h"
#include "copy/kernels.h"
#include "copy/views.h"
#include "copy/words.h"

namespace memops {
namespace {

using AxisOffsets = NestedOffsets<std::int64_t>;

struct TileArguments {
  char* dst;
  const char* src;
  FastDivisor x_tiles;
  FastDivisor y_tiles;
  std::uint32_t x_size;
  std::uint32_t y_size;
  AxisOffsets src_of_x;  // bytes; the destination is dense along x
  AxisOffsets dst_of_y;  // bytes; the source is dense along y
  StridedViews<kMostBatchDimensions> batch;
};

/// Rows of the source (y varies along a row, x from row to row) as they are read, in chunks of 16
/// bytes. A chunk's place depends on the row, so that the eight neighbouring threads that store
/// eight neighbouring vectors of the destination read different banks.
template <class ElementType, TileShape kTileShape>
struct Tile {
  using Element = ElementType;
  static constexpr TileShape kShape = kTileShape;
  static constexpr int kVector = kVectorBytes / sizeof(Element);
  static constexpr int kRowBytes = kShape.y * sizeof(Element);
  static constexpr int kBytes = kShape.x * kRowBytes;
  static constexpr int kSwizzle = kRowBytes < 128 ? kRowBytes / kVectorBytes : 8;

  static __device__ int offset(int row, int byte) {
    const int chunk = (byte / kVectorBytes) ^ (row / kVector % kSwizzle);
    return row * kRowBytes + chunk * kVectorBytes + byte % kVectorBytes;
  }
};

/// Whole rows of words, none of which comes near the end of the source's run.
template <class T>
__device__ void load_inner_words(unsigned char* tile, const TileArguments& a, const char* src,
                                 std::uint32_t x0, int byte) {
  constexpr int kRowsAtOnce = T::kShape.threads / (T::kRowBytes / 4);
  constexpr int kRowsOfThread = T::kShape.x / kRowsAtOnce;
  constexpr int kBatch = kRowsOfThread < 8 ? kRowsOfThread : 8;  // loads in flight
  static_assert(T::kShape.x % (kRowsAtOnce * kBatch) == 0);
#pragma unroll 1
  for (int row = threadIdx.x / (T::kRowBytes / 4); row < T::kShape.x; row += kBatch * kRowsAtOnce) {
    std::uint32_t low[kBatch], high[kBatch];
    unsigned shift[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const auto at =
          reinterpret_cast<std::uintptr_t>(src + a.src_of_x(x0 + row + i * kRowsAtOnce));
      const auto* const words = reinterpret_cast<const std::uint32_t*>(at & ~std::uintptr_t{3});
      shift[i] = 8 * (at & 3);
      low[i] = __ldg(words);
      high[i] = __ldg(words + 1);
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      *reinterpret_cast<std::uint32_t*>(tile + T::offset(row + i * kRowsAtOnce, byte)) =
          __funnelshift_r(low[i], high[i], shift[i]);
    }
  }
}

template <class T, int kLoadBytes>
__device__ void load_tile(unsigned char* tile, const TileArguments& a, const char* src,
                          std::uint32_t x0, std::uint32_t y0) {
  using Element = typename T::Element;
  constexpr bool kWords = sizeof(Element) < 4 && kLoadBytes == 4;
  constexpr int kParts = T::kRowBytes / kLoadBytes;
  constexpr int kRowsAtOnce = T::kShape.threads / kParts;
  const int byte = threadIdx.x % kParts * kLoadBytes;
  const std::int64_t bytes = (std::int64_t{a.y_size} - y0) * sizeof(Element) - byte;
  src += std::int64_t{y0} * sizeof(Element) + byte;
  if constexpr (kWords) {
    if (x0 + T::kShape.x <= a.x_size && bytes + byte >= T::kRowBytes + 8) {
      return load_inner_words<T>(tile, a, src, x0, byte);
    }
  }
  if (bytes <= 0) return;
#pragma unroll 4
  for (int row = threadIdx.x / kParts; row < T::kShape.x; row += kRowsAtOnce) {
    if (x0 + row >= a.x_size) break;
    unsigned char* const to = tile + T::offset(row, byte);
    const char* const from = src + a.src_of_x(x0 + row);
    if constexpr (kWords) {
      *reinterpret_cast<std::uint32_t*>(to) = load_word(from, from + bytes);
    } else {
      const auto missing = static_cast<std::size_t>(max(std::int64_t{0}, kLoadBytes - bytes));
      __pipeline_memcpy_async(to, from, kLoadBytes, missing);
    }
  }
}

template <class T>
__device__ void store_tile(const unsigned char* tile, const TileArguments& a, char* dst,
                           std::uint32_t x0, std::uint32_t y0) {
  using Element = typename T::Element;
  constexpr int kVectors = T::kShape.x / T::kVector;  // of a row of the destination
  const int width = static_cast<int>(min(a.x_size - x0, static_cast<std::uint32_t>(T::kShape.x)));
#pragma unroll
  for (int item = threadIdx.x; item < T::kShape.y * kVectors; item += T::kShape.threads) {
    // A warp takes eight neighbouring vectors of four neighbouring rows: lines of 128 bytes.
    const int y = item / 8 % T::kShape.y;
    const int vector = item % 8 + item / (8 * T::kShape.y) * 8;
    if (y0 + y >= a.y_size) continue;
    char* const row = dst + a.dst_of_y(y0 + y) + std::int64_t{x0} * sizeof(Element);
    // Elements before the row's first 16-byte boundary.
    const int head = static_cast<int>((-reinterpret_cast<std::uintptr_t>(row) % kVectorBytes) /
                                      sizeof(Element));
    const int first = head + vector * T::kVector;
    const int byte = y * sizeof(Element);
    if (first + T::kVector <= width) {
      alignas(kVectorBytes) Element values[T::kVector];
      const unsigned char* const low = tile + T::offset(vector * T::kVector, byte) + head * T::kRowBytes;
      const unsigned char* const high =
          tile + T::offset((vector + 1) * T::kVector, byte) + (head - T::kVector) * T::kRowBytes;
#pragma unroll
      for (int k = 0; k < T::kVector; ++k) {
        const unsigned char* const from = k < T::kVector - head ? low : high;
        values[k] = *reinterpret_cast<const Element*>(from + k * T::kRowBytes);
      }
      *reinterpret_cast<uint4*>(row + first * sizeof(Element)) =
          *reinterpret_cast<const uint4*>(values);
    }
    // The row's elements before its first and behind its last whole vector.
    const int whole = max(0, width - head) / T::kVector * T::kVector;
    for (int i = vector; i < width - whole; i += kVectors) {
      const int x = i < head ? i : i + whole;
      reinterpret_cast<Element*>(row)[x] =
          *reinterpret_cast<const Element*>(tile + T::offset(x, byte));
    }
  }
}

template <class T, int kLoadBytes>
__global__ void __launch_bounds__(T::kShape.threads)
    copy_tile_kernel(const __grid_constant__ TileArguments a) {
  __shared__ alignas(128) unsigned char tile[T::kBytes];
  const auto [rest, x_tile] = divide(blockIdx.x, a.x_tiles);
  const auto [batch, y_tile] = divide(rest, a.y_tiles);
  const auto base = offsets_of<std::int64_t>(a.batch, batch);
  const std::uint32_t x0 = x_tile * T::kShape.x;
  const std::uint32_t y0 = y_tile * T::kShape.y;
  load_tile<T, kLoadBytes>(tile, a, a.src + base.src, x0, y0);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  store_tile<T>(tile, a, a.dst + base.dst, x0, y0);
}

AxisOffsets far_offsets(const Run& run, std::int64_t CopyDimension::*stride, int element_bytes) {
  AxisOffsets offsets;
  for (const CopyDimension& d : run) offsets.append(d.size, d.*stride * element_bytes);
  return offsets;
}

}  // namespace

void launch(const TileCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const int bytes = plan.layout.element_bytes;
  const std::int64_t x_size = elements(copy.x);
  const std::int64_t y_size = elements(copy.y);
  const TileArguments arguments{
      static_cast<char*>(params.dst),
      static_cast<const char*>(params.src),
      FastDivisor(ceil_div(x_size, copy.tile_x)),
      FastDivisor(ceil_div(y_size, copy.tile_y)),
      static_cast<std::uint32_t>(x_size),
      static_cast<std::uint32_t>(y_size),
      far_offsets(copy.x, &CopyDimension::src_stride, bytes),
      far_offsets(copy.y, &CopyDimension::dst_stride, bytes),
      StridedViews<kMostBatchDimensions>(copy.batch, bytes),
  };
  const unsigned grid = grid_blocks(plan.blocks, "copy_tile");
  by_element_width(bytes, [&](auto element) {
    using Element = decltype(element);
    using T = Tile<Element, tile_shape(sizeof(Element))>;
    constexpr int kNarrow = sizeof(Element) < 4 ? 4 : sizeof(Element);
    const auto kernel = copy.load_bytes == kVectorBytes ? copy_tile_kernel<T, kVectorBytes>
                                                        : copy_tile_kernel<T, kNarrow>;
    kernel<<<grid, T::kShape.threads, 0, stream>>>(arguments);
  });
}

}  // namespace memops
