// How far a box reaches in every dimension of a layout, and what follows from it. No allocations:
// the plan of a box tries many.
#pragma once

#include <array>
#include <cstdint>

#include "copy/plan.h"

namespace memops {

constexpr int kMostBoxRank = kMostBoxDimensions + kMostBatchDimensions;

/// Indices of a layout's dimensions.
class Indices {
 public:
  void push_back(int index) { at_[count_++] = index; }
  const int* begin() const { return at_.data(); }
  const int* end() const { return begin() + count_; }
  int back() const { return at_[count_ - 1]; }
  bool empty() const { return count_ == 0; }
  bool contains(int index) const;

 private:
  std::array<int, kMostBoxRank> at_;
  int count_ = 0;
};

class BoxTiles {
 public:
  enum class View { kDst, kSrc };

  struct Limits {
    bool vectors;  // are stored, else elements
    std::int64_t image_bytes;
    int src_weight;  // how much longer the source's spans should be than the
    int dst_weight;  // destination's runs
  };

  /// At most kMostBoxRank dimensions.
  explicit BoxTiles(const CopyLayout& layout);

  /// Makes the box as long in both views as fits, then boxes of equal sizes.
  void grow(const Limits& limits);

  std::int64_t tile(int i) const { return tiles_[i]; }
  std::int64_t elements() const;
  /// The layout's dimensions, nearest first in this view; repeated ones last.
  const Indices& order(View view) const { return orders_[static_cast<int>(view)]; }

  /// Where the box's elements lie in shared memory. A span holds the nearest dimensions as they lie
  /// in the source, gaps included that are shorter than a sector; the others count spans.
  struct Image {
    std::array<std::int64_t, kMostBoxRank> places{};  // of each dimension of the layout, bytes
    Indices rows;                                     // the dimensions that count spans
    std::int64_t span = 0;                            // bytes
    std::int64_t bytes = 0;
    std::int64_t spans = 1;
  };
  Image image() const;

  /// The dimensions along a run of the destination, innermost first, and its elements.
  struct Columns {
    Indices dimensions;
    std::int64_t run = 1;
  };
  Columns columns() const;

  /// Columns after which their places repeat, further on.
  std::int64_t period(const Columns& columns) const;

  /// True where every run of the destination is whole sectors.
  bool whole_sectors(std::uint64_t dst_address) const;

  /// Lets boxes overlap along the run of the destination by what a sector can hold, which each box
  /// then leaves to its neighbour where it has it in part only. By how much, of dimension `i`.
  std::int64_t overlap(int i);

 private:
  using Tiles = std::array<std::int64_t, kMostBoxRank>;

  std::int64_t stride(View view, int i) const;
  bool fits() const;
  std::int64_t reach(View view) const;
  bool grow(View view);
  void even_out();

  const CopyLayout* layout_;
  int rank_;
  Limits limits_{};
  Tiles tiles_;
  Tiles grown_;  // before they were evened out
  std::array<Indices, 2> orders_;
};

/// The 16-byte vectors that a span can touch.
constexpr std::int64_t box_chunks(std::int64_t span) {
  return (span + 2 * kVectorBytes - 2) / kVectorBytes;
}

/// The vectors in the sectors that a run of `bytes` can touch.
std::int64_t box_vectors(std::int64_t bytes, std::int64_t element_bytes, bool whole_sectors);

/// The places of one copy of a table of `period` columns, from one sector before the first on.
std::int64_t box_table_stride(std::int64_t period, std::int64_t copies, std::int64_t element_bytes);

/// Copies of the table that are needed for vectors that begin at any column: the places of up to
/// four elements are read at once.
std::int64_t box_table_copies(std::int64_t element_bytes);

}  // namespace memops
