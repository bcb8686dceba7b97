// Every schema of torch.ops.memops, on one page. The kernels are registered beside the ops.
//
// Public fronts are CompositeImplicitAutograd over small cores (named with a leading underscore),
// so that Meta, autograd, vmap and sharding rules exist once a core. In a core's schema the
// integers come before float lists: DTensor of PyTorch 2.11 keys its cache on the arguments from
// the first integer on.
#include <ATen/core/enum_tag.h>

#include "common/torch/precompiled.h"

TORCH_LIBRARY(memops, m) {
  // Inductor may choose the strides of the inputs: the results never depend on them.
  const std::vector<at::Tag> any_strides = {at::Tag::pt2_compliant_tag, at::Tag::flexible_layout};
  // The results follow the inputs' strides.
  const std::vector<at::Tag> fixed_strides = {at::Tag::pt2_compliant_tag,
                                              at::Tag::needs_exact_strides};

  // copy and layouts
  m.def("copy(Tensor src) -> Tensor", any_strides);
  m.def("copy_(Tensor(a!) dst, Tensor src) -> Tensor(a!)", any_strides);
  m.def("_copy_into(Tensor(a!) dst, Tensor src) -> ()", any_strides);
  // CUDA alone: the plan of a made-up device (as in _plan), so that tests reach every kernel.
  m.def("_copy_into_planned(Tensor(a!) dst, Tensor src, int[] device) -> ()", any_strides);
  m.def("aos_to_soa(Tensor aos) -> Tensor", any_strides);
  m.def("soa_to_aos(Tensor soa) -> Tensor", any_strides);

  // gather
  m.def("gather_aos(Tensor aos, Tensor index) -> Tensor", any_strides);
  m.def("_gather_aos(Tensor aos, Tensor index, SymInt padding_index) -> Tensor", any_strides);
  m.def(
      "_gather_aos_backward(Tensor grad, Tensor index, SymInt rows, SymInt padding_index) -> "
      "Tensor",
      any_strides);
  m.def("gather_soa(Tensor soa, Tensor index) -> Tensor", any_strides);
  m.def("_gather_soa_backward(Tensor grad, Tensor index, SymInt columns) -> Tensor", any_strides);

  // matmul
  m.def("matmul(Tensor a, Tensor b) -> Tensor", any_strides);
  m.def("linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", any_strides);
  m.def("_mm(Tensor a, Tensor b) -> Tensor", any_strides);
  m.def("_bmm(Tensor a, Tensor b) -> Tensor", any_strides);
  m.def("_addmm(Tensor bias, Tensor a, Tensor b) -> Tensor", any_strides);

  // conv1d
  m.def(
      "conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt stride=1, SymInt[2] "
      "padding=0, "
      "SymInt dilation=1, SymInt groups=1) -> Tensor",
      any_strides);
  m.def(
      "_conv1d(Tensor input, Tensor weight, Tensor? bias, SymInt stride, SymInt[2] padding, "
      "SymInt dilation, SymInt groups) -> Tensor",
      any_strides);
  m.def(
      "_conv1d_backward(Tensor grad, Tensor input, Tensor weight, SymInt stride, SymInt[2] "
      "padding, "
      "SymInt dilation, SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
      any_strides);
  m.def("conv1d_constant(Tensor input, float[] taps, SymInt[2] padding=0) -> Tensor", any_strides);
  m.def("_conv1d_constant(Tensor input, SymInt[2] padding, float[] taps) -> Tensor", any_strides);
  m.def(
      "causal_conv1d(Tensor x, Tensor weight, Tensor? bias=None, Tensor? initial_state=None, "
      "Tensor? seq_idx=None, bool silu=False, bool final_state=False) -> (Tensor, Tensor)",
      fixed_strides);
  m.def(
      "_causal_conv1d(Tensor x, Tensor weight, Tensor? bias, Tensor? initial_state, Tensor? "
      "seq_idx, "
      "int silu, int final_state) -> (Tensor, Tensor)",
      fixed_strides);
  m.def(
      "_causal_conv1d_backward(Tensor grad, Tensor? grad_final_state, Tensor x, Tensor weight, "
      "Tensor? bias, Tensor? initial_state, Tensor? seq_idx, int silu, bool[4] output_mask) -> "
      "(Tensor, Tensor, Tensor, Tensor)",
      fixed_strides);
  m.def(
      "causal_conv1d_update(Tensor x, Tensor(a!) conv_state, Tensor weight, Tensor? bias=None, "
      "bool silu=False, Tensor? cache_seqlens=None, Tensor? conv_state_indices=None) -> Tensor",
      fixed_strides);

  // The plan of an op as JSON, from the op's arguments sorted by kind. `device` is empty (the
  // tensors' own GPU, else the reference device) or holds compute capability (major * 10 + minor),
  // multiprocessors, L2 bytes and shared-memory bytes a block.
  m.def("_plan(str op, Tensor?[] tensors, int[] integers, float[] floats, int[] device) -> str",
        {at::Tag::pt2_compliant_tag});
}
