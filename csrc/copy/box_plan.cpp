#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>

#include "common/math.h"
#include "common/recent.h"
#include "copy/box_lanes.h"
#include "copy/kernel_choice.h"

namespace memops {
namespace {

constexpr std::int64_t kPeriod = 128;         // columns, where the innermost dimension allows
constexpr std::int64_t kLongestPeriod = 768;  // columns that a table has room for
constexpr std::int64_t kShortRun = 96;        // bytes: element by element is sooner then
constexpr std::int64_t kMostSpan = std::int64_t{1} << 30;  // bytes, of a box in either view
constexpr std::int64_t kLeastImage = 4 << 10;
constexpr std::int64_t kBoxesOfBlock = 4;  // at least, where that leaves the images long enough

std::int64_t product(const std::vector<BoxCopy::Part>& parts) {
  std::int64_t n = 1;
  for (const BoxCopy::Part& part : parts) n *= part.tile;
  return n;
}

/// Copies of the table that are needed for vectors that begin at any column: the places of up to
/// four elements are read at once.
constexpr std::int64_t most_copies(std::int64_t element_bytes) {
  return std::min<std::int64_t>(kVectorBytes / element_bytes, 4);
}

std::vector<BoxPlaces> places_of(const std::vector<BoxCopy::Part>& parts, int element_bytes) {
  std::vector<BoxPlaces> places;
  for (const BoxCopy::Part& part : parts) {
    places.push_back({part.tile, part.place, part.dimension.dst_stride * element_bytes});
  }
  return places;
}

constexpr std::int64_t chunks_of(std::int64_t span) {
  return ceil_div(span + kVectorBytes - 1, kVectorBytes);
}

/// The 16-byte vectors in the sectors that a run of `bytes` can touch.
constexpr std::int64_t vectors_of(std::int64_t bytes, std::int64_t element_bytes, bool whole) {
  const std::int64_t past = whole ? 0 : kSectorBytes - element_bytes;
  return ceil_div(bytes + past, kSectorBytes) * (kSectorBytes / kVectorBytes);
}

/// How far a box reaches in every dimension of a layout, and what follows from it.
class Tiles {
 public:
  Tiles(const CopyLayout& layout, bool vectors, std::int64_t image_bytes)
      : layout_(layout),
        vectors_(vectors),
        image_bytes_(image_bytes),
        tiles_(layout.dimensions.size(), 1) {
    for (const View view : {View::kDst, View::kSrc}) {
      std::vector<int>& order = orders_[static_cast<int>(view)];
      order.resize(tiles_.size());
      std::iota(order.begin(), order.end(), 0);
      // Repeated elements (stride 0) lie nowhere in the source: last.
      const auto key = [&](int i) {
        const std::int64_t s = stride(view, i);
        return s == 0 ? std::numeric_limits<std::int64_t>::max() : s;
      };
      std::ranges::stable_sort(order, {}, key);
    }
  }

  enum class View { kDst, kSrc };

  const std::vector<int>& order(View view) const { return orders_[static_cast<int>(view)]; }
  std::int64_t tile(int i) const { return tiles_[i]; }
  std::int64_t stride(View view, int i) const {
    const CopyDimension& d = layout_.dimensions[i];
    return view == View::kDst ? d.dst_stride : d.src_stride;
  }

  std::int64_t elements() const {
    return std::accumulate(tiles_.begin(), tiles_.end(), std::int64_t{1}, std::multiplies{});
  }

  /// Where the box's elements lie in shared memory. A span holds the nearest dimensions as they lie
  /// in the source, gaps included that are shorter than a sector; the others count spans.
  struct Image {
    std::vector<std::int64_t> places;  // of each dimension of the layout, bytes
    std::vector<int> rows;             // the dimensions that count spans
    std::int64_t span = 0;             // bytes
    std::int64_t bytes = 0;
    std::int64_t spans = 1;
  };

