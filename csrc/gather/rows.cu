// Rows of a table: a sub-warp moves a row, several rows in flight.
#include <algorithm>
#include <bit>

#include "common/cuda/element_width.h"
#include "common/cuda/launch.h"
#include "common/math.h"
#include "gather/index.h"

namespace memops {
namespace {

constexpr int kThreads = kGatherThreads;
constexpr int kRows = kGatherRowsInFlight;

struct Rows {
  char* out;
  const char* table;
  std::int64_t rows;
  std::int64_t count;
  std::int64_t row_stride;     // bytes
  std::int64_t vectors;        // of a row
  std::int64_t panel_vectors;  // of the part of a row that a block moves
  unsigned panels;
  int lane_bits;  // log2 of the sub-warp's lanes
};

template <class Vector, class Index>
__global__ void __launch_bounds__(kThreads)
    gather_rows_kernel(const __grid_constant__ Rows a, const Index* index) {
  const int groups = kThreads >> a.lane_bits;
  const int lanes = 1 << a.lane_bits;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const std::int64_t first = std::int64_t{blockIdx.x / a.panels} * (groups * kRows) +
                             (static_cast<int>(threadIdx.x) >> a.lane_bits);
  const std::int64_t panel = std::int64_t{blockIdx.x % a.panels} * a.panel_vectors;
  const std::int64_t panel_end = min(panel + a.panel_vectors, a.vectors);

  const Vector* from[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t position = first + r * groups;
    from[r] = nullptr;
    if (position < a.count) {
      const std::int64_t row = index[position];
      if (check_range(row, a.rows, GatherOp::kAos)) {
        from[r] = reinterpret_cast<const Vector*>(a.table + row * a.row_stride);
      }
    }
  }
  auto* const to = reinterpret_cast<Vector*>(a.out) + first * a.vectors;
  const std::int64_t to_next = groups * a.vectors;
  for (std::int64_t v = panel + lane; v < panel_end; v += lanes) {
    Vector values[kRows];
    // All loads before the first store, or the compiler must assume that they overlap.
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (from[r] != nullptr) values[r] = __ldg(from[r] + v);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (from[r] != nullptr) to[r * to_next + v] = values[r];
    }
  }
}

void launch_rows(const GatherRowsPlan& plan, const GatherParams& params, cudaStream_t stream) {
  const GatherRowsProblem& problem = plan.problem;
  const std::int64_t row_blocks = ceil_div<std::int64_t>(problem.count, plan.rows_per_block);
  const unsigned grid = grid_blocks(row_blocks * plan.panels, "gather_rows");
  const Rows arguments{.out = static_cast<char*>(params.out),
                       .table = static_cast<const char*>(params.table),
                       .rows = problem.rows,
                       .count = problem.count,
                       .row_stride = problem.row_stride,
                       .vectors = plan.vectors,
                       .panel_vectors = plan.panel_vectors,
                       .panels = static_cast<unsigned>(plan.panels),
                       .lane_bits = std::countr_zero(static_cast<unsigned>(plan.lanes))};
  by_element_width(plan.vector_bytes, [&](auto vector) {
    by_index_type(params.index, [&](const auto* index) {
      gather_rows_kernel<decltype(vector)><<<grid, kThreads, 0, stream>>>(arguments, index);
    });
  });
  check_launch("gather_rows");
}

}  // namespace

void launch_gather_rows(const GatherRowsPlan& plan, const GatherParams& params,
                        cudaStream_t stream) {
  switch (plan.kernel) {
    case GatherKernel::kNone:
      return;
    case GatherKernel::kCheck:
      return launch_gather_check(GatherOp::kAos, params.index, plan.problem.count,
                                 plan.problem.rows, stream);
    case GatherKernel::kRows:
      return launch_rows(plan, params, stream);
    default:
      throw std::runtime_error("memops: the gather_aos plan names no kernel");
  }
}

}  // namespace memops
