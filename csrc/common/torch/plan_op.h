// torch.ops.memops._plan: each op registers how its arguments become a plan; it is the function
// that the op's launcher calls, so that what is printed is what runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/device_facts.h"
#include "common/export.h"
#include "common/plan_report.h"
#include "common/torch/precompiled.h"

namespace memops {

/// An op's arguments sorted by kind, each kind in the order of the schema.
struct PlanArguments {
  std::vector<std::optional<at::Tensor>> tensors;
  std::vector<int64_t> integers;
  std::vector<double> floats;

  /// The tensor at `position`; raises RuntimeError naming `op` where it is missing.
  const at::Tensor& tensor(const char* op, std::size_t position) const;
};

using PlanFunction = PlanReport (*)(const PlanArguments& arguments, const DeviceFacts& device);

/// At namespace scope: `const PlanRegistration registration("copy", plan_of_copy);`
class PlanRegistration {
 public:
  PlanRegistration(const char* op, PlanFunction function);
};

/// A made-up device: compute capability, multiprocessors, L2 bytes, shared-memory bytes a block.
MEMOPS_API DeviceFacts given_device(at::IntArrayRef facts);

/// The CUDA library says here how to read a device's facts.
using DeviceFactsProvider = const DeviceFacts& (*)(c10::DeviceIndex);
MEMOPS_API void set_device_facts_provider(DeviceFactsProvider provider);

/// Where the tensor's data begins, as far as alignment goes: without memory, its storage offset.
MEMOPS_API std::uint64_t planned_address(const at::Tensor& tensor);

}  // namespace memops
