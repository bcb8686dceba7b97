// The CUDA side's entry to a device: facts, stream, guard.
#pragma once

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "common/device_facts.h"
#include "common/torch/precompiled.h"

namespace memops {

/// The facts of a CUDA device, read once and kept; thread-safe. Raises NotImplementedError for
/// devices below compute capability 8.0.
const DeviceFacts& device_facts(c10::DeviceIndex device);

/// Sets the device for a kernel's duration and gives PyTorch's current stream on it.
class DeviceScope {
 public:
  explicit DeviceScope(const at::Tensor& tensor)
      : guard_(tensor.device()),
        stream_(c10::cuda::getCurrentCUDAStream(tensor.device().index())) {}

  cudaStream_t stream() const { return stream_.stream(); }
  const DeviceFacts& facts() const { return device_facts(stream_.device_index()); }

 private:
  c10::cuda::CUDAGuard guard_;
  c10::cuda::CUDAStream stream_;
};

inline std::uint64_t address(const at::Tensor& tensor) {
  return reinterpret_cast<std::uint64_t>(tensor.const_data_ptr());
}

}  // namespace memops
