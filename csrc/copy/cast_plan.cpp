// Which kernel converts: as plan.cpp, for elements of two types.
#include "common/math.h"
#include "copy/kernel_choice.h"

namespace memops {
namespace {

// Rows of fewer vectors leave too many threads with a partial one, where they lie between
// boundaries.
constexpr std::int64_t kShortestUnalignedRun = 8;  // vectors
// A tile emptier than this loses to single elements, whose sectors the L2 serves several times.
constexpr double kFullTile = 0.25;

std::optional<CastRows> cast_rows(const CopyProblem& problem) {
  const auto& dims = problem.layout.dimensions;
  const int dst_bytes = problem.dst_element_bytes();
  const int src_bytes = problem.layout.element_bytes;
  const std::int64_t vector = cast_vector(dst_bytes, src_bytes);
  CastRows copy{1, 1, true, {}};
  if (!dims.empty()) {
    if (dims.back().dst_stride != 1 || dims.back().src_stride != 1) return std::nullopt;
    copy.run = dims.back().size;
    copy.rows.assign(dims.begin(), dims.end() - 1);
  }
  const auto on_vectors = [&](std::uint64_t address, int bytes) {
    const auto boundary = static_cast<std::uint64_t>(std::min(vector * bytes, kVectorBytes));
    return address % boundary == 0;
  };
  copy.aligned =
      on_vectors(problem.dst_address, dst_bytes) && on_vectors(problem.src_address, src_bytes);
  for (const CopyDimension& row : copy.rows) {
    copy.aligned &= row.dst_stride % vector == 0 && row.src_stride % vector == 0;
  }
  if (!copy.rows.empty()) {
    const std::int64_t shortest = copy.aligned ? vector : kShortestUnalignedRun * vector;
    if (copy.run < shortest || copy.rows.size() > kFewDimensions) return std::nullopt;
  }
  // A row that begins between boundaries touches one vector more.
  copy.vectors = ceil_div(copy.aligned ? copy.run : copy.run + vector - 1, vector);
  return copy;
}

std::optional<CastTile> cast_tile(const CopyProblem& problem) {
  if (!has_tile_kernel(*problem.cast)) return std::nullopt;
  const auto tile = tile_copy(problem.layout, problem.dst_address, problem.src_address);
  if (!tile || filled(*tile) < kFullTile) return std::nullopt;
  return CastTile{*tile};
}

}  // namespace

CopyPlan plan_cast(const CopyProblem& problem) {
  const CopyLayout& layout = problem.layout;
  if (const auto rows = cast_rows(problem)) {
    const int steps = cast_steps(problem.dst_element_bytes(), layout.element_bytes);
    return {*rows, layout,
            ceil_div<std::int64_t>(rows->vectors * elements(rows->rows), steps * kFlatThreads),
            one_run(layout) ? "both views are one run of elements in the same order"
                            : "both views hold the same runs",
            problem.cast};
  }
  if (const auto tile = cast_tile(problem)) {
    return {*tile, layout, blocks_of(tile->tile),
            "the views are contiguous along different dimensions: tiles keep both sides coalesced",
            problem.cast};
  }
  const bool wide = offsets_pass_31_bits(layout, problem.dst_element_bytes()) ||
                    layout.dimensions.size() > kFewDimensions;
  return {CastStrided{wide}, layout,
          ceil_div<std::int64_t>(layout.elements(), kStridedElements * kCopyThreads),
          "neither runs that both views share nor a tile of a pair that has tiles", problem.cast};
}

void add_facts(const CastRows& copy, PlanReport& report) {
  report.facts.emplace_back("threads", std::int64_t{kFlatThreads});
  report.facts.emplace_back("run", copy.run);
  report.facts.emplace_back("aligned", std::int64_t{copy.aligned});
}

void add_facts(const CastTile& copy, PlanReport& report) { add_facts(copy.tile, report); }

void add_facts(const CastStrided& copy, PlanReport& report) {
  report.facts.emplace_back("threads", std::int64_t{kCopyThreads});
  report.facts.emplace_back("index_bits", std::int64_t{copy.wide_offsets ? 64 : 32});
}

}  // namespace memops
