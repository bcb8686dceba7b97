// From a width in bytes to the type that a kernel moves.
#pragma once

#include <vector_types.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace memops {

/// Calls `launch` with a value of the unsigned type that is `bytes` wide.
template <class Launch>
void by_element_width(int bytes, Launch&& launch) {
  switch (bytes) {
    case 1:
      return launch(std::uint8_t{});
    case 2:
      return launch(std::uint16_t{});
    case 4:
      return launch(std::uint32_t{});
    case 8:
      return launch(std::uint64_t{});
    case 16:
      return launch(uint4{});
  }
  throw std::runtime_error("memops: no kernel moves elements of " + std::to_string(bytes) +
                           " bytes");
}

}  // namespace memops
