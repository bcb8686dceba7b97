// What the files of the gather ops' torch side share.
#pragma once

#include "common/torch/autograd.h"

namespace memops {

/// Whether values of this type have gradients: f4x2 packs two numbers that nothing adds.
inline bool has_gradient(at::ScalarType type) {
  return at::isComplexType(type) ||
         (at::isFloatingType(type) && type != at::ScalarType::Float4_e2m1fn_x2);
}

/// The type in which a real type's repeated rows are summed.
inline at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

/// `head` followed by `tail`.
inline c10::SymDimVector concatenate(c10::SymIntArrayRef head, c10::SymIntArrayRef tail) {
  c10::SymDimVector sizes(head.begin(), head.end());
  sizes.append(tail.begin(), tail.end());
  return sizes;
}

/// The result of each forward op, uninitialised.
inline at::Tensor empty_gather_aos(const at::Tensor& aos, const at::Tensor& index) {
  return at::empty_symint(concatenate(index.sym_sizes(), aos.sym_sizes().slice(1)),
                          aos.options().memory_format(std::nullopt));
}
inline at::Tensor empty_gather_soa(const at::Tensor& soa, const at::Tensor& index) {
  return at::empty_symint(concatenate(soa.sym_sizes().slice(0, 1), index.sym_sizes()),
                          soa.options().memory_format(std::nullopt));
}

/// The result of each gradient, all zero.
inline at::Tensor zeros_gather_aos(const at::Tensor& grad, const at::Tensor& index,
                                   const c10::SymInt& rows) {
  return at::zeros_symint(concatenate(rows, grad.sym_sizes().slice(index.dim())),
                          grad.options().memory_format(std::nullopt));
}
inline at::Tensor zeros_gather_soa(const at::Tensor& grad, const c10::SymInt& columns) {
  return at::zeros_symint({grad.sym_size(0), columns}, grad.options().memory_format(std::nullopt));
}

/// Where index is padding_index, in a shape that broadcasts to `dimensions` with trailing fields.
inline at::Tensor padding_mask(const at::Tensor& index, const c10::SymInt& padding_index,
                               int64_t dimensions) {
  at::Tensor mask = at::eq(index, at::Scalar(padding_index));
  while (mask.dim() < dimensions) mask = mask.unsqueeze(-1);
  return mask;
}

/// Raises IndexError naming the op, the value and the range; CPU tensors only.
inline void check_index_range(const char* op, const at::Tensor& index, int64_t limit) {
  if (index.numel() == 0) return;
  const auto [least, most] = at::aminmax(index);
  const auto low = least.item<int64_t>();
  const auto high = most.item<int64_t>();
  TORCH_CHECK_INDEX(low >= 0 && high < limit, op, ": index holds ", low < 0 ? low : high,
                    "; at least 0 and less than ", limit, " is accepted");
}

// The ops through the dispatcher.
inline const auto& gather_aos_op() {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, const at::Tensor&, c10::SymInt)>("memops::_gather_aos");
  return op;
}
inline const auto& gather_aos_backward_op() {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt)>(
          "memops::_gather_aos_backward");
  return op;
}
inline const auto& gather_soa_op() {
  static const auto op =
      find_op<at::Tensor(const at::Tensor&, const at::Tensor&)>("memops::gather_soa");
  return op;
}
inline const auto& gather_soa_backward_op() {
  static const auto op = find_op<at::Tensor(const at::Tensor&, const at::Tensor&, c10::SymInt)>(
      "memops::_gather_soa_backward");
  return op;
}

}  // namespace memops
