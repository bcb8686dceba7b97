#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>

#include "common/math.h"
#include "copy/kernel_choice.h"

namespace memops {
namespace {

constexpr std::int64_t kSector = 32;
constexpr std::int64_t kPeriod = 128;  // columns, where the innermost dimension allows
constexpr std::int64_t kRowBytes = 8;  // of a table
constexpr std::int64_t kMostSpan = std::int64_t{1} << 30;  // bytes, of a box in either view

/// Copies of the table that are needed for vectors that begin at any column: the places of a vector
/// are read 16 bytes at a time.
constexpr std::int64_t most_copies(std::int64_t element_bytes) {
  return std::min<std::int64_t>(kVectorBytes / element_bytes,
                                kVectorBytes / static_cast<std::int64_t>(sizeof(std::uint16_t)));
}

/// How far a box reaches in every dimension of a layout, and what follows from it.
class Tiles {
 public:
  explicit Tiles(const CopyLayout& layout) : layout_(layout), tiles_(layout.dimensions.size(), 1) {
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
      if (made.rows.empty() && step - made.span < kSector) {
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
      if (stride(View::kDst, i) != made.run) break;
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
    const Columns run = columns();
    BoxCopy table{};
    table.period = period(run);
    table.copies = most_copies(layout_.element_bytes);
    return made.bytes <= kBoxImageBytes &&
           table.table_bytes() + (made.spans + elements() / run.run) * kRowBytes <= kBoxTableBytes;
  }

  /// The bytes that a view holds one after the other.
  std::int64_t reach(View view) const {
    return view == View::kSrc ? image().span : columns().run * layout_.element_bytes;
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

  /// Boxes of equal size where these fit too: shorter tiles can break a run, and many short runs
  /// take more room. In any case the last box of a dimension moves back to end with it.
  void even_out() {
    const std::vector<std::int64_t> grown = tiles_;
    for (std::size_t i = 0; i < tiles_.size(); ++i) {
      const std::int64_t size = layout_.dimensions[i].size;
      const std::int64_t even = ceil_div(size, ceil_div(size, tiles_[i]));
      // Whole sectors where there is room for them: the next box begins on a boundary then.
      const std::int64_t whole = ceil_div(even, kSector) * kSector;
      tiles_[i] = whole <= grown[i] ? whole : even;
    }
    if (!fits()) tiles_ = grown;
  }

 private:
  const CopyLayout& layout_;
  std::vector<std::int64_t> tiles_;
  std::array<std::vector<int>, 2> orders_;
};

}  // namespace

std::optional<BoxCopy> box_copy(const CopyLayout& layout, std::uint64_t dst_address) {
  using View = Tiles::View;
  Tiles tiles(layout);
  bool open[] = {true, true};
  while (open[0] || open[1]) {
    const bool src = !open[0] || (open[1] && tiles.reach(View::kSrc) < tiles.reach(View::kDst));
    open[src ? 1 : 0] = tiles.grow(src ? View::kSrc : View::kDst);
  }
  tiles.even_out();

  const std::int64_t bytes = layout.element_bytes;
  const Tiles::Image image = tiles.image();
  const Tiles::Columns columns = tiles.columns();
  BoxCopy copy{};
  copy.elements = tiles.elements();
  copy.span_bytes = image.span;
  copy.image_bytes = image.bytes;
  copy.dst_run = columns.run;
  copy.period = tiles.period(columns);
  const auto part = [&](int i) {
    return BoxCopy::Part{i, layout.dimensions[i], tiles.tile(i), image.places[i]};
  };
  for (const int i : image.rows) copy.src_rows.push_back(part(i));
  for (const int i : columns.dimensions) copy.columns.push_back(part(i));
  copy.aligned_stores = dst_address % kVectorBytes == 0 && copy.dst_run * bytes % kVectorBytes == 0;
  std::int64_t dst_span = 0;
  std::int64_t src_span = 0;
  for (const int i : tiles.order(View::kDst)) {
    const CopyDimension& d = layout.dimensions[i];
    const std::int64_t tile = tiles.tile(i);
    const bool column = std::ranges::find(columns.dimensions, i) != columns.dimensions.end();
    if (!column) copy.aligned_stores &= d.dst_stride * bytes % kVectorBytes == 0;
    if (tile == 1) {
      copy.batch.push_back(d);
      continue;
    }
    if (!column) copy.dst_rows.push_back(part(i));
    if (tile < d.size) {
      copy.cut.push_back(part(i));
      copy.aligned_stores &= tile * d.dst_stride * bytes % kVectorBytes == 0 &&
                             (d.size - tile) * d.dst_stride * bytes % kVectorBytes == 0;
    }
    dst_span += (tile - 1) * d.dst_stride * bytes;
    src_span += (tile - 1) * d.src_stride * bytes;
  }
  // Neighbouring runs of the destination read neighbouring elements of a span.
  std::ranges::stable_sort(copy.dst_rows, {}, &BoxCopy::Part::place);
  std::ranges::reverse(copy.batch);  // outermost first
  if (!copy.columns.empty()) {
    const BoxCopy::Part& outer = copy.columns.back();
    copy.period_place = copy.period / (copy.dst_run / outer.tile) * outer.place;
  }
  const std::int64_t vector = kVectorBytes / bytes;
  copy.copies = copy.aligned_stores && copy.period % vector == 0 ? 1 : most_copies(bytes);
  if (static_cast<int>(copy.batch.size()) > kMostBatchDimensions ||
      static_cast<int>(copy.dst_rows.size() + copy.columns.size()) > kMostBoxDimensions ||
      std::max(dst_span, src_span) > kMostSpan) {
    return std::nullopt;
  }
  return copy;
}

std::int64_t BoxCopy::boxes() const {
  std::int64_t n = memops::elements(batch);
  for (const Part& part : cut) n *= ceil_div(part.dimension.size, part.tile);
  return n;
}

std::int64_t BoxCopy::table_stride() const {
  return ceil_div<std::int64_t>(period + 2 * kVectorBytes, 8) * 8;
}

std::int64_t BoxCopy::table_bytes() const {
  return table_stride() * copies * static_cast<std::int64_t>(sizeof(std::uint16_t));
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
  report.facts.emplace_back("aligned_stores", std::int64_t{copy.aligned_stores});
  report.facts.emplace_back("image_bytes", copy.image_bytes);
  report.facts.emplace_back("table_bytes", copy.table_bytes());
}

}  // namespace memops
