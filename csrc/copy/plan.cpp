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
bool worth_a_tile(const TileCopy& tile, int element_bytes, const DeviceFacts& device) {
  if (filled(tile) < kFullTile) return false;
  if (tile.aligned_loads && tile.aligned_stores) return true;
  // Between boundaries a box is sooner, but for bytes, which a tile moves four at a time.
  return element_bytes == 1 && blocks_of(tile) >= device.multiprocessors;
}

}  // namespace

bool one_run(const CopyLayout& layout) {
  const auto& dims = layout.dimensions;
  return dims.empty() || (dims.size() == 1 && dims[0].dst_stride == 1 && dims[0].src_stride == 1);
}

bool offsets_pass_31_bits(const CopyLayout& layout, int dst_bytes) {
  return layout.last_offset(&CopyDimension::dst_stride) > kMost31Bits / dst_bytes ||
         layout.last_offset(&CopyDimension::src_stride) > kMost31Bits / layout.element_bytes;
}

StridedCopy strided_copy(const CopyLayout& layout, std::uint64_t dst_address) {
  std::int64_t dense = 1;
  for (auto d = layout.dimensions.rbegin(); d != layout.dimensions.rend(); ++d) {
    if (d->dst_stride != dense) dense = 0;
    dense *= d->size;
  }
  const bool wide = offsets_pass_31_bits(layout, layout.element_bytes);
  const auto pack_bytes = static_cast<std::uint64_t>(kStridedElements * layout.element_bytes);
  const bool few = layout.dimensions.size() > 1 && layout.dimensions.size() <= kFewDimensions;
  return {wide,
          !wide && few && dense > 0 && layout.element_bytes <= 4 && dst_address % pack_bytes == 0};
}

int CopyProblem::dst_element_bytes() const {
  return cast ? bytes_of(cast->dst) : layout.element_bytes;
}

std::vector<CopyPiece> split_copy(CopyProblem problem) {
  if (!problem.cast) {
    problem.layout =
        narrow_elements(std::move(problem.layout), problem.dst_address, problem.src_address);
  }
  std::vector<CopyPiece> pieces;
  const bool flat = !problem.cast && one_run(problem.layout);
  if (flat || problem.layout.elements() <= kMost31Bits) {
    pieces.push_back({std::move(problem), 0, 0});
    return pieces;
  }
  // Along the longest dimension, the first part a power of two so that the second stays aligned.
  const auto& dims = problem.layout.dimensions;
  const auto longest = std::ranges::max_element(dims, {}, &CopyDimension::size) - dims.begin();
  const CopyDimension cut = dims[longest];
  const auto first =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(cut.size - 1)));
  for (const auto& [begin, size] : {std::pair{std::int64_t{0}, first}, {first, cut.size - first}}) {
    CopyPiece part{problem, begin * cut.dst_stride * problem.dst_element_bytes(),
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

CopyPlan plan_copy(CopyProblem problem, const DeviceFacts& device) {
  if (problem.cast) return plan_cast(problem);
  if (one_run(problem.layout)) {
    const FlatCopy flat = flat_copy(problem.layout.elements() * problem.layout.element_bytes,
                                    problem.dst_address, problem.src_address);
    return {flat, std::move(problem.layout), blocks_of(flat),
            "both views are one run of bytes in the same order"};
  }
  const CopyLayout layout =
      widen_elements(std::move(problem.layout), problem.dst_address, problem.src_address);
  if (const auto rows = rows_copy(layout)) {
    return {*rows, layout, blocks_of(*rows), "both views hold the same long runs"};
  }
  if (const auto fields = fields_copy(layout, problem.dst_address, problem.src_address)) {
    return {*fields, layout, blocks_of(*fields, layout.element_bytes),
            "structures of a few fields against planes: turned in registers"};
  }
  const auto tile = tile_copy(layout, problem.dst_address, problem.src_address);
  if (tile && worth_a_tile(*tile, layout.element_bytes, device)) {
    return {*tile, layout, blocks_of(*tile),
            "the views are contiguous along different dimensions: tiles keep both sides coalesced"};
  }
  if (const auto box = box_copy(layout, problem.dst_address, device)) {
    return {*box, layout, blocks_of(*box, device),
            "runs are short, share dimensions or lie between 16-byte boundaries"};
  }
  return {strided_copy(layout, problem.dst_address), layout,
          ceil_div<std::int64_t>(layout.elements(), kStridedElements * kCopyThreads),
          "one dimension with gaps, runs too short for a box, or a cache that holds it all"};
}

const char* name(const CopyPlan::Kernel& kernel) {
  constexpr const char* kNames[] = {"copy_flat", "copy_rows", "copy_fields",
                                    "copy_tile", "copy_box",  "copy_strided",
                                    "cast_rows", "cast_tile", "cast_strided"};
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
  const std::int64_t src_bytes = layout.element_bytes;
  const std::int64_t dst_bytes = cast ? bytes_of(cast->dst) : src_bytes;
  PlanReport report{.op = "copy",
                    .kernel = name(kernel),
                    .reason = reason,
                    .facts = {{"element_bytes", src_bytes},
                              {"sizes", sizes},
                              {"dst_strides", dst_strides},
                              {"src_strides", src_strides},
                              {"bytes", layout.elements() * (dst_bytes + src_bytes)},
                              {"blocks", blocks}}};
  if (cast) {
    report.facts.front().second = std::vector{dst_bytes, src_bytes};
    report.facts.emplace_back("dst_dtype", std::string(name(cast->dst)));
    report.facts.emplace_back("src_dtype", std::string(name(cast->src)));
  }
  std::visit([&](const auto& chosen) { add_facts(chosen, report); }, kernel);
  return report;
}

void add_facts(const StridedCopy& copy, PlanReport& report) {
  report.facts.emplace_back("threads", std::int64_t{kCopyThreads});
  report.facts.emplace_back("packed", std::int64_t{copy.packed});
  report.facts.emplace_back("index_bits", std::int64_t{copy.wide_offsets ? 64 : 32});
}

}  // namespace memops
