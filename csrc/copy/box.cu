// Boxes through shared memory, read as the source lies there and written in the destination's
// order. A block works out once where the elements of a box lie, and then moves one box after the
// other.
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

namespace memops {
namespace {

constexpr int kWarp = 32;

/// A position in some of a box's dimensions to where it lies in a view and in shared memory.
struct BoxOrder {
  int rank = 0;
  FastDivisor sizes[kMostBoxDimensions];
  std::int32_t strides[kMostBoxDimensions];  // bytes in a view
  std::int32_t places[kMostBoxDimensions];   // bytes in shared memory

  BoxOrder() = default;
  BoxOrder(const std::vector<BoxCopy::Part>& parts, ViewStride stride, int element_bytes) {
    for (const BoxCopy::Part& part : parts) {
      sizes[rank] = FastDivisor(part.tile);
      strides[rank] = static_cast<std::int32_t>(part.dimension.*stride * element_bytes);
      places[rank++] = static_cast<std::int32_t>(part.place);
    }
  }
};

struct BoxRow {
  std::int32_t offset;
  std::int32_t place;
};

__device__ BoxRow locate(const BoxOrder& order, std::uint32_t index) {
  BoxRow at{0, 0};
#pragma unroll 1
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

/// Exchanges 16-byte places within 128 bytes, so that neighbouring vectors of the destination,
/// whose elements may lie a power of two apart, are gathered from different banks.
struct Swizzle {
  std::uint32_t shift = 0;
  std::uint32_t mask = 0;  // for two 16-bit places at once

  Swizzle() = default;
  /// `step`: bytes from a vector's elements to the next vector's.
  explicit Swizzle(std::uint32_t step) {
    const int power = std::countr_zero(step);
    if (power <= 4 || power > 13) return;
    shift = power - 4;
    mask = 0x0070'0070;
  }

  __device__ std::uint32_t operator()(std::uint32_t place) const {
    return place ^ (place >> shift & mask);
  }
};

/// Which vectors of which rows the lanes of a warp write at once.
struct Lanes {
  std::uint32_t vectors;  // of a row, side by side; the rest of the warp are other rows
  std::uint32_t spacing;  // between these rows, so that their elements lie in different words
  std::uint32_t groups;   // of all vectors and rows of a box
  FastDivisor vector_groups;
};

struct BoxArguments {
  char* dst;
  const char* src;
  const char* src_end;
  std::uint32_t boxes;
  std::uint32_t image_bytes;
  Swizzle swizzle;

  std::uint32_t spans;
  std::uint32_t span_bytes;
  std::uint32_t chunks;     // of 16 bytes, of all spans, wherever they begin
  FastDivisor span_chunks;  // of one
  BoxOrder src_rows;

  std::uint32_t rows;  // of the destination
  std::uint32_t columns;
  BoxOrder dst_rows;
  BoxOrder column_places;
  FastDivisor period;
  std::uint32_t period_place;
  std::uint32_t table_stride;
  std::uint32_t copies;
  Lanes lanes;
  bool ends;  // rows may begin and end between boundaries

  int cuts;
  BoxCut cut[kMostBoxDimensions];
  StridedViews<kMostBatchDimensions> batch;
};

__device__ ViewOffsets<std::int64_t> box_begin(const BoxArguments& a, std::uint32_t box) {
  ViewOffsets<std::int64_t> begin{0, 0};
#pragma unroll 1
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

__device__ unsigned between_boundaries(const void* address) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(address) % kVectorBytes);
}

/// Shared memory: two images, then the tables.
struct BoxTables {
  BoxRow* spans;
  BoxRow* rows;
  std::uint16_t* places;  // of columns; copy k begins with column k
};

__device__ BoxTables make_tables(const BoxArguments& a, unsigned char* shared) {
  auto* const spans = reinterpret_cast<BoxRow*>(shared + 2 * a.image_bytes);
  BoxRow* const rows = spans + a.spans;
  // The rows are even in number or end a vector early: the places begin on a boundary.
  auto* const places = reinterpret_cast<std::uint16_t*>(rows + a.rows + (a.spans + a.rows) % 2);
  for (std::uint32_t i = threadIdx.x; i < a.spans; i += kBoxThreads) {
    spans[i] = locate(a.src_rows, i);
  }
  for (std::uint32_t i = threadIdx.x; i < a.rows; i += kBoxThreads) {
    rows[i] = locate(a.dst_rows, i);
  }
  for (std::uint32_t i = threadIdx.x; i < a.table_stride; i += kBoxThreads) {
    const auto place = static_cast<std::uint16_t>(locate(a.column_places, i).place);
    for (std::uint32_t k = 0; k < min(a.copies, i + 1); ++k) {
      places[k * a.table_stride + i - k] = place;
    }
  }
  return {spans, rows, places};
}

/// Starts to load a box: aligned vectors of its spans, whole where they have an element's byte.
__device__ void load_box(const BoxArguments& a, const BoxTables& tables, unsigned char* shared,
                         std::uint32_t buffer, std::uint32_t box) {
  const char* const src = a.src + box_begin(a, box).src;
  const unsigned phase = between_boundaries(src);
  for (std::uint32_t i = threadIdx.x; i < a.chunks; i += kBoxThreads) {
    const auto [span, chunk] = divide(i, a.span_chunks);
    const BoxRow row = tables.spans[span];
    const std::uint32_t begin = buffer + phase + row.place;
    const std::uint32_t before = begin % kVectorBytes;
    const std::uint32_t to = begin - before + chunk * static_cast<std::uint32_t>(kVectorBytes);
    if (to >= begin + a.span_bytes) continue;
    const char* const from = src + (row.offset + static_cast<std::int32_t>(to - begin));
    const std::int64_t rest = a.src_end - from;
    const auto missing = static_cast<std::size_t>(max(std::int64_t{0}, kVectorBytes - rest));
    __pipeline_memcpy_async(shared + a.swizzle(to), from, kVectorBytes, missing);
  }
}

/// 16 bytes of the destination, from the places of their elements: `base` further on than the
/// `table` says.
template <class Element>
__device__ uint4 gather(const BoxArguments& a, const unsigned char* shared,
                        const std::uint16_t* table, std::uint32_t base) {
  constexpr int kVector = kVectorBytes / sizeof(Element);
  if constexpr (kVector == 1) {
    return *reinterpret_cast<const uint4*>(shared + a.swizzle(base + *table));
  } else {
    constexpr int kPairs = kVector / 2;
    constexpr int kAtOnce = kPairs < 4 ? kPairs : 4;
    struct alignas(4 * kAtOnce) Pairs {
      std::uint32_t pair[kAtOnce];
    };
    const std::uint32_t bases = base | base << 16;
    alignas(kVectorBytes) std::conditional_t<(sizeof(Element) < 4), std::uint32_t, Element>
        out[sizeof(Element) < 4 ? 4 : kVector];
#pragma unroll
    for (int p = 0; p < kPairs; p += kAtOnce) {
      const Pairs pairs = *reinterpret_cast<const Pairs*>(table + 2 * p);
      std::uint32_t words[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const std::uint32_t at = a.swizzle(pairs.pair[i] + bases);
        const Element first = *reinterpret_cast<const Element*>(shared + (at & 0xffff));
        const Element second = *reinterpret_cast<const Element*>(shared + (at >> 16));
        if constexpr (sizeof(Element) < 4) {
          words[i] = __byte_perm(first, second, sizeof(Element) == 2 ? 0x5410 : 0x0040);
        } else {
          out[2 * (p + i)] = first;
          out[2 * (p + i) + 1] = second;
        }
      }
      if constexpr (sizeof(Element) == 2) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) out[p + i] = words[i];
      } else if constexpr (sizeof(Element) == 1) {
        out[p / 2] = __byte_perm(words[0], words[1], 0x5410);
        out[p / 2 + 1] = __byte_perm(words[2], words[3], 0x5410);
      }
    }
    return *reinterpret_cast<const uint4*>(out);
  }
}

