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
constexpr int kWarps = 4;  // of which the conflicts are counted

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
    std::array<std::array<std::uint32_t, kWarp>, kBanks> wanted;
    std::array<int, kBanks> counts{};
    int most = 0;
    for (int lane = first; lane < first + lanes_at_once; ++lane) {
      // Wider elements lie on their boundaries: their first word's bank stands for the others.
      const std::uint32_t word = swizzled(places[lane], swizzle) / kBankBytes;
      auto& in_bank = wanted[word % kBanks];
      int& count = counts[word % kBanks];
      if (std::find(in_bank.begin(), in_bank.begin() + count, word) != in_bank.begin() + count) {
        continue;
      }
      in_bank[count++] = word;
      most = std::max(most, count);
    }
    all += most;
  }
  return all;
}

std::int64_t least_wavefronts(int element_bytes) { return std::max(element_bytes / kBankBytes, 1); }

/// With the swizzle of the fewest wavefronts; none, where that is as good.
void choose_swizzle(BoxLanes& lanes, std::span<const WarpPlaces> warps, int element_bytes) {
  // Shorter shifts would reorder the 16-byte parts of a line: 32x512x64x8/2301 of 8 bytes took 1.5
  // times the requests of L2 and 1.12 times the time (2026-12-01).
  for (const int swizzle : {0, 3, 4, 5, 6, 7, 8, 9}) {
    std::int64_t needed = 0;
    for (const WarpPlaces& places : warps) needed += wavefronts(places, swizzle, element_bytes);
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
    return (kVectorBytes / element_bytes * lanes.wavefronts + 2 * kWarps * lanes.rows_at_once) *
           lanes.padded_rows;
  };
  BoxLanes best;
  for (const std::int64_t at_once : {4, 2, 1}) {
    for (std::int64_t spacing = 1; spacing <= (at_once == 1 ? 1 : kFarthest); spacing *= 2) {
      BoxLanes lanes{at_once, spacing, ceil_div(count, at_once * spacing) * at_once * spacing};
      if (8 * lanes.padded_rows > 9 * count) continue;
      std::array<WarpPlaces, kWarps> warps;
      for (int thread = 0; thread < kWarps * kWarp; ++thread) {
        const std::int64_t cell = thread / at_once;
        const std::int64_t group = cell / vectors;
        const std::int64_t row =
            ((group / spacing * at_once + thread % at_once) * spacing + group % spacing) % count;
        const Position at = position(rows, row);
        const std::uint64_t past =
            (dst_address + static_cast<std::uint64_t>(at.dst)) % kSectorBytes;
        const std::int64_t column = cell % vectors * kVectorBytes - static_cast<std::int64_t>(past);
        // The first columns that a row of vectors can have, wherever it begins.
        const std::int64_t index =
            (column + static_cast<std::int64_t>(kSectorBytes)) / element_bytes;
        warps[thread / kWarp][thread % kWarp] =
            static_cast<std::uint32_t>(at.place + position(columns, index).place);
      }
      choose_swizzle(lanes, warps, element_bytes);
      if (best.padded_rows == 0 || cost(lanes) < cost(best)) best = lanes;
    }
  }
  return best;
}

BoxLanes element_lanes(std::span<const BoxPlaces> rows, int element_bytes) {
  BoxLanes lanes;
  std::array<WarpPlaces, kWarps> warps;
  for (int thread = 0; thread < kWarps * kWarp; ++thread) {
    warps[thread / kWarp][thread % kWarp] =
        static_cast<std::uint32_t>(position(rows, thread).place);
  }
  choose_swizzle(lanes, warps, element_bytes);
  return lanes;
}

}  // namespace memops
