// Tensors to the gathers' problems, for the CUDA kernels and for _plan.
#pragma once

#include <ATen/TensorUtils.h>

#include <optional>

#include "common/torch/precompiled.h"
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
inline GatherRowsProblem gather_rows_problem(const at::Tensor& table, int64_t count,
                                             std::uint64_t address, bool copied) {
  const int64_t element = table.element_size();
  return {.rows = table.size(0),
          .count = count,
          .row_bytes = table.size(1) * element,
          .row_stride = table.stride(0) * element,
          .table_address = address,
          .table_copied = copied};
}

inline GatherFieldsProblem gather_fields_problem(const at::Tensor& soa, int64_t count,
                                                 bool copied) {
  return {.fields = soa.size(0),
          .columns = soa.size(1),
          .count = count,
          .element_bytes = static_cast<int>(soa.element_size()),
          .field_stride = soa.stride(0),
          .column_stride = soa.stride(1),
          .table_copied = copied};
}

/// The types that the gradient's kernels sum; the others come to one of them first.
inline std::optional<GatherSumType> gather_sum_type(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return GatherSumType::kFloat16;
    case at::kBFloat16:
      return GatherSumType::kBFloat16;
    case at::kFloat:
      return GatherSumType::kFloat32;
    case at::kDouble:
      return GatherSumType::kFloat64;
    default:
      return std::nullopt;
  }
}

/// grad under the shape [rows, columns]; nullopt where only a copy has it, aligned to its dtype.
inline std::optional<at::Tensor> gradient_in_place(const at::Tensor& grad, int64_t rows,
                                                   int64_t columns, std::uint64_t address) {
  if (address % static_cast<std::uint64_t>(grad.element_size()) != 0) return std::nullopt;
  return as_matrix(grad, rows, columns);
}

/// `grad` is [positions, fields] with any strides, of a type that gather_sum_type knows.
inline GatherSumProblem gather_sum_problem(GatherOp op, const at::Tensor& grad, int64_t rows,
                                           int64_t padding_index, std::uint64_t address,
                                           bool copied) {
  return {.op = op,
          .type = gather_sum_type(grad.scalar_type()).value(),
          .fields = grad.size(1),
          .rows = rows,
          .count = grad.size(0),
          .padding_index = padding_index,
          .position_stride = grad.stride(0),
          .field_stride = grad.stride(1),
          .grad_address = address,
          .grad_copied = copied,
          .deterministic = at::globalContext().deterministicAlgorithms()};
}

}  // namespace memops
