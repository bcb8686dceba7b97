// One run of bytes, any alignment: 16-byte stores on the destination's grid.
#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "common/cuda/launch.h"
#include "common/math.h"
#include "copy/copy.h"

namespace memops {
namespace {

constexpr int kThreads = 256;
constexpr int kChunksPerThread = 4;  // 64 bytes in flight a thread
constexpr std::int64_t kChunk = 16;

struct FlatRun {
  char* dst;
  const char* src;
  std::int64_t head;    // bytes before the first 16-byte store
  std::int64_t chunks;  // 16-byte stores
  std::int64_t tail;    // bytes after them
};

__device__ void copy_bytes(char* dst, const char* src, std::int64_t n) {
  for (std::int64_t i = threadIdx.x; i < n; i += kThreads) dst[i] = src[i];
}

/// 16 bytes from any address: aligned words, shifted together. May read up to 3 bytes on either
/// side of the 16; `split` keeps those inside the source.
__device__ uint4 load_unaligned(const char* src) {
  const auto address = reinterpret_cast<std::uintptr_t>(src);
  const unsigned shift = 8 * (address & 3);
  const auto* words = reinterpret_cast<const std::uint32_t*>(address & ~std::uintptr_t{3});
  std::uint32_t w[5] = {words[0], words[1], words[2], words[3], 0};
  if (shift != 0) w[4] = words[4];
  return {__funnelshift_r(w[0], w[1], shift), __funnelshift_r(w[1], w[2], shift),
          __funnelshift_r(w[2], w[3], shift), __funnelshift_r(w[3], w[4], shift)};
}

template <bool kSourceAligned>
__global__ void __launch_bounds__(kThreads) copy_flat_kernel(const FlatRun run) {
  if (blockIdx.x == 0) {
    const std::int64_t after = run.head + run.chunks * kChunk;
    copy_bytes(run.dst, run.src, run.head);
    copy_bytes(run.dst + after, run.src + after, run.tail);
  }
  const std::int64_t first = std::int64_t{blockIdx.x} * (kThreads * kChunksPerThread) + threadIdx.x;
  auto* const dst = reinterpret_cast<uint4*>(run.dst + run.head);
  const char* const src = run.src + run.head;
  uint4 values[kChunksPerThread];
  // All loads before the first store, or the compiler must assume that they overlap.
#pragma unroll
  for (int i = 0; i < kChunksPerThread; ++i) {
    const std::int64_t chunk = first + i * kThreads;
    if (chunk < run.chunks) {
      if constexpr (kSourceAligned) {
        values[i] = __ldg(reinterpret_cast<const uint4*>(src) + chunk);
      } else {
        values[i] = load_unaligned(src + chunk * kChunk);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kChunksPerThread; ++i) {
    const std::int64_t chunk = first + i * kThreads;
    if (chunk < run.chunks) dst[chunk] = values[i];
  }
}

FlatRun split(void* dst, const void* src, std::int64_t bytes) {
  const auto to = reinterpret_cast<std::uintptr_t>(dst);
  const auto from = reinterpret_cast<std::uintptr_t>(src);
  std::int64_t head = static_cast<std::int64_t>(-to & (kChunk - 1));
  const auto shift = static_cast<std::int64_t>((from + head) & 3);
  if (head < shift) head += kChunk;  // the first word begins inside the source
  const std::int64_t beyond = shift == 0 ? 0 : 4 - shift;  // the last word ends inside the source
  const std::int64_t chunks = std::max<std::int64_t>(0, (bytes - head - beyond) / kChunk);
  if (chunks == 0) return {static_cast<char*>(dst), static_cast<const char*>(src), bytes, 0, 0};
  return {static_cast<char*>(dst), static_cast<const char*>(src), head, chunks,
          bytes - head - chunks * kChunk};
}

}  // namespace

void launch_copy_flat(const CopyPlan& plan, const CopyParams& params, cudaStream_t stream) {
  const std::int64_t bytes = plan.layout.elements() * plan.layout.element_bytes;
  const FlatRun run = split(params.dst, params.src, bytes);
  const std::int64_t blocks =
      std::max<std::int64_t>(1, ceil_div<std::int64_t>(run.chunks, kThreads * kChunksPerThread));
  const unsigned grid = grid_blocks(blocks, "copy_flat");
  const bool aligned = (reinterpret_cast<std::uintptr_t>(params.src) + run.head) % kChunk == 0;
  if (aligned) {
    copy_flat_kernel<true><<<grid, kThreads, 0, stream>>>(run);
  } else {
    copy_flat_kernel<false><<<grid, kThreads, 0, stream>>>(run);
  }
  check_launch("copy_flat");
}

void launch_copy(const CopyPlan& plan, const CopyParams& params, cudaStream_t stream) {
  switch (plan.kernel) {
    case CopyKernel::kFlat:
      return launch_copy_flat(plan, params, stream);
    case CopyKernel::kTranspose:
      return launch_copy_transpose(plan, params, stream);
    case CopyKernel::kStrided:
      return launch_copy_strided(plan, params, stream);
  }
  throw std::runtime_error("memops: the copy plan names no kernel");
}

}  // namespace memops
