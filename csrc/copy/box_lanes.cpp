#include "copy/box_lanes.h"

#include <algorithm>
#include <array>
#include <bit>

#include "common/math.h"

namespace memops {
namespace {

constexpr int kWarp = 32;
constexpr int kBanks = 32;
constexpr int kBankBytes = 4;
constexpr int kMostSwizzle = 9;  // a place has 16 bits

struct Position {
  std::int64_t place = 0;
  std::int64_t dst = 0;
};

Position position(std::span<const BoxPlaces> dimensions, std::int64_t index) {
  Position at;
  for (const BoxPlaces& d : dimensions) {
    at.place += index % d.size * d.place;
    at.dst += index % d.size * d.dst_bytes;
    index /= d.size;
  }
  return at;
}

using WarpPlaces = std::array<std::uint32_t, kWarp>;

/// How often shared memory is read for a warp's loads of `bytes` from these places: each time every
/// bank gives one word, to all lanes that want it.
std::int64_t wavefronts(const WarpPlaces& places, int swizzle, int bytes) {
  const int words = std::max(bytes / kBankBytes, 1);
  const int lanes_at_once = kWarp / words;
  std::int64_t all = 0;
  for (int first = 0; first < kWarp; first += lanes_at_once) {
    std::array<std::array<std::uint64_t, 8>, kBanks> rows{};  // of 128 bytes, in 64 KB
    for (int lane = first; lane < first + lanes_at_once; ++lane) {
      const std::uint32_t word = swizzled(places[lane], swizzle) / kBankBytes;
      for (int w = 0; w < words; ++w) {
        const std::uint32_t row = (word + w) / kBanks % 512;
        rows[(word + w) % kBanks][row / 64] |= std::uint64_t{1} << (row % 64);
      }
    }
    int most = 0;
    for (const auto& bank : rows) {
      int count = 0;
      for (const std::uint64_t bits : bank) count += std::popcount(bits);
      most = std::max(most, count);
    }
    all += most;
  }
  return all;
}

std::int64_t least_wavefronts(int element_bytes) { return std::max(element_bytes / kBankBytes, 1); }

/// With the swizzle of the fewest wavefronts; none, where that is as good.
void choose_swizzle(BoxLanes& lanes, const WarpPlaces& places, int element_bytes) {
  for (int swizzle = 0; swizzle <= kMostSwizzle; ++swizzle) {
    const std::int64_t needed = wavefronts(places, swizzle, element_bytes);
    if (swizzle > 0 && needed >= lanes.wavefronts) continue;
    lanes.swizzle = swizzle;
    lanes.wavefronts = needed;
    if (needed == least_wavefronts(element_bytes)) return;
  }
}

}  // namespace

BoxLanes vector_lanes(std::span<const BoxPlaces> rows, std::span<const BoxPlaces> columns,
                      std::int64_t vectors, int element_bytes, std::uint64_t dst_address) {
  constexpr std::int64_t kVectorBytes = 16;
  constexpr std::uint64_t kSectorBytes = 32;
  constexpr int kFarthest = 16;
  std::int64_t count = 1;
  for (const BoxPlaces& d : rows) count *= d.size;
  // Segments of the destination cost about as much each as two wavefronts.
  const auto cost = [&](const BoxLanes& lanes) {
    return (kVectorBytes / element_bytes * lanes.wavefronts + 2 * lanes.rows_at_once) *
           lanes.padded_rows;
  };
  BoxLanes best;
  for (const std::int64_t at_once : {4, 2, 1}) {
    for (std::int64_t spacing = 1; spacing <= (at_once == 1 ? 1 : kFarthest); spacing *= 2) {
      BoxLanes lanes{at_once, spacing, ceil_div(count, at_once * spacing) * at_once * spacing};
      if (8 * lanes.padded_rows > 9 * count) continue;
      WarpPlaces places;
      for (int lane = 0; lane < kWarp; ++lane) {
        const std::int64_t cell = lane / at_once;
        const std::int64_t group = cell / vectors;
        const std::int64_t row =
            ((group / spacing * at_once + lane % at_once) * spacing + group % spacing) % count;
        const Position at = position(rows, row);
        const std::uint64_t past =
            (dst_address + static_cast<std::uint64_t>(at.dst)) % kSectorBytes;
        const std::int64_t column = cell % vectors * kVectorBytes - static_cast<std::int64_t>(past);
        // The first columns that a row of vectors can have, wherever it begins.
        const std::int64_t index =
            (column + static_cast<std::int64_t>(kSectorBytes)) / element_bytes;
        places[lane] = static_cast<std::uint32_t>(at.place + position(columns, index).place);
      }
      choose_swizzle(lanes, places, element_bytes);
      if (best.padded_rows == 0 || cost(lanes) < cost(best)) best = lanes;
    }
  }
  return best;
}

BoxLanes element_lanes(std::span<const BoxPlaces> rows, int element_bytes) {
  BoxLanes lanes;
  WarpPlaces places;
  for (int lane = 0; lane < kWarp; ++lane) {
    places[lane] = static_cast<std::uint32_t>(position(rows, lane).place);
  }
  choose_swizzle(lanes, places, element_bytes);
  return lanes;
}

}  // namespace memops
