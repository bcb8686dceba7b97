#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "common/math.h"
#include "common/recent.h"
#include "copy/box_lanes.h"
#include "copy/box_tiles.h"
#include "copy/kernel_choice.h"

namespace memops {
namespace {

// Fewer elements, and fewer bytes read and written, are too few boxes for all multiprocessors.
constexpr std::int64_t kManyElements = 1 << 19;
constexpr double kBoxedShareOfL2 = 0.3;
// What the cache holds moves as fast element by element where a warp uses so much of its sectors.
constexpr double kCachedShareOfL2 = 0.6;
constexpr double kUsedShare = 0.5;
constexpr std::int64_t kMostByteStores = 1 << 22;
constexpr std::int64_t kMostSpan = std::int64_t{1} << 30;  // bytes, of a box in either view

std::int64_t product(const std::vector<BoxCopy::Part>& parts) {
  std::int64_t n = 1;
  for (const BoxCopy::Part& part : parts) n *= part.tile;
  return n;
}

std::vector<BoxPlaces> places_of(const std::vector<BoxCopy::Part>& parts, int element_bytes) {
  std::vector<BoxPlaces> places;
  for (const BoxCopy::Part& part : parts) {
    places.push_back({part.tile, part.place, part.dimension.dst_stride * element_bytes});
  }
  return places;
}

/// How much of the source's sectors neighbouring elements of the destination use.
double used_share(const CopyLayout& layout) {
  constexpr std::int64_t kElements = 256;
  std::array<std::int64_t, kElements> sectors;
  for (std::int64_t e = 0; e < kElements; ++e) {
    std::int64_t index = e;
    std::int64_t offset = 0;
    for (auto d = layout.dimensions.rbegin(); d != layout.dimensions.rend(); ++d) {
      offset += index % d->size * d->src_stride;
      index /= d->size;
    }
    sectors[e] = offset * layout.element_bytes / kSectorBytes;
  }
  std::ranges::sort(sectors);
  const auto distinct = std::ranges::unique(sectors).begin() - sectors.begin();
  return static_cast<double>(kElements * layout.element_bytes) /
         static_cast<double>(distinct * kSectorBytes);
}

/// True where copy_strided does not have to store many single bytes.
bool wide_stores(const CopyLayout& layout, std::uint64_t dst_address) {
  return layout.element_bytes > 1 || layout.elements() <= kMostByteStores ||
         strided_copy(layout, dst_address).packed;
}

struct Shape {
  BoxTiles tiles;
  bool vectors;
  bool whole_sectors;
  std::int64_t overlap;
  int outermost;  // dimension along the destination's run, or -1
};

/// Nanoseconds that all boxes take. The weights are of a linear fit to 469 copies of 40 MB and more
/// on an H200 (2026-12-01; the residual is 13.5 %).
double nanoseconds(const Shape& shape, const CopyLayout& layout, int multiprocessors) {
  constexpr double kWarp = 32;
  constexpr double kLaunch = 2600;
  constexpr double kBox = 81;
  constexpr double kSpan = 1.0;
  constexpr double kWarpLoad = 9.0;
  constexpr double kByte = 0.046;
  // For elements of 1, 2, 4, 8 and 16 bytes:
  constexpr std::array kWarpVector = {8.1, 2.3, 1.0, 0.1, 0.0};
  constexpr std::array kWarpElement = {3.0, 5.5, 6.1, 1.3, 0.3};
  constexpr std::array kPartsOfRun = {17.1, 5.9, 5.7, 5.7, 5.7};

  const std::int64_t bytes = layout.element_bytes;
  const auto width = std::countr_zero(static_cast<std::uint32_t>(bytes));
  const BoxTiles::Image image = shape.tiles.image();
  const std::int64_t run = shape.tiles.columns().run;
  const std::int64_t elements = shape.tiles.elements();
  const auto rows = static_cast<double>(elements / run);
  double box = kBox + static_cast<double>(image.spans) *
                          (kSpan + kWarpLoad / kWarp * static_cast<double>(box_chunks(image.span)));
  box += kByte * static_cast<double>(elements * bytes);
  if (shape.vectors) {
    const std::int64_t vectors = box_vectors(run * bytes, bytes, shape.whole_sectors);
    box += rows * kWarpVector[width] / kWarp * static_cast<double>(vectors);
    if (!shape.whole_sectors && shape.overlap == 0) box += rows * kPartsOfRun[width];
  } else {
    box += kWarpElement[width] / kWarp * static_cast<double>(elements);
  }
  std::int64_t boxes = 1;
  for (std::size_t i = 0; i < layout.dimensions.size(); ++i) {
    const std::int64_t tile = shape.tiles.tile(static_cast<int>(i));
    const std::int64_t step = static_cast<int>(i) == shape.outermost ? tile - shape.overlap : tile;
    boxes *= 1 + ceil_div(layout.dimensions[i].size - tile, step);
  }
  // A multiprocessor's boxes overlap, but for the first and the last.
  const std::int64_t rounds = ceil_div<std::int64_t>(boxes, multiprocessors) + kBoxBlocks - 1;
  return kLaunch + static_cast<double>(rounds) * box;
}

/// The soonest of the shapes that grow more in one view or in the other.
Shape best_shape(const CopyLayout& layout, std::uint64_t dst_address, int multiprocessors) {
  std::optional<Shape> best;
  double least = std::numeric_limits<double>::max();
  const auto consider = [&](const BoxTiles::Limits& limits) {
    Shape shape{BoxTiles(layout), limits.vectors, false, 0, -1};
    shape.tiles.grow(limits);
    const Indices columns = shape.tiles.columns().dimensions;
    shape.whole_sectors = shape.tiles.whole_sectors(dst_address);
    if (!columns.empty()) {
      shape.outermost = columns.back();
      if (!shape.whole_sectors) shape.overlap = shape.tiles.overlap(shape.outermost);
    }
    const double needed = nanoseconds(shape, layout, multiprocessors);
    if (needed < least) {
      least = needed;
      best = shape;
    }
  };
  for (const std::int64_t image_bytes : {kBoxImageBytes, kBoxImageBytes / 2, kBoxImageBytes / 4}) {
    if (layout.element_bytes < kVectorBytes) {
      for (const auto& [src, dst] : {std::pair{1, 1}, {1, 2}, {1, 4}, {2, 1}, {4, 1}}) {
        consider({true, image_bytes, src, dst});
      }
    }
    consider({false, image_bytes, 1, 1});
  }
  return *best;
}

std::optional<BoxCopy> make_box(const CopyLayout& layout, std::uint64_t dst_address,
                                int multiprocessors, bool cached) {
  using View = BoxTiles::View;
  if (cached && wide_stores(layout, dst_address) && used_share(layout) >= kUsedShare) {
    return std::nullopt;
  }
  const Shape shape = best_shape(layout, dst_address, multiprocessors);
  const BoxTiles& tiles = shape.tiles;
  const std::int64_t bytes = layout.element_bytes;
  const BoxTiles::Columns columns = tiles.columns();
  const BoxTiles::Image image = tiles.image();
  BoxCopy copy{};
  copy.vectors = shape.vectors;
  copy.whole_sectors = shape.whole_sectors;
  copy.element_bytes = layout.element_bytes;
  copy.elements = tiles.elements();
  copy.span_bytes = image.span;
  copy.image_bytes = image.bytes;
  copy.dst_run = columns.run;
  copy.period = tiles.period(columns);
  const auto part = [&](int i) {
    const std::int64_t tile = tiles.tile(i);
    const std::int64_t step = i == shape.outermost ? tile - shape.overlap : tile;
    return BoxCopy::Part{i, layout.dimensions[i], tile, step, image.places[i]};
  };
  for (const int i : image.rows) copy.src_rows.push_back(part(i));
  for (const int i : columns.dimensions) copy.columns.push_back(part(i));
  std::int64_t dst_span = 0;
  std::int64_t src_span = 0;
  for (const int i : tiles.order(View::kDst)) {
    const CopyDimension& d = layout.dimensions[i];
    const std::int64_t tile = tiles.tile(i);
    if (tile == 1) {
      copy.batch.push_back(d);
      continue;
    }
    const bool column = columns.dimensions.contains(i);
    if (!column) copy.dst_rows.push_back(part(i));
    if (tile < d.size) {
      if (i == shape.outermost && shape.overlap > 0) {
        copy.overlap_cut = static_cast<int>(copy.cut.size());
      }
      copy.cut.push_back(part(i));
    }
    dst_span += (tile - 1) * d.dst_stride * bytes;
    src_span += (tile - 1) * d.src_stride * bytes;
  }
  std::ranges::reverse(copy.batch);  // outermost first
  if (copy.vectors) {
    // Neighbouring runs of the destination read neighbouring elements of a span.
    std::ranges::stable_sort(copy.dst_rows, {}, &BoxCopy::Part::place);
    copy.row_vectors = box_vectors(copy.dst_run * bytes, bytes, copy.whole_sectors);
    copy.lanes = vector_lanes(places_of(copy.dst_rows, layout.element_bytes),
                              places_of(copy.columns, layout.element_bytes), copy.row_vectors,
                              layout.element_bytes, dst_address);
    if (copy.period < copy.dst_run) {
      const BoxCopy::Part& outer = copy.columns.back();
      copy.period_place = copy.period / (copy.dst_run / outer.tile) * outer.place;
    }
    const std::int64_t vector = kVectorBytes / bytes;
    copy.copies = copy.whole_sectors && copy.period % vector == 0 ? 1 : box_table_copies(bytes);
  } else {
    copy.lanes =
        element_lanes(places_of(copy.dst_rows, layout.element_bytes), layout.element_bytes);
  }
  copy.stages = std::clamp<std::int64_t>((kBoxSharedBytes - copy.images_at()) / copy.image_bytes, 2,
                                         kMostBoxStages);
  if (static_cast<int>(copy.batch.size()) > kMostBatchDimensions ||
      static_cast<int>(copy.dst_rows.size() + copy.columns.size()) > kMostBoxDimensions ||
      std::max(dst_span, src_span) > kMostSpan) {
    return std::nullopt;
  }
  return copy;
}

/// All that a box depends on.
struct BoxKey {
  CopyLayout layout;
  std::uint64_t dst_place;  // between boundaries of sectors
  int multiprocessors;
  bool cached;  // both views

