#include "copy/plan.h"

#include <limits>
#include <optional>

namespace memops {
namespace {

// A tile side shorter than this leaves most of a 32 x 32 tile idle; the strided kernel, whose
// scattered side still hits the L1, is then the better one.
constexpr std::int64_t kShortestTileSide = 16;

/// The dimension, other than the innermost, along which the source is contiguous.
std::optional<int> source_contiguous_dimension(const CopyLayout& layout) {
  for (int i = 0; i + 1 < static_cast<int>(layout.dimensions.size()); ++i) {
    if (layout.dimensions[i].src_stride == 1) return i;
  }
  return std::nullopt;
}

bool offsets_pass_32_bits(const CopyLayout& layout) {
  std::int64_t dst_last = 0;
  std::int64_t src_last = 0;
  for (const CopyDimension& d : layout.dimensions) {
    dst_last += (d.size - 1) * d.dst_stride;
    src_last += (d.size - 1) * d.src_stride;
  }
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  return layout.elements() > kMax || dst_last > kMax || src_last > kMax;
}

const char* name(CopyKernel kernel) {
  switch (kernel) {
    case CopyKernel::kFlat:
      return "copy_flat";
    case CopyKernel::kTranspose:
      return "copy_transpose";
    case CopyKernel::kStrided:
      return "copy_strided";
  }
  return "unknown";
}

}  // namespace

CopyPlan plan_copy(const CopyProblem& problem, const DeviceFacts&) {
  const auto& dims = problem.layout.dimensions;
  const bool one_run =
      dims.empty() || (dims.size() == 1 && dims[0].dst_stride == 1 && dims[0].src_stride == 1);
  if (one_run) {
    return {CopyKernel::kFlat, problem.layout, 0, false,
            "both views are one run of bytes in the same order"};
  }
  const std::optional<int> other = source_contiguous_dimension(problem.layout);
  if (dims.back().dst_stride == 1 && other && dims.back().size >= kShortestTileSide &&
      dims[*other].size >= kShortestTileSide) {
    return {CopyKernel::kTranspose, problem.layout, *other, false,
            "the views are contiguous along different dimensions: tiles keep both sides coalesced"};
  }
  CopyLayout widened = widen(problem.layout, problem.dst_address, problem.src_address);
  const bool wide = offsets_pass_32_bits(widened);
  return {CopyKernel::kStrided, std::move(widened), 0, wide,
          "no single run and no pair of long contiguous dimensions"};
}

PlanReport CopyPlan::report() const {
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> dst_strides;
  std::vector<std::int64_t> src_strides;
  for (const CopyDimension& d : layout.dimensions) {
    sizes.push_back(d.size);
    dst_strides.push_back(d.dst_stride);
    src_strides.push_back(d.src_stride);
  }
  return {.op = "copy",
          .kernel = name(kernel),
          .reason = reason,
          .facts = {{"element_bytes", std::int64_t{layout.element_bytes}},
                    {"sizes", sizes},
                    {"dst_strides", dst_strides},
                    {"src_strides", src_strides},
                    {"bytes", 2 * layout.elements() * layout.element_bytes},
                    {"index_bits", std::int64_t{wide_offsets ? 64 : 32}}}};
}

}  // namespace memops
