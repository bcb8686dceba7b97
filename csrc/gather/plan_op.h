// Tensors to the gathers' problems, for the CUDA kernels and for _plan.
#pragma once

#include <ATen/TensorUtils.h>

#include <limits>
#include <optional>

#include "common/torch/float_type.h"
#include "gather/plan.h"

namespace memops {

/// `tensor` under the shape [rows, columns] where its strides allow that without a copy.
inline std::optional<at::Tensor> as_matrix(const at::Tensor& tensor, int64_t rows,
                                           int64_t columns) {
  const int64_t sizes[] = {rows, columns};
  if (!at::detail::computeStride(tensor.sizes(), tensor.strides(), at::IntArrayRef(sizes))) {
    return std::nullopt;
  }
  return tensor.view(sizes);
}

/// aos [N, *F] as [N, F] with contiguous rows; nullopt where only a copy has them.
inline std::optional<at::Tensor> rows_in_place(const at::Tensor& aos) {
  const int64_t fields = c10::multiply_integers(aos.sizes().slice(1));
  std::optional<at::Tensor> table = as_matrix(aos, aos.size(0), fields);
  if (table && fields > 1 && table->stride(1) != 1) return std::nullopt;
  return table;
}

/// `table` is what rows_in_place gives.
inline GatherRowsProblem gather_rows_problem(const at::Tensor& table, const at::Tensor& index,
                                             std::uint64_t address, bool copied) {
  const int64_t element = table.element_size();
  return {.rows = table.size(0),
          .count = index.numel(),
          .index_bytes = static_cast<int>(index.element_size()),
          .row_bytes = table.size(1) * element,
          .row_stride = table.stride(0) * element,
          .table_address = address,
          .table_copied = copied};
}

inline GatherFieldsProblem gather_fields_problem(const at::Tensor& soa, const at::Tensor& index,
                                                 bool copied) {
  return {.fields = soa.size(0),
          .columns = soa.size(1),
          .count = index.numel(),
          .index_bytes = static_cast<int>(index.element_size()),
          .element_bytes = static_cast<int>(soa.element_size()),
          .field_stride = soa.stride(0),
          .column_stride = soa.stride(1),
          .table_copied = copied};
}

/// grad under the shape [rows, columns]; nullopt where only a copy has it, aligned to its dtype.
inline std::optional<at::Tensor> gradient_in_place(const at::Tensor& grad, int64_t rows,
                                                   int64_t columns, std::uint64_t address) {
  if (address % static_cast<std::uint64_t>(grad.element_size()) != 0) return std::nullopt;
  return as_matrix(grad, rows, columns);
}

/// The plan of a gradient; `grad` is [positions, fields] with any strides, of a FloatType. Raises
/// NotImplementedError for an index that is too long for PyTorch's sort.
inline GatherSumPlan gather_sum_plan(GatherOp op, const at::Tensor& grad, const at::Tensor& index,
                                     int64_t rows, int64_t padding_index, std::uint64_t address,
                                     bool copied, const DeviceFacts& device) {
  const GatherSumPlan plan =
      plan_gather_sum({.op = op,
                       .type = float_type(grad).value(),
                       .fields = grad.size(1),
                       .rows = rows,
                       .count = grad.size(0),
                       .index_bytes = static_cast<int>(index.element_size()),
                       .padding_index = padding_index,
                       .position_stride = grad.stride(0),
                       .field_stride = grad.stride(1),
                       .grad_address = address,
                       .grad_copied = copied,
                       .deterministic = at::globalContext().deterministicAlgorithms()},
                      device);
  TORCH_CHECK_NOT_IMPLEMENTED(
      plan.kernel != GatherKernel::kRuns ||
          plan.problem.count <= std::numeric_limits<std::int32_t>::max(),
      op == GatherOp::kAosBackward ? "gather_aos_backward" : "gather_soa_backward", ": index has ",
      plan.problem.count, " entries to sort; up to 2^31 - 1 are accepted");
  return plan;
}

}  // namespace memops
