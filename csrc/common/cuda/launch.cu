#include <stdexcept>
#include <string>

#include "common/cuda/launch.h"

namespace memops {

void check_launch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) {
    throw std::runtime_error(std::string("memops: launching ") + kernel +
                             " failed: " + cudaGetErrorString(error));
  }
}

unsigned grid_blocks(std::int64_t blocks, const char* kernel) {
  constexpr std::int64_t kMaxBlocks = (std::int64_t{1} << 31) - 1;
  if (blocks < 1 || blocks > kMaxBlocks) {
    throw std::runtime_error(std::string("memops: ") + kernel + " would need " +
                             std::to_string(blocks) + " blocks, the device takes 1 to 2^31 - 1");
  }
  return static_cast<unsigned>(blocks);
}

}  // namespace memops
