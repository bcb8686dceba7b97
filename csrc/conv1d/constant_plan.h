// How conv1d_constant cuts its work: tiles of results, passes and launches over the taps, panels.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/device_facts.h"
#include "common/export.h"
#include "common/float_type.h"
#include "common/plan_report.h"

namespace memops {

/// A leading dimension of the input: how many steps, and the elements between two.
struct RowDimension {
  std::int64_t size;
  std::int64_t stride;

  bool operator==(const RowDimension&) const = default;
};

/// The leading dimensions with unit ones dropped and neighbours merged where one stride does for
/// both; the order of the rows stays. Sizes must not be 0.
MEMOPS_API std::vector<RowDimension> merge_rows(std::span<const std::int64_t> sizes,
                                                std::span<const std::int64_t> strides);

/// Leading dimensions, after merging, that one launch walks.
constexpr int kMaxRowDimensions = 8;

/// One filter of `taps` values over `steps` times `rows` rows. Checked; length may be 0, nothing
/// else.
struct Conv1dConstantProblem {
  FloatType type;
  std::int64_t steps;       // over the outer dimensions that do not merge, launch by launch
  std::int64_t rows;        // of one step
  std::int64_t length;      // of a row of the input
  std::int64_t out_length;  // of a row of the result
  std::int64_t taps;
};

enum class Conv1dConstantKernel {
  kTile,  // inputs and halo in shared memory, taps in the launch's arguments
};

struct Conv1dConstantPlan {
  Conv1dConstantKernel kernel;
  Conv1dConstantProblem problem;
  int tile_rows;                 // rows of a tile
  int tile_outputs;              // results of each
  int tile_pitch;                // shared elements of each, halo included
  int taps_per_pass;             // taps that one filling of the tile serves
  std::int64_t taps_per_launch;  // the most that a launch carries
  std::int64_t launches;         // over the taps, of one panel of one step
  std::int64_t tiles;
  std::int64_t panel_tiles;  // tiles of one launch
  std::int64_t panels;
  std::int64_t scratch_bytes;  // sums between launches, for 16-bit results
  const char* reason;

  MEMOPS_API PlanReport report() const;
};

MEMOPS_API Conv1dConstantPlan plan_conv1d_constant(const Conv1dConstantProblem& problem,
                                                   const DeviceFacts& device);

/// The sizes of the launch's filter argument, in taps: a short filter does not pay for 32 KB.
constexpr int kTapClasses[] = {32, 256, 2048, 8000};
constexpr int kTapClassesDouble[] = {32, 256, 2048, 4000};

/// The smallest class that holds `taps`. Throws std::runtime_error where none does.
MEMOPS_API int tap_class(FloatType type, std::int64_t taps);

/// What the kernel's tile is made for; the kernel's own constants, here so that plans know them.
constexpr int kConstantThreads = 256;
constexpr int kConstantOutputsPerThread = 4;
constexpr int kConstantTileInputs = 4096;  // shared elements

}  // namespace memops
