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
  static constexpr int kChunks = kRowBytes / kVectorBytes;   // of a row
  static constexpr int kVectors = kShape.x / kVector;        // of a row of the destination
  static constexpr int kSwizzle = kRowBytes < 128 ? kRowBytes / kVectorBytes : 8;

  static __device__ int offset(int row, int byte) {
    const int chunk = (byte / kVectorBytes) ^ (row / kVector % kSwizzle);
    return row * kRowBytes + chunk * kVectorBytes + byte % kVectorBytes;
  }
};

/// Rows that begin anywhere, in words: neighbouring threads read neighbouring words, since 16 bytes
/// a thread, five words each, would ask the L1 for the same lines five times.
template <class T>
__device__ void load_shifted(unsigned char* tile, const TileArguments& a, const char* src,
                             std::uint32_t x0, std::int64_t row_bytes) {
  constexpr int kWords = T::kRowBytes / 4;
  constexpr int kRowsAtOnce = T::kShape.threads / kWords;
  constexpr int kBatch = 8;  // words in flight
  static_assert(T::kShape.x % (kRowsAtOnce * kBatch) == 0);
  const int byte = threadIdx.x % kWords * 4;
  src += byte;
  const bool inside = row_bytes >= T::kRowBytes + 4 && x0 + T::kShape.x <= a.x_size;
  for (int row0 = threadIdx.x / kWords; row0 < T::kShape.x; row0 += kBatch * kRowsAtOnce) {
    std::uint32_t words[kBatch];
    if (inside) {
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const auto at =
            reinterpret_cast<std::uintptr_t>(src + a.src_of_x(x0 + row0 + i * kRowsAtOnce));
        const auto* const aligned =
            reinterpret_cast<const std::uint32_t*>(at & ~std::uintptr_t{3});
        words[i] = __funnelshift_r(__ldg(aligned), __ldg(aligned + 1), 8 * (at & 3));
      }
    } else {
      for (int i = 0; i < kBatch; ++i) {
        const std::uint32_t x = x0 + row0 + i * kRowsAtOnce;
        words[i] = 0;
        if (x >= a.x_size || byte >= row_bytes) continue;
        const char* const from = src + a.src_of_x(x);
        words[i] = load_word(from, from + row_bytes - byte);
      }
    }
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      *reinterpret_cast<std::uint32_t*>(tile + T::offset(row0 + i * kRowsAtOnce, byte)) = words[i];
    }
  }
}

