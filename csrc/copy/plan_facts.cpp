// What each kernel's plan prints beyond the layout.
#include "copy/kernel_choice.h"

namespace memops {
namespace {

std::vector<std::int64_t> sizes_of(const Run& run) {
  std::vector<std::int64_t> sizes;
  for (const CopyDimension& d : run) sizes.push_back(d.size);
  return sizes;
}

}  // namespace

void add_facts(const FlatCopy& copy, PlanReport& report) {
  report.facts.emplace_back("threads", std::int64_t{kFlatThreads});
  report.facts.emplace_back("aligned", std::int64_t{copy.aligned});
}

void add_facts(const RowsCopy& copy, PlanReport& report) {
  report.facts.emplace_back("threads", std::int64_t{kFlatThreads});
  report.facts.emplace_back("run_bytes", copy.run_bytes);
  report.facts.emplace_back("aligned", std::int64_t{copy.aligned});
}

void add_facts(const TileCopy& copy, PlanReport& report) {
  report.facts.emplace_back("threads", copy.threads);
  report.facts.emplace_back("dst_run", sizes_of(copy.x));
  report.facts.emplace_back("src_run", sizes_of(copy.y));
  report.facts.emplace_back("tile", std::vector{copy.tile_x, copy.tile_y});
  report.facts.emplace_back("aligned_loads", std::int64_t{copy.aligned_loads});
  report.facts.emplace_back("aligned_stores", std::int64_t{copy.aligned_stores});
}

void add_facts(const StridedCopy& copy, PlanReport& report) {
  report.facts.emplace_back("threads", std::int64_t{kCopyThreads});
  report.facts.emplace_back("packed", std::int64_t{copy.packed});
  report.facts.emplace_back("index_bits", std::int64_t{copy.wide_offsets ? 64 : 32});
}

void add_facts(const CastRows& copy, PlanReport& report) {
  report.facts.emplace_back("threads", std::int64_t{kFlatThreads});
  report.facts.emplace_back("run", copy.run);
  report.facts.emplace_back("aligned", std::int64_t{copy.aligned});
}

void add_facts(const CastTile& copy, PlanReport& report) { add_facts(copy.tile, report); }

void add_facts(const CastStrided& copy, PlanReport& report) {
  report.facts.emplace_back("threads", std::int64_t{kCopyThreads});
  report.facts.emplace_back("index_bits", std::int64_t{copy.wide_offsets ? 64 : 32});
}

}  // namespace memops
