#include "gather/plan.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "common/math.h"
#include "common/saturating.h"

namespace memops {
namespace {

// From so many indices a row, atomic additions wait for each other and their long chains of f32
// sums lose more than PyTorch's sorted sums do.
constexpr std::int64_t kRepeatedRows = 8;
constexpr std::int64_t kMostSortingBytes = std::int64_t{256} << 20;

constexpr int kVectorsPerLane = 8;  // of a row's panel: long rows spread over blocks
constexpr int kMostLanes = 32;
constexpr int kWidestVector = 16;
constexpr int kFieldsPerThread = 4;
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 30;

constexpr const char* kNothing = "the index is empty";
constexpr const char* kOnlyCheck = "the result holds no elements: the indices are only checked";

const char* name(GatherKernel kernel) {
  switch (kernel) {
    case GatherKernel::kNone:
      return "none";
    case GatherKernel::kCheck:
      return "gather_check";
    case GatherKernel::kRows:
      return "gather_rows";
    case GatherKernel::kFields:
      return "gather_fields";
    case GatherKernel::kAdd:
      return "gather_add";
    case GatherKernel::kRuns:
      return "gather_runs";
  }
  throw std::runtime_error("memops: the gather plan names no kernel");
}

/// The fields that one 16-byte load of grad holds, or 1 where it cannot be read so.
int fields_of_a_vector(const GatherSumProblem& problem) {
  const int element = bytes_of(problem.type);
  const int fields = kWidestVector / element;
  const bool aligned = problem.field_stride == 1 && problem.fields % fields == 0 &&
                       problem.position_stride % fields == 0 &&
                       problem.grad_address % kWidestVector == 0;
  return problem.op == GatherOp::kAosBackward && aligned ? fields : 1;
}

/// What sorting the index takes: its keys and positions, twice (CUB sorts out of place).
std::int64_t sorting_bytes(const GatherSumProblem& problem) {
  return 2 * problem.count * (problem.index_bytes + static_cast<int>(sizeof(std::int64_t)));
}

}  // namespace

GatherRowsPlan plan_gather_rows(const GatherRowsProblem& problem, const DeviceFacts&) {
  if (problem.count == 0)
    return {.kernel = GatherKernel::kNone, .problem = problem, .reason = kNothing};
  if (problem.row_bytes == 0) {
    return {.kernel = GatherKernel::kCheck, .problem = problem, .reason = kOnlyCheck};
  }
  int width = kWidestVector;
  const auto divides = [&](int bytes) {
    return problem.row_bytes % bytes == 0 && problem.row_stride % bytes == 0 &&
           problem.table_address % static_cast<std::uint64_t>(bytes) == 0;
  };
  while (!divides(width)) width /= 2;
  const std::int64_t vectors = problem.row_bytes / width;
  const auto lanes = static_cast<int>(
      std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>(vectors, kMostLanes))));
  const std::int64_t panel = std::int64_t{lanes} * kVectorsPerLane;
  return {.kernel = GatherKernel::kRows,
          .problem = problem,
          .vector_bytes = width,
          .lanes = lanes,
          .rows_per_block = kGatherThreads / lanes * kGatherRowsInFlight,
          .vectors = vectors,
          .panel_vectors = panel,
          .panels = ceil_div(vectors, panel),
          .reason = problem.table_copied
                        ? "a row's elements are not contiguous: the table is copied first"
                        : "rows are read in place, a sub-warp a row"};
}

GatherFieldsPlan plan_gather_fields(const GatherFieldsProblem& problem, const DeviceFacts& device) {
  if (problem.count == 0)
    return {.kernel = GatherKernel::kNone, .problem = problem, .reason = kNothing};
  if (problem.fields == 0) {
    return {.kernel = GatherKernel::kCheck, .problem = problem, .reason = kOnlyCheck};
  }
  // Measured on an H200, four fields of 134 MB: field by field, so that the L2 holds more of one
  // field, takes 0.85 of the time of one pass over the indices.
  const bool in_l2 = problem.fields * problem.columns <= device.l2_bytes / problem.element_bytes;
  const std::int64_t blocks_a_field = ceil_div<std::int64_t>(problem.count, kGatherThreads);
  const std::int64_t fields_per_thread = std::max<std::int64_t>(
      in_l2 ? kFieldsPerThread : 1, ceil_div(blocks_a_field * problem.fields, kMostBlocks));
  return {.kernel = GatherKernel::kFields,
          .problem = problem,
          .fields_per_thread = std::min(problem.fields, fields_per_thread),
          .reason = problem.table_copied ? "the elements are not aligned: the table is copied first"
                    : in_l2 ? "the table fits the L2: an index is read once for several fields"
                            : "the table exceeds the L2: field by field"};
}

