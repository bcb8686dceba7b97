#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>

#include <deque>
#include <mutex>

#include "common/torch/device.h"
#include "common/torch/plan_op.h"

namespace memops {
namespace {

constexpr int kOldestComputeCapability = 80;

DeviceFacts read_facts(c10::DeviceIndex device) {
  cudaDeviceProp properties;
  C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, device));
  return {.name = properties.name,
          .compute_capability = properties.major * 10 + properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .l2_bytes = properties.l2CacheSize,
          .shared_bytes_per_block = static_cast<std::int64_t>(properties.sharedMemPerBlockOptin)};
}

struct Slot {
  std::once_flag once;
  DeviceFacts facts;
};

const bool kProvided = (set_device_facts_provider(device_facts), true);

}  // namespace

const DeviceFacts& device_facts(c10::DeviceIndex device) {
  static std::deque<Slot> slots(static_cast<std::size_t>(c10::cuda::device_count()));
  Slot& slot = slots.at(static_cast<std::size_t>(device));
  std::call_once(slot.once, [&] { slot.facts = read_facts(device); });
  TORCH_CHECK_NOT_IMPLEMENTED(slot.facts.compute_capability >= kOldestComputeCapability,
                              "memops: ", slot.facts.name, " has compute capability ",
                              slot.facts.compute_capability / 10, ".",
                              slot.facts.compute_capability % 10, "; 8.0 or newer is supported");
  return slot.facts;
}

}  // namespace memops
