#include "copy/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

namespace memops {
namespace {

constexpr int kWidestElement = 16;

bool contiguous_in_both(const CopyDimension& d) { return d.dst_stride == 1 && d.src_stride == 1; }

/// True where `outer` steps over exactly one run of `inner` in both views.
bool mergeable(const CopyDimension& outer, const CopyDimension& inner) {
  return outer.dst_stride == inner.size * inner.dst_stride &&
         outer.src_stride == inner.size * inner.src_stride;
}

void normalise(std::vector<CopyDimension>& dimensions) {
  std::erase_if(dimensions, [](const CopyDimension& d) { return d.size == 1; });
  std::stable_sort(
      dimensions.begin(), dimensions.end(), [](const CopyDimension& a, const CopyDimension& b) {
        return std::tie(a.dst_stride, a.src_stride) > std::tie(b.dst_stride, b.src_stride);
      });
  auto last = dimensions.begin();
  for (auto d = dimensions.begin(); d != dimensions.end(); ++d) {
    if (d == dimensions.begin()) continue;
    if (mergeable(*last, *d)) {
      *last = {last->size * d->size, d->dst_stride, d->src_stride};
    } else {
      *++last = *d;
    }
  }
  if (!dimensions.empty()) dimensions.erase(last + 1, dimensions.end());
}

std::int64_t product_of_sizes(std::span<const CopyDimension> dimensions) {
  return std::transform_reduce(dimensions.begin(), dimensions.end(), std::int64_t{1},
                               std::multiplies{}, [](const CopyDimension& d) { return d.size; });
}

}  // namespace

std::int64_t CopyLayout::elements() const { return product_of_sizes(dimensions); }

std::int64_t elements(const Run& run) { return product_of_sizes(run); }

CopyLayout coalesce(std::span<const std::int64_t> sizes, std::span<const std::int64_t> dst_strides,
                    std::span<const std::int64_t> src_strides, int element_bytes) {
  CopyLayout layout{{}, element_bytes};
  layout.dimensions.reserve(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    layout.dimensions.push_back({sizes[i], dst_strides[i], src_strides[i]});
  }
  normalise(layout.dimensions);
  return layout;
}

CopyLayout coalesce(CopyLayout layout) {
  normalise(layout.dimensions);
  return layout;
}

CopyLayout narrow_elements(CopyLayout layout, std::uint64_t dst_address,
                           std::uint64_t src_address) {
  auto& dims = layout.dimensions;
  while ((dst_address | src_address) % static_cast<std::uint64_t>(layout.element_bytes) != 0) {
    for (CopyDimension& d : dims) {
      d.dst_stride *= 2;
      d.src_stride *= 2;
    }
    dims.push_back({2, 1, 1});
    layout.element_bytes /= 2;
    normalise(dims);
  }
  return layout;
}

CopyLayout widen_elements(CopyLayout layout, std::uint64_t dst_address, std::uint64_t src_address) {
  auto& dims = layout.dimensions;
  while (layout.element_bytes < kWidestElement && !dims.empty() &&
         contiguous_in_both(dims.back()) && dims.back().size % 2 == 0) {
    const std::uint64_t wider = 2ull * static_cast<std::uint64_t>(layout.element_bytes);
    const bool strides_even = std::all_of(dims.begin(), dims.end() - 1, [](const auto& d) {
      return d.dst_stride % 2 == 0 && d.src_stride % 2 == 0;
    });
    if (!strides_even || (dst_address | src_address) % wider != 0) break;
    for (auto it = dims.begin(); it != dims.end() - 1; ++it) {
      it->dst_stride /= 2;
      it->src_stride /= 2;
    }
    dims.back().size /= 2;
    layout.element_bytes *= 2;
    normalise(dims);
  }
  return layout;
}

}  // namespace memops
