#include "conv1d/plan.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "common/math.h"
#include "common/saturating.h"

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
  throw std::runtime_error("memops: the conv1d plan names no kernel");
}

/// The products of one convolution, each with its addition; taps on padding are counted too.
std::int64_t operations(const Conv1dProblem& p) {
  return saturating_product({2, p.outputs(), p.in_channels / p.groups, p.width});
}

Conv1dReduction split(bool wanted, std::int64_t sums, std::int64_t terms,
                      const DeviceFacts& device) {
  if (!wanted) return {.sums = 0, .terms = 0, .splits = 0, .segment = 0, .partials = 0};
  const std::int64_t blocks = kBlocksPerMultiprocessor * device.multiprocessors;
  const std::int64_t most = std::max<std::int64_t>(1, terms / kFewestTermsPerBlock);
  const std::int64_t splits = std::clamp<std::int64_t>(ceil_div(blocks, sums), 1, most);
  return {.sums = sums,
          .terms = terms,
          .splits = splits,
          .segment = ceil_div(terms, splits),
          .partials = splits == 1 ? 0 : sums * splits};
}

}  // namespace

Conv1dPlan plan_conv1d(const Conv1dProblem& problem, const DeviceFacts&) {
  return {.kernel = Conv1dKernel::kDirect,
          .problem = problem,
          .wide_index = passes_32_bits(problem.outputs()),
          .blocks = ceil_div(problem.outputs(), kThreads),
          .reason = "one thread a result takes every shape, stride and group count"};
}

Conv1dBackwardPlan plan_conv1d_backward(const Conv1dProblem& problem, std::array<bool, 3> wanted,
                                        const DeviceFacts& device) {
  const std::int64_t terms = problem.batch * problem.out_length;
  return {.kernel = Conv1dKernel::kDirect,
          .problem = problem,
          .wanted = wanted,
          .wide_index = passes_32_bits(problem.inputs()),
          .weight = split(wanted[1], problem.weights(), terms, device),
          .bias = split(wanted[2], problem.out_channels, terms, device),
          .reason =
              "the input's gradient is gathered by one thread an element; the weight's and the "
              "bias's are partial sums added in a fixed order"};
}

PlanReport Conv1dPlan::report() const {
  const Conv1dProblem& p = problem;
  const std::int64_t elements =
      saturating_sum({p.inputs(), p.weights(), p.bias ? p.out_channels : 0, p.outputs()});
  return {.op = "conv1d",
          .kernel = name(kernel),
          .reason = reason,
          .facts = {{"dtype", name(p.type)},
                    {"precision", p.type == FloatType::kDouble ? "float64" : "float32"},
                    {"threads", kThreads},
                    {"blocks", blocks},
                    {"launches", std::int64_t{1}},
                    {"index_bits", std::int64_t{wide_index ? 64 : 32}},
                    {"scratch_bytes", std::int64_t{0}},
                    {"bytes", saturating_product({elements, bytes_of(p.type)})},
                    {"flops", operations(p)}}};
}

PlanReport Conv1dBackwardPlan::report() const {
  const Conv1dProblem& p = problem;
  const auto [for_input, for_weight, for_bias] = wanted;
  const auto launches_of = [](const Conv1dReduction& sums) {
    return std::min<std::int64_t>(sums.splits, 2);  // the partial sums, and their sums
  };
  const std::int64_t launches =
      (for_input && p.inputs() > 0) + launches_of(weight) + launches_of(bias);
  const std::int64_t read =
      p.outputs() + (for_weight ? p.inputs() : 0) + (for_input ? p.weights() : 0);
  const std::int64_t written = (for_input ? p.inputs() : 0) + (for_weight ? p.weights() : 0) +
                               (for_bias ? p.out_channels : 0);
  const std::int64_t products = saturating_product({for_input + for_weight, operations(p)});
  return {
      .op = "_conv1d_backward",
      .kernel = name(kernel),
      .reason = reason,
      .facts = {{"dtype", name(p.type)},
                {"precision", p.type == FloatType::kDouble ? "float64" : "float32"},
                {"threads", kThreads},
                {"launches", launches},
                {"index_bits", std::int64_t{wide_index ? 64 : 32}},
                {"weight_splits", weight.splits},
                {"weight_segment", weight.segment},
                {"bias_splits", bias.splits},
                {"bias_segment", bias.segment},
                {"scratch_bytes", accumulator_bytes(p.type) * (weight.partials + bias.partials)},
                {"bytes", saturating_product({read + written, bytes_of(p.type)})},
                {"flops", saturating_sum({products, for_bias ? p.outputs() : 0})}}};
}

}  // namespace memops
