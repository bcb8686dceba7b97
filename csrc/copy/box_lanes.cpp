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

std::int64_t place_of(std::span<const BoxPlaces> dimensions, std::int64_t index) {
  std::int64_t place = 0;
  for (const BoxPlaces& d : dimensions) {
    place += index % d.size * d.place;
    index /= d.size;
  }
  return place;
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

BoxLanes whole_groups(std::int64_t rows, std::int64_t rows_at_once, std::int64_t row_spacing) {
  const std::int64_t group = rows_at_once * row_spacing;
  return {rows_at_once, row_spacing, ceil_div(rows, group) * group};
}

BoxLanes vector_lanes(std::span<const BoxPlaces> rows, std::span<const BoxPlaces> columns,
                      std::int64_t vectors, int element_bytes) {
  constexpr int kVectorBytes = 16;
  std::int64_t count = 1;
  for (const BoxPlaces& d : rows) count *= d.size;
  BoxLanes best;
  for (const int at_once : {4, 2, 1}) {
    for (int spacing = std::max(kBankBytes / element_bytes, 1); spacing > 0; spacing /= 2) {
      if (at_once == 1 && spacing > 1) continue;
      BoxLanes lanes = whole_groups(count, at_once, spacing);
      if (8 * lanes.padded_rows > 9 * count) continue;
      WarpPlaces places;
      for (int lane = 0; lane < kWarp; ++lane) {
        const std::int64_t cell = lane / at_once;
        const std::int64_t group = cell / vectors;
        const std::int64_t row =
            (group / spacing * at_once + lane % at_once) * spacing + group % spacing;
        const std::int64_t column = cell % vectors * (kVectorBytes / element_bytes);
        places[lane] =
            static_cast<std::uint32_t>(place_of(rows, row % count) + place_of(columns, column));
      }
      choose_swizzle(lanes, places, element_bytes);
      const auto cost = [](const BoxLanes& l) { return l.wavefronts * l.padded_rows; };
      if (best.padded_rows == 0 || cost(lanes) < cost(best)) best = lanes;
      if (best.padded_rows == count && best.wavefronts == least_wavefronts(element_bytes)) {
        return best;
      }
    }
  }
  return best;
}

BoxLanes element_lanes(std::span<const BoxPlaces> rows, int element_bytes) {
  BoxLanes lanes;
  WarpPlaces places;
  for (int lane = 0; lane < kWarp; ++lane) {
    places[lane] = static_cast<std::uint32_t>(place_of(rows, lane));
  }
  choose_swizzle(lanes, places, element_bytes);
  return lanes;
}

}  // namespace memops