/// What a row of the destination holds of whole vectors, in columns.
template <class Element>
__device__ std::uint32_t first_boundary(const char* row) {
  const unsigned past = between_boundaries(row);
  return (kVectorBytes - past) % kVectorBytes / sizeof(Element);
}

/// The whole vectors of the destination.
template <class Element>
__device__ void store_vectors(const BoxArguments& a, const BoxTables& tables,
                              const unsigned char* shared, char* dst, std::uint32_t place) {
  constexpr std::uint32_t kVector = kVectorBytes / sizeof(Element);
  const std::uint32_t lane = threadIdx.x % kWarp;
  const std::uint32_t lane_row = lane / a.lanes.vectors * a.lanes.spacing;
  const std::uint32_t lane_column = lane % a.lanes.vectors * kVector;
  const std::uint32_t rows_at_once = kWarp / a.lanes.vectors * a.lanes.spacing;
  for (std::uint32_t g = threadIdx.x / kWarp; g < a.lanes.groups; g += kBoxThreads / kWarp) {
    const auto [row_group, vector_group] = divide(g, a.lanes.vector_groups);
    const std::uint32_t row = row_group / a.lanes.spacing * rows_at_once +
                              row_group % a.lanes.spacing + lane_row;
    if (row >= a.rows) continue;
    const BoxRow at = tables.rows[row];
    char* const to = dst + at.offset;
    const std::uint32_t column = first_boundary<Element>(to) +
                                 vector_group * a.lanes.vectors * kVector + lane_column;
    if (column + kVector > a.columns) continue;
    const auto [periods, of_period] = divide(column, a.period);
    const std::uint32_t copy = of_period & (a.copies - 1);
    const std::uint16_t* const table = tables.places + copy * a.table_stride + (of_period - copy);
    *reinterpret_cast<uint4*>(to + column * sizeof(Element)) =
        gather<Element>(a, shared, table, place + at.place + periods * a.period_place);
  }
}

