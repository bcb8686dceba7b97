// The gradient of a gather over the sorted index: the thread at the first position of a run of
// equal indices sums the run's rows of grad in order and writes the result once. 16-bit types sum
// in f32.
#include <stdexcept>

#include "common/cuda/float_type.h"
#include "common/cuda/launch.h"
#include "common/math.h"
#include "gather/index.h"
#include "gather/sum.h"

namespace memops {
namespace {

constexpr int kThreads = kGatherThreads;
// Rows of a partial sum: one chain of additions would lose more the longer a run is.
constexpr int kPartial = 32;
constexpr int kVectorBytes = 16;

template <class T, int kVector>
struct alignas(sizeof(T) * kVector) Pack {
  T values[kVector];
};

template <class T, int kVector, class Index>
__global__ void __launch_bounds__(kThreads)
    gather_runs_kernel(T* out, const T* grad, const Index* keys, const std::int64_t* order,
                       const __grid_constant__ SumViews views) {
  using Vector = Pack<T, kVector>;
  using Sum = LongSum<T>;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (thread >= views.threads()) return;
  const SumPlace place = place_of(views, thread);
  const Index key = keys[place.position];
  if (place.position > 0 && keys[place.position - 1] == key) return;
  if (!check_range(key, views.rows, views.op) || key == views.padding_index) return;

  const T* const column = grad + place.column * views.column_stride;
  Sum total[kVector] = {};
  std::int64_t begin = place.position;
  int length;
  do {
    // The length first: loads that hang on no comparison of keys can be in flight together.
    length = 0;
    while (length < kPartial && begin + length < views.count && keys[begin + length] == key) {
      ++length;
    }
    Sum partial[kVector] = {};
#pragma unroll 4
    for (int i = 0; i < length; ++i) {
      const auto row =
          *reinterpret_cast<const Vector*>(column + order[begin + i] * views.position_stride);
#pragma unroll
      for (int v = 0; v < kVector; ++v) partial[v] += widen(row.values[v]);
    }
#pragma unroll
    for (int v = 0; v < kVector; ++v) total[v] += partial[v];
    begin += length;
  } while (length == kPartial);

  Vector result;
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    result.values[v] = narrow<T>(static_cast<Accumulator<T>>(total[v]));
  }
  *reinterpret_cast<Vector*>(out + key * views.out_row_stride +
                             place.column * views.out_column_stride) = result;
}

template <class T, int kVector>
void launch_vectors(const SumViews& views, const GatherSumParams& params, cudaStream_t stream) {
  const unsigned grid =
      grid_blocks(ceil_div<std::int64_t>(views.threads(), kThreads), "gather_runs");
  by_index_type(params.index, [&](const auto* keys) {
    gather_runs_kernel<T, kVector><<<grid, kThreads, 0, stream>>>(
        static_cast<T*>(params.out), static_cast<const T*>(params.grad), keys, params.order, views);
  });
  check_launch("gather_runs");
}

template <class T>
void launch_runs(const GatherSumPlan& plan, const GatherSumParams& params, cudaStream_t stream) {
  constexpr int kVector = kVectorBytes / static_cast<int>(sizeof(T));
  if (plan.vector == kVector) {
    launch_vectors<T, kVector>(sum_views(plan), params, stream);
  } else if (plan.vector == 1) {
    launch_vectors<T, 1>(sum_views(plan), params, stream);
  } else {
    throw std::runtime_error("memops: the gather_runs plan names no vector width of its type");
  }
}

}  // namespace

void launch_gather_runs(const GatherSumPlan& plan, const GatherSumParams& params,
                        cudaStream_t stream) {
  by_float_type(plan.problem.type,
                [&](auto type) { launch_runs<decltype(type)>(plan, params, stream); });
}

}  // namespace memops
