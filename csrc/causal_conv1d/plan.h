// Which kernel a causal convolution takes, why, and how its backward is cut into panels.
#pragma once

#include <array>
#include <cstdint>

#include "common/device_facts.h"
#include "common/export.h"
#include "common/float_type.h"
#include "common/plan_report.h"

namespace memops {

struct CausalProblem {
  std::int64_t batch;
  std::int64_t channels;
  std::int64_t length;
  std::int64_t width;  // taps
  FloatType dtype;
  bool channels_last;  // the layout of x and of the results
  bool bias;
  bool initial_state;
  bool seq_idx;
  bool silu;
  bool final_state;
};

enum class CausalKernel {
  kAlongLength,    // channels-first: consecutive threads take consecutive positions
  kAlongChannels,  // channels-last: consecutive threads take consecutive channels
};

struct CausalPlan {
  CausalKernel kernel;
  CausalProblem problem;
  const char* reason;

  MEMOPS_API PlanReport report() const;
};

MEMOPS_API CausalPlan plan_causal(const CausalProblem& problem, const DeviceFacts& device);

struct CausalBackwardProblem {
  CausalProblem forward;
  std::array<bool, 4> wanted;  // gradients of x, weight, bias, initial_state
};

/// How many partial sums of the weight's and bias's gradients are added up at a time.
constexpr std::int64_t kCausalPartialsPerSum = 64;

/// Sizes of what one round of launches covers.
struct CausalPanel {
  std::int64_t batch;
  std::int64_t channels;
  std::int64_t length;
  std::int64_t columns;  // taps, and one more for the bias
};

/// Scratch in elements of the accumulator (f64 for f64, else f32).
struct CausalScratch {
  std::int64_t dz;        // gradients before silu, of one panel and its K - 1 later positions
  std::int64_t partials;  // sums over a segment of positions
  std::int64_t reduced;   // sums of 64 partials
  std::int64_t totals;    // sums over all panels
  std::int64_t element_bytes;

  std::int64_t bytes() const { return (dz + partials + reduced + totals) * element_bytes; }
};

struct CausalBackwardPlan {
  CausalKernel kernel;
  CausalBackwardProblem problem;
  CausalPanel panel;
  std::int64_t first_column;  // 0, or K where the weight's gradient is not wanted
  std::int64_t columns;       // over all panels; 0 where neither weight nor bias is wanted
  std::int64_t segment;       // positions (batch and length counted through) of one partial sum
  CausalScratch scratch;
  const char* reason;

  MEMOPS_API PlanReport report() const;
};

/// Throws std::runtime_error where one position's window does not fit the scratch limit, 256 MB:
/// silu with both K and L beyond 2^24.
MEMOPS_API CausalBackwardPlan plan_causal_backward(const CausalBackwardProblem& problem,
                                                   const DeviceFacts& device);

struct CausalUpdateProblem {
  std::int64_t batch;
  std::int64_t channels;
  std::int64_t steps;
  std::int64_t width;   // taps
  std::int64_t rows;    // of the state
  std::int64_t window;  // positions a row of the state holds
  FloatType dtype;
  bool bias;
  bool ring;
  bool indexed;
  bool silu;
};

enum class CausalUpdateKernel {
  kShift,  // newest last: a step moves every entry
  kRing,   // a step overwrites the oldest entry
};

struct CausalUpdatePlan {
  CausalUpdateKernel kernel;
  CausalUpdateProblem problem;
  const char* reason;

  MEMOPS_API PlanReport report() const;
};

MEMOPS_API CausalUpdatePlan plan_causal_update(const CausalUpdateProblem& problem,
                                               const DeviceFacts& device);

}  // namespace memops
