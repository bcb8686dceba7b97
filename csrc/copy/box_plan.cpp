#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>

#include "common/math.h"
#include "copy/kernel_choice.h"

namespace memops {
namespace {

constexpr std::int64_t kLongRun = 256;  // bytes: its two partial vectors cost little
constexpr std::int64_t kMostSpan = std::int64_t{1} << 30;  // bytes, of a box in either view

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

  /// Elements of the box that a view holds one after the other.
  std::int64_t run(View view) const {
    std::int64_t n = 1;
    for (const int i : order(view)) {
      if (tiles_[i] == 1) continue;
      if (stride(view, i) != n) break;
      n *= tiles_[i];
    }
    return n;
  }

  /// How many bytes of a run of a view are moved at once: whole vectors where runs are long.
  std::int64_t part_bytes(View view) const {
    const int bytes = layout_.element_bytes;
    if (bytes >= 4) return bytes;
    const std::int64_t long_run = view == View::kDst ? kLongRun : kLongRun / 4;
    return run(view) * bytes >= long_run ? kVectorBytes : 4;
  }

  bool fits() const {
    const int bytes = layout_.element_bytes;
    if (bytes >= 4) return elements() * bytes <= kLongBoxBytes;
    const auto padded = [&](View view, int more) {
      const std::int64_t part = part_bytes(view);
      return elements() / run(view) * (ceil_div(run(view) * bytes, part) + more) * part;
    };
    return padded(View::kSrc, 0) <= kShortBoxBytes && padded(View::kDst, 1) <= kShortBoxBytes;
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

  /// Boxes of equal size: the last one of a dimension moves back to end with it.
  void even_out() {
    for (std::size_t i = 0; i < tiles_.size(); ++i) {
      const std::int64_t size = layout_.dimensions[i].size;
      tiles_[i] = ceil_div(size, ceil_div(size, tiles_[i]));
    }
  }

 private:
  const CopyLayout& layout_;
  std::vector<std::int64_t> tiles_;
  std::array<std::vector<int>, 2> orders_;
};

}  // namespace

std::optional<BoxCopy> box_copy(const CopyLayout& layout) {
  using View = Tiles::View;
  Tiles tiles(layout);
  bool open[] = {true, true};
  while (open[0] || open[1]) {
    const bool src = !open[0] || (open[1] && tiles.run(View::kSrc) < tiles.run(View::kDst));
    open[src ? 1 : 0] = tiles.grow(src ? View::kSrc : View::kDst);
  }
  tiles.even_out();

  BoxCopy copy{};
  copy.threads = layout.element_bytes < 4 ? kShortBoxThreads : kLongBoxThreads;
  copy.blocks = layout.element_bytes < 4 ? kShortBoxBlocks : kLongBoxBlocks;
  copy.elements = tiles.elements();
  copy.dst_run = tiles.run(View::kDst);
  copy.src_run = tiles.run(View::kSrc);
  copy.load_bytes = tiles.part_bytes(View::kSrc);
  copy.store_bytes = tiles.part_bytes(View::kDst);
  std::int64_t dst_span = 0;
  std::int64_t src_span = 0;
  const auto part = [&](int i) { return BoxCopy::Part{layout.dimensions[i], tiles.tile(i)}; };
  for (const int i : tiles.order(View::kSrc)) {
    if (tiles.tile(i) > 1) copy.src_order.push_back(part(i));
  }
  for (const int i : tiles.order(View::kDst)) {
    if (tiles.tile(i) == 1) {
      copy.batch.push_back(layout.dimensions[i]);
      continue;
    }
    copy.dst_order.push_back(part(i));
    dst_span += (tiles.tile(i) - 1) * layout.dimensions[i].dst_stride * layout.element_bytes;
    src_span += (tiles.tile(i) - 1) * layout.dimensions[i].src_stride * layout.element_bytes;
  }
  std::ranges::reverse(copy.batch);  // outermost first
  if (static_cast<int>(copy.batch.size()) > kMostBatchDimensions ||
      static_cast<int>(copy.dst_order.size()) > kMostBoxDimensions ||
      std::max(dst_span, src_span) > kMostSpan) {
    return std::nullopt;
  }
  return copy;
}

std::int64_t BoxCopy::boxes() const {
  std::int64_t n = memops::elements(batch);
  for (const Part& part : dst_order) n *= ceil_div(part.dimension.size, part.tile);
  return n;
}

std::int64_t blocks_of(const BoxCopy& copy, const DeviceFacts& device) {
  return std::min<std::int64_t>(copy.boxes(), copy.blocks * device.multiprocessors);
}

void add_facts(const BoxCopy& copy, PlanReport& report) {
  std::vector<std::int64_t> box;
  for (const BoxCopy::Part& part : copy.dst_order) box.insert(box.begin(), part.tile);
  report.facts.emplace_back("threads", copy.threads);
  report.facts.emplace_back("box", box);
  report.facts.emplace_back("boxes", copy.boxes());
  report.facts.emplace_back("dst_run", copy.dst_run);
  report.facts.emplace_back("src_run", copy.src_run);
}

}  // namespace memops
