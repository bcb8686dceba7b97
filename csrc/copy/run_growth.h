// Which dimensions a view holds as one dense run.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "copy/layout.h"

namespace memops {

/// A run of one view as it grows: indices into a layout's dimensions, innermost first.
class RunGrowth {
 public:
  RunGrowth(std::span<const CopyDimension> dimensions, ViewStride stride)
      : dimensions_(dimensions), stride_(stride) {}

  /// The dimension that continues the run, if there is one.
  std::optional<int> next() const {
    for (int i = static_cast<int>(dimensions_.size()) - 1; i >= 0; --i) {
      if (dimensions_[i].*stride_ == elements_) return i;
    }
    return std::nullopt;
  }
  void append(int index) {
    indices_.push_back(index);
    elements_ *= dimensions_[index].size;
  }
  bool holds(int index) const {
    return std::find(indices_.begin(), indices_.end(), index) != indices_.end();
  }
  const std::vector<int>& indices() const { return indices_; }
  std::int64_t elements() const { return elements_; }

 private:
  std::span<const CopyDimension> dimensions_;
  ViewStride stride_;
  std::vector<int> indices_;
  std::int64_t elements_ = 1;
};

}  // namespace memops
