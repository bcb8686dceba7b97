// How every plan prints itself: the kernel, the reason, and the facts in order.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/device_facts.h"
#include "common/export.h"

namespace memops {

struct PlanReport {
  using Value = std::variant<std::int64_t, std::string, std::vector<std::int64_t>>;

  std::string op;
  std::string kernel;
  std::string reason;
  std::vector<std::pair<std::string, Value>> facts;

  /// One JSON object: {"op", "kernel", "reason", "device", "facts": {...}}.
  MEMOPS_API std::string json(const DeviceFacts& device) const;
};

}  // namespace memops