/// The elements of each row before its first whole vector and behind its last.
template <class Element>
__device__ void store_ends(const BoxArguments& a, const BoxTables& tables,
                           const unsigned char* shared, char* dst, std::uint32_t place) {
  constexpr std::uint32_t kVector = kVectorBytes / sizeof(Element);
  constexpr std::uint32_t kAtOnce = 2 * kVector;
  const std::uint32_t element = threadIdx.x % kAtOnce;
  for (std::uint32_t row = threadIdx.x / kAtOnce; row < a.rows; row += kBoxThreads / kAtOnce) {
    const BoxRow at = tables.rows[row];
    char* const to = dst + at.offset;
    const std::uint32_t head = min(first_boundary<Element>(to), a.columns);
    const std::uint32_t whole = (a.columns - head) & ~(kVector - 1);
    const std::uint32_t column = element < head ? element : element + whole;
    if (column >= a.columns) continue;
    const auto [periods, of_period] = divide(column, a.period);
    const std::uint32_t from =
        place + at.place + periods * a.period_place + tables.places[of_period];
    reinterpret_cast<Element*>(to)[column] =
        *reinterpret_cast<const Element*>(shared + a.swizzle(from));
  }
}

template <class Element>
__global__ void __launch_bounds__(kBoxThreads, kBoxBlocks)
    copy_box_kernel(const __grid_constant__ BoxArguments a) {
  extern __shared__ __align__(128) unsigned char shared[];
  const BoxTables tables = make_tables(a, shared);
  __syncthreads();
  std::uint32_t buffer = 0;
  load_box(a, tables, shared, buffer, blockIdx.x);
  __pipeline_commit();
  for (std::uint32_t box = blockIdx.x; box < a.boxes; box += gridDim.x) {
    const std::uint32_t next = box + gridDim.x;
    if (next < a.boxes) load_box(a, tables, shared, a.image_bytes - buffer, next);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    const auto begin = box_begin(a, box);
    char* const dst = a.dst + begin.dst;
    const std::uint32_t place = buffer + between_boundaries(a.src + begin.src);
    store_vectors<Element>(a, tables, shared, dst, place);
    if constexpr (sizeof(Element) < kVectorBytes) {
      if (a.ends) store_ends<Element>(a, tables, shared, dst, place);
    }
    __syncthreads();
    buffer = a.image_bytes - buffer;
  }
}

/// Where column `index` lies; the outermost dimension goes on.
std::int64_t column_place(const BoxCopy& copy, std::int64_t index) {
  std::int64_t place = 0;
  for (const BoxCopy::Part& part : copy.columns) {
    const bool outermost = part.index == copy.columns.back().index;
    place += (outermost ? index : index % part.tile) * part.place;
    index /= part.tile;
  }
  return place;
}

