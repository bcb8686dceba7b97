#include <algorithm>

#include "common/math.h"
#include "copy/kernel_choice.h"

namespace memops {
namespace {

// Shorter runs leave too many 16-byte accesses partial, where they lie between boundaries.
constexpr std::int64_t kShortestRunBytes = 64;
constexpr std::int64_t kShortestUnalignedRunBytes = 512;

}  // namespace

FlatCopy flat_copy(std::int64_t bytes, std::uint64_t dst_address, std::uint64_t src_address) {
  auto head = static_cast<std::int64_t>(-dst_address % kVectorBytes);
  // Aligned vectors of the source are read: the first begins inside it, and the last ends there.
  const auto shift = static_cast<std::int64_t>((src_address + head) % kVectorBytes);
  if (head < shift) head += kVectorBytes;
  const std::int64_t beyond = shift == 0 ? 0 : kVectorBytes - shift;
  const std::int64_t chunks = std::max<std::int64_t>(0, (bytes - head - beyond) / kVectorBytes);
  if (chunks == 0) head = bytes;
  return {bytes, head, chunks, (src_address + head) % kVectorBytes == 0};
}

std::optional<RowsCopy> rows_copy(const CopyLayout& layout) {
  const auto& dims = layout.dimensions;
  const CopyDimension& run = dims.back();
  if (run.dst_stride != 1 || run.src_stride != 1) return std::nullopt;
  const std::int64_t bytes = run.size * layout.element_bytes;
  const bool aligned = layout.element_bytes == kVectorBytes;
  if (bytes < (aligned ? kShortestRunBytes : kShortestUnalignedRunBytes)) return std::nullopt;
  // A row that begins between boundaries touches one vector more.
  const std::int64_t vectors = ceil_div(aligned ? bytes : bytes + kVectorBytes - 1, kVectorBytes);
  return RowsCopy{bytes, vectors, aligned, {dims.begin(), dims.end() - 1}};
}

std::int64_t blocks_of(const FlatCopy& copy) {
  return std::max<std::int64_t>(1, ceil_div<std::int64_t>(copy.chunks, kFlatThreads));
}

std::int64_t blocks_of(const RowsCopy& copy) {
  return ceil_div<std::int64_t>(copy.vectors * elements(copy.rows), kFlatThreads);
}

}  // namespace memops
