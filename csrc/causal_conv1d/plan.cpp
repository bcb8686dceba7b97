#include "causal_conv1d/plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "common/math.h"

namespace memops {
namespace {

constexpr std::int64_t kScratchBytes = std::int64_t{256} << 20;
constexpr std::int64_t kShortestSegment = 64;

std::string name(CausalKernel kernel) {
  switch (kernel) {
    case CausalKernel::kAlongLength:
      return "causal_along_length";
    case CausalKernel::kAlongChannels:
      return "causal_along_channels";
  }
  throw std::runtime_error("memops: the causal_conv1d plan names no kernel");
}

CausalKernel kernel_of(const CausalProblem& problem) {
  return problem.channels_last ? CausalKernel::kAlongChannels : CausalKernel::kAlongLength;
}

const char* reason_of(const CausalProblem& problem) {
  return problem.channels_last ? "x is contiguous along its channels: so are a warp's loads"
                               : "x is not contiguous along its channels: a warp runs along L";
}

std::int64_t positions(const CausalProblem& p) { return p.batch * p.channels * p.length; }

/// Bytes of x, the small operands and the final state.
std::int64_t operand_bytes(const CausalProblem& p) {
  const std::int64_t state = p.batch * p.channels * (p.width - 1);
  const std::int64_t elements =
      positions(p) + p.channels * (p.width + p.bias) + state * p.initial_state;
  return elements * bytes_of(p.dtype) + p.seq_idx * p.batch * p.length * 4;
}

std::vector<std::pair<std::string, PlanReport::Value>> sizes(const CausalProblem& p) {
  return {{"batch", p.batch},
          {"channels", p.channels},
          {"length", p.length},
          {"width", p.width},
          {"dtype", name(p.dtype)},
          {"layout", std::string(p.channels_last ? "channels-last" : "channels-first")},
          {"silu", std::int64_t{p.silu}}};
}

/// As many whole rows (b, c) as the limit holds; a row longer than it is cut along L, and the K - 1
/// positions after the cut are computed again.
void fit_dz(const CausalProblem& p, std::int64_t halo, std::int64_t limit, CausalPanel& panel) {
  const std::int64_t rows = limit / std::max<std::int64_t>(p.length, 1);
  if (rows >= 1) {
    panel.channels = std::min(panel.channels, rows);
    panel.batch = std::min(
        p.batch, std::max<std::int64_t>(1, rows / std::max<std::int64_t>(panel.channels, 1)));
    return;
  }
  if (halo >= limit) {
    throw std::runtime_error(
        "memops: causal_conv1d's backward with silu keeps K values of a row in scratch: K = " +
        std::to_string(p.width) + " is more than its limit, " + std::to_string(limit));
  }
  panel.batch = std::min<std::int64_t>(p.batch, 1);
  panel.channels = std::min<std::int64_t>(p.channels, 1);
  panel.length = limit - halo;
}

}  // namespace

CausalPlan plan_causal(const CausalProblem& problem, const DeviceFacts&) {
  return {kernel_of(problem), problem, reason_of(problem)};
}

PlanReport CausalPlan::report() const {
  const CausalProblem& p = problem;
  const std::int64_t state = p.final_state * p.batch * p.channels * (p.width - 1);
  PlanReport report{
      .op = "causal_conv1d", .kernel = name(kernel), .reason = reason, .facts = sizes(p)};
  report.facts.emplace_back("final_state", std::int64_t{p.final_state});
  report.facts.emplace_back("bytes", operand_bytes(p) + (positions(p) + state) * bytes_of(p.dtype));
  report.facts.emplace_back("flops", 2 * positions(p) * p.width);
  return report;
}

CausalBackwardPlan plan_causal_backward(const CausalBackwardProblem& problem, const DeviceFacts&) {
  const CausalProblem& p = problem.forward;
  const auto [x, weight, bias, state] = problem.wanted;
  CausalBackwardPlan plan{.kernel = kernel_of(p),
                          .problem = problem,
                          .panel = {p.batch, p.channels, p.length, 0},
                          .first_column = weight ? 0 : p.width,
                          .columns = (weight ? p.width : 0) + (bias ? 1 : 0),
                          .segment = kShortestSegment,
                          .scratch = {},
                          .reason = reason_of(p)};
  CausalScratch& scratch = plan.scratch;
  CausalPanel& panel = plan.panel;
  scratch.element_bytes = accumulator_bytes(p.dtype);
  const std::int64_t budget = kScratchBytes / scratch.element_bytes;
  if (plan.columns > 0) {
    panel.columns = std::min(plan.columns, budget / 16);
    panel.channels = std::min(p.channels, budget / 8 / panel.columns);
  }
  if (p.silu) {
    const std::int64_t halo = x || state ? p.width - 1 : 0;
    fit_dz(p, halo, budget / 2, panel);
    scratch.dz =
        panel.batch * panel.channels * (panel.length + std::min(halo, p.length - panel.length));
  }
  if (plan.columns > 0) {
    const std::int64_t width = panel.channels * panel.columns;
    const std::int64_t most_segments = budget / 4 / std::max<std::int64_t>(width, 1);
    const std::int64_t each = ceil_div(panel.batch * panel.length, most_segments);
    plan.segment = std::max(kShortestSegment, each);
    const std::int64_t segments = ceil_div(panel.batch * panel.length, plan.segment);
    scratch.partials = segments * width;
    scratch.reduced =
        segments > kCausalPartialsPerSum ? ceil_div(segments, kCausalPartialsPerSum) * width : 0;
    scratch.totals = width;
  }
  return plan;
}

PlanReport CausalBackwardPlan::report() const {
  const CausalProblem& p = problem.forward;
  PlanReport report{
      .op = "_causal_conv1d_backward", .kernel = name(kernel), .reason = reason, .facts = sizes(p)};
  const auto [x, weight, bias, state] = problem.wanted;
  const std::int64_t written = x * positions(p) + (weight * p.width + bias) * p.channels +
                               state * p.batch * p.channels * (p.width - 1);
  const std::int64_t sums = p.silu + (x ? 1 : 0) + (weight ? 1 : 0);
  report.facts.emplace_back(
      "panel", std::vector<std::int64_t>{panel.batch, panel.channels, panel.length, panel.columns});
  report.facts.emplace_back("segment", segment);
  report.facts.emplace_back("scratch_bytes", scratch.bytes());
  report.facts.emplace_back("bytes",
                            operand_bytes(p) + (positions(p) + written) * bytes_of(p.dtype));
  report.facts.emplace_back("flops", 2 * sums * positions(p) * p.width);
  return report;
}

CausalUpdatePlan plan_causal_update(const CausalUpdateProblem& problem, const DeviceFacts&) {
  if (problem.ring) {
    return {CausalUpdateKernel::kRing, problem,
            "cache_seqlens makes the state a ring: one thread a batch entry and channel"};
  }
  return {CausalUpdateKernel::kShift, problem,
          "the state is kept newest last: one thread a batch entry and channel shifts it"};
}

PlanReport CausalUpdatePlan::report() const {
  const CausalUpdateProblem& p = problem;
  const bool ring = kernel == CausalUpdateKernel::kRing;
  const std::int64_t written = ring ? std::min(p.steps, p.window) : p.window;
  const std::int64_t read = ring ? p.width - 1 : std::max(p.width - 1, p.window - 1);
  const std::int64_t elements =
      p.batch * p.channels * (2 * p.steps + written + read) + p.channels * (p.width + p.bias);
  return {.op = "causal_conv1d_update",
          .kernel = ring ? "causal_update_ring" : "causal_update_shift",
          .reason = reason,
          .facts = {{"batch", p.batch},
                    {"channels", p.channels},
                    {"steps", p.steps},
                    {"width", p.width},
                    {"rows", p.rows},
                    {"window", p.window},
                    {"dtype", name(p.dtype)},
                    {"indexed", std::int64_t{p.indexed}},
                    {"silu", std::int64_t{p.silu}},
                    {"bytes", elements * bytes_of(p.dtype)},
                    {"flops", 2 * p.batch * p.channels * p.steps * p.width}}};
}

}  // namespace memops
