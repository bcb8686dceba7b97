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
  std::uint32_t step;
  std::uint32_t last;  // where the last box begins: it may overlap the one before
  std::int64_t dst_stride;
  std::int64_t src_stride;
};

/// Exchanges the 16-byte parts of 128 bytes, so that elements which a warp reads at once lie in
/// different banks. For two 16-bit places at once.
struct Swizzle {
  std::uint32_t shift;
  std::uint32_t mask;

  Swizzle() = default;
  explicit Swizzle(int by)
      : shift(static_cast<std::uint32_t>(by)), mask(by == 0 ? 0 : kSwizzleMask * 0x1'0001u) {}

  __device__ std::uint32_t operator()(std::uint32_t place) const {
    return place ^ (place >> shift & mask);
  }
};

struct BoxArguments {
  char* dst;
  const char* src;
  std::uint32_t boxes;
  std::uint32_t images_at;  // in shared memory
  std::uint32_t image_bytes;
  int stages;
  Swizzle swizzle;
  std::uint32_t last_places;  // of an element in shared memory, twice

  std::uint32_t span_bytes;
  std::uint32_t chunks;     // of 16 bytes, of all spans, wherever they begin
  FastDivisor span_chunks;  // of one
  BoxOrder src_rows;

  std::uint32_t stores;  // of a box: vectors of all rows, or elements
  std::uint32_t rows;
  int columns;
  FastDivisor row_vectors;
  FastDivisor rows_at_once;
  FastDivisor row_spacing;
  BoxOrder dst_rows;
  BoxOrder column_places;
  FastDivisor period;  // of rows that have several
  std::uint32_t period_place;
  int table_columns;
  std::uint32_t table_stride;
  std::uint32_t copies;

  int cuts;
  int cut_columns;  // which cut is the one along the rows, or -1
  BoxCut cut[kMostBoxDimensions];
  StridedViews<kMostBatchDimensions> batch;
};

/// Where a box begins.
struct BoxBegin {
  std::int64_t dst;
  std::int64_t src;
  bool first;  // no other box has the elements before a row's first whole sector,
  bool last;   // or those behind its last
};

static_assert(kBoxBegins * sizeof(BoxBegin) <= kBoxBeginBytes);

__device__ BoxBegin box_begin(const BoxArguments& a, std::uint32_t box) {
  BoxBegin begin{0, 0, true, true};
#pragma unroll 1
  for (int c = 0; c < a.cuts; ++c) {
    const auto [rest, index] = divide(box, a.cut[c].boxes);
    const std::uint32_t at = min(index * a.cut[c].step, a.cut[c].last);
    begin.dst += at * a.cut[c].dst_stride;
    begin.src += at * a.cut[c].src_stride;
    if (c == a.cut_columns) {
      begin.first = at == 0;
      begin.last = at == a.cut[c].last;
    }
    box = rest;
  }
  const auto batch = offsets_of<std::int64_t>(a.batch, box);
  begin.dst += batch.dst;
  begin.src += batch.src;
  return begin;
}

__device__ std::uint32_t past_boundary(const void* address, std::uint32_t boundary) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address)) & (boundary - 1);
}

/// What a thread loads of every box: 16 bytes that lie in a span, with the bytes round them where a
/// span begins or ends between boundaries.
class BoxLoads {
 public:
  __device__ explicit BoxLoads(const BoxArguments& a) {
#pragma unroll
    for (int i = 0; i < kBoxLoads; ++i) {
      const std::uint32_t index = threadIdx.x + i * kBoxThreads;
      chunks_[i] = {0, kNever};
      if (index >= a.chunks) continue;
      const auto [span, chunk] = divide(index, a.span_chunks);
      const BoxRow row = locate(a.src_rows, span);
      const auto at = static_cast<std::int32_t>(chunk * kVectorBytes);
      const int needed = max(at - static_cast<std::int32_t>(a.span_bytes) + 1, 0);
      chunks_[i] = {static_cast<std::uint32_t>(row.offset + at),
                    static_cast<std::uint32_t>(row.place + at) << 8 | min(needed, kNever)};
    }
  }

  /// Starts to load a box's image to `image`.
  __device__ void start(const BoxArguments& a, unsigned char* shared, std::uint32_t image,
                        const char* src) const {
    image += past_boundary(src, kVectorBytes);
#pragma unroll
    for (int i = 0; i < kBoxLoads; ++i) {
      if (i * kBoxThreads >= a.chunks) break;
      const char* const from = src + chunks_[i].offset;
      const std::uint32_t before = past_boundary(from, kVectorBytes);
      if (before < (chunks_[i].place & 0xff)) continue;
      __pipeline_memcpy_async(shared + a.swizzle(image + (chunks_[i].place >> 8) - before),
                              from - before, kVectorBytes);
    }
  }

