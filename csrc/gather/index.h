// Indices on the device: their type and their range.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/cuda/device_assert.h"
#include "gather/gather.h"

namespace memops {

/// Calls `launch` with the index's data under its own type.
template <class Launch>
void by_index_type(const GatherIndex& index, Launch&& launch) {
  switch (index.bytes) {
    case 4:
      return launch(static_cast<const std::int32_t*>(index.data));
    case 8:
      return launch(static_cast<const std::int64_t*>(index.data));
  }
  throw std::runtime_error("memops: no gather kernel for indices of " +
                           std::to_string(index.bytes) + " bytes");
}

__device__ inline void fail_out_of_range(GatherOp op) {
  switch (op) {
    case GatherOp::kAos:
      return fail_assertion("gather_aos: index out of range");
    case GatherOp::kSoa:
      return fail_assertion("gather_soa: index out of range");
    case GatherOp::kAosBackward:
      return fail_assertion("gather_aos_backward: index out of range");
    case GatherOp::kSoaBackward:
      return fail_assertion("gather_soa_backward: index out of range");
  }
}

/// Whether `index` names one of `limit` rows; a device-side assertion where it does not.
__device__ inline bool check_range(std::int64_t index, std::int64_t limit, GatherOp op) {
  const bool inside = index >= 0 && index < limit;
  if (!inside) fail_out_of_range(op);
  return inside;
}

}  // namespace memops
