#include "copy/box_tiles.h"

#include <algorithm>
#include <limits>

#include "common/math.h"

namespace memops {
namespace {

constexpr std::int64_t kPeriod = 128;         // columns, where the innermost dimension allows
constexpr std::int64_t kLongestPeriod = 768;  // columns that a table has room for

std::int64_t sector_elements(const CopyLayout& layout) {
  return std::max<std::int64_t>(kSectorBytes / layout.element_bytes, 1);
}

}  // namespace

bool Indices::contains(int index) const { return std::find(begin(), end(), index) != end(); }

std::int64_t box_vectors(std::int64_t bytes, std::int64_t element_bytes, bool whole_sectors) {
  const std::int64_t past = whole_sectors ? 0 : kSectorBytes - element_bytes;
  return ceil_div(bytes + past, kSectorBytes) * (kSectorBytes / kVectorBytes);
}

std::int64_t box_table_stride(std::int64_t period, std::int64_t copies,
                              std::int64_t element_bytes) {
  constexpr std::int64_t kWhole = 8;  // each copy begins on a boundary
  const std::int64_t more = (kSectorBytes + kVectorBytes) / element_bytes + copies;
  return ceil_div(period + more, kWhole) * kWhole;
}

std::int64_t box_table_copies(std::int64_t element_bytes) {
  return std::min<std::int64_t>(kVectorBytes / element_bytes, 4);
}

BoxTiles::BoxTiles(const CopyLayout& layout)
    : layout_(&layout), rank_(static_cast<int>(layout.dimensions.size())) {
  tiles_.fill(1);
  grown_.fill(1);
  for (const View view : {View::kDst, View::kSrc}) {
    const auto key = [&](int i) {
      const std::int64_t s = stride(view, i);
      return s == 0 ? std::numeric_limits<std::int64_t>::max() : s;
    };
    std::array<int, kMostBoxRank> order;
    for (int i = 0; i < rank_; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.begin() + rank_,
                     [&](int a, int b) { return key(a) < key(b); });
    for (int i = 0; i < rank_; ++i) orders_[static_cast<int>(view)].push_back(order[i]);
  }
}

std::int64_t BoxTiles::stride(View view, int i) const {
  const CopyDimension& d = layout_->dimensions[i];
  return view == View::kDst ? d.dst_stride : d.src_stride;
}

std::int64_t BoxTiles::elements() const {
  std::int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= tiles_[i];
  return n;
}

BoxTiles::Image BoxTiles::image() const {
  Image made;
  made.span = layout_->element_bytes;
  std::int64_t end = 0;  // of all but one span
  for (const int i : order(View::kSrc)) {
    const std::int64_t step = stride(View::kSrc, i) * layout_->element_bytes;
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

BoxTiles::Columns BoxTiles::columns() const {
  Columns made;
  if (!limits_.vectors) return made;
  for (const int i : order(View::kDst)) {
    if (tiles_[i] == 1) continue;
    if (stride(View::kDst, i) != made.run || made.run > kLongestPeriod) break;
    made.dimensions.push_back(i);
    made.run *= tiles_[i];
  }
  return made;
}

std::int64_t BoxTiles::period(const Columns& columns) const {
  if (columns.dimensions.empty()) return 1;
  const std::int64_t outer = tiles_[columns.dimensions.back()];
  const std::int64_t inner = columns.run / outer;
  return inner * std::clamp(kPeriod / inner, std::int64_t{1}, outer);
}

bool BoxTiles::fits() const {
  const Image made = image();
  if (made.bytes > limits_.image_bytes ||
      made.spans * box_chunks(made.span) > kBoxLoads * kBoxThreads) {
    return false;
  }
  if (!limits_.vectors) return elements() <= kBoxElements * kBoxThreads;
  const int width = layout_->element_bytes;
  const Columns run = columns();
  const std::int64_t copies = box_table_copies(width);
  const std::int64_t table = copies * box_table_stride(period(run), copies, width);
  // Whole groups of rows are at most an eighth more.
  return table * static_cast<std::int64_t>(sizeof(std::uint16_t)) <= kBoxTableBytes &&
         elements() / run.run * 9 / 8 * box_vectors(run.run * width, width, false) <=
             kBoxVectors * kBoxThreads;
}

/// The bytes of the box that a view holds one after the other, but for gaps of its own that are
/// shorter than a sector.
std::int64_t BoxTiles::reach(View view) const {
  std::int64_t run = layout_->element_bytes;
  std::int64_t filled = run;
  for (const int i : order(view)) {
    const std::int64_t step = stride(view, i) * layout_->element_bytes;
    if (step == 0 || step - run >= kSectorBytes) break;
    run += (tiles_[i] - 1) * step;
    filled *= tiles_[i];
    if (tiles_[i] < layout_->dimensions[i].size) break;
  }
  return filled;
}

/// Makes the box longer in the nearest dimension of `view` that it does not hold whole, by as much
/// as fits, at most twice. False where nothing fits.
bool BoxTiles::grow(View view) {
  for (const int i : order(view)) {
    const std::int64_t size = layout_->dimensions[i].size;
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

void BoxTiles::grow(const Limits& limits) {
  limits_ = limits;
  bool open[] = {true, true};
  while (open[0] || open[1]) {
    const bool shorter =
        reach(View::kSrc) * limits.dst_weight < reach(View::kDst) * limits.src_weight;
    const bool src = !open[0] || (open[1] && shorter);
    open[src ? 1 : 0] = grow(src ? View::kSrc : View::kDst);
  }
  even_out();
}

/// Boxes of equal size where these fit too: shorter tiles can break a run, and many short runs take
/// more room. In any case the last box of a dimension moves back to end with it.
void BoxTiles::even_out() {
  grown_ = tiles_;
  const std::int64_t sector = sector_elements(*layout_);
  for (int i = 0; i < rank_; ++i) {
    const std::int64_t size = layout_->dimensions[i].size;
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

bool BoxTiles::whole_sectors(std::uint64_t dst_address) const {
  const std::int64_t sector = sector_elements(*layout_);
  const Columns run = columns();
  bool whole = dst_address % kSectorBytes == 0 && run.run % sector == 0;
  for (int i = 0; i < rank_; ++i) {
    const CopyDimension& d = layout_->dimensions[i];
    if (!run.dimensions.contains(i)) whole &= d.dst_stride % sector == 0;
    if (tiles_[i] > 1 && tiles_[i] < d.size) {
      whole &= tiles_[i] * d.dst_stride % sector == 0 &&
               (d.size - tiles_[i]) * d.dst_stride % sector == 0;
    }
  }
  return whole;
}

std::int64_t BoxTiles::overlap(int i) {
  const CopyDimension& d = layout_->dimensions[i];
  const std::int64_t more = ceil_div(sector_elements(*layout_) - 1, d.dst_stride);
  if (tiles_[i] == d.size || tiles_[i] < 4 * more) return 0;
  const std::int64_t before = tiles_[i];
  tiles_[i] = ceil_div(d.size - more, ceil_div(d.size - more, grown_[i] - more)) + more;
  if (!fits()) tiles_[i] = before;
  return more;
}

}  // namespace memops
