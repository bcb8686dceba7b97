// What every op's Autocast kernel does.
#pragma once

#include <ATen/autocast_mode.h>

#include "common/torch/precompiled.h"

namespace memops {

/// Calls `op` past the autocast key with its floating tensors in `type`; float64 tensors, integers
/// and arguments that are no tensors pass through as they are.
template <at::DeviceType kDevice, class Op, class... Arguments>
auto autocast_to(at::ScalarType type, const Op& op, const Arguments&... arguments) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      at::autocast::get_autocast_dispatch_key_from_device_type(kDevice));
  const auto cast = [type]<class T>(const T& argument) {
    if constexpr (std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::optional<at::Tensor>>) {
      return at::autocast::cached_cast(type, argument, kDevice);
    } else {
      return argument;
    }
  };
  return op.call(cast(arguments)...);
}

/// The same in the type that autocast is set to.
template <at::DeviceType kDevice, class Op, class... Arguments>
auto autocast(const Op& op, const Arguments&... arguments) {
  return autocast_to<kDevice>(at::autocast::get_autocast_dtype(kDevice), op, arguments...);
}

}  // namespace memops
