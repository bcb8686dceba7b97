// The same column of several fields: a thread a column, any strides of the table.
#include <algorithm>

#include "common/cuda/element_width.h"
#include "common/cuda/launch.h"
#include "common/math.h"
#include "gather/index.h"

namespace memops {
namespace {

constexpr int kThreads = kGatherThreads;

struct Fields {
  std::int64_t fields;
  std::int64_t columns;
  std::int64_t count;
  std::int64_t field_stride;
  std::int64_t column_stride;
  std::int64_t fields_per_thread;
  unsigned position_blocks;  // blocks that one group of fields takes
};

template <class Element, class Index>
__global__ void __launch_bounds__(kThreads)
    gather_fields_kernel(Element* out, const Element* table, const Index* index,
                         const __grid_constant__ Fields a) {
  const std::int64_t position =
      std::int64_t{blockIdx.x % a.position_blocks} * kThreads + threadIdx.x;
  if (position >= a.count) return;
  const std::int64_t column = index[position];
  if (!check_range(column, a.columns, GatherOp::kSoa)) return;
  const std::int64_t field = std::int64_t{blockIdx.x / a.position_blocks} * a.fields_per_thread;
  const std::int64_t field_end = min(field + a.fields_per_thread, a.fields);
  const Element* const from = table + column * a.column_stride;
#pragma unroll 4
  for (std::int64_t f = field; f < field_end; ++f) {
    out[f * a.count + position] = __ldg(from + f * a.field_stride);
  }
}

void launch_fields(const GatherFieldsPlan& plan, const GatherParams& params, cudaStream_t stream) {
  const GatherFieldsProblem& problem = plan.problem;
  const std::int64_t position_blocks = ceil_div<std::int64_t>(problem.count, kThreads);
  const std::int64_t groups = ceil_div(problem.fields, plan.fields_per_thread);
  const unsigned grid = grid_blocks(position_blocks * groups, "gather_fields");
  const Fields arguments{.fields = problem.fields,
                         .columns = problem.columns,
                         .count = problem.count,
                         .field_stride = problem.field_stride,
                         .column_stride = problem.column_stride,
                         .fields_per_thread = plan.fields_per_thread,
                         .position_blocks = static_cast<unsigned>(position_blocks)};
  by_element_width(problem.element_bytes, [&](auto element) {
    using Element = decltype(element);
    by_index_type(params.index, [&](const auto* index) {
      gather_fields_kernel<<<grid, kThreads, 0, stream>>>(static_cast<Element*>(params.out),
                                                          static_cast<const Element*>(params.table),
                                                          index, arguments);
    });
  });
  check_launch("gather_fields");
}

}  // namespace

void launch_gather_fields(const GatherFieldsPlan& plan, const GatherParams& params,
                          cudaStream_t stream) {
  switch (plan.kernel) {
    case GatherKernel::kNone:
      return;
    case GatherKernel::kCheck:
      return launch_gather_check(GatherOp::kSoa, params.index, plan.problem.count,
                                 plan.problem.columns, stream);
    case GatherKernel::kFields:
      return launch_fields(plan, params, stream);
    default:
      throw std::runtime_error("memops: the gather_soa plan names no kernel");
  }
}

}  // namespace memops
