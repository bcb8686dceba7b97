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

/// Calls `filter` with each step of the `outer` leading dimensions.
template <class Filter>
void for_each_step(const Tensor& out, const Tensor& input, std::int64_t outer,
                   const Filter& filter) {
  if (outer == 0) return filter(out, input);
  for (int64_t i = 0; i < input.size(0); ++i) {
    for_each_step(out.select(0, i), input.select(0, i), outer - 1, filter);
  }
}

Tensor conv1d_constant_cuda(const Tensor& input, SymIntArrayRef padding,
                            at::ArrayRef<double> taps) {
  const int64_t length = check_conv1d_constant(input, padding, taps).expect_int();
  const DeviceScope scope(input);
  at::DimVector sizes(input.sizes());
  sizes.back() = length;
  const Tensor out = at::empty(sizes, input.options());
  if (out.numel() == 0) return out;
  const Conv1dConstantPlan plan = plan_conv1d_constant(
      conv1d_constant_problem(input, length, static_cast<int64_t>(taps.size())), scope.facts());
  const Tensor scratch = at::empty({plan.scratch_bytes}, input.options().dtype(at::kByte));
  const int64_t outer = outer_dimensions(input);
  const std::vector<RowDimension> rows = rows_of(input, outer);
  for_each_step(out, input, outer, [&](const Tensor& to, const Tensor& from) {
    launch_conv1d_constant(plan,
                           {.output = to.mutable_data_ptr(),
                            .input = from.const_data_ptr(),
                            .step = input.stride(-1),
                            .left = padding[0].expect_int(),
                            .rows = rows,
                            .taps = {taps.data(), taps.size()},
                            .scratch = scratch.mutable_data_ptr()},
                           scope.stream());
  });
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CUDA, m) { m.impl("_conv1d_constant", conv1d_constant_cuda); }

}  // namespace memops