  Image image() const {
    Image made;
    made.places.assign(tiles_.size(), 0);
    made.span = layout_.element_bytes;
    std::int64_t end = 0;  // of all but one span
    for (const int i : order(View::kSrc)) {
      const std::int64_t step = stride(View::kSrc, i) * layout_.element_bytes;
      if (tiles_[i] == 1 || step == 0) continue;
      if (made.rows.empty() && step - made.span < kSectorBytes) {
        made.places[i] = step;
        made.span += (tiles_[i] - 1) * step;
        continue;
      }
      // A vector holds bytes of one span alone, and spans keep their places between boundaries.
      const std::int64_t least = made.span + end + kVectorBytes - 1;
      made.places[i] = least + ((step - least) % kVectorBytes + kVectorBytes) % kVectorBytes;
      made.rows.push_back(i);
      made.spans *= tiles_[i];
      end += (tiles_[i] - 1) * made.places[i];
    }
    // The first span may begin anywhere in a vector, and a line of 128 bytes is swizzled whole.
    made.bytes = ceil_div<std::int64_t>(end + made.span + kVectorBytes - 1, 128) * 128;
    return made;
  }

  /// The dimensions along a run of the destination, innermost first, and its elements.
  struct Columns {
    std::vector<int> dimensions;
    std::int64_t run = 1;
  };

  Columns columns() const {
    Columns made;
    for (const int i : order(View::kDst)) {
      if (tiles_[i] == 1) continue;
      if (stride(View::kDst, i) != made.run || made.run > kLongestPeriod) break;
      made.dimensions.push_back(i);
      made.run *= tiles_[i];
    }
    return made;
  }

  /// Columns after which their places repeat, further on.
  std::int64_t period(const Columns& columns) const {
    if (columns.dimensions.empty()) return 1;
    const std::int64_t outer = tiles_[columns.dimensions.back()];
    const std::int64_t inner = columns.run / outer;
    return inner * std::clamp(kPeriod / inner, std::int64_t{1}, outer);
  }

  bool fits() const {
    const Image made = image();
    if (made.bytes > image_bytes_ || made.spans * chunks_of(made.span) > kBoxLoads * kBoxThreads) {
      return false;
    }
    if (!vectors_) return elements() <= kBoxElements * kBoxThreads;
    const Columns run = columns();
    BoxCopy table{};
    table.period = period(run);
    table.copies = most_copies(layout_.element_bytes);
    const std::int64_t width = layout_.element_bytes;
    // Whole groups of rows are at most an eighth more.
    return table.images_at(layout_.element_bytes) <= kBoxBeginBytes + kBoxTableBytes &&
           elements() / run.run * 9 / 8 * vectors_of(run.run * width, width, false) <=
               kBoxVectors * kBoxThreads;
  }

  /// The bytes of the box that a view holds one after the other, but for gaps of its own that are
  /// shorter than a sector.
  std::int64_t reach(View view) const {
    std::int64_t run = layout_.element_bytes;
    std::int64_t filled = run;
    for (const int i : order(view)) {
      const std::int64_t step = stride(view, i) * layout_.element_bytes;
      if (step == 0 || step - run >= kSectorBytes) break;
      run += (tiles_[i] - 1) * step;
      filled *= tiles_[i];
      if (tiles_[i] < layout_.dimensions[i].size) break;
    }
    return filled;
  }

  /// Makes the box longer in the nearest dimension of `view` that it does not hold whole, by as
  /// much as fits, at most twice. False where nothing fits.
  bool grow(View view) {
    for (const int i : order(view)) {
      const std::int64_t size = layout_.dimensions[i].size;
      const std::int64_t before = tiles_[i];
      if (before == size) continue;
      for (std::int64_t step = before; step > 0; step /= 2) {
        tiles_[i] = std::min(before + step, size);
        if (fits()) return true;
      }
      tiles_[i] = before;
      return false;
    }
    return false;
  }

  /// Makes the box as long in both views as fits.
  void grow() {
    bool open[] = {true, true};
    while (open[0] || open[1]) {
      const bool src = !open[0] || (open[1] && reach(View::kSrc) < reach(View::kDst));
      open[src ? 1 : 0] = grow(src ? View::kSrc : View::kDst);
    }
    even_out();
  }

