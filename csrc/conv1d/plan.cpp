#include "conv1d/plan.h"

#include <algorithm>
#include <limits>

#include "common/math.h"

namespace memops {
namespace {

constexpr std::int64_t kThreads = 256;
// Blocks that keep every multiprocessor busy while the last ones finish.
constexpr std::int64_t kBlocksPerMultiprocessor = 8;
// A shorter partial sum costs more in its own block's reduction than it spreads.
constexpr std::int64_t kFewestTermsPerBlock = 2048;

bool passes_32_bits(std::int64_t elements) {
  return elements > std::numeric_limits<std::int32_t>::max();
}

const char* name(Conv1dKernel kernel) {
  switch (kernel) {
    case Conv1dKernel::kDirect:
      return "conv1d_direct";
  }
  return "unknown";
}

Conv1dReduction split(std::int64_t sums, std::int64_t terms, const DeviceFacts& device) {
  const std::int64_t wanted = kBlocksPerMultiprocessor * device.multiprocessors;
  const std::int64_t most = std::max<std::int64_t>(1, terms / kFewestTermsPerBlock);
  const std::int64_t splits =
      std::clamp<std::int64_t>(ceil_div(wanted, std::max<std::int64_t>(1, sums)), 1, most);
  return {.sums = sums,
          .terms = terms,
          .splits = splits,
          .segment = ceil_div(terms, splits),
          .partials = splits == 1 ? 0 : sums * splits};
}

}  // namespace

Conv1dPlan plan_conv1d(const Conv1dProblem& problem, const DeviceFacts&) {
  return {.kernel = Conv1dKernel::kDirect,
          .type = problem.type,
          .wide_index = passes_32_bits(problem.outputs()),
          .blocks = ceil_div(problem.outputs(), kThreads),
          .reason = "one thread a result takes every shape, stride and group count"};
}

Conv1dBackwardPlan plan_conv1d_backward(const Conv1dProblem& problem, const DeviceFacts& device) {
  const std::int64_t terms = problem.batch * problem.out_length;
  return {.kernel = Conv1dKernel::kDirect,
          .type = problem.type,
          .wide_index = passes_32_bits(problem.inputs()),
          .weight = split(problem.weights(), terms, device),
          .bias = split(problem.out_channels, terms, device),
          .reason =
              "the input's gradient is gathered by one thread an element; the weight's and the "
              "bias's are partial sums added in a fixed order"};
}

PlanReport Conv1dPlan::report() const {
  return {.op = "conv1d",
          .kernel = name(kernel),
          .reason = reason,
          .facts = {{"dtype", name(type)},
                    {"precision", type == FloatType::kDouble ? "float64" : "float32"},
                    {"threads", kThreads},
                    {"blocks", blocks},
                    {"launches", std::int64_t{1}},
                    {"index_bits", std::int64_t{wide_index ? 64 : 32}},
                    {"scratch_bytes", std::int64_t{0}}}};
}

PlanReport Conv1dBackwardPlan::report() const {
  const std::int64_t bytes = accumulator_bytes(type);
  return {.op = "_conv1d_backward",
          .kernel = name(kernel),
          .reason = reason,
          .facts = {{"dtype", name(type)},
                    {"precision", type == FloatType::kDouble ? "float64" : "float32"},
                    {"threads", kThreads},
                    {"index_bits", std::int64_t{wide_index ? 64 : 32}},
                    {"weight_splits", weight.splits},
                    {"weight_segment", weight.segment},
                    {"bias_splits", bias.splits},
                    {"bias_segment", bias.segment},
                    {"scratch_bytes", bytes * (weight.partials + bias.partials)}}};
}

}  // namespace memops
