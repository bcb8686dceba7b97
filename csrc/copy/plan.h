// Which kernel a copy takes, and why.
#pragma once

#include <cstdint>

#include "common/device_facts.h"
#include "common/export.h"
#include "common/plan_report.h"
#include "copy/layout.h"

namespace memops {

struct CopyProblem {
  CopyLayout layout;          // coalesced, not empty
  std::uint64_t dst_address;  // only the alignment is used
  std::uint64_t src_address;
};

enum class CopyKernel {
  kFlat,       // one run of bytes, any alignment
  kTranspose,  // the contiguous dimensions differ: 32 x 32 tiles through shared memory
  kStrided,    // everything else
};

struct CopyPlan {
  CopyKernel kernel;
  CopyLayout layout;  // what the kernel is given: widened for kStrided
  int src_dimension;  // kTranspose: the dimension contiguous in the source
  bool wide_offsets;  // kStrided: an offset or index passes 2^31
  const char* reason;

  MEMOPS_API PlanReport report() const;
};

MEMOPS_API CopyPlan plan_copy(const CopyProblem& problem, const DeviceFacts& device);

}  // namespace memops