 private:
  static constexpr int kNever = 0xff;
  struct Chunk {
    std::uint32_t offset;
    std::uint32_t place;  // and, in the low byte, from which place between boundaries on the span
                          // reaches into this chunk
  };
  Chunk chunks_[kBoxLoads];
};

/// 16 bytes of the destination, from the places of their elements: `base` further on than the
/// `table` says. Elements that no row has come from the end of shared memory.
template <class Element>
__device__ uint4 gather(const BoxArguments& a, const unsigned char* shared,
                        const std::uint16_t* table, int base) {
  constexpr int kPairs = kVectorBytes / sizeof(Element) / 2;
  constexpr int kAtOnce = kPairs < 2 ? kPairs : 2;
  struct alignas(4 * kAtOnce) Pairs {
    std::uint32_t pair[kAtOnce];
  };
  const std::uint32_t bases = (static_cast<std::uint32_t>(base) & 0xffff) * 0x1'0001u;
  alignas(kVectorBytes) std::conditional_t<(sizeof(Element) < 4), std::uint32_t, Element>
      out[sizeof(Element) < 4 ? 4 : 2 * kPairs];
#pragma unroll
  for (int p = 0; p < kPairs; p += kAtOnce) {
    const Pairs pairs = *reinterpret_cast<const Pairs*>(table + 2 * p);
    std::uint32_t words[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const std::uint32_t at = a.swizzle(__viaddmin_u16x2(pairs.pair[i], bases, a.last_places));
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
    }
  }
  return *reinterpret_cast<const uint4*>(out);
}

__device__ std::uint32_t word_of(const uint4& vector, std::uint32_t byte) {
  const std::uint32_t low = byte & 4 ? vector.y : vector.x;
  const std::uint32_t high = byte & 4 ? vector.w : vector.z;
  return byte & 8 ? high : low;
}

/// Bytes `begin` to `end` of 16, in the widest pieces that lie on their boundaries.
__device__ void store_part(char* to, const uint4& vector, std::uint32_t begin, std::uint32_t end) {
  const auto byte = [&](std::uint32_t at) {
    *reinterpret_cast<std::uint8_t*>(to + at) = word_of(vector, at) >> 8 * (at & 3);
  };
  const auto half_word = [&](std::uint32_t at) {
    *reinterpret_cast<std::uint16_t*>(to + at) = word_of(vector, at) >> 8 * (at & 2);
  };
  const auto word = [&](std::uint32_t at) {
    *reinterpret_cast<std::uint32_t*>(to + at) = word_of(vector, at);
  };
  if (begin & 1 && begin < end) byte(begin++);
  if (begin & 2 && begin + 2 <= end) half_word(begin), begin += 2;
  if (begin & 4 && begin + 4 <= end) word(begin), begin += 4;
  if (begin + 8 <= end) {
    *reinterpret_cast<uint2*>(to + begin) =
        begin & 8 ? make_uint2(vector.z, vector.w) : make_uint2(vector.x, vector.y);
    begin += 8;
  }
  if (begin + 4 <= end) word(begin), begin += 4;
  if (begin + 2 <= end) half_word(begin), begin += 2;
  if (begin < end) byte(begin);
}

/// Rows of the destination in the sectors that they touch, 16 bytes a store.
template <class Element>
class VectorStores {
 public:
  __device__ VectorStores(const BoxArguments& a, unsigned char* shared)
      : places_(reinterpret_cast<std::uint16_t*>(shared + kBoxBeginBytes)) {
    make_table(a);
#pragma unroll
    for (int i = 0; i < kBoxVectors; ++i) {
      const std::uint32_t index = threadIdx.x + i * kBoxThreads;
      cells_[i] = {0, 0, kNone};
      if (index >= a.stores) continue;
      const auto [cell, lane_row] = divide(index, a.rows_at_once);
      const auto [row_group, vector] = divide(cell, a.row_vectors);
      const auto [outer, inner] = divide(row_group, a.row_spacing);
      const std::uint32_t row =
          (outer * a.rows_at_once.divisor + lane_row) * a.row_spacing.divisor + inner;
      if (row >= a.rows) continue;
      const BoxRow at = locate(a.dst_rows, row);
      const std::uint32_t column = vector * kVector;
      const auto [periods, of_period] = divide(column, a.period);
      const std::uint32_t place = at.place + (periods - 1) * a.period_place;
      cells_[i] = {static_cast<std::uint32_t>(at.offset + vector * kVectorBytes),
                   static_cast<int>(place << 16 | (of_period + kSector)), static_cast<int>(column)};
    }
  }

