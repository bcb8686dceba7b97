// 16 x 16 tiles of both operands in shared memory, one element of the result a thread: any sizes,
// any strides, any batch.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <stdexcept>

#include "common/cuda/float_type.h"
#include "common/cuda/launch.h"
#include "matmul/matmul.h"

namespace memops {
namespace {

constexpr int kTile = kMatmulTile;
constexpr int kMaxBatchDimensions = 64;  // PyTorch's own limit

struct TiledProblem {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  MatrixStrides a;
  MatrixStrides b;
  MatrixStrides bias;
  std::int64_t m_tiles;
  std::int64_t n_tiles;
  std::int64_t tiles;  // of all batches
  int batch_rank;
  MatmulBatchDimension batch[kMaxBatchDimensions];
};

struct BatchOffsets {
  std::int64_t a;
  std::int64_t b;
  std::int64_t bias;
};

__device__ BatchOffsets offsets_of(const TiledProblem& problem, std::int64_t index) {
  BatchOffsets at{0, 0, 0};
  for (int d = problem.batch_rank - 1; d >= 0; --d) {
    const MatmulBatchDimension& dimension = problem.batch[d];
    const std::int64_t rest = index / dimension.size;
    const std::int64_t coordinate = index - rest * dimension.size;
    at.a += coordinate * dimension.a_stride;
    at.b += coordinate * dimension.b_stride;
    at.bias += coordinate * dimension.bias_stride;
    index = rest;
  }
  return at;
}

/// A sum of partial sums (16 products each) on levels of 16 terms, so that no chain of additions
/// is longer than 16 up to K = 65,536. No compensation term, which would make infinities NaN.
template <class Sum>
class CascadedSum {
 public:
  __device__ void add(Sum partial) {
    levels_[0] += partial;
    if (++count_ % 16 != 0) return;
    levels_[1] += levels_[0];
    levels_[0] = 0;
    if (count_ % 256 != 0) return;
    levels_[2] += levels_[1];
    levels_[1] = 0;
  }
  __device__ Sum value() const { return levels_[2] + (levels_[1] + levels_[0]); }