  bool operator==(const BoxKey&) const = default;
};

}  // namespace

std::optional<BoxCopy> box_copy(const CopyLayout& layout, std::uint64_t dst_address,
                                const DeviceFacts& device) {
  const auto rank = static_cast<int>(layout.dimensions.size());
  const std::int64_t elements = layout.elements();
  const auto share_of_l2 = static_cast<double>(2 * elements * layout.element_bytes) /
                           static_cast<double>(device.l2_bytes);
  if (rank < 2 || rank > kMostBoxRank) return std::nullopt;
  if (elements <= kManyElements && share_of_l2 <= kBoxedShareOfL2) return std::nullopt;
  // To shape a box and to count its conflicts takes some 60 us, to find it again less than one.
  thread_local Recent<BoxKey, std::optional<BoxCopy>, 32> recent;
  const BoxKey key{layout, dst_address % kSectorBytes, device.multiprocessors,
                   share_of_l2 <= kCachedShareOfL2};
  return recent.get(
      key, [&] { return make_box(layout, key.dst_place, key.multiprocessors, key.cached); });
}

std::int64_t BoxCopy::Part::boxes() const { return 1 + ceil_div(dimension.size - tile, step); }

std::int64_t BoxCopy::boxes() const {
  std::int64_t n = memops::elements(batch);
  for (const Part& part : cut) n *= part.boxes();
  return n;
}

std::int64_t BoxCopy::spans() const { return product(src_rows); }

std::int64_t BoxCopy::chunks() const { return spans() * box_chunks(span_bytes); }

std::int64_t BoxCopy::rows() const { return product(dst_rows); }

std::int64_t BoxCopy::stores() const {
  if (!vectors) return elements;
  return lanes.padded_rows * row_vectors;
}

std::int64_t BoxCopy::table_stride() const {
  return box_table_stride(period, copies, element_bytes);
}

std::int64_t BoxCopy::images_at() const {
  const std::int64_t table =
      copies * table_stride() * static_cast<std::int64_t>(sizeof(std::uint16_t));
  return ceil_div<std::int64_t>(kBoxBeginBytes + table, 128) * 128;
}

std::int64_t BoxCopy::shared_bytes() const { return images_at() + stages * image_bytes; }

std::int64_t blocks_of(const BoxCopy& copy, const DeviceFacts& device) {
  return std::min<std::int64_t>(copy.boxes(), kBoxBlocks * device.multiprocessors);
}

void add_facts(const BoxCopy& copy, PlanReport& report) {
  const auto tiles_of = [](const std::vector<BoxCopy::Part>& parts) {
    std::vector<std::int64_t> tiles;
    for (const BoxCopy::Part& part : parts) tiles.push_back(part.tile);
    return tiles;
  };
  report.facts.emplace_back("threads", std::int64_t{kBoxThreads});
  report.facts.emplace_back("box", copy.elements);
  report.facts.emplace_back("boxes", copy.boxes());
  report.facts.emplace_back("src_span_bytes", copy.span_bytes);
  report.facts.emplace_back("src_spans", tiles_of(copy.src_rows));
  report.facts.emplace_back("dst_run", copy.dst_run);
  report.facts.emplace_back("dst_runs", tiles_of(copy.dst_rows));
  report.facts.emplace_back("vector_stores", std::int64_t{copy.vectors});
  report.facts.emplace_back("whole_sectors", std::int64_t{copy.whole_sectors});
  report.facts.emplace_back("overlapped", std::int64_t{copy.overlap_cut >= 0});
  report.facts.emplace_back("rows_at_once", copy.lanes.rows_at_once);
  report.facts.emplace_back("swizzle", std::int64_t{copy.lanes.swizzle});
  report.facts.emplace_back("wavefronts", copy.lanes.wavefronts);
  report.facts.emplace_back("loads", copy.chunks());
  report.facts.emplace_back("stores", copy.stores());
  report.facts.emplace_back("image_bytes", copy.image_bytes);
  report.facts.emplace_back("stages", copy.stages);
  report.facts.emplace_back("shared_bytes", copy.shared_bytes());
}

}  // namespace memops
