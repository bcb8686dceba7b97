#include "common/device_facts.h"

namespace memops {

const DeviceFacts& reference_device() {
  static const DeviceFacts h200{.name = "NVIDIA H200",
                                .compute_capability = 90,
                                .multiprocessors = 132,
                                .l2_bytes = std::int64_t{60} << 20,
                                .shared_bytes_per_block = std::int64_t{227} << 10};
  return h200;
}

}  // namespace memops
