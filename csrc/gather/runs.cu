// The gradient of a gather over the sorted index: the thread at the first position of a run of
// equal indices sums the run's rows of grad in order and writes the result once. 16-bit types sum
// in f32.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <stdexcept>

#include "common/cuda/launch.h"
#include "common/math.h"
#include "gather/index.h"
#include "gather/sum.h"

namespace memops {
namespace {

constexpr int kThreads = kGatherThreads;
constexpr int kPartial =
    32;  // rows of a partial sum: the error of a long run grows with their number
constexpr int kVectorBytes = 16;

__device__ float to_sum(__half value) { return __half2float(value); }
__device__ float to_sum(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ float to_sum(float value) { return value; }
__device__ double to_sum(double value) { return value; }

__device__ void round_to(__half& out, float sum) { out = __float2half_rn(sum); }
__device__ void round_to(__nv_bfloat16& out, float sum) { out = __float2bfloat16_rn(sum); }
__device__ void round_to(float& out, float sum) { out = sum; }
__device__ void round_to(double& out, double sum) { out = sum; }

template <class T, int kVector>
struct alignas(sizeof(T) * kVector) Pack {
  T values[kVector];
};

template <class T, int kVector, class Index>
__global__ void __launch_bounds__(kThreads)
    gather_runs_kernel(T* out, const T* grad, const Index* keys, const std::int64_t* order,
                       const __grid_constant__ SumViews views) {
  using Vector = Pack<T, kVector>;
  using Sum = decltype(to_sum(T{}));
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
      for (int v = 0; v < kVector; ++v) partial[v] += to_sum(row.values[v]);
    }
#pragma unroll
    for (int v = 0; v < kVector; ++v) total[v] += partial[v];
    begin += length;
  } while (length == kPartial);

  Vector result;
#pragma unroll
  for (int v = 0; v < kVector; ++v) round_to(result.values[v], total[v]);
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
  switch (plan.problem.type) {
    case GatherSumType::kFloat16:
      return launch_runs<__half>(plan, params, stream);
    case GatherSumType::kBFloat16:
      return launch_runs<__nv_bfloat16>(plan, params, stream);
    case GatherSumType::kFloat32:
      return launch_runs<float>(plan, params, stream);
    case GatherSumType::kFloat64:
      return launch_runs<double>(plan, params, stream);
  }
  throw std::runtime_error("memops: the gather_runs plan names no type");
}

}  // namespace memops