GatherSumPlan plan_gather_sum(const GatherSumProblem& problem, const DeviceFacts&) {
  if (problem.count == 0)
    return {.kernel = GatherKernel::kNone, .problem = problem, .reason = kNothing};
  if (problem.fields == 0 || problem.rows == 0) {
    return {.kernel = GatherKernel::kCheck, .problem = problem, .reason = kOnlyCheck};
  }
  const bool sixteen_bits = bytes_of(problem.type) == 2;
  const bool repeated =
      problem.count / problem.rows >= kRepeatedRows && sorting_bytes(problem) <= kMostSortingBytes;
  if (!sixteen_bits && !problem.deterministic && !repeated) {
    return {.kernel = GatherKernel::kAdd,
            .problem = problem,
            .vector = 1,
            .reason = "few repeated rows: 32- and 64-bit sums are formed by atomic additions"};
  }
  return {.kernel = GatherKernel::kRuns,
          .problem = problem,
          .vector = fields_of_a_vector(problem),
          .reason = sixteen_bits            ? "16-bit sums are formed in f32 over the sorted index"
                    : problem.deterministic ? "deterministic algorithms: sums in the sorted order"
                                            : "rows repeat: a run's long sum is formed at once"};
}

PlanReport GatherRowsPlan::report() const {
  return {.op = "gather_aos",
          .kernel = name(kernel),
          .reason = reason,
          .facts = {{"rows", problem.rows},
                    {"indices", problem.count},
                    {"row_bytes", problem.row_bytes},
                    {"row_stride_bytes", problem.row_stride},
                    {"vector_bytes", std::int64_t{vector_bytes}},
                    {"lanes_per_row", std::int64_t{lanes}},
                    {"rows_per_block", std::int64_t{rows_per_block}},
                    {"panels_per_row", panels},
                    {"scratch_bytes",
                     problem.table_copied ? problem.rows * problem.row_bytes : std::int64_t{0}},
                    {"bytes", saturating_product(
                                  {problem.count, 2 * problem.row_bytes + problem.index_bytes})}}};
}

PlanReport GatherFieldsPlan::report() const {
  const std::int64_t table_bytes = problem.fields * problem.columns * problem.element_bytes;
  return {
      .op = "gather_soa",
      .kernel = name(kernel),
      .reason = reason,
      .facts = {
          {"fields", problem.fields},
          {"columns", problem.columns},
          {"indices", problem.count},
          {"element_bytes", std::int64_t{problem.element_bytes}},
          {"strides", std::vector<std::int64_t>{problem.field_stride, problem.column_stride}},
          {"fields_per_thread", fields_per_thread},
          {"scratch_bytes", problem.table_copied ? table_bytes : std::int64_t{0}},
          {"bytes", saturating_product({problem.count, 2 * problem.fields * problem.element_bytes +
                                                           problem.index_bytes})}}};
}

PlanReport GatherSumPlan::report() const {
  const std::int64_t element = bytes_of(problem.type);
  const std::int64_t sorted = problem.index_bytes + static_cast<int>(sizeof(std::int64_t));
  const std::int64_t scratch =
      (problem.grad_copied ? problem.count * problem.fields * element : 0) +
      (kernel == GatherKernel::kRuns ? problem.count * sorted : 0);
  return {
      .op = problem.op == GatherOp::kAosBackward ? "_gather_aos_backward" : "_gather_soa_backward",
      .kernel = name(kernel),
      .reason = reason,
      .facts = {{"rows", problem.rows},
                {"indices", problem.count},
                {"fields", problem.fields},
                {"element_bytes", element},
                {"row_bytes", problem.fields * element},
                {"vector_bytes", vector * element},
                {"grad_strides",
                 std::vector<std::int64_t>{problem.position_stride, problem.field_stride}},
                {"scratch_bytes", scratch},
                {"bytes", saturating_sum({saturating_product({problem.count + problem.rows,
                                                              problem.fields, element}),
                                          problem.count * problem.index_bytes})},
                {"flops", saturating_product({problem.count, problem.fields})}}};
}

}  // namespace memops
