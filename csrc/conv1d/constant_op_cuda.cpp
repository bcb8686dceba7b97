// _conv1d_constant on CUDA.
#include "common/torch/checks.h"
#include "common/torch/device.h"
#include "conv1d/constant.h"
#include "conv1d/op.h"
#include "conv1d/plan_op.h"

namespace memops {
namespace {

using at::Tensor;
using c10::SymIntArrayRef;

void filter_rows(const Tensor& out, const Tensor& input, std::int64_t left,
                 std::span<const double> taps, const DeviceScope& scope) {
  const std::vector<RowDimension> rows = rows_of(input);
  if (rows.size() > kMaxRowDimensions) {
    for (int64_t i = 0; i < input.size(0); ++i) {
      filter_rows(out.select(0, i), input.select(0, i), left, taps, scope);
    }
    return;
  }
  const Conv1dConstantProblem problem =
      conv1d_constant_problem(input, out.size(-1), static_cast<std::int64_t>(taps.size()));
  const Conv1dConstantPlan plan = plan_conv1d_constant(problem, scope.facts());
  const Tensor scratch = at::empty({plan.scratch_bytes}, input.options().dtype(at::kByte));
  launch_conv1d_constant(plan,
                         {.problem = problem,
                          .output = out.mutable_data_ptr(),
                          .input = input.const_data_ptr(),
                          .step = input.stride(-1),
                          .left = left,
                          .rows = rows,
                          .taps = taps,
                          .scratch = scratch.mutable_data_ptr()},
                         scope.stream());
}

Tensor conv1d_constant_cuda(const Tensor& input, SymIntArrayRef padding,
                            at::ArrayRef<double> taps) {
  const int64_t length = check_conv1d_constant(input, padding, taps).expect_int();
  const DeviceScope scope(input);
  at::DimVector sizes(input.sizes());
  sizes.back() = length;
  const Tensor out = at::empty(sizes, input.options());
  if (out.numel() == 0) return out;
  filter_rows(out, input, padding[0].expect_int(), {taps.data(), taps.size()}, scope);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CUDA, m) { m.impl("_conv1d_constant", conv1d_constant_cuda); }

}  // namespace memops
