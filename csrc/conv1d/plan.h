// Which kernels conv1d and its gradients take, and why.
#pragma once

#include <array>
#include <cstdint>

#include "common/device_facts.h"
#include "common/export.h"
#include "common/float_type.h"
#include "common/plan_report.h"

namespace memops {

/// input [batch, in_channels, length], weight [out_channels, in_channels / groups, width],
/// result [batch, out_channels, out_length]. All checked; batch, in_channels and length may be 0.
struct Conv1dProblem {
  FloatType type;
  std::int64_t batch;
  std::int64_t in_channels;
  std::int64_t out_channels;
  std::int64_t length;
  std::int64_t width;
  std::int64_t out_length;
  std::int64_t stride;
  std::int64_t left;  // zeros before the input
  std::int64_t dilation;
  std::int64_t groups;
  bool bias;  // one is added; the gradients do not ask

  std::int64_t inputs() const { return batch * in_channels * length; }
  std::int64_t outputs() const { return batch * out_channels * out_length; }
  std::int64_t weights() const { return out_channels * (in_channels / groups) * width; }
};

enum class Conv1dKernel {
  kDirect,  // one thread a result, any shape and strides
};

struct Conv1dPlan {
  Conv1dKernel kernel;
  Conv1dProblem problem;
  bool wide_index;  // a result's index passes 2^31
  std::int64_t blocks;
  const char* reason;

  MEMOPS_API PlanReport report() const;
};

MEMOPS_API Conv1dPlan plan_conv1d(const Conv1dProblem& problem, const DeviceFacts& device);

/// A sum over batch and positions that is cut into `splits` partial sums, added in their order.
struct Conv1dReduction {
  std::int64_t sums;      // how many; 0: not wanted, nothing is launched
  std::int64_t terms;     // of each
  std::int64_t splits;    // partial sums of each; 1: no scratch
  std::int64_t segment;   // terms of one partial sum
  std::int64_t partials;  // values in scratch
};

struct Conv1dBackwardPlan {
  Conv1dKernel kernel;
  Conv1dProblem problem;
  std::array<bool, 3> wanted;  // gradients of input, weight, bias
  bool wide_index;             // of the input's gradient
  Conv1dReduction weight;      // the weight's gradient
  Conv1dReduction bias;        // the bias's gradient
  const char* reason;

  MEMOPS_API PlanReport report() const;
};

MEMOPS_API Conv1dBackwardPlan plan_conv1d_backward(const Conv1dProblem& problem,
                                                   std::array<bool, 3> wanted,
                                                   const DeviceFacts& device);

}  // namespace memops
