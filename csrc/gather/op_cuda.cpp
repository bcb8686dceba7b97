// The gathers and their gradients on CUDA.
#include "common/torch/device.h"
#include "copy/op.h"
#include "gather/checks.h"
#include "gather/gather.h"
#include "gather/op.h"
#include "gather/plan_op.h"

namespace memops {
namespace {

using at::Tensor;

bool is_aligned(const Tensor& tensor) {
  return address(tensor) % static_cast<std::uint64_t>(tensor.element_size()) == 0;
}

/// The index as the kernels read it: contiguous and aligned.
Tensor plain_index(const Tensor& index) {
  return index.is_contiguous() && is_aligned(index) ? index : call_copy(index);
}

GatherIndex view_of(const Tensor& index) {
  return {index.const_data_ptr(), static_cast<int>(index.element_size())};
}

Tensor gather_aos_cuda(const Tensor& aos, const Tensor& index, int64_t padding_index) {
  check_gather_aos(aos, index, padding_index);
  Tensor out = empty_gather_aos(aos, index);
  if (index.numel() == 0) return out;
  const DeviceScope scope(aos);
  const std::optional<Tensor> in_place = rows_in_place(aos);
  const Tensor table = in_place ? *in_place : rows_in_place(call_copy(aos)).value();
  const Tensor indices = plain_index(index);
  const GatherRowsProblem problem = gather_rows_problem(table, indices, address(table), !in_place);
  launch_gather_rows(plan_gather_rows(problem, scope.facts()),
                     {out.mutable_data_ptr(), table.const_data_ptr(), view_of(indices)},
                     scope.stream());
  return out;
}

Tensor gather_soa_cuda(const Tensor& soa, const Tensor& index) {
  check_gather_soa(soa, index);
  Tensor out = empty_gather_soa(soa, index);
  if (index.numel() == 0) return out;
  const DeviceScope scope(soa);
  const bool in_place = is_aligned(soa);
  const Tensor table = in_place ? soa : call_copy(soa);
  const Tensor indices = plain_index(index);
  const GatherFieldsProblem problem = gather_fields_problem(table, indices, !in_place);
  launch_gather_fields(plan_gather_fields(problem, scope.facts()),
                       {out.mutable_data_ptr(), table.const_data_ptr(), view_of(indices)},
                       scope.stream());
  return out;
}

/// Adds the rows of grad [positions, fields] to `out`, which is zero.
void sum_into(const Tensor& out, GatherOp op, const Tensor& grad, bool copied, const Tensor& index,
              int64_t rows, int64_t padding_index) {
  if (index.numel() == 0) return;
  const DeviceScope scope(grad);
  const GatherSumPlan plan =
      gather_sum_plan(op, grad, index, rows, padding_index, address(grad), copied, scope.facts());
  Tensor indices = plain_index(index).view({-1});
  Tensor order;
  if (plan.kernel == GatherKernel::kRuns) {
    std::tie(indices, order) = at::sort(indices, /*stable=*/true, /*dim=*/0, /*descending=*/false);
  }
  launch_gather_sum(plan,
                    {out.mutable_data_ptr(), grad.const_data_ptr(), view_of(indices),
                     order.defined() ? order.const_data_ptr<int64_t>() : nullptr},
                    scope.stream());
}

/// grad under the shape [rows, columns], and whether it is a copy.
std::pair<Tensor, bool> matrix_of(const Tensor& grad, int64_t rows, int64_t columns) {
  if (std::optional<Tensor> matrix = gradient_in_place(grad, rows, columns, address(grad))) {
    return {*matrix, false};
  }
  return {call_copy(grad).view({rows, columns}), true};
}

Tensor gather_aos_backward_cuda(const Tensor& grad, const Tensor& index, int64_t rows,
                                int64_t padding_index) {
  check_gather_aos_backward(grad, index, rows, padding_index);
  const at::ScalarType type = grad.scalar_type();
  if (grad.is_complex()) {
    return at::view_as_complex(
        gather_aos_backward_cuda(at::view_as_real(grad), index, rows, padding_index));
  }
  if (!float_type(grad)) {
    return gather_aos_backward_cuda(grad.to(sum_type(type)), index, rows, padding_index).to(type);
  }
  Tensor out = zeros_gather_aos(grad, index, rows);
  const int64_t fields = c10::multiply_integers(grad.sizes().slice(index.dim()));
  const auto [matrix, copied] = matrix_of(grad, index.numel(), fields);
  sum_into(out, GatherOp::kAosBackward, matrix, copied, index, rows, padding_index);
  return out;
}

Tensor gather_soa_backward_cuda(const Tensor& grad, const Tensor& index, int64_t columns) {
  check_gather_soa_backward(grad, index, columns);
  const at::ScalarType type = grad.scalar_type();
  const int64_t fields = grad.size(0);
  if (grad.is_complex()) {
    at::DimVector sizes(grad.sizes());
    sizes[0] = 2 * fields;
    const Tensor parts = call_copy(at::view_as_real(grad).movedim(-1, 1)).view(sizes);
    const Tensor sums =
        gather_soa_backward_cuda(parts, index, columns).view({fields, 2, columns}).movedim(1, -1);
    return at::view_as_complex(call_copy(sums));
  }
  if (!float_type(grad)) {
    return gather_soa_backward_cuda(grad.to(sum_type(type)), index, columns).to(type);
  }
  Tensor out = zeros_gather_soa(grad, columns);
  const auto [matrix, copied] = matrix_of(grad, fields, index.numel());
  sum_into(out, GatherOp::kSoaBackward, matrix.t(), copied, index, columns, -1);
  return out;
}

}  // namespace

TORCH_LIBRARY_IMPL(memops, CUDA, m) {
  m.impl("_gather_aos", gather_aos_cuda);
  m.impl("_gather_aos_backward", gather_aos_backward_cuda);
  m.impl("gather_soa", gather_soa_cuda);
  m.impl("_gather_soa_backward", gather_soa_backward_cuda);
}

}  // namespace memops
