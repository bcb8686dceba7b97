// What each gather op refuses, on every device; sizes may be symbolic.
#pragma once

#include "common/torch/checks.h"
#include "gather/op.h"

namespace memops {

inline void check_gather_tensors(const char* op, const char* name, const at::Tensor& tensor,
                                 const at::Tensor& index) {
  check_strided(op, name, tensor);
  check_strided(op, "index", index);
  check_index_dtype(op, "index", index);
  check_same_device(op, name, tensor, "index", index);
}

inline void check_padding_index(const char* op, const c10::SymInt& padding_index,
                                const c10::SymInt& rows) {
  TORCH_SYM_CHECK(padding_index.sym_ge(-1).sym_and(padding_index.sym_lt(rows)), op,
                  ": padding_index is ", padding_index, " with ", rows,
                  " rows; -1 (none) or a row is accepted");
}

/// A gradient's dtype, the size of the dimension that the index addresses, and the index's own
/// shape from grad's dimension `first` on.
inline void check_gather_gradient(const char* op, const at::Tensor& grad, int64_t first,
                                  const at::Tensor& index, const char* name,
                                  const c10::SymInt& size) {
  TORCH_CHECK_NOT_IMPLEMENTED(has_gradient(grad.scalar_type()), op, ": grad is ",
                              grad.scalar_type(), "; a floating-point or complex type is accepted");
  TORCH_SYM_CHECK(size.sym_ge(0), op, ": ", name, " is ", size, "; 0 or more is accepted");
  for (int64_t d = 0; d < index.dim(); ++d) {
    TORCH_SYM_CHECK(grad.sym_size(first + d).sym_eq(index.sym_size(d)), op, ": grad of shape ",
                    grad.sym_sizes(), " does not fit an index of shape ", index.sym_sizes());
  }
}

inline void check_gather_aos(const at::Tensor& aos, const at::Tensor& index,
                             const c10::SymInt& padding_index) {
  check_gather_tensors("gather_aos", "aos", aos, index);
  TORCH_CHECK(aos.dim() >= 1, "gather_aos: aos has 0 dimensions; [N, *F] is accepted");
  check_padding_index("gather_aos", padding_index, aos.sym_size(0));
}

inline void check_gather_aos_backward(const at::Tensor& grad, const at::Tensor& index,
                                      const c10::SymInt& rows, const c10::SymInt& padding_index) {
  constexpr const char* op = "gather_aos_backward";
  check_gather_tensors(op, "grad", grad, index);
  TORCH_CHECK(grad.dim() >= index.dim(), op, ": grad has ", grad.dim(), " dimensions and index ",
              index.dim(), "; [*M, *F] and [*M] are accepted");
  check_gather_gradient(op, grad, 0, index, "rows", rows);
  check_padding_index(op, padding_index, rows);
}

inline void check_gather_soa(const at::Tensor& soa, const at::Tensor& index) {
  check_gather_tensors("gather_soa", "soa", soa, index);
  TORCH_CHECK(soa.dim() == 2, "gather_soa: soa has ", soa.dim(), " dimensions; [F, N] is accepted");
}

inline void check_gather_soa_backward(const at::Tensor& grad, const at::Tensor& index,
                                      const c10::SymInt& columns) {
  constexpr const char* op = "gather_soa_backward";
  check_gather_tensors(op, "grad", grad, index);
  TORCH_CHECK(grad.dim() == index.dim() + 1, op, ": grad has ", grad.dim(),
              " dimensions and index ", index.dim(), "; [F, *M] and [*M] are accepted");
  check_gather_gradient(op, grad, 1, index, "columns", columns);
}

}  // namespace memops