template <class T, bool kAlignedLoads>
__device__ void load_tile(unsigned char* tile, const TileArguments& a, const char* src,
                          std::uint32_t x0, std::uint32_t y0) {
  // What there is of the rows from y0 on.
  const std::int64_t row_bytes = (std::int64_t{a.y_size} - y0) * sizeof(typename T::Element);
  src += std::int64_t{y0} * sizeof(typename T::Element);
  if constexpr (kAlignedLoads) {
    constexpr int kRowsAtOnce = T::kShape.threads / T::kChunks;
    const int byte = threadIdx.x % T::kChunks * static_cast<int>(kVectorBytes);
    if (byte >= row_bytes) return;
    const std::int64_t rest = row_bytes - byte;
    const auto missing = static_cast<std::size_t>(max(std::int64_t{0}, kVectorBytes - rest));
#pragma unroll 4
    for (int row = threadIdx.x / T::kChunks; row < T::kShape.x; row += kRowsAtOnce) {
      if (x0 + row >= a.x_size) break;
      __pipeline_memcpy_async(tile + T::offset(row, byte), src + a.src_of_x(x0 + row) + byte,
                              kVectorBytes, missing);
    }
  } else {
    load_shifted<T>(tile, a, src, x0, row_bytes);
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

/// A row of the turned tile, and room for the vector that a shifted read ends in.
template <class T>
constexpr int kTurnedBytes = T::kShape.x * sizeof(typename T::Element) + kVectorBytes;

/// Rows of the destination that begin anywhere: turned in shared memory, then written in words on
/// the destination's boundaries, and in elements before the first and behind the last.
template <class T>
__device__ void store_shifted(const unsigned char* tile, unsigned char* turned,
                              const TileArguments& a, char* dst, std::uint32_t x0,
                              std::uint32_t y0) {
  using Element = typename T::Element;
  constexpr int kBytes = sizeof(Element);
  constexpr int kWords = T::kShape.x * kBytes / 4;  // of a row, and one more where it is shifted
  constexpr int kRowsAtOnce = T::kShape.threads / kWords;
  turn_tile<T>(tile, [&](int x, int y, const uint4& vector) {
    *reinterpret_cast<uint4*>(turned + y * kTurnedBytes<T> + x * kBytes) = vector;
  });
  __syncthreads();
  const int width =
      static_cast<int>(min(a.x_size - x0, static_cast<std::uint32_t>(T::kShape.x))) * kBytes;
  const int word = threadIdx.x % kWords;
#pragma unroll 4
  for (int y = threadIdx.x / kWords; y < T::kShape.y; y += kRowsAtOnce) {
    if (y0 + y >= a.y_size) break;
    char* const row = dst + a.dst_of_y(y0 + y) + std::int64_t{x0} * kBytes;
    const unsigned char* const from = turned + y * kTurnedBytes<T>;
    const int head = static_cast<int>(-reinterpret_cast<std::uintptr_t>(row) & 3);
    const int first = head + 4 * word;
    if (first + 4 <= width) {
      const auto* const words = reinterpret_cast<const std::uint32_t*>(from) + word;
      *reinterpret_cast<std::uint32_t*>(row + first) =
          __funnelshift_r(words[0], words[1], 8 * head);
    }
    // What whole words leave: less than a word on either side.
    const int whole = max(0, width - head) & ~3;
    const int at = word * kBytes < head ? word * kBytes : word * kBytes + whole;
    if (at < width && word * kBytes < width - whole) {
      *reinterpret_cast<Element*>(row + at) = *reinterpret_cast<const Element*>(from + at);
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
    __shared__ alignas(16) unsigned char turned[T::kShape.y * kTurnedBytes<T>];
    store_shifted<T>(tile, turned, a, a.dst + base.dst, x0, y0);
  }
}

template <class T>
auto kernel_for(const TileCopy& copy) {
  if constexpr (sizeof(typename T::Element) < 4) {
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
  turn_tile<T>(tile, [&](int x, int y, const uint4& vector) {
    *reinterpret_cast<uint4*>(turned + y * kTurnedBytes<T> + x * sizeof(Src)) = vector;
  });
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

AxisOffsets far_offsets(const Run& run, std::int64_t CopyDimension::*stride, int element_bytes) {
  AxisOffsets offsets;
  for (const CopyDimension& d : run) offsets.append(d.size, d.*stride * element_bytes);
  return offsets;
}

TileArguments tile_arguments(const TileCopy& copy, const CopyParams& params, int dst_bytes,
                             int src_bytes) {
  const std::int64_t x_size = elements(copy.x);
  const std::int64_t y_size = elements(copy.y);
  return {
      static_cast<char*>(params.dst),
      static_cast<const char*>(params.src),
      FastDivisor(ceil_div(x_size, copy.tile_x)),
      FastDivisor(ceil_div(y_size, copy.tile_y)),
      static_cast<std::uint32_t>(x_size),
      static_cast<std::uint32_t>(y_size),
      far_offsets(copy.x, &CopyDimension::src_stride, src_bytes),
      far_offsets(copy.y, &CopyDimension::dst_stride, dst_bytes),
      StridedViews<kMostBatchDimensions>(copy.batch, dst_bytes, src_bytes),
  };
}

}  // namespace

void launch(const TileCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const int bytes = plan.layout.element_bytes;
  const TileArguments arguments = tile_arguments(copy, params, bytes, bytes);
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
          tile_arguments(tile, params, sizeof(Dst), sizeof(Src)));
    } else {
      throw std::runtime_error("memops: no cast_tile kernel for these types");
    }
  });
}

}  // namespace memops
