// The range of the indices where there is nothing to move: rows of width 0, results without rows.
#include "common/cuda/launch.h"
#include "common/math.h"
#include "gather/index.h"

namespace memops {
namespace {

constexpr int kThreads = kGatherThreads;

template <class Index>
__global__ void __launch_bounds__(kThreads)
    gather_check_kernel(const Index* index, const std::int64_t count, const std::int64_t limit,
                        const GatherOp op) {
  const std::int64_t position = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (position < count) check_range(index[position], limit, op);
}

}  // namespace

void launch_gather_check(GatherOp op, const GatherIndex& index, std::int64_t count,
                         std::int64_t limit, cudaStream_t stream) {
  const unsigned grid = grid_blocks(ceil_div<std::int64_t>(count, kThreads), "gather_check");
  by_index_type(index, [&](const auto* data) {
    gather_check_kernel<<<grid, kThreads, 0, stream>>>(data, count, limit, op);
  });
  check_launch("gather_check");
}

}  // namespace memops