 private:
  Sum levels_[3] = {0, 0, 0};
  unsigned count_ = 0;
};

/// Elements from one row of a shared tile to the next. Where a warp writes down the columns the
/// rows are padded so that its 32 stores meet 32 banks (for 8-byte elements 16 a half-warp).
template <class Sum, bool kWrittenAlongRows>
constexpr int kPitch = kWrittenAlongRows ? kTile : kTile + (sizeof(Sum) == 8 ? 1 : 2);

template <class Element, bool kAAlongK, bool kBAlongN>
__global__ void __launch_bounds__(kTile* kTile)
    matmul_tiled_kernel(Element* out, const Element* a, const Element* b, const Element* bias,
                        const __grid_constant__ TiledProblem problem) {
  using Sum = Accumulator<Element>;
  __shared__ Sum a_tile[kTile][kPitch<Sum, kAAlongK>];  // [row][k]
  __shared__ Sum b_tile[kTile][kPitch<Sum, kBAlongN>];  // [k][column]
  const int x = threadIdx.x;
  const int y = threadIdx.y;
  // The element of each tile that this thread loads: x runs along the smaller stride.
  const int a_row = kAAlongK ? y : x;
  const int a_k = kAAlongK ? x : y;
  const int b_k = kBAlongN ? y : x;
  const int b_column = kBAlongN ? x : y;

  for (std::int64_t tile = blockIdx.x; tile < problem.tiles; tile += gridDim.x) {
    const std::int64_t rest = tile / problem.n_tiles;
    const std::int64_t column0 = (tile - rest * problem.n_tiles) * kTile;
    const std::int64_t batch = rest / problem.m_tiles;
    const std::int64_t row0 = (rest - batch * problem.m_tiles) * kTile;
    const BatchOffsets at = offsets_of(problem, batch);

    const bool a_row_inside = row0 + a_row < problem.m;
    const bool b_column_inside = column0 + b_column < problem.n;
    const Element* a_next = a + at.a + (row0 + a_row) * problem.a.row + a_k * problem.a.column;
    const Element* b_next =
        b + at.b + b_k * problem.b.row + (column0 + b_column) * problem.b.column;

    CascadedSum<Sum> total;
    for (std::int64_t k0 = 0; k0 < problem.k; k0 += kTile) {
      Sum a_value = 0;
      Sum b_value = 0;
      if (a_row_inside && k0 + a_k < problem.k) a_value = static_cast<Sum>(*a_next);
      if (b_column_inside && k0 + b_k < problem.k) b_value = static_cast<Sum>(*b_next);
      a_tile[a_row][a_k] = a_value;
      b_tile[b_k][b_column] = b_value;
      __syncthreads();  // the tiles are whole
      // Four chains of four products: a chain of 16 loses more than cuBLAS does at K = 8 and 16.
      Sum chains[4] = {0, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        chains[i / 4] = fma(a_tile[y][i], b_tile[i][x], chains[i / 4]);
      }
      total.add((chains[0] + chains[1]) + (chains[2] + chains[3]));
      __syncthreads();  // nobody reads them any more
      a_next += kTile * problem.a.column;
      b_next += kTile * problem.b.row;
    }

    const std::int64_t row = row0 + y;
    const std::int64_t column = column0 + x;
    if (row < problem.m && column < problem.n) {
      Sum value = total.value();
      if (bias != nullptr) {
        value +=
            static_cast<Sum>(bias[at.bias + row * problem.bias.row + column * problem.bias.column]);
      }
      out[(batch * problem.m + row) * problem.n + column] = static_cast<Element>(value);
    }
  }
}

TiledProblem tiled_problem(const MatmulPlan& plan) {
  const MatmulProblem& p = plan.problem;
  if (p.batch.size() > kMaxBatchDimensions) {
    throw std::runtime_error("memops: matmul of more than 64 batch dimensions");
  }
  TiledProblem problem{.m = p.m,
                       .n = p.n,
                       .k = p.k,
                       .a = p.a,
                       .b = p.b,
                       .bias = p.bias.value_or(MatrixStrides{0, 0}),
                       .m_tiles = plan.m_tiles,
                       .n_tiles = plan.n_tiles,
                       .tiles = plan.tiles,
                       .batch_rank = static_cast<int>(p.batch.size()),
                       .batch = {}};
  std::copy(p.batch.begin(), p.batch.end(), problem.batch);
  return problem;
}

template <class Element>
void launch(const MatmulPlan& plan, const MatmulParams& params, cudaStream_t stream) {
  const TiledProblem problem = tiled_problem(plan);
  // More tiles than a grid has blocks are walked by the kernel's loop.
  constexpr std::int64_t kMaxBlocks = std::numeric_limits<std::int32_t>::max();
  const unsigned grid = grid_blocks(std::min(problem.tiles, kMaxBlocks), "matmul_tiled");
  const dim3 block(kTile, kTile);
  auto* const out = static_cast<Element*>(params.out);
  const auto* const a = static_cast<const Element*>(params.a);
  const auto* const b = static_cast<const Element*>(params.b);
  const auto* const bias = static_cast<const Element*>(params.bias);
  if (plan.a_along_k && plan.b_along_n) {
    matmul_tiled_kernel<Element, true, true><<<grid, block, 0, stream>>>(out, a, b, bias, problem);
  } else if (plan.a_along_k) {
    matmul_tiled_kernel<Element, true, false><<<grid, block, 0, stream>>>(out, a, b, bias, problem);
  } else if (plan.b_along_n) {
    matmul_tiled_kernel<Element, false, true><<<grid, block, 0, stream>>>(out, a, b, bias, problem);
  } else {
    matmul_tiled_kernel<Element, false, false>
        <<<grid, block, 0, stream>>>(out, a, b, bias, problem);
  }
  check_launch("matmul_tiled");
}

}  // namespace

void launch_matmul_tiled(const MatmulPlan& plan, const MatmulParams& params, cudaStream_t stream) {
  by_float_type(plan.problem.element,
                [&](auto element) { launch<decltype(element)>(plan, params, stream); });
}

void launch_matmul(const MatmulPlan& plan, const MatmulParams& params, cudaStream_t stream) {
  switch (plan.kernel) {
    case MatmulKernel::kTiled:
      return launch_matmul_tiled(plan, params, stream);
  }
  throw std::runtime_error("memops: the matmul plan names no kernel");
}

}  // namespace memops