  __device__ void store(const BoxArguments& a, const unsigned char* shared, std::uint32_t image,
                        const BoxBegin& begin) const {
    image += past_boundary(a.src + begin.src, kVectorBytes);
    char* const dst = a.dst + begin.dst;
#pragma unroll
    for (int i = 0; i < kBoxVectors; ++i) {
      if (i * kBoxThreads >= a.stores) break;
      const Cell cell = cells_[i];
      char* to = dst + cell.offset;
      // The row's own place between boundaries: odd vectors begin half a sector on.
      const std::uint32_t odd = (cell.column & kVector) * sizeof(Element);
      const std::uint32_t past = past_boundary(to + odd, kSectorBytes);
      to -= past;
      const int before = static_cast<int>(past / sizeof(Element));
      const std::uint32_t index = (cell.place & 0xffff) - before;
      const std::uint32_t copy = index & (a.copies - 1);
      const std::uint16_t* const table = places_ + copy * a.table_stride + (index - copy);
      const int base = static_cast<int>(image) + (cell.place >> 16);
      const int sector = (cell.column & ~(kSector - 1)) - before;
      const bool whole = sector >= 0 && sector + kSector <= a.columns;
      const int column = cell.column - before;
      if (!whole &&
          (!(sector < 0 ? begin.first : begin.last) || column <= -kVector || column >= a.columns)) {
        continue;
      }
      const uint4 vector = gather<Element>(a, shared, table, base);
      if (column >= 0 && column + kVector <= a.columns) {
        *reinterpret_cast<uint4*>(to) = vector;
      } else {
        store_part(to, vector, max(-column, 0) * sizeof(Element),
                   min(a.columns - column, kVector) * sizeof(Element));
      }
    }
  }

 private:
  static constexpr int kVector = kVectorBytes / sizeof(Element);
  static constexpr int kSector = kSectorBytes / sizeof(Element);
  static constexpr int kNone = -(1 << 24);
  struct Cell {
    std::uint32_t offset;
    int place;  // of the row in the image; in the low half, of its columns in the table
    int column;
  };

  /// The places of the columns from one sector before the first: of a period's end, if rows have
  /// several. Copy k begins with column k, so that a vector's places begin on a boundary.
  __device__ void make_table(const BoxArguments& a) {
    for (std::uint32_t i = threadIdx.x; i < a.table_stride; i += kBoxThreads) {
      const int column = static_cast<int>(i) - kSector;
      const bool ahead = column < 0;
      const BoxRow at = locate(a.column_places, max(ahead ? column + a.table_columns : column, 0));
      const auto place = static_cast<std::uint16_t>(at.place + (ahead ? 0 : a.period_place));
      for (std::uint32_t k = 0; k < min(a.copies, i + 1); ++k) {
        places_[k * a.table_stride + i - k] = place;
      }
    }
  }

  std::uint16_t* places_;
  Cell cells_[kBoxVectors];
};

/// Rows too short for vectors, element by element.
template <class Element>
class ElementStores {
 public:
  __device__ ElementStores(const BoxArguments& a, unsigned char*) {
#pragma unroll
    for (int i = 0; i < kBoxElements; ++i) {
      rows_[i] = locate(a.dst_rows, min(threadIdx.x + i * kBoxThreads, a.stores - 1));
    }
  }

  __device__ void store(const BoxArguments& a, const unsigned char* shared, std::uint32_t image,
                        const BoxBegin& begin) const {
    image += past_boundary(a.src + begin.src, kVectorBytes);
    char* const dst = a.dst + begin.dst;
    constexpr int kAtOnce = 4;  // loads of shared memory that wait for each other no more
#pragma unroll
    for (int first = 0; first < kBoxElements; first += kAtOnce) {
      if (first * kBoxThreads >= a.stores) break;
      Element elements[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const std::uint32_t from = a.swizzle(image + rows_[first + i].place);
        elements[i] = *reinterpret_cast<const Element*>(shared + from);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (threadIdx.x + (first + i) * kBoxThreads >= a.stores) break;
        char* const to = dst + static_cast<std::uint32_t>(rows_[first + i].offset);
        *reinterpret_cast<Element*>(to) = elements[i];
      }
    }
  }

 private:
  BoxRow rows_[kBoxElements];
};

/// Waits until all groups of loads but the last `ahead` are there.
__device__ void wait_for_loads(int ahead) {
  switch (ahead) {
    case 0:
      return __pipeline_wait_prior(0);
    case 1:
      return __pipeline_wait_prior(1);
    case 2:
      return __pipeline_wait_prior(2);
    default:
      return __pipeline_wait_prior(3);
  }
}

