// Which kernel a gather or its gradient takes, and why.
#pragma once

#include <cstdint>

#include "common/device_facts.h"
#include "common/export.h"
#include "common/float_type.h"
#include "common/plan_report.h"

namespace memops {

constexpr int kGatherThreads = 256;     // a block of every gather kernel
constexpr int kGatherRowsInFlight = 4;  // rows that a sub-warp of gather_rows moves at once

/// The op that an assertion about an index names.
enum class GatherOp { kAos, kSoa, kAosBackward, kSoaBackward };

enum class GatherKernel {
  kNone,    // the index is empty
  kCheck,   // nothing to move: the indices are only checked
  kRows,    // gather_aos: a sub-warp a row
  kFields,  // gather_soa: a thread a column
  kAdd,     // gradient: atomic additions
  kRuns,    // gradient: the sorted index, a run of equal indices summed at once
};

/// out[position, :] = table[index[position], :]
struct GatherRowsProblem {
  std::int64_t rows;   // of the table
  std::int64_t count;  // of the index
  int index_bytes;     // 4 or 8
  std::int64_t row_bytes;
  std::int64_t row_stride;      // bytes; a row itself is contiguous
  std::uint64_t table_address;  // only the alignment is used
  bool table_copied;            // the table's own rows are not contiguous
};

struct GatherRowsPlan {
  GatherKernel kernel;
  GatherRowsProblem problem;
  int vector_bytes = 0;            // moved by a lane at once
  int lanes = 0;                   // of the sub-warp that moves a row
  int rows_per_block = 0;          // each block moves one panel of them
  std::int64_t vectors = 0;        // of a row
  std::int64_t panel_vectors = 0;  // of a row's panel
  std::int64_t panels = 0;         // of a row
  const char* reason = "";

  MEMOPS_API PlanReport report() const;
};

/// out[field, position] = table[field, index[position]]
struct GatherFieldsProblem {
  std::int64_t fields;
  std::int64_t columns;  // of the table
  std::int64_t count;    // of the index
  int index_bytes;       // 4 or 8
  int element_bytes;
  std::int64_t field_stride;  // elements
  std::int64_t column_stride;
  bool table_copied;  // its elements were not aligned to their own width
};

struct GatherFieldsPlan {
  GatherKernel kernel;
  GatherFieldsProblem problem;
  std::int64_t fields_per_thread = 0;
  const char* reason = "";

  MEMOPS_API PlanReport report() const;
};

/// out[index[position], field] += grad[position, field], or its transpose for kSoaBackward.
struct GatherSumProblem {
  GatherOp op;  // kAosBackward or kSoaBackward
  FloatType type;
  std::int64_t fields;
  std::int64_t rows;             // of the result, as the index counts them
  std::int64_t count;            // of the index
  int index_bytes;               // 4 or 8
  std::int64_t padding_index;    // gets no gradient; -1: none
  std::int64_t position_stride;  // of grad, elements
  std::int64_t field_stride;
  std::uint64_t grad_address;  // only the alignment is used
  bool grad_copied;            // its strides made no matrix
  bool deterministic;
};

struct GatherSumPlan {
  GatherKernel kernel;
  GatherSumProblem problem;
  int vector = 0;  // kRuns: fields a thread sums
  const char* reason = "";

  MEMOPS_API PlanReport report() const;
};

MEMOPS_API GatherRowsPlan plan_gather_rows(const GatherRowsProblem& problem,
                                           const DeviceFacts& device);
MEMOPS_API GatherFieldsPlan plan_gather_fields(const GatherFieldsProblem& problem,
                                               const DeviceFacts& device);
MEMOPS_API GatherSumPlan plan_gather_sum(const GatherSumProblem& problem,
                                         const DeviceFacts& device);

}  // namespace memops
