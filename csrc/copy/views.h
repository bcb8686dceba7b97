// The dimensions of a copy as a kernel argument, and what the kernels share around it.
#pragma once

#include <cstdint>
#include <stdexcept>

#include "common/cuda/element_width.h"
#include "copy/layout.h"

namespace memops {

constexpr int kMaxDimensions = 64;  // PyTorch's own limit

struct StridedViews {
  int rank;
  std::int64_t sizes[kMaxDimensions];
  std::int64_t dst_strides[kMaxDimensions];
  std::int64_t src_strides[kMaxDimensions];

  void append(const CopyDimension& d) {
    if (rank == kMaxDimensions) throw std::runtime_error("memops: copy of more than 64 dimensions");
    sizes[rank] = d.size;
    dst_strides[rank] = d.dst_stride;
    src_strides[rank] = d.src_stride;
    ++rank;
  }
};

template <class Offset>
struct ViewOffsets {
  Offset dst;
  Offset src;
};

/// The offsets of the element with this linear index, last dimension fastest.
template <class Offset>
__device__ ViewOffsets<Offset> offsets_of(const StridedViews& views, Offset index) {
  ViewOffsets<Offset> at{0, 0};
  for (int d = views.rank - 1; d >= 0; --d) {
    const auto size = static_cast<Offset>(views.sizes[d]);
    const Offset rest = index / size;
    const Offset coordinate = index - rest * size;
    at.dst += coordinate * static_cast<Offset>(views.dst_strides[d]);
    at.src += coordinate * static_cast<Offset>(views.src_strides[d]);
    index = rest;
  }
  return at;
}

}  // namespace memops