Lanes lanes_of(std::int64_t rows, std::int64_t vectors, int element_bytes) {
  if (vectors == 0) return {1, 1, 0, FastDivisor(1)};
  const auto power = [](std::int64_t n) { return std::bit_ceil(static_cast<std::uint32_t>(n)); };
  const std::uint32_t side_by_side =
      std::min(kWarp / std::min(power(rows), 4u), power(std::min<std::int64_t>(vectors, kWarp)));
  const std::uint32_t rows_at_once = kWarp / side_by_side;
  const auto room = static_cast<std::uint32_t>(std::max<std::int64_t>(rows / rows_at_once, 1));
  const std::uint32_t spacing =
      std::min(std::bit_floor(room), static_cast<std::uint32_t>(std::max(1, 4 / element_bytes)));
  const auto vector_groups = ceil_div<std::int64_t>(vectors, side_by_side);
  const auto row_groups = ceil_div<std::int64_t>(rows, rows_at_once * spacing) * spacing;
  return {side_by_side, spacing, static_cast<std::uint32_t>(vector_groups * row_groups),
          FastDivisor(vector_groups)};
}

}  // namespace

void launch(const BoxCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const int bytes = plan.layout.element_bytes;
  const auto product = [](const std::vector<BoxCopy::Part>& parts) {
    std::int64_t n = 1;
    for (const BoxCopy::Part& part : parts) n *= part.tile;
    return n;
  };
  const std::int64_t spans = product(copy.src_rows);
  const std::int64_t rows = product(copy.dst_rows);
  const std::int64_t span_chunks = ceil_div(copy.span_bytes + kVectorBytes - 1, kVectorBytes);
  const std::int64_t step = column_place(copy, kVectorBytes / bytes);
  BoxArguments a{};
  a.dst = static_cast<char*>(params.dst);
  a.src = static_cast<const char*>(params.src);
  a.src_end = source_bytes(plan.layout, params.src).end;
  a.boxes = static_cast<std::uint32_t>(copy.boxes());
  a.image_bytes = static_cast<std::uint32_t>(copy.image_bytes);
  a.swizzle = Swizzle(static_cast<std::uint32_t>(step));
  a.spans = static_cast<std::uint32_t>(spans);
  a.span_bytes = static_cast<std::uint32_t>(copy.span_bytes);
  a.chunks = static_cast<std::uint32_t>(spans * span_chunks);
  a.span_chunks = FastDivisor(span_chunks);
  a.src_rows = BoxOrder(copy.src_rows, &CopyDimension::src_stride, bytes);
  a.rows = static_cast<std::uint32_t>(rows);
  a.columns = static_cast<std::uint32_t>(copy.dst_run);
  a.dst_rows = BoxOrder(copy.dst_rows, &CopyDimension::dst_stride, bytes);
  a.column_places = BoxOrder(copy.columns, &CopyDimension::dst_stride, bytes);
  a.period = FastDivisor(copy.period);
  a.period_place = static_cast<std::uint32_t>(copy.period_place);
  a.table_stride = static_cast<std::uint32_t>(copy.table_stride());
  a.copies = static_cast<std::uint32_t>(copy.copies);
  a.lanes = lanes_of(rows, copy.dst_run * bytes / kVectorBytes, bytes);
  a.ends = !copy.aligned_stores;
  for (const BoxCopy::Part& part : copy.cut) {
    const CopyDimension& d = part.dimension;
    a.cut[a.cuts++] = {
        FastDivisor(ceil_div(d.size, part.tile)), static_cast<std::uint32_t>(part.tile),
        static_cast<std::uint32_t>(d.size - part.tile), d.dst_stride * bytes, d.src_stride * bytes};
  }
  a.batch = StridedViews<kMostBatchDimensions>(copy.batch, bytes);

  const std::int64_t shared_bytes =
      2 * copy.image_bytes + (spans + rows + (spans + rows) % 2) * std::int64_t{sizeof(BoxRow)} +
      copy.table_bytes();
  const unsigned grid = grid_blocks(plan.blocks, "copy_box");
  by_element_width(bytes, [&](auto element) {
    copy_box_kernel<decltype(element)><<<grid, kBoxThreads, shared_bytes, stream>>>(a);
  });
}

}  // namespace memops
