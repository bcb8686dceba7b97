#include "conv1d/constant_plan.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "common/math.h"
#include "common/saturating.h"

namespace memops {
namespace {

constexpr std::int64_t kTileOutputs = kConstantThreads * kConstantOutputsPerThread;
constexpr std::int64_t kLongestPass = 512;  // its halo stays below half of the tile
constexpr std::int64_t kMostScratchBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();

std::span<const int> classes(FloatType type) {
  if (type == FloatType::kDouble) return kTapClassesDouble;
  return kTapClasses;
}

const char* name(Conv1dConstantKernel kernel) {
  switch (kernel) {
    case Conv1dConstantKernel::kTile:
      return "conv1d_constant";
  }
  throw std::runtime_error("memops: the conv1d_constant plan names no kernel");
}

}  // namespace

std::vector<RowDimension> merge_rows(std::span<const std::int64_t> sizes,
                                     std::span<const std::int64_t> strides) {
  std::vector<RowDimension> rows;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    if (!rows.empty() && rows.back().stride == sizes[d] * strides[d]) {
      rows.back() = {rows.back().size * sizes[d], strides[d]};
    } else {
      rows.push_back({sizes[d], strides[d]});
    }
  }
  return rows;
}

int tap_class(FloatType type, std::int64_t taps) {
  for (const int size : classes(type)) {
    if (taps <= size) return size;
  }
  throw std::runtime_error("memops: no conv1d_constant kernel takes " + std::to_string(taps) +
                           " taps in one launch");
}

Conv1dConstantPlan plan_conv1d_constant(const Conv1dConstantProblem& problem, const DeviceFacts&) {
  const std::int64_t most_taps = classes(problem.type).back();
  const std::int64_t taps_per_launch = std::min(problem.taps, most_taps);
  const std::int64_t launches = ceil_div(problem.taps, most_taps);
  const std::int64_t pass = std::min(taps_per_launch, kLongestPass);

  const std::int64_t outputs = std::min(problem.out_length, kTileOutputs);
  const std::int64_t pitch = outputs + pass - 1;
  const std::int64_t rows = std::clamp<std::int64_t>(
      std::min({problem.rows, kTileOutputs / outputs, kConstantTileInputs / pitch}), 1,
      kConstantThreads);
  const std::int64_t tiles = ceil_div(problem.rows, rows) * ceil_div(problem.out_length, outputs);

  const bool sixteen_bits =
      problem.type == FloatType::kHalf || problem.type == FloatType::kBFloat16;
  const bool scratch = sixteen_bits && launches > 1;
  const std::int64_t tile_bytes = rows * outputs * accumulator_bytes(problem.type);
  const std::int64_t panel =
      std::min({tiles, kMostBlocks, scratch ? kMostScratchBytes / tile_bytes : kMostBlocks});
  const char* reason = "the taps fit one launch's arguments";
  if (launches > 1) {
    reason = scratch ? "the taps need several launches: their sums stay in float32 scratch"
                     : "the taps need several launches: their sums are added in the result";
  }
  return {.kernel = Conv1dConstantKernel::kTile,
          .problem = problem,
          .tile_rows = static_cast<int>(rows),
          .tile_outputs = static_cast<int>(outputs),
          .tile_pitch = static_cast<int>(pitch),
          .taps_per_pass = static_cast<int>(pass),
          .taps_per_launch = taps_per_launch,
          .launches = launches,
          .tiles = tiles,
          .panel_tiles = panel,
          .panels = ceil_div(tiles, panel),
          .scratch_bytes = scratch ? panel * tile_bytes : 0,
          .reason = reason};
}

PlanReport Conv1dConstantPlan::report() const {
  const Conv1dConstantProblem& p = problem;
  const std::int64_t rows = p.steps * p.rows;
  return {
      .op = "conv1d_constant",
      .kernel = name(kernel),
      .reason = reason,
      .facts = {{"dtype", name(p.type)},
                {"precision", p.type == FloatType::kDouble ? "float64" : "float32"},
                {"tile_rows", std::int64_t{tile_rows}},
                {"tile_outputs", std::int64_t{tile_outputs}},
                {"tile_pitch", std::int64_t{tile_pitch}},
                {"shared_bytes", kConstantTileInputs * accumulator_bytes(p.type)},
                {"taps_class", std::int64_t{tap_class(p.type, taps_per_launch)}},
                {"taps_per_pass", std::int64_t{taps_per_pass}},
                {"threads", std::int64_t{kConstantThreads}},
                {"blocks", panel_tiles},
                {"panels", panels},
                {"steps", p.steps},
                {"launches", p.steps * panels * launches},
                {"scratch_bytes", scratch_bytes},
                {"bytes", saturating_product({rows, p.length + p.out_length, bytes_of(p.type)})},
                {"flops", saturating_product({2, rows, p.out_length, p.taps})}}};
}

}  // namespace memops
