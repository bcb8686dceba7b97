#include <string>

#include "common/math.h"
#include "copy/kernel_choice.h"

namespace memops {
namespace {

// Fewer structures a batch index leave most threads of a block without any.
constexpr double kBusyThreads = 0.6;

}  // namespace

std::optional<FieldsCopy> fields_copy(const CopyLayout& layout, std::uint64_t dst_address,
                                      std::uint64_t src_address) {
  const auto& dims = layout.dimensions;
  const std::int64_t per_vector = kVectorBytes / layout.element_bytes;
  if (layout.element_bytes > 8 || (dst_address | src_address) % kVectorBytes != 0) {
    return std::nullopt;
  }
  // To planes: the innermost dimension counts structures, a field lies `fields` apart in the
  // source. To structures: the innermost dimension counts fields, a plane apart in the source.
  const CopyDimension& inner = dims.back();
  if (inner.dst_stride != 1) return std::nullopt;
  for (std::size_t i = 0; i + 1 < dims.size(); ++i) {
    const CopyDimension& outer = dims[i];
    if (outer.src_stride != 1) continue;
    const auto few = [](std::int64_t fields) { return fields >= 2 && fields <= kMostFields; };
    const bool to_planes = inner.src_stride == outer.size && few(outer.size);
    const bool to_structures = outer.dst_stride == inner.size && few(inner.size);
    if (!to_planes && !to_structures) return std::nullopt;
    FieldsCopy copy{};
    copy.to_planes = to_planes;
    copy.fields = to_planes ? outer.size : inner.size;
    copy.structures = to_planes ? inner.size : outer.size;
    copy.plane_stride = to_planes ? outer.dst_stride : inner.src_stride;
    bool aligned = copy.plane_stride % per_vector == 0 && copy.structures % per_vector == 0;
    for (std::size_t j = 0; j + 1 < dims.size(); ++j) {
      if (j == i) continue;
      copy.batch.push_back(dims[j]);
      aligned &= dims[j].dst_stride % per_vector == 0 && dims[j].src_stride % per_vector == 0;
    }
    const auto vectors = static_cast<double>(copy.structures) / static_cast<double>(per_vector);
    const auto threads =
        static_cast<double>(blocks_per_batch(copy, layout.element_bytes) * kFieldsThreads);
    if (!aligned || vectors < kBusyThreads * threads ||
        static_cast<int>(copy.batch.size()) > kMostBatchDimensions) {
      return std::nullopt;
    }
    return copy;
  }
  return std::nullopt;
}

std::int64_t blocks_per_batch(const FieldsCopy& copy, int element_bytes) {
  return ceil_div<std::int64_t>(copy.structures * element_bytes, kVectorBytes * kFieldsThreads);
}

std::int64_t blocks_of(const FieldsCopy& copy, int element_bytes) {
  return blocks_per_batch(copy, element_bytes) * elements(copy.batch);
}

void add_facts(const FieldsCopy& copy, PlanReport& report) {
  report.facts.emplace_back("threads", std::int64_t{kFieldsThreads});
  report.facts.emplace_back("fields", copy.fields);
  report.facts.emplace_back("structures", copy.structures);
  report.facts.emplace_back("to", std::string(copy.to_planes ? "planes" : "structures"));
}

}  // namespace memops
