// Which kernel a matrix product takes, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "common/device_facts.h"
#include "common/export.h"
#include "common/float_type.h"
#include "common/plan_report.h"

namespace memops {

/// The strides of one matrix, in elements; any values, 0 where rows or columns repeat.
struct MatrixStrides {
  std::int64_t row;
  std::int64_t column;

  bool operator==(const MatrixStrides&) const = default;
};

/// One batch dimension and its stride in each argument, in elements; the result is packed.
struct MatmulBatchDimension {
  std::int64_t size;
  std::int64_t a_stride;
  std::int64_t b_stride;
  std::int64_t bias_stride;
};

/// out[..., M, N] = a[..., M, K] @ b[..., K, N] (+ bias, which broadcasts by strides of 0).
struct MatmulProblem {
  FloatType element;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;  // may be 0: zeros, or the bias
  MatrixStrides a;
  MatrixStrides b;
  std::optional<MatrixStrides> bias;
  std::vector<MatmulBatchDimension> batch;  // outermost first
};

enum class MatmulKernel {
  kTiled,  // 16 x 16 tiles of both operands in shared memory, plain FMAs: everything
};

struct MatmulPlan {
  MatmulKernel kernel;
  MatmulProblem problem;  // normalised: fewest batch dimensions, stride 0 where the size is 1
  // Neighbouring threads load along K from a and along N from b, or along M and K.
  bool a_along_k;
  bool b_along_n;
  std::int64_t m_tiles;
  std::int64_t n_tiles;
  std::int64_t tiles;  // of all batches
  std::int64_t waves;  // how often they fill the device
  const char* reason;

  MEMOPS_API PlanReport report() const;
};

/// The side of the tiles of M, N and K.
constexpr int kMatmulTile = 16;

/// Blocks that the tiled kernel's registers, 48 a thread at most, let live on a multiprocessor.
constexpr int kMatmulBlocksPerMultiprocessor = 5;

/// The plan of a product whose result is not empty.
MEMOPS_API MatmulPlan plan_matmul(const MatmulProblem& problem, const DeviceFacts& device);

}  // namespace memops
