// The layout algebra: two strided views of one shape, brought to the fewest dimensions.
// Pure C++; the copy plan and its tests are its users.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/export.h"

namespace memops {

/// One dimension of a copy: `size` elements, each view's stride in elements.
struct CopyDimension {
  std::int64_t size;
  std::int64_t dst_stride;
  std::int64_t src_stride;

  bool operator==(const CopyDimension&) const = default;
};

/// A copy between two views of one shape. After `coalesce`, dimensions of size 1 are gone, the
/// destination's strides fall from first to last, and no two neighbours could be one.
struct CopyLayout {
  std::vector<CopyDimension> dimensions;  // outermost first
  int element_bytes;                      // 1, 2, 4, 8 or 16

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const CopyDimension& d : dimensions) n *= d.size;
    return n;
  }
  bool operator==(const CopyLayout&) const = default;
};

/// Drops unit dimensions, sorts by destination stride and merges neighbours that are contiguous in
/// both views. Sizes must not be 0, strides not negative; the order of elements is the
/// destination's, so any dimension order of the caller gives the same layout.
MEMOPS_API CopyLayout coalesce(std::span<const std::int64_t> sizes,
                               std::span<const std::int64_t> dst_strides,
                               std::span<const std::int64_t> src_strides, int element_bytes);

/// Moves the same bytes in wider elements (up to 16 bytes) while the innermost dimension is
/// contiguous in both views and every size, stride and start address allows it.
MEMOPS_API CopyLayout widen(CopyLayout layout, std::uint64_t dst_address,
                            std::uint64_t src_address);

}  // namespace memops
