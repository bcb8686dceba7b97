#include <utility>

#include "common/torch/overlap.h"

namespace memops {

Overlap overlap(const at::Tensor& dst, const at::Tensor& src) {
  if (dst.numel() == 0 || !dst.has_storage() || !src.has_storage() ||
      !dst.storage().is_alias_of(src.storage())) {
    return Overlap::kNone;
  }
  if (dst.const_data_ptr() == src.const_data_ptr() && dst.strides() == src.strides() &&
      dst.scalar_type() == src.scalar_type()) {
    return Overlap::kSame;
  }
  const auto range = [](const at::Tensor& t) {
    int64_t last = 0;
    for (int64_t d = 0; d < t.dim(); ++d) last += (t.size(d) - 1) * t.stride(d);
    const auto* const begin = static_cast<const char*>(t.const_data_ptr());
    return std::pair{begin, begin + (last + 1) * t.element_size()};
  };
  const auto [dst_begin, dst_end] = range(dst);
  const auto [src_begin, src_end] = range(src);
  return dst_begin < src_end && src_begin < dst_end ? Overlap::kPossible : Overlap::kNone;
}

}  // namespace memops