  /// True where every run of the destination is whole sectors.
  bool whole_sectors(std::uint64_t dst_address) const {
    const std::int64_t sector = std::max<std::int64_t>(kSectorBytes / layout_.element_bytes, 1);
    const Columns run = columns();
    bool whole = dst_address % kSectorBytes == 0 && run.run % sector == 0;
    for (std::size_t i = 0; i < tiles_.size(); ++i) {
      const CopyDimension& d = layout_.dimensions[i];
      const bool column =
          std::ranges::find(run.dimensions, static_cast<int>(i)) != run.dimensions.end();
      if (!column) whole &= d.dst_stride % sector == 0;
      if (tiles_[i] > 1 && tiles_[i] < d.size) {
        whole &= tiles_[i] * d.dst_stride % sector == 0 &&
                 (d.size - tiles_[i]) * d.dst_stride % sector == 0;
      }
    }
    return whole;
  }

  /// Lets boxes overlap along the run of the destination by what a sector can hold, which each box
  /// then leaves to its neighbour where it has it in part only. How much, of dimension `i`.
  std::int64_t overlap(int i) {
    const std::int64_t inner = layout_.dimensions[i].dst_stride;
    const std::int64_t size = layout_.dimensions[i].size;
    const std::int64_t more = ceil_div(kSectorBytes / layout_.element_bytes - 1, inner);
    if (tiles_[i] == size || tiles_[i] < 4 * more) return 0;
    const std::int64_t before = tiles_[i];
    tiles_[i] = ceil_div(size - more, ceil_div(size - more, grown_[i] - more)) + more;
    if (!fits()) tiles_[i] = before;
    return more;
  }

 private:
  /// Boxes of equal size where these fit too: shorter tiles can break a run, and many short runs
  /// take more room. In any case the last box of a dimension moves back to end with it.
  void even_out() {
    grown_ = tiles_;
    const std::int64_t sector = std::max<std::int64_t>(kSectorBytes / layout_.element_bytes, 1);
    for (std::size_t i = 0; i < tiles_.size(); ++i) {
      const std::int64_t size = layout_.dimensions[i].size;
      if (tiles_[i] == size) continue;
      const std::int64_t even = ceil_div(size, ceil_div(size, tiles_[i]));
      // Whole sectors where that costs little: the next box begins on a boundary then.
      tiles_[i] = even;
      for (const std::int64_t whole :
           {ceil_div(even, sector) * sector, grown_[i] / sector * sector}) {
        if (whole == 0 || whole > grown_[i]) continue;
        if (6 * (ceil_div(size, whole) * whole - size) > size) continue;
        tiles_[i] = whole;
        break;
      }
    }
    if (!fits()) tiles_ = grown_;
  }

