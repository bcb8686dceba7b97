// The ways to move a layout, each where it applies. Split from plan.cpp by kernel.
#pragma once

#include <optional>

#include "copy/plan.h"

namespace memops {

/// True where both views are one run of elements in the same order.
bool one_run(const CopyLayout& layout);

/// True where a byte offset from either view's first element passes 31 bits.
bool offsets_pass_31_bits(const CopyLayout& layout, int dst_bytes);

/// One run of `bytes` between these addresses.
FlatCopy flat_copy(std::int64_t bytes, std::uint64_t dst_address, std::uint64_t src_address);

/// Where the innermost dimension is contiguous in both views and long.
std::optional<RowsCopy> rows_copy(const CopyLayout& layout);

/// Where one of the views is a run of structures of 2 to 16 fields, the other planes, all aligned.
std::optional<FieldsCopy> fields_copy(const CopyLayout& layout, std::uint64_t dst_address,
                                      std::uint64_t src_address);

/// Where runs of both views that share no dimension fill a tile.
std::optional<TileCopy> tile_copy(const CopyLayout& layout, std::uint64_t dst_address,
                                  std::uint64_t src_address);

/// Where boxes of a layout of two dimensions and more are worth it.
std::optional<BoxCopy> box_copy(const CopyLayout& layout, std::uint64_t dst_address,
                                const DeviceFacts& device);

/// Any layout.
StridedCopy strided_copy(const CopyLayout& layout, std::uint64_t dst_address);

/// The plan of a problem whose dtypes differ.
CopyPlan plan_cast(const CopyProblem& problem);

std::int64_t blocks_of(const FlatCopy& copy);
std::int64_t blocks_of(const RowsCopy& copy);
std::int64_t blocks_of(const FieldsCopy& copy, int element_bytes);
std::int64_t blocks_of(const TileCopy& copy);
std::int64_t blocks_of(const BoxCopy& copy, const DeviceFacts& device);

/// The share of a tile's threads that have an element, on average.
double filled(const TileCopy& copy);

void add_facts(const FlatCopy& copy, PlanReport& report);
void add_facts(const RowsCopy& copy, PlanReport& report);
void add_facts(const FieldsCopy& copy, PlanReport& report);
void add_facts(const TileCopy& copy, PlanReport& report);
void add_facts(const BoxCopy& copy, PlanReport& report);
void add_facts(const StridedCopy& copy, PlanReport& report);
void add_facts(const CastRows& copy, PlanReport& report);
void add_facts(const CastTile& copy, PlanReport& report);
void add_facts(const CastStrided& copy, PlanReport& report);

}  // namespace memops
