// What a plan may know about a GPU. Pure C++: tests plan for devices that are not there.
#pragma once

#include <cstdint>
#include <string>

#include "common/export.h"

namespace memops {

struct DeviceFacts {
  std::string name;
  int compute_capability;  // major * 10 + minor
  int multiprocessors;
  std::int64_t l2_bytes;
  std::int64_t shared_bytes_per_block;  // with the opt-in
};

/// The facts of an NVIDIA H200: what plans are made for where no GPU is present.
MEMOPS_API const DeviceFacts& reference_device();

}  // namespace memops
