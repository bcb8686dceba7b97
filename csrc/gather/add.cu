// The gradient of a gather by atomic additions, one an element. The order of the sums is not fixed.
#include <stdexcept>

#include "common/cuda/launch.h"
#include "common/math.h"
#include "gather/index.h"
#include "gather/sum.h"

namespace memops {
namespace {

constexpr int kThreads = kGatherThreads;

template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    gather_add_kernel(T* out, const T* grad, const Index* index,
                      const __grid_constant__ SumViews views) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (thread >= views.threads()) return;
  const SumPlace place = place_of(views, thread);
  const std::int64_t row = index[place.position];
  if (!check_range(row, views.rows, views.op) || row == views.padding_index) return;
  atomicAdd(out + row * views.out_row_stride + place.column * views.out_column_stride,
            grad[place.position * views.position_stride + place.column * views.column_stride]);
}

template <class T>
void launch_add(const GatherSumPlan& plan, const GatherSumParams& params, cudaStream_t stream) {
  const SumViews views = sum_views(plan);
  const unsigned grid =
      grid_blocks(ceil_div<std::int64_t>(views.threads(), kThreads), "gather_add");
  by_index_type(params.index, [&](const auto* index) {
    gather_add_kernel<<<grid, kThreads, 0, stream>>>(
        static_cast<T*>(params.out), static_cast<const T*>(params.grad), index, views);
  });
  check_launch("gather_add");
}

}  // namespace

void launch_gather_add(const GatherSumPlan& plan, const GatherSumParams& params,
                       cudaStream_t stream) {
  switch (plan.problem.type) {
    case FloatType::kFloat:
      return launch_add<float>(plan, params, stream);
    case FloatType::kDouble:
      return launch_add<double>(plan, params, stream);
    default:
      throw std::runtime_error("memops: gather_add sums f32 and f64; the plan names another type");
  }
}

void launch_gather_sum(const GatherSumPlan& plan, const GatherSumParams& params,
                       cudaStream_t stream) {
  switch (plan.kernel) {
    case GatherKernel::kNone:
      return;
    case GatherKernel::kCheck:
      return launch_gather_check(plan.problem.op, params.index, plan.problem.count,
                                 plan.problem.rows, stream);
    case GatherKernel::kAdd:
      return launch_gather_add(plan, params, stream);
    case GatherKernel::kRuns:
      return launch_gather_runs(plan, params, stream);
    default:
      throw std::runtime_error("memops: the gather gradient's plan names no kernel");
  }
}

}  // namespace memops
