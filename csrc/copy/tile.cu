// Source and destination contiguous along different dimensions: tiles through shared memory.
#include <cuda_pipeline_primitives.h>

#include <cstdint>
#include <type_traits>

#include "common/cuda/element_width.h"
#include "common/cuda/launch.h"
#include "common/math.h"
#include "copy/convert.h"
#include "copy/kernels.h"
#include "copy/views.h"
#include "copy/words.h"

namespace memops {
namespace {

struct TileArguments {
  char* dst;
  const char* src;
  FastDivisor x_tiles;
  FastDivisor y_tiles;
  std::uint32_t x_size;
  std::uint32_t y_size;
  NestedOffsets src_of_x;  // bytes; the destination is dense along x
  NestedOffsets dst_of_y;  // bytes; the source is dense along y
  StridedViews<kMostBatchDimensions> batch;
  SourceBytes source;
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
  static constexpr int kChunks = kRowBytes / kVectorBytes;  // of a row
  static constexpr int kVectors = kShape.x / kVector;       // of a row of the destination
  static constexpr int kSwizzle = kRowBytes < 128 ? kRowBytes / kVectorBytes : 8;

  static __device__ int offset(int row, int byte) {
    const int chunk = (byte / kVectorBytes) ^ (row / kVector % kSwizzle);
    return row * kRowBytes + chunk * kVectorBytes + byte % kVectorBytes;
  }
};

template <class T, bool kAlignedLoads>
__device__ void load_tile(unsigned char* tile, const TileArguments& a, const char* src,
                          std::uint32_t x0, std::uint32_t y0) {
  constexpr int kRowsAtOnce = T::kShape.threads / T::kChunks;
  const int byte = threadIdx.x % T::kChunks * static_cast<int>(kVectorBytes);
  // What there is of the rows from this thread's chunk on.
  const std::int64_t rest = (std::int64_t{a.y_size} - y0) * sizeof(typename T::Element) - byte;
  if (rest <= 0) return;
  src += std::int64_t{y0} * sizeof(typename T::Element) + byte;
#pragma unroll 4
  for (int row = threadIdx.x / T::kChunks; row < T::kShape.x; row += kRowsAtOnce) {
    if (x0 + row >= a.x_size) break;
    unsigned char* const to = tile + T::offset(row, byte);
    const char* const from = src + a.src_of_x(x0 + row);
    if constexpr (kAlignedLoads) {
      const auto missing = static_cast<std::size_t>(max(std::int64_t{0}, kVectorBytes - rest));
      __pipeline_memcpy_async(to, from, kVectorBytes, missing);
    } else {
      *reinterpret_cast<uint4*>(to) = a.source.load(from);
    }
  }
}

/// Words of 4-byte rows of a square of bytes or of 2-byte elements, turned.
template <int kSide>
__device__ void turn(std::uint32_t (&w)[kSide]) {
  if constexpr (kSide == 2) {
    const std::uint32_t low = __byte_perm(w[0], w[1], 0x5410);
    w[1] = __byte_perm(w[0], w[1], 0x7632);
    w[0] = low;
  } else if constexpr (kSide == 4) {
    const std::uint32_t a = __byte_perm(w[0], w[1], 0x5140);
    const std::uint32_t b = __byte_perm(w[2], w[3], 0x5140);
    const std::uint32_t c = __byte_perm(w[0], w[1], 0x7362);
    const std::uint32_t d = __byte_perm(w[2], w[3], 0x7362);
    w[0] = __byte_perm(a, b, 0x5410);
    w[1] = __byte_perm(a, b, 0x7632);
    w[2] = __byte_perm(c, d, 0x5410);
    w[3] = __byte_perm(c, d, 0x7632);
  }
}

/// Turns the tile: 16 bytes along x for each of the y that a word of the source holds (one, for
/// elements of 4 bytes and more). `store(x, y, vector)` takes them, positions within the tile.
template <class T, class Store>
__device__ void turn_tile(const unsigned char* tile, Store store) {
  using Element = typename T::Element;
  constexpr int kSide = sizeof(Element) < 4 ? 4 / sizeof(Element) : 1;
  constexpr int kGroups = T::kShape.y / kSide;
  using Piece = std::conditional_t<kSide == 1, Element, std::uint32_t>;
#pragma unroll
  for (int item = threadIdx.x; item < kGroups * T::kVectors; item += T::kShape.threads) {
    // A warp takes eight neighbouring vectors of four neighbouring rows: lines of 128 bytes.
    const int y = item / 8 % kGroups * kSide;
    const int x = (item % 8 + item / (8 * kGroups) * 8) * T::kVector;
    alignas(kVectorBytes) Piece pieces[T::kVector];
    const unsigned char* const from = tile + T::offset(x, y * sizeof(Element));
#pragma unroll
    for (int k = 0; k < T::kVector; ++k) {
      pieces[k] = *reinterpret_cast<const Piece*>(from + k * T::kRowBytes);
    }
    if constexpr (kSide == 1) {
      store(x, y, *reinterpret_cast<const uint4*>(pieces));
    } else {
      std::uint32_t rows[kSide][4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        std::uint32_t square[kSide];
#pragma unroll
        for (int k = 0; k < kSide; ++k) square[k] = pieces[w * kSide + k];
        turn(square);
#pragma unroll
        for (int k = 0; k < kSide; ++k) rows[k][w] = square[k];
      }
#pragma unroll
      for (int k = 0; k < kSide; ++k) {
        store(x, y + k, uint4{rows[k][0], rows[k][1], rows[k][2], rows[k][3]});
      }
    }
  }
}

/// Rows of the destination that are whole vectors on 16-byte boundaries.
template <class T>
__device__ void store_aligned(const unsigned char* tile, const TileArguments& a, char* dst,
                              std::uint32_t x0, std::uint32_t y0) {
  turn_tile<T>(tile, [&](int x, int y, const uint4& vector) {
    if (x0 + x >= a.x_size || y0 + y >= a.y_size) return;
    char* const to = dst + a.dst_of_y(y0 + y) + std::int64_t{x0 + x} * sizeof(typename T::Element);
    *reinterpret_cast<uint4*>(to) = vector;
  });
}

/// A row of the turned tile, and a word: four neighbouring rows lie in different banks.
template <class T>
constexpr int kTurnedBytes = T::kShape.x * sizeof(typename T::Element) + 4;

/// The turned tile in shared memory.
template <class T>
__device__ void turn_into(unsigned char* turned, const unsigned char* tile) {
  turn_tile<T>(tile, [&](int x, int y, const uint4& vector) {
    unsigned char* const at = turned + y * kTurnedBytes<T> + x * sizeof(typename T::Element);
    auto* const to = reinterpret_cast<std::uint32_t*>(at);
    to[0] = vector.x;
    to[1] = vector.y;
    to[2] = vector.z;
    to[3] = vector.w;
  });
}

/// Rows of the destination that begin anywhere: turned in shared memory, then written in vectors on
/// the destination's boundaries, and in elements before the first and behind the last.
/// For bytes: wider elements go in boxes.
template <class T>
__device__ void store_shifted(const unsigned char* tile, unsigned char* turned,
                              const TileArguments& a, char* dst, std::uint32_t x0,
                              std::uint32_t y0) {
  turn_into<T>(turned, tile);
  __syncthreads();
  const int width = static_cast<int>(min(a.x_size - x0, static_cast<std::uint32_t>(T::kShape.x)));
  const int vector = threadIdx.x % T::kVectors;
#pragma unroll 2
  for (int y = threadIdx.x / T::kVectors; y < T::kShape.y; y += T::kShape.threads / T::kVectors) {
    if (y0 + y >= a.y_size) break;
    char* const row = dst + a.dst_of_y(y0 + y) + x0;
    const unsigned char* const from = turned + y * kTurnedBytes<T>;
    const int head = static_cast<int>(-reinterpret_cast<std::uintptr_t>(row) & (kVectorBytes - 1));
    const int first = head + vector * static_cast<int>(kVectorBytes);
    if (first + kVectorBytes <= width) {
      const auto* const words = reinterpret_cast<const std::uint32_t*>(from) + first / 4;
      const unsigned shift = 8 * (first % 4);
      *reinterpret_cast<uint4*>(row + first) = {
          __funnelshift_r(words[0], words[1], shift), __funnelshift_r(words[1], words[2], shift),
          __funnelshift_r(words[2], words[3], shift), __funnelshift_r(words[3], words[4], shift)};
    }
    const int whole = max(0, width - head) & ~static_cast<int>(kVectorBytes - 1);
    for (int b = vector; b < width - whole; b += T::kVectors) {
      const int at = b < head ? b : b + whole;
      row[at] = static_cast<char>(from[at]);
    }
  }
}

template <class T, bool kAlignedLoads, bool kAlignedStores>
__global__ void __launch_bounds__(T::kShape.threads)
    copy_tile_kernel(const __grid_constant__ TileArguments a) {
  __shared__ alignas(128) unsigned char tile[T::kBytes];
  const auto [rest, x_tile] = divide(blockIdx.x, a.x_tiles);
  const auto [batch, y_tile] = divide(rest, a.y_tiles);
  const auto base = offsets_of<std::int64_t>(a.batch, batch);
  const std::uint32_t x0 = x_tile * T::kShape.x;
  const std::uint32_t y0 = y_tile * T::kShape.y;
  load_tile<T, kAlignedLoads>(tile, a, a.src + base.src, x0, y0);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  if constexpr (kAlignedStores) {
    store_aligned<T>(tile, a, a.dst + base.dst, x0, y0);
  } else {
    __shared__ alignas(16) unsigned char turned[T::kShape.y * kTurnedBytes<T> + kVectorBytes];
    store_shifted<T>(tile, turned, a, a.dst + base.dst, x0, y0);
  }
}

template <class T>
auto kernel_for(const TileCopy& copy) {
  if constexpr (sizeof(typename T::Element) == 1) {
    if (!copy.aligned_loads) {
      return copy.aligned_stores ? copy_tile_kernel<T, false, true>
                                 : copy_tile_kernel<T, false, false>;
    }
    if (!copy.aligned_stores) return copy_tile_kernel<T, true, false>;
  }
  return copy_tile_kernel<T, true, true>;
}

/// Rows of the destination on boundaries of the vectors that a thread turns, converted.
template <class T, class Dst, class Src>
__device__ void store_converted(const unsigned char* tile, const TileArguments& a, char* dst,
                                std::uint32_t x0, std::uint32_t y0) {
  using Made = ElementPack<Dst, T::kVector>;
  turn_tile<T>(tile, [&](int x, int y, const uint4& vector) {
    if (x0 + x >= a.x_size || y0 + y >= a.y_size) return;
    ElementPack<Src, T::kVector> turned;
    turned.accesses[0] = vector;
    const Made made = convert<Dst>(turned);
    auto* const row = reinterpret_cast<Dst*>(dst + a.dst_of_y(y0 + y));
    auto* const to = reinterpret_cast<typename Made::Access*>(row + (x0 + x));
#pragma unroll
    for (int i = 0; i < Made::kAccesses; ++i) to[i] = made.accesses[i];
  });
}

/// Rows of the destination that begin anywhere: turned in shared memory, then converted one by one.
template <class T, class Dst, class Src>
__device__ void store_converted_shifted(const unsigned char* tile, unsigned char* turned,
                                        const TileArguments& a, char* dst, std::uint32_t x0,
                                        std::uint32_t y0) {
  constexpr int kRowsAtOnce = T::kShape.threads / T::kShape.x;
  turn_into<T>(turned, tile);
  __syncthreads();
  const int x = threadIdx.x % T::kShape.x;
  if (x0 + x >= a.x_size) return;
#pragma unroll 4
  for (int y = threadIdx.x / T::kShape.x; y < T::kShape.y; y += kRowsAtOnce) {
    if (y0 + y >= a.y_size) break;
    const Src value = *reinterpret_cast<const Src*>(turned + y * kTurnedBytes<T> + x * sizeof(Src));
    reinterpret_cast<Dst*>(dst + a.dst_of_y(y0 + y))[x0 + x] = convert<Dst>(value);
  }
}

template <class T, class Dst, class Src, bool kAligned>
__global__ void __launch_bounds__(T::kShape.threads)
    cast_tile_kernel(const __grid_constant__ TileArguments a) {
  __shared__ alignas(128) unsigned char tile[T::kBytes];
  const auto [rest, x_tile] = divide(blockIdx.x, a.x_tiles);
  const auto [batch, y_tile] = divide(rest, a.y_tiles);
  const auto base = offsets_of<std::int64_t>(a.batch, batch);
  const std::uint32_t x0 = x_tile * T::kShape.x;
  const std::uint32_t y0 = y_tile * T::kShape.y;
  load_tile<T, kAligned>(tile, a, a.src + base.src, x0, y0);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
  if constexpr (kAligned) {
    store_converted<T, Dst, Src>(tile, a, a.dst + base.dst, x0, y0);
  } else {
    __shared__ alignas(16) unsigned char turned[T::kShape.y * kTurnedBytes<T>];
    store_converted_shifted<T, Dst, Src>(tile, turned, a, a.dst + base.dst, x0, y0);
  }
}

NestedOffsets far_offsets(const Run& run, ViewStride stride, int element_bytes) {
  NestedOffsets offsets;
  for (const CopyDimension& d : run) offsets.append(d.size, d.*stride * element_bytes);
  return offsets;
}

TileArguments tile_arguments(const TileCopy& copy, const CopyLayout& layout,
                             const CopyParams& params, int dst_bytes) {
  const std::int64_t x_size = elements(copy.x);
  const std::int64_t y_size = elements(copy.y);
  return {
      static_cast<char*>(params.dst),
      static_cast<const char*>(params.src),
      FastDivisor(ceil_div<std::int64_t>(x_size, copy.tile.x)),
      FastDivisor(ceil_div<std::int64_t>(y_size, copy.tile.y)),
      static_cast<std::uint32_t>(x_size),
      static_cast<std::uint32_t>(y_size),
      far_offsets(copy.x, &CopyDimension::src_stride, layout.element_bytes),
      far_offsets(copy.y, &CopyDimension::dst_stride, dst_bytes),
      StridedViews<kMostBatchDimensions>(copy.batch, dst_bytes, layout.element_bytes),
      source_bytes(layout, params.src),
  };
}

}  // namespace

void launch(const TileCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const int bytes = plan.layout.element_bytes;
  const TileArguments arguments = tile_arguments(copy, plan.layout, params, bytes);
  const unsigned grid = grid_blocks(plan.blocks, "copy_tile");
  by_element_width(bytes, [&](auto element) {
    using Element = decltype(element);
    using T = Tile<Element, tile_shape(sizeof(Element))>;
    const auto kernel = kernel_for<T>(copy);
    kernel<<<grid, T::kShape.threads, 0, stream>>>(arguments);
  });
}

void launch(const CastTile& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const TileCopy& tile = copy.tile;
  const unsigned grid = grid_blocks(plan.blocks, "cast_tile");
  by_cast(plan.cast.value(), [&](auto dst, auto src) {
    if constexpr (has_tile_kernel(Cast{dst(), src()})) {
      using Dst = Stored<dst()>;
      using Src = Stored<src()>;
      using T = Tile<AccessOf<sizeof(Src)>, tile_shape(sizeof(Src))>;
      const auto kernel = tile.aligned_loads && tile.aligned_stores
                              ? cast_tile_kernel<T, Dst, Src, true>
                              : cast_tile_kernel<T, Dst, Src, false>;
      kernel<<<grid, T::kShape.threads, 0, stream>>>(
          tile_arguments(tile, plan.layout, params, sizeof(Dst)));
    } else {
      throw std::runtime_error("memops: no cast_tile kernel for these types");
    }
  });
}

}  // namespace memops
