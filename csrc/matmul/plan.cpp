#include "matmul/plan.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "common/math.h"
#include "common/saturating.h"

namespace memops {
namespace {

const char* name(MatmulKernel kernel) {
  switch (kernel) {
    case MatmulKernel::kTiled:
      return "matmul_tiled";
  }
  throw std::runtime_error("memops: the matmul plan names no kernel");
}

/// True where `outer` steps over exactly one run of `inner` in every argument.
bool mergeable(const MatmulBatchDimension& outer, const MatmulBatchDimension& inner) {
  return outer.a_stride == inner.size * inner.a_stride &&
         outer.b_stride == inner.size * inner.b_stride &&
         outer.bias_stride == inner.size * inner.bias_stride;
}

std::vector<MatmulBatchDimension> coalesce(const std::vector<MatmulBatchDimension>& batch) {
  std::vector<MatmulBatchDimension> merged;
  for (const MatmulBatchDimension& d : batch) {
    if (d.size == 1) continue;
    if (!merged.empty() && mergeable(merged.back(), d)) {
      merged.back() = {merged.back().size * d.size, d.a_stride, d.b_stride, d.bias_stride};
    } else {
      merged.push_back(d);
    }
  }
  return merged;
}

/// The stride of a dimension of size 1 means nothing; without it a view plans as a packed tensor.
MatrixStrides normalise(std::int64_t rows, std::int64_t columns, MatrixStrides strides) {
  return {rows == 1 ? 0 : strides.row, columns == 1 ? 0 : strides.column};
}

/// Whether neighbouring threads should load along a matrix's columns (rather than down its rows).
bool along_columns(std::int64_t rows, std::int64_t columns, MatrixStrides strides) {
  if (columns <= 1) return rows <= 1;
  return rows <= 1 || strides.column <= strides.row;
}

std::int64_t batches(const MatmulProblem& problem) {
  std::int64_t count = 1;
  for (const MatmulBatchDimension& d : problem.batch) count = saturating_product({count, d.size});
  return count;
}

/// A dimension's size as far as memory goes: 1 where the elements repeat.
std::int64_t stored(std::int64_t size, std::int64_t stride) { return stride == 0 ? 1 : size; }

std::int64_t stored_elements(const MatmulProblem& problem, std::int64_t rows, std::int64_t columns,
                             MatrixStrides strides,
                             std::int64_t MatmulBatchDimension::* batch_stride) {
  if (rows == 0 || columns == 0) return 0;
  std::int64_t count =
      saturating_product({stored(rows, strides.row), stored(columns, strides.column)});
  for (const MatmulBatchDimension& d : problem.batch) {
    count = saturating_product({count, stored(d.size, d.*batch_stride)});
  }
  return count;
}

std::int64_t moved_bytes(const MatmulProblem& p) {
  const std::int64_t elements = saturating_sum(
      {stored_elements(p, p.m, p.k, p.a, &MatmulBatchDimension::a_stride),
       stored_elements(p, p.k, p.n, p.b, &MatmulBatchDimension::b_stride),
       p.bias ? stored_elements(p, p.m, p.n, *p.bias, &MatmulBatchDimension::bias_stride) : 0,
       saturating_product({batches(p), p.m, p.n})});
  return saturating_product({elements, bytes_of(p.element)});
}

}  // namespace

MatmulPlan plan_matmul(const MatmulProblem& given, const DeviceFacts& device) {
  MatmulProblem problem = given;
  problem.a = normalise(problem.m, problem.k, problem.a);
  problem.b = normalise(problem.k, problem.n, problem.b);
  if (problem.bias) problem.bias = normalise(problem.m, problem.n, *problem.bias);
  problem.batch = coalesce(problem.batch);

  MatmulPlan plan{.kernel = MatmulKernel::kTiled,
                  .problem = std::move(problem),
                  .a_along_k = false,
                  .b_along_n = false,
                  .m_tiles = 0,
                  .n_tiles = 0,
                  .tiles = 0,
                  .waves = 0,
                  .reason =
                      "16 x 16 tiles take any sizes, strides and batches; each operand is loaded "
                      "along the dimension with the smaller stride"};
  const MatmulProblem& p = plan.problem;
  plan.a_along_k = along_columns(p.m, p.k, p.a);
  plan.b_along_n = along_columns(p.k, p.n, p.b);
  plan.m_tiles = ceil_div<std::int64_t>(p.m, kMatmulTile);
  plan.n_tiles = ceil_div<std::int64_t>(p.n, kMatmulTile);
  plan.tiles = saturating_product({plan.m_tiles, plan.n_tiles, batches(p)});
  const std::int64_t wave = std::int64_t{kMatmulBlocksPerMultiprocessor} * device.multiprocessors;
  plan.waves = plan.tiles / wave + (plan.tiles % wave != 0);
  return plan;
}

PlanReport MatmulPlan::report() const {
  const MatmulProblem& p = problem;
  const std::string orientation = {a_along_k ? 'n' : 't', b_along_n ? 'n' : 't'};
  return {.op = "matmul",
          .kernel = name(kernel),
          .reason = reason,
          .facts = {{"M", p.m},
                    {"N", p.n},
                    {"K", p.k},
                    {"batch", batches(p)},
                    {"element", std::string(name(p.element))},
                    {"bias", std::string(p.bias ? "in the epilogue" : "none")},
                    {"tile", std::vector<std::int64_t>{kMatmulTile, kMatmulTile, kMatmulTile}},
                    {"orientation", orientation},
                    {"flops", saturating_product({2, batches(p), p.m, p.n, p.k})},
                    {"bytes", moved_bytes(p)},
                    {"blocks", tiles},
                    {"waves", waves}}};
}

}  // namespace memops
