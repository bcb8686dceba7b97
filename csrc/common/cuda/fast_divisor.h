#pragma once

#include <cstdint>

#include "common/fast_divisor.h"

namespace memops {

struct QuotientRemainder {
  std::uint32_t quotient;
  std::uint32_t remainder;
};

/// n below 2^31.
__device__ inline QuotientRemainder divide(std::uint32_t n, const FastDivisor& by) {
  const std::uint32_t quotient = (__umulhi(n, by.multiplier) + n) >> by.shift;
  return {quotient, n - quotient * by.divisor};
}

}  // namespace memops