  const CopyLayout& layout_;
  bool vectors_;
  std::int64_t image_bytes_;
  std::vector<std::int64_t> tiles_;
  std::vector<std::int64_t> grown_;  // before they were evened out
  std::array<std::vector<int>, 2> orders_;
};

std::optional<BoxCopy> make_box(const CopyLayout& layout, std::uint64_t dst_address,
                                int multiprocessors) {
  using View = Tiles::View;
  const std::int64_t bytes = layout.element_bytes;
  const std::int64_t image_bytes = std::clamp<std::int64_t>(
      layout.elements() * bytes / (kBoxesOfBlock * kBoxBlocks * multiprocessors), kLeastImage,
      kBoxImageBytes);
  BoxCopy copy{};
  const auto grown = [&](bool vectors) {
    Tiles made(layout, vectors, image_bytes);
    made.grow();
    return made;
  };
  Tiles long_runs = grown(bytes < kVectorBytes);
  copy.vectors = bytes < kVectorBytes && (long_runs.columns().run * bytes >= kShortRun ||
                                          long_runs.whole_sectors(dst_address));
  Tiles tiles = copy.vectors ? std::move(long_runs) : grown(false);
  copy.overlap_cut = -1;
  copy.whole_sectors = tiles.whole_sectors(dst_address);
  Tiles::Columns columns = copy.vectors ? tiles.columns() : Tiles::Columns{};
  const int outermost = columns.dimensions.empty() ? -1 : columns.dimensions.back();
  const std::int64_t overlap = outermost < 0 || copy.whole_sectors ? 0 : tiles.overlap(outermost);
  if (outermost >= 0) columns = tiles.columns();

  const Tiles::Image image = tiles.image();
  copy.elements = tiles.elements();
  copy.span_bytes = image.span;
  copy.image_bytes = image.bytes;
  copy.dst_run = columns.run;
  copy.period = tiles.period(columns);
  const auto part = [&](int i) {
    const std::int64_t tile = tiles.tile(i);
    const std::int64_t step = i == outermost ? tile - overlap : tile;
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
    const bool column = std::ranges::find(columns.dimensions, i) != columns.dimensions.end();
    if (!column) copy.dst_rows.push_back(part(i));
    if (tile < d.size) {
      if (i == outermost && overlap > 0) copy.overlap_cut = static_cast<int>(copy.cut.size());
      copy.cut.push_back(part(i));
    }
    dst_span += (tile - 1) * d.dst_stride * bytes;
    src_span += (tile - 1) * d.src_stride * bytes;
  }
  std::ranges::reverse(copy.batch);  // outermost first
  if (copy.vectors) {
    // Neighbouring runs of the destination read neighbouring elements of a span.
    std::ranges::stable_sort(copy.dst_rows, {}, &BoxCopy::Part::place);
    copy.row_vectors = vectors_of(copy.dst_run * bytes, bytes, copy.whole_sectors);
    copy.lanes = vector_lanes(places_of(copy.dst_rows, layout.element_bytes),
                              places_of(copy.columns, layout.element_bytes), copy.row_vectors,
                              layout.element_bytes, dst_address);
    if (copy.period < copy.dst_run) {
      const BoxCopy::Part& outer = copy.columns.back();
      copy.period_place = copy.period / (copy.dst_run / outer.tile) * outer.place;
    }
    const std::int64_t vector = kVectorBytes / bytes;
    copy.copies = copy.whole_sectors && copy.period % vector == 0 ? 1 : most_copies(bytes);
  } else {
    copy.lanes =
        element_lanes(places_of(copy.dst_rows, layout.element_bytes), layout.element_bytes);
  }
  copy.stages = std::clamp<std::int64_t>(
      (kBoxSharedBytes - copy.images_at(layout.element_bytes)) / copy.image_bytes, 2,
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

  bool operator==(const BoxKey&) const = default;
};

}  // namespace

std::optional<BoxCopy> box_copy(const CopyLayout& layout, std::uint64_t dst_address,
                                const DeviceFacts& device) {
  // Growing a box and counting its conflicts takes some 40 us; a copy that is made again, 0.5.
  thread_local Recent<BoxKey, std::optional<BoxCopy>, 32> recent;
  const BoxKey key{layout, dst_address % kSectorBytes, device.multiprocessors};
  return recent.get(key, [&] { return make_box(layout, key.dst_place, key.multiprocessors); });
}

std::int64_t BoxCopy::Part::boxes() const { return 1 + ceil_div(dimension.size - tile, step); }

std::int64_t BoxCopy::boxes() const {
  std::int64_t n = memops::elements(batch);
  for (const Part& part : cut) n *= part.boxes();
  return n;
}

std::int64_t BoxCopy::spans() const { return product(src_rows); }

std::int64_t BoxCopy::chunks() const { return spans() * chunks_of(span_bytes); }

std::int64_t BoxCopy::rows() const { return product(dst_rows); }

std::int64_t BoxCopy::stores() const {
  if (!vectors) return elements;
  return lanes.padded_rows * row_vectors;
}

std::int64_t BoxCopy::table_stride(int element_bytes) const {
  return ceil_div(period + (kSectorBytes + kVectorBytes) / element_bytes + copies,
                  std::int64_t{8}) *
         8;
}

std::int64_t BoxCopy::images_at(int element_bytes) const {
  const std::int64_t table =
      copies * table_stride(element_bytes) * static_cast<std::int64_t>(sizeof(std::uint16_t));
  return ceil_div<std::int64_t>(kBoxBeginBytes + table, 128) * 128;
}

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
  report.facts.emplace_back("image_bytes", copy.image_bytes);
  report.facts.emplace_back("stages", copy.stages);
}

}  // namespace memops
