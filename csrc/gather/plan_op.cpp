// The gathers in torch.ops.memops._plan.
#include "gather/plan_op.h"

#include "common/torch/plan_op.h"
#include "gather/checks.h"
#include "gather/op.h"

namespace memops {
namespace {

using at::Tensor;

/// A contiguous tensor of this shape without memory: what a copy would be planned as.
Tensor copy_of(const Tensor& tensor) {
  return at::empty(tensor.sizes(), tensor.options().device(at::kMeta).memory_format(std::nullopt));
}

PlanReport plan_of_gather_aos(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& aos = arguments.tensor("gather_aos", 0);
  const Tensor& index = arguments.tensor("gather_aos", 1);
  check_gather_aos(aos, index, arguments.integers.empty() ? -1 : arguments.integers[0]);
  const std::optional<Tensor> in_place = rows_in_place(aos);
  const Tensor table = in_place ? *in_place : rows_in_place(copy_of(aos)).value();
  return plan_gather_rows(gather_rows_problem(table, index, planned_address(table), !in_place),
                          device)
      .report();
}

PlanReport plan_of_gather_soa(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& soa = arguments.tensor("gather_soa", 0);
  const Tensor& index = arguments.tensor("gather_soa", 1);
  check_gather_soa(soa, index);
  const bool in_place = planned_address(soa) % soa.element_size() == 0;
  const Tensor table = in_place ? soa : copy_of(soa);
  return plan_gather_fields(gather_fields_problem(table, index, !in_place), device).report();
}

PlanReport plan_sum(GatherOp op, const Tensor& matrix, bool copied, const Tensor& index,
                    int64_t rows, int64_t padding_index, const DeviceFacts& device) {
  return gather_sum_plan(op, matrix, index, rows, padding_index, planned_address(matrix), copied,
                         device)
      .report();
}

/// What a type without a kernel of its own is converted to.
Tensor converted(const Tensor& grad) {
  return at::empty(grad.sizes(),
                   grad.options().device(at::kMeta).dtype(sum_type(grad.scalar_type())));
}

PlanReport plan_aos_backward(const Tensor& grad, const Tensor& index, int64_t rows,
                             int64_t padding_index, const DeviceFacts& device) {
  if (grad.is_complex()) {
    return plan_aos_backward(at::view_as_real(grad.resolve_conj()), index, rows, padding_index,
                             device);
  }
  if (!float_type(grad)) {
    return plan_aos_backward(converted(grad), index, rows, padding_index, device);
  }
  const int64_t fields = c10::multiply_integers(grad.sizes().slice(index.dim()));
  const auto in_place = gradient_in_place(grad, index.numel(), fields, planned_address(grad));
  const Tensor matrix = in_place ? *in_place : copy_of(grad).view({index.numel(), fields});
  return plan_sum(GatherOp::kAosBackward, matrix, !in_place, index, rows, padding_index, device);
}

PlanReport plan_soa_backward(const Tensor& grad, const Tensor& index, int64_t columns,
                             const DeviceFacts& device) {
  if (grad.is_complex()) {
    at::DimVector sizes(grad.sizes());
    sizes[0] *= 2;
    const auto real =
        grad.options().device(at::kMeta).dtype(c10::toRealValueType(grad.scalar_type()));
    return plan_soa_backward(at::empty(sizes, real), index, columns, device);
  }
  if (!float_type(grad)) {
    return plan_soa_backward(converted(grad), index, columns, device);
  }
  const int64_t fields = grad.size(0);
  const auto in_place = gradient_in_place(grad, fields, index.numel(), planned_address(grad));
  const Tensor matrix = in_place ? *in_place : copy_of(grad).view({fields, index.numel()});
  return plan_sum(GatherOp::kSoaBackward, matrix.t(), !in_place, index, columns, -1, device);
}

PlanReport plan_of_gather_aos_backward(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& grad = arguments.tensor("_gather_aos_backward", 0);
  const Tensor& index = arguments.tensor("_gather_aos_backward", 1);
  const int64_t rows = arguments.integers.at(0);
  const int64_t padding_index = arguments.integers.at(1);
  check_gather_aos_backward(grad, index, rows, padding_index);
  return plan_aos_backward(grad, index, rows, padding_index, device);
}

PlanReport plan_of_gather_soa_backward(const PlanArguments& arguments, const DeviceFacts& device) {
  const Tensor& grad = arguments.tensor("_gather_soa_backward", 0);
  const Tensor& index = arguments.tensor("_gather_soa_backward", 1);
  const int64_t columns = arguments.integers.at(0);
  check_gather_soa_backward(grad, index, columns);
  return plan_soa_backward(grad, index, columns, device);
}

const PlanRegistration kPlans[] = {{"gather_aos", plan_of_gather_aos},
                                   {"_gather_aos", plan_of_gather_aos},
                                   {"gather_soa", plan_of_gather_soa},
                                   {"_gather_aos_backward", plan_of_gather_aos_backward},
                                   {"_gather_soa_backward", plan_of_gather_soa_backward}};

}  // namespace
}  // namespace memops
