// One run of bytes, any alignment: 16-byte stores on the destination's grid.
#include <cstdint>

#include "common/cuda/launch.h"
#include "copy/kernels.h"
#include "copy/words.h"

namespace memops {
namespace {

struct FlatRun {
  char* dst;
  const char* src;
  std::int64_t bytes;
  std::int64_t head;
  std::int64_t chunks;
};

__device__ void copy_bytes(const FlatRun& run, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kFlatThreads) run.dst[i] = run.src[i];
}

// One vector a thread: more of them in flight spread the accesses over more of DRAM's pages, and
// measured 4 % slower (64 bytes a thread, 2^26 to 2^28 bytes, 2026-12-01).
template <bool kSourceAligned>
__global__ void __launch_bounds__(kFlatThreads) copy_flat_kernel(const FlatRun run) {
  if (blockIdx.x == 0) {
    copy_bytes(run, 0, run.head);
    copy_bytes(run, run.head + run.chunks * kVectorBytes, run.bytes);
  }
  const std::int64_t chunk = std::int64_t{blockIdx.x} * kFlatThreads + threadIdx.x;
  if (chunk >= run.chunks) return;
  const char* const src = run.src + run.head + chunk * kVectorBytes;
  uint4 value;
  if constexpr (kSourceAligned) {
    value = __ldg(reinterpret_cast<const uint4*>(src));
  } else {
    value = load_vector(src);
  }
  reinterpret_cast<uint4*>(run.dst + run.head)[chunk] = value;
}

}  // namespace

void launch(const FlatCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const FlatRun run{static_cast<char*>(params.dst), static_cast<const char*>(params.src),
                    copy.bytes, copy.head, copy.chunks};
  const auto kernel = copy.aligned ? copy_flat_kernel<true> : copy_flat_kernel<false>;
  kernel<<<grid_blocks(plan.blocks, "copy_flat"), kFlatThreads, 0, stream>>>(run);
}

}  // namespace memops
