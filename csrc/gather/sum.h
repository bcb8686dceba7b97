// What the gradient's two kernels share: the matrices that they read and write.
#pragma once

#include <cstdint>

#include "gather/plan.h"

namespace memops {

/// grad[position, field] goes to out[row, field]; strides in elements.
struct SumViews {
  std::int64_t rows;
  std::int64_t count;
  std::int64_t columns;  // fields, or vectors of them
  std::int64_t padding_index;
  std::int64_t position_stride;
  std::int64_t column_stride;  // of grad
  std::int64_t out_row_stride;
  std::int64_t out_column_stride;
  bool columns_fastest;  // the order of the threads: the one in which out is contiguous
  GatherOp op;

  __host__ __device__ std::int64_t threads() const { return count * columns; }
};

inline SumViews sum_views(const GatherSumPlan& plan) {
  const GatherSumProblem& problem = plan.problem;
  const bool aos = problem.op == GatherOp::kAosBackward;
  return {.rows = problem.rows,
          .count = problem.count,
          .columns = problem.fields / plan.vector,
          .padding_index = problem.padding_index,
          .position_stride = problem.position_stride,
          .column_stride = problem.field_stride * plan.vector,
          .out_row_stride = aos ? problem.fields : 1,
          .out_column_stride = aos ? plan.vector : problem.rows,
          .columns_fastest = aos,
          .op = problem.op};
}

/// Which position and column a thread takes.
struct SumPlace {
  std::int64_t position;
  std::int64_t column;
};

__device__ inline SumPlace place_of(const SumViews& views, std::int64_t thread) {
  const std::int64_t inner = views.columns_fastest ? views.columns : views.count;
  const std::int64_t outer = thread / inner;
  const std::int64_t rest = thread - outer * inner;
  return views.columns_fastest ? SumPlace{outer, rest} : SumPlace{rest, outer};
}

}  // namespace memops
