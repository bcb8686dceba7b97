// Strided dimensions as a kernel argument.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

#include "common/cuda/fast_divisor.h"
#include "copy/plan.h"
#include "copy/words.h"

namespace memops {

/// Up to kMost dimensions, innermost first, strides in bytes.
template <int kMost>
struct StridedViews {
  static constexpr int kCapacity = kMost;
  int rank = 0;
  FastDivisor sizes[kMost];
  std::int64_t dst_strides[kMost];
  std::int64_t src_strides[kMost];

  StridedViews() = default;
  /// `dimensions`: outermost first.
  StridedViews(std::span<const CopyDimension> dimensions, int element_bytes)
      : StridedViews(dimensions, element_bytes, element_bytes) {}
  /// The same for elements of two widths.
  StridedViews(std::span<const CopyDimension> dimensions, int dst_bytes, int src_bytes) {
    if (dimensions.size() > kCapacity) {
      throw std::runtime_error("memops: a copy kernel was given too many dimensions");
    }
    for (auto d = dimensions.rbegin(); d != dimensions.rend(); ++d, ++rank) {
      sizes[rank] = FastDivisor(d->size);
      dst_strides[rank] = d->dst_stride * dst_bytes;
      src_strides[rank] = d->src_stride * src_bytes;
    }
  }
};

constexpr int kAllDimensions = 66;  // PyTorch's own limit, and two that narrower elements add

/// Calls `launch` with the dimensions as views; a launch copies the few ones sooner.
template <class Launch>
void by_capacity(std::span<const CopyDimension> dimensions, int element_bytes, Launch&& launch) {
  if (dimensions.size() <= kFewDimensions) {
    launch(StridedViews<kFewDimensions>(dimensions, element_bytes));
  } else {
    launch(StridedViews<kAllDimensions>(dimensions, element_bytes));
  }
}

template <class Offset>
struct ViewOffsets {
  Offset dst;
  Offset src;
};

/// The byte offsets of the element with this linear index, innermost dimension fastest.
template <class Offset, int kCapacity>
__device__ ViewOffsets<Offset> offsets_of(const StridedViews<kCapacity>& views,
                                          std::uint32_t index) {
  ViewOffsets<Offset> at{0, 0};
#pragma unroll 1  // most ranks are below the 4 that the compiler would unroll
  for (int d = 0; d < views.rank; ++d) {
    const auto [rest, coordinate] = divide(index, views.sizes[d]);
    at.dst += static_cast<Offset>(coordinate) * static_cast<Offset>(views.dst_strides[d]);
    at.src += static_cast<Offset>(coordinate) * static_cast<Offset>(views.src_strides[d]);
    index = rest;
  }
  return at;
}

/// The same for a rank that the compiler knows.
template <class Offset, int kRank, int kCapacity>
__device__ ViewOffsets<Offset> offsets_of_rank(const StridedViews<kCapacity>& views,
                                               std::uint32_t index) {
  ViewOffsets<Offset> at{0, 0};
#pragma unroll
  for (int d = 0; d < kRank; ++d) {
    std::uint32_t coordinate = index;
    if (d + 1 < kRank) {
      const auto [rest, remainder] = divide(index, views.sizes[d]);
      coordinate = remainder;
      index = rest;
    }
    at.dst += static_cast<Offset>(coordinate) * static_cast<Offset>(views.dst_strides[d]);
    at.src += static_cast<Offset>(coordinate) * static_cast<Offset>(views.src_strides[d]);
  }
  return at;
}

/// All bytes from the source's first element to its last.
inline SourceBytes source_bytes(const CopyLayout& layout, const void* src) {
  const auto* const begin = static_cast<const char*>(src);
  const std::int64_t elements = layout.last_offset(&CopyDimension::src_stride) + 1;
  return {begin, begin + elements * layout.element_bytes};
}

/// A position in up to three nested dimensions, innermost first, to an offset in bytes.
struct NestedOffsets {
  int rank = 0;
  FastDivisor sizes[kMostRunDimensions - 1];  // the outermost needs none
  std::int64_t strides[kMostRunDimensions];

  void append(std::int64_t size, std::int64_t stride) {
    if (rank == kMostRunDimensions) {
      throw std::runtime_error("memops: a copy kernel was given too many nested dimensions");
    }
    if (rank + 1 < kMostRunDimensions) sizes[rank] = FastDivisor(size);
    strides[rank++] = stride;
  }

  __device__ std::int64_t operator()(std::uint32_t position) const {
    if (rank == 0) return 0;
    if (rank == 1) return static_cast<std::int64_t>(position) * strides[0];
    const auto [rest, first] = divide(position, sizes[0]);
    const std::int64_t inner = static_cast<std::int64_t>(first) * strides[0];
    if (rank == 2) return inner + static_cast<std::int64_t>(rest) * strides[1];
    const auto [last, second] = divide(rest, sizes[1]);
    return inner + static_cast<std::int64_t>(second) * strides[1] +
           static_cast<std::int64_t>(last) * strides[2];
  }
};

}  // namespace memops
