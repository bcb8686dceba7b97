// A device-side assertion that NDEBUG cannot remove. Never in a file with wgmma: the call makes
// ptxas serialise it.
#pragma once

#include <cuda_runtime.h>

namespace memops {

/// Prints `message`, which names the op, with the block and the thread, and stops the kernel; the
/// process's CUDA context is lost.
__device__ inline void fail_assertion([[maybe_unused]] const char* message) {
#ifdef __CUDA_ARCH__  // CUDA's headers declare it in the device's pass only, with NDEBUG too
  __assert_fail(message, "torch_memops", 0, "kernel");
#endif
}

}  // namespace memops
