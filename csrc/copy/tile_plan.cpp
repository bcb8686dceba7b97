#include "common/math.h"
#include "copy/kernel_choice.h"
#include "copy/run_growth.h"

namespace memops {
namespace {

/// Longer runs waste next to nothing in their last tile.
constexpr std::int64_t kManyTiles = 16;

bool wants_more(const RunGrowth& run, std::int64_t tile) {
  return static_cast<int>(run.indices().size()) < kMostRunDimensions &&
         run.elements() < kManyTiles * tile && run.elements() % tile != 0;
}

double filled(std::int64_t size, std::int64_t tile) {
  return static_cast<double>(size) / static_cast<double>(ceil_div(size, tile) * tile);
}

std::vector<std::int64_t> sizes_of(const Run& run) {
  std::vector<std::int64_t> sizes;
  for (const CopyDimension& d : run) sizes.push_back(d.size);
  return sizes;
}

}  // namespace

std::optional<TileCopy> tile_copy(const CopyLayout& layout, std::uint64_t dst_address,
                                  std::uint64_t src_address) {
  const auto& dims = layout.dimensions;
  const TileShape shape = tile_shape(layout.element_bytes);
  RunGrowth x(dims, &CopyDimension::dst_stride);
  RunGrowth y(dims, &CopyDimension::src_stride);
  // The shorter run grows first, so that neither takes what the other needs more.
  for (bool grown = true; grown;) {
    grown = false;
    const bool x_first = x.elements() * shape.y <= y.elements() * shape.x;
    for (const bool take_x : {x_first, !x_first}) {
      RunGrowth& run = take_x ? x : y;
      const RunGrowth& other = take_x ? y : x;
      if (!wants_more(run, take_x ? shape.x : shape.y)) continue;
      const std::optional<int> next = run.next();
      if (!next || other.holds(*next)) continue;
      run.append(*next);
      grown = true;
      break;
    }
  }
  if (x.indices().empty() || y.indices().empty()) return std::nullopt;

  TileCopy copy{};
  copy.tile = shape;
  const auto on_vector = [&](std::int64_t elements) {
    return elements * layout.element_bytes % kVectorBytes == 0;
  };
  copy.aligned_loads = src_address % kVectorBytes == 0;
  copy.aligned_stores = dst_address % kVectorBytes == 0;
  for (const int i : x.indices()) copy.x.push_back(dims[i]);
  for (const int i : y.indices()) copy.y.push_back(dims[i]);
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (!x.holds(i) && !y.holds(i)) copy.batch.push_back(dims[i]);
    copy.aligned_loads &= y.holds(i) || on_vector(dims[i].src_stride);
    copy.aligned_stores &= x.holds(i) || on_vector(dims[i].dst_stride);
  }
  copy.aligned_stores &= on_vector(x.elements());
  if (static_cast<int>(copy.batch.size()) > kMostBatchDimensions) return std::nullopt;
  return copy;
}

std::int64_t blocks_of(const TileCopy& copy) {
  return ceil_div<std::int64_t>(elements(copy.x), copy.tile.x) *
         ceil_div<std::int64_t>(elements(copy.y), copy.tile.y) * elements(copy.batch);
}

double filled(const TileCopy& copy) {
  return filled(elements(copy.x), copy.tile.x) * filled(elements(copy.y), copy.tile.y);
}

void add_facts(const TileCopy& copy, PlanReport& report) {
  report.facts.emplace_back("threads", std::int64_t{copy.tile.threads});
  report.facts.emplace_back("dst_run", sizes_of(copy.x));
  report.facts.emplace_back("src_run", sizes_of(copy.y));
  report.facts.emplace_back("tile", std::vector<std::int64_t>{copy.tile.x, copy.tile.y});
  report.facts.emplace_back("aligned_loads", std::int64_t{copy.aligned_loads});
  report.facts.emplace_back("aligned_stores", std::int64_t{copy.aligned_stores});
}

}  // namespace memops
