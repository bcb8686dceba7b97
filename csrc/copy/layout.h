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

/// One of the views.
using ViewStride = std::int64_t CopyDimension::*;

/// A copy between two views of one shape. After `coalesce`, dimensions of size 1 are gone, the
/// destination's strides fall from first to last, and no two neighbours could be one.
struct CopyLayout {
  std::vector<CopyDimension> dimensions;  // outermost first
  int element_bytes;                      // 1, 2, 4, 8 or 16

  MEMOPS_API std::int64_t elements() const;
  /// Where a view's last element lies, counted from its first.
  MEMOPS_API std::int64_t last_offset(ViewStride stride) const;
  bool operator==(const CopyLayout&) const = default;
};

/// Drops unit dimensions, sorts by destination stride and merges neighbours that are contiguous in
/// both views. Sizes must not be 0, strides not negative; the order of elements is the
/// destination's, so any dimension order of the caller gives the same layout.
MEMOPS_API CopyLayout coalesce(std::span<const std::int64_t> sizes,
                               std::span<const std::int64_t> dst_strides,
                               std::span<const std::int64_t> src_strides, int element_bytes);

/// The same for a layout whose sizes were changed.
MEMOPS_API CopyLayout coalesce(CopyLayout layout);

/// Moves the same bytes in wider elements (up to 16 bytes) while the innermost dimension is
/// contiguous in both views and every size, stride and start address allows it.
MEMOPS_API CopyLayout widen_elements(CopyLayout layout, std::uint64_t dst_address,
                                     std::uint64_t src_address);

/// Moves the same bytes in narrower elements where an address is not a multiple of the element's
/// width (memory that another library handed over).
MEMOPS_API CopyLayout narrow_elements(CopyLayout layout, std::uint64_t dst_address,
                                      std::uint64_t src_address);

/// Dimensions that one view holds as a single dense run, innermost first, and the other view
/// anywhere.
using Run = std::vector<CopyDimension>;
MEMOPS_API std::int64_t elements(const Run& run);

}  // namespace memops
