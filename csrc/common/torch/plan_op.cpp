#include "common/torch/plan_op.h"

#include <map>

namespace memops {
namespace {

std::map<std::string, PlanFunction>& plan_functions() {
  static std::map<std::string, PlanFunction> functions;
  return functions;
}

DeviceFactsProvider& device_facts_provider() {
  static DeviceFactsProvider provider = nullptr;
  return provider;
}

DeviceFacts facts_for(const PlanArguments& arguments, at::IntArrayRef device) {
  if (!device.empty()) return given_device(device);
  for (const auto& tensor : arguments.tensors) {
    if (tensor.has_value() && tensor->is_cuda() && device_facts_provider() != nullptr) {
      return device_facts_provider()(tensor->device().index());
    }
  }
  return reference_device();
}

std::string plan(c10::string_view op, const c10::List<std::optional<at::Tensor>>& tensors,
                 at::IntArrayRef integers, at::ArrayRef<double> floats, at::IntArrayRef device) {
  const std::string name(op);
  const auto found = plan_functions().find(name);
  if (found == plan_functions().end()) {
    std::string known;
    for (const auto& [each, function] : plan_functions()) known += " " + each;
    TORCH_CHECK(false, "_plan: no op named ", name, "; there are:", known);
  }
  const PlanArguments arguments{{tensors.begin(), tensors.end()}, integers.vec(), floats.vec()};
  const DeviceFacts facts = facts_for(arguments, device);
  PlanReport report = found->second(arguments, facts);
  report.op = name;
  return report.json(facts);
}

}  // namespace

DeviceFacts given_device(at::IntArrayRef facts) {
  TORCH_CHECK(facts.size() == 4, "_plan: device has ", facts.size(),
              " entries; compute capability, multiprocessors, L2 bytes and shared bytes a block "
              "are accepted");
  for (const int64_t fact : facts) {
    TORCH_CHECK(fact >= 1, "_plan: device is ", facts, "; numbers from 1 are accepted");
  }
  return {.name = "given",
          .compute_capability = static_cast<int>(facts[0]),
          .multiprocessors = static_cast<int>(facts[1]),
          .l2_bytes = facts[2],
          .shared_bytes_per_block = facts[3]};
}

const at::Tensor& PlanArguments::tensor(const char* op, std::size_t position) const {
  TORCH_CHECK(position < tensors.size() && tensors[position].has_value(), op,
              ": the plan needs a tensor as argument ", position);
  return *tensors[position];
}

PlanRegistration::PlanRegistration(const char* op, PlanFunction function) {
  plan_functions().emplace(op, function);
}

void set_device_facts_provider(DeviceFactsProvider provider) { device_facts_provider() = provider; }

std::uint64_t planned_address(const at::Tensor& tensor) {
  if (tensor.is_cuda()) return reinterpret_cast<std::uint64_t>(tensor.const_data_ptr());
  return static_cast<std::uint64_t>(tensor.storage_offset() * tensor.element_size());
}

TORCH_LIBRARY_IMPL(memops, CompositeExplicitAutograd, m) { m.impl("_plan", plan); }

}  // namespace memops
