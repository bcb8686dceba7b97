// The one way in which an op's Autograd kernel chooses: ATen's composite under a functorch
// transform or forward-mode AD (both refuse a C++ autograd::Function), plain redispatch when
// nothing requires a gradient (saves about 1 us), else the op's autograd::Function.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include <utility>

#include "common/torch/precompiled.h"

namespace memops {

/// True inside torch.func transforms. The thread's functorch accessor would be the wrong test: it
/// stays set after the first transform.
inline bool inside_functorch() {
  return c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::FuncTorchDynamicLayerBackMode);
}

template <class T>
bool has_forward_gradient(const T& argument) {
  if constexpr (std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::optional<at::Tensor>>) {
    return torch::autograd::isFwGradDefined(argument);
  } else {
    return false;
  }
}

/// Whether a gradient is wanted of any of these; arguments that are no tensors count as no.
template <class T>
bool wants_gradient(const T& argument) {
  if constexpr (std::is_same_v<T, at::Tensor>) {
    return argument.defined() && argument.requires_grad();
  } else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) {
    return argument.has_value() && argument->defined() && argument->requires_grad();
  } else {
    return false;
  }
}

/// The body of an Autograd kernel. `Function::apply`, `composite` and the op take `arguments`.
template <class Function, class Op, class Composite, class... Arguments>
auto differentiable(c10::DispatchKeySet keys, const Op& op, Composite&& composite,
                    const Arguments&... arguments) {
  if (inside_functorch() || (has_forward_gradient(arguments) || ...)) [[unlikely]] {
    return composite(arguments...);
  }
  if (at::GradMode::is_enabled() && (wants_gradient(arguments) || ...)) {
    return Function::apply(arguments...);
  }
  const at::AutoDispatchBelowADInplaceOrView guard;
  return op.redispatch(keys & c10::after_autograd_keyset, arguments...);
}

/// A typed handle of memops::`name`, looked up once by the caller's static.
template <class Signature>
c10::TypedOperatorHandle<Signature> find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace memops
