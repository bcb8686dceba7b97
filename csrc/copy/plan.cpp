#include "copy/plan.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <utility>

#include "common/math.h"
#include "copy/kernel_choice.h"

namespace memops {
namespace {

constexpr std::int64_t kMost31Bits = std::numeric_limits<std::int32_t>::max();
// A tile emptier than this loses to a box, which fits the sizes.
constexpr double kFullTile = 0.6;

bool one_run(const CopyLayout& layout) {
  const auto& dims = layout.dimensions;
  return dims.empty() || (dims.size() == 1 && dims[0].dst_stride == 1 && dims[0].src_stride == 1);
}

bool offsets_pass_31_bits(const CopyLayout& layout) {
  std::int64_t dst_last = 0;
  std::int64_t src_last = 0;
  for (const CopyDimension& d : layout.dimensions) {
    dst_last += (d.size - 1) * d.dst_stride;
    src_last += (d.size - 1) * d.src_stride;
  }
  return std::max(dst_last, src_last) > kMost31Bits / layout.element_bytes;
}

}  // namespace

std::vector<CopyPiece> split_copy(CopyProblem problem) {
  problem.layout =
      narrow_elements(std::move(problem.layout), problem.dst_address, problem.src_address);
  if (one_run(problem.layout) || problem.layout.elements() <= kMost31Bits) {
    return {{problem, 0, 0}};
  }
  // Along the longest dimension, the first part a power of two so that the second stays aligned.
  const auto& dims = problem.layout.dimensions;
  const auto longest = std::ranges::max_element(dims, {}, &CopyDimension::size) - dims.begin();
  const CopyDimension cut = dims[longest];
  const auto first =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(cut.size - 1)));
  std::vector<CopyPiece> pieces;
  for (const auto& [begin, size] : {std::pair{std::int64_t{0}, first}, {first, cut.size - first}}) {
    CopyPiece part{problem, begin * cut.dst_stride * problem.layout.element_bytes,
                   begin * cut.src_stride * problem.layout.element_bytes};
    part.problem.layout.dimensions[longest].size = size;
    part.problem.layout = coalesce(std::move(part.problem.layout));
    part.problem.dst_address += static_cast<std::uint64_t>(part.dst_offset);
    part.problem.src_address += static_cast<std::uint64_t>(part.src_offset);
    for (CopyPiece& piece : split_copy(part.problem)) {
      piece.dst_offset += part.dst_offset;
      piece.src_offset += part.src_offset;
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

CopyPlan plan_copy(const CopyProblem& problem, const DeviceFacts& device) {
  if (one_run(problem.layout)) {
    const FlatCopy flat = flat_copy(problem.layout.elements() * problem.layout.element_bytes,
                                    problem.dst_address, problem.src_address);
    return {flat, problem.layout, blocks_of(flat),
            "both views are one run of bytes in the same order"};
  }
  const CopyLayout layout =
      widen_elements(problem.layout, problem.dst_address, problem.src_address);
  if (const auto rows = rows_copy(layout)) {
    return {*rows, layout, blocks_of(*rows), "both views hold the same runs of 64 bytes or more"};
  }
  if (const auto fields = fields_copy(layout, problem.dst_address, problem.src_address)) {
    return {*fields, layout, blocks_of(*fields, layout.element_bytes),
            "structures of a few fields against planes: turned in registers"};
  }
  const auto tile = tile_copy(layout, problem.dst_address, problem.src_address);
  if (tile && filled(*tile) >= kFullTile) {
    return {*tile, layout, blocks_of(*tile),
            "the views are contiguous along different dimensions: tiles keep both sides coalesced"};
  }
  if (layout.dimensions.size() > 1) {
    if (const auto box = box_copy(layout)) {
      return {*box, layout, blocks_of(*box, device),
              "runs are short, share dimensions or lie between 16-byte boundaries"};
    }
  }
  return {StridedCopy{offsets_pass_31_bits(layout)}, layout,
          ceil_div<std::int64_t>(layout.elements(), kStridedElements * kCopyThreads),
          "one dimension with gaps, or too many dimensions for a box"};
}

const char* name(const CopyPlan::Kernel& kernel) {
  constexpr const char* kNames[] = {"copy_flat", "copy_rows", "copy_fields",
                                    "copy_tile", "copy_box",  "copy_strided"};
  static_assert(std::size(kNames) == std::variant_size_v<CopyPlan::Kernel>);
  return kNames[kernel.index()];
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
  PlanReport report{.op = "copy",
                    .kernel = name(kernel),
                    .reason = reason,
                    .facts = {{"element_bytes", std::int64_t{layout.element_bytes}},
                              {"sizes", sizes},
                              {"dst_strides", dst_strides},
                              {"src_strides", src_strides},
                              {"bytes", 2 * layout.elements() * layout.element_bytes},
                              {"blocks", blocks},
                              {"threads", std::int64_t{kCopyThreads}}}};
  std::visit([&](const auto& chosen) { add_facts(chosen, report); }, kernel);
  return report;
}

}  // namespace memops
