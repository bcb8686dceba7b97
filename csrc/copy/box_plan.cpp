#include <algorithm>
#include <bit>

#include "common/math.h"
#include "copy/kernel_choice.h"
#include "copy/run_growth.h"

namespace memops {
namespace {

constexpr std::int64_t kBoxBytes = 16 << 10;
constexpr std::int64_t kLongRunBytes = 256;  // a run that long takes no more dimensions
constexpr std::int64_t kLineBytes = 128;
constexpr std::int64_t kBanks = 32;

void grow(RunGrowth& run, int element_bytes) {
  while (static_cast<int>(run.indices().size()) < kMostRunDimensions &&
         run.elements() * element_bytes < kLongRunBytes) {
    const std::optional<int> next = run.next();
    if (!next) return;
    run.append(*next);
  }
}

/// How much of the last dimension of each run a box holds: at least a line of both runs, then as
/// much as shared memory takes. Nothing where a line of both does not fit.
struct Tiles {
  std::int64_t dst;
  std::int64_t src;
};

std::optional<Tiles> tiles_of(std::span<const CopyDimension> dims, const RunGrowth& dst,
                              const RunGrowth& src, int element_bytes) {
  const int dst_last = dst.indices().back();
  const int src_last = src.indices().back();
  std::int64_t whole = 1;  // elements of the dimensions that are not cut
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if ((dst.holds(i) || src.holds(i)) && i != dst_last && i != src_last) whole *= dims[i].size;
  }
  const std::int64_t room = kBoxBytes / element_bytes / whole;
  if (room == 0) return std::nullopt;
  const std::int64_t dst_size = dims[dst_last].size;
  const std::int64_t src_size = dims[src_last].size;
  const auto even = [](std::int64_t tile, std::int64_t size) {  // keeps the next tile's alignment
    return tile >= size ? size : tile >= 16 ? tile / 16 * 16 : tile;
  };
  if (dst_last == src_last) {
    const std::int64_t tile = even(room, dst_size);
    return Tiles{tile, tile};
  }
  // A run's last dimension that the other run holds further inside stays whole.
  const auto line = [&](const RunGrowth& run, std::int64_t size, bool cut) {
    const std::int64_t inner = run.elements() / size * element_bytes;
    return cut ? std::min(size, ceil_div(kLineBytes, inner)) : size;
  };
  const bool cut_dst = !src.holds(dst_last);
  const bool cut_src = !dst.holds(src_last);
  Tiles tiles{line(dst, dst_size, cut_dst), line(src, src_size, cut_src)};
  if (tiles.dst * tiles.src > room) return std::nullopt;
  for (bool grown = true; grown;) {
    grown = false;
    const bool dst_first = tiles.dst * src_size <= tiles.src * dst_size;
    for (const bool take_dst : {dst_first, !dst_first}) {
      std::int64_t& tile = take_dst ? tiles.dst : tiles.src;
      const std::int64_t size = take_dst ? dst_size : src_size;
      const std::int64_t other = take_dst ? tiles.src : tiles.dst;
      if (tile < size && std::min(2 * tile, size) * other <= room) {
        tile = std::min(2 * tile, size);
        grown = true;
        break;
      }
    }
  }
  return tiles;
}

}  // namespace

std::optional<BoxCopy> box_copy(const CopyLayout& layout) {
  const auto& dims = layout.dimensions;
  const int bytes = layout.element_bytes;
  RunGrowth dst(dims, &CopyDimension::dst_stride);
  RunGrowth src(dims, &CopyDimension::src_stride);
  grow(dst, bytes);
  grow(src, bytes);
  if (dst.indices().empty() || src.indices().empty()) return std::nullopt;
  const std::optional<Tiles> tiles = tiles_of(dims, dst, src, bytes);
  if (!tiles) return std::nullopt;

  BoxCopy copy{};
  const auto part_of = [&](int i) {
    const std::int64_t tile = i == dst.indices().back()   ? tiles->dst
                              : i == src.indices().back() ? tiles->src
                                                          : dims[i].size;
    return BoxCopy::Part{dims[i], tile, 0};
  };
  std::vector<int> position(dims.size(), -1);
  const auto append = [&](int i) {
    position[i] = static_cast<int>(copy.parts.size());
    copy.parts.push_back(part_of(i));
  };
  std::int64_t run_bytes = bytes;
  for (const int i : src.indices()) {
    append(i);
    copy.src_run.push_back(position[i]);
    copy.parts.back().box_stride = run_bytes;
    run_bytes *= copy.parts.back().tile;
  }
  const std::int64_t unit = std::max(4, bytes);  // what one access to shared memory moves
  std::int64_t units = ceil_div(run_bytes, unit);
  const int first = dst.indices().front();
  if (!src.holds(first) && units >= kBanks) {
    // Neighbouring threads read neighbouring rows: spread these over the banks.
    const auto rows = static_cast<std::uint64_t>(part_of(first).tile);
    const std::int64_t apart =
        std::max<std::int64_t>(1, kBanks / static_cast<std::int64_t>(std::bit_ceil(rows)));
    units += (apart - units % kBanks + kBanks) % kBanks;
  } else {
    units |= 1;
  }
  copy.row_bytes = units * unit;
  copy.load_rows = 1;
  for (const int i : dst.indices()) {
    if (!src.holds(i)) {
      append(i);
      copy.src_rows.push_back(position[i]);
      copy.parts.back().box_stride = copy.row_bytes * copy.load_rows;
      copy.load_rows *= copy.parts.back().tile;
    }
    copy.dst_run.push_back(position[i]);
  }
  for (const int i : src.indices()) {
    if (!dst.holds(i)) copy.dst_rows.push_back(position[i]);
  }
  const std::int64_t step = copy.parts[copy.dst_run.front()].box_stride / bytes;
  copy.skewed = copy.src_rows.empty() && copy.dst_run.size() == 1 && step % 2 == 0;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (position[i] < 0) copy.batch.push_back(dims[i]);
  }
  if (static_cast<int>(copy.batch.size()) > kMostBatchDimensions) return std::nullopt;
  return copy;
}

std::int64_t BoxCopy::shared_bytes() const {
  const std::int64_t bytes = load_rows * row_bytes;
  return skewed ? bytes + bytes / kLineBytes * kVectorBytes + kLineBytes : bytes;
}

std::int64_t blocks_of(const BoxCopy& copy) {
  std::int64_t blocks = elements(copy.batch);
  for (const BoxCopy::Part& part : copy.parts) blocks *= ceil_div(part.dimension.size, part.tile);
  return blocks;
}

}  // namespace memops
