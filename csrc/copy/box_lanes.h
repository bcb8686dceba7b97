// Which elements of a box the threads of a warp store at once, and where these lie in shared
// memory: chosen by counting the bank conflicts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace memops {

/// A dimension of a box: its elements, and the bytes from one to the next in shared memory and in
/// the destination.
struct BoxPlaces {
  std::int64_t size;
  std::int64_t place;
  std::int64_t dst_bytes;
};

struct BoxLanes {
  std::int64_t rows_at_once = 1;  // rows of which neighbouring threads store the same vectors,
  std::int64_t row_spacing = 1;   // so many apart
  std::int64_t padded_rows = 0;   // a multiple of both
  int swizzle = 0;                // how far a place is shifted to exchange its 16-byte parts by it
  std::int64_t wavefronts = 0;    // of four warps' loads of one element each
};

/// Rows that are `vectors` long, from the boundary of a sector before their first element on.
BoxLanes vector_lanes(std::span<const BoxPlaces> rows, std::span<const BoxPlaces> columns,
                      std::int64_t vectors, int element_bytes, std::uint64_t dst_address);

/// Elements one after the other.
BoxLanes element_lanes(std::span<const BoxPlaces> rows, int element_bytes);

/// A place after the exchange of 16-byte parts within 128 bytes.
constexpr std::uint32_t kSwizzleMask = 0x70;
constexpr std::uint32_t swizzled(std::uint32_t place, int shift) {
  return shift == 0 ? place : place ^ ((place >> shift) & kSwizzleMask);
}

}  // namespace memops
