// What every launcher uses. Included by .cu files and by C++ files that hold a stream.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/export.h"

namespace memops {

/// Throws std::runtime_error naming `kernel` if the launch just made was refused.
MEMOPS_API void check_launch(const char* kernel);

/// The number of blocks as a grid's x dimension; throws std::runtime_error past its limit, 2^31
/// - 1.
MEMOPS_API unsigned grid_blocks(std::int64_t blocks, const char* kernel);

}  // namespace memops