template <class Element, template <class> class Stores>
__global__ void __launch_bounds__(kBoxThreads, kBoxBlocks)
    copy_box_kernel(const __grid_constant__ BoxArguments a) {
  extern __shared__ __align__(128) unsigned char shared[];
  auto* const begins = reinterpret_cast<BoxBegin*>(shared);
  const std::uint32_t images_end = a.images_at + a.stages * a.image_bytes;
  for (std::uint64_t first = blockIdx.x; first < a.boxes;
       first += std::uint64_t{kBoxBegins} * gridDim.x) {
    const std::uint32_t left = (a.boxes - static_cast<std::uint32_t>(first) - 1) / gridDim.x + 1;
    const std::uint32_t count = min(left, kBoxBegins);
    if (threadIdx.x < count) {
      begins[threadIdx.x] =
          box_begin(a, static_cast<std::uint32_t>(first) + threadIdx.x * gridDim.x);
    }
    __syncthreads();
    const BoxLoads loads(a);
    std::uint32_t next = a.images_at;
    const auto load = [&](std::uint32_t n) {
      if (n < count) loads.start(a, shared, next, a.src + begins[n].src);
      __pipeline_commit();
      next += a.image_bytes;
      if (next == images_end) next = a.images_at;
    };
    for (int n = 0; n + 1 < a.stages; ++n) load(n);
    const Stores<Element> stores(a, shared);
    std::uint32_t image = a.images_at;
    for (std::uint32_t n = 0; n < count; ++n) {
      wait_for_loads(a.stages - 2);
      // Also: no thread reads the image any more that is loaded next.
      __syncthreads();
      load(n + a.stages - 1);
      stores.store(a, shared, image, begins[n]);
      image += a.image_bytes;
      if (image == images_end) image = a.images_at;
    }
    __syncthreads();
  }
}

constexpr std::int64_t kMostColumns = std::int64_t{1} << 24;

}  // namespace

void launch(const BoxCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const int bytes = plan.layout.element_bytes;
  BoxArguments a{};
  a.dst = static_cast<char*>(params.dst);
  a.src = static_cast<const char*>(params.src);
  a.boxes = static_cast<std::uint32_t>(copy.boxes());
  a.images_at = static_cast<std::uint32_t>(copy.images_at());
  a.image_bytes = static_cast<std::uint32_t>(copy.image_bytes);
  a.stages = static_cast<int>(copy.stages);
  a.swizzle = Swizzle(copy.lanes.swizzle);
  a.span_bytes = static_cast<std::uint32_t>(copy.span_bytes);
  a.chunks = static_cast<std::uint32_t>(copy.chunks());
  a.span_chunks = FastDivisor(copy.chunks() / copy.spans());
  a.src_rows = BoxOrder(copy.src_rows, &CopyDimension::src_stride, bytes);
  a.stores = static_cast<std::uint32_t>(copy.stores());
  a.rows = static_cast<std::uint32_t>(copy.rows());
  a.columns = static_cast<int>(copy.dst_run);
  a.row_vectors = FastDivisor(copy.row_vectors);
  a.rows_at_once = FastDivisor(copy.lanes.rows_at_once);
  a.row_spacing = FastDivisor(copy.lanes.row_spacing);
  a.dst_rows = BoxOrder(copy.dst_rows, &CopyDimension::dst_stride, bytes);
  a.column_places = BoxOrder(copy.columns, &CopyDimension::dst_stride, bytes);
  a.period = FastDivisor(copy.period < copy.dst_run ? copy.period : kMostColumns);
  a.table_columns = static_cast<int>(copy.period);
  a.period_place = static_cast<std::uint32_t>(copy.period_place);
  a.table_stride = static_cast<std::uint32_t>(copy.table_stride());
  a.copies = static_cast<std::uint32_t>(copy.copies);
  a.cut_columns = copy.overlap_cut;
  for (const BoxCopy::Part& part : copy.cut) {
    const CopyDimension& d = part.dimension;
    a.cut[a.cuts++] = {FastDivisor(part.boxes()), static_cast<std::uint32_t>(part.step),
                       static_cast<std::uint32_t>(d.size - part.tile), d.dst_stride * bytes,
                       d.src_stride * bytes};
  }
  a.batch = StridedViews<kMostBatchDimensions>(copy.batch, bytes);

  const std::int64_t shared_bytes = copy.shared_bytes();
  a.last_places = static_cast<std::uint32_t>(shared_bytes - bytes) * 0x1'0001u;
  const unsigned grid = grid_blocks(plan.blocks, "copy_box");
  by_element_width(bytes, [&](auto element) {
    using Element = decltype(element);
    if (copy.vectors) {
      if constexpr (sizeof(Element) < kVectorBytes) {
        copy_box_kernel<Element, VectorStores><<<grid, kBoxThreads, shared_bytes, stream>>>(a);
      }
    } else {
      copy_box_kernel<Element, ElementStores><<<grid, kBoxThreads, shared_bytes, stream>>>(a);
    }
  });
}

}  // namespace memops
