// Division by a number that is fixed at launch, as a multiplication and a shift.
#pragma once

#include <bit>
#include <cstdint>

namespace memops {

/// n / divisor for n below 2^31 is (mulhi(n, multiplier) + n) >> shift
/// (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
struct FastDivisor {
  std::uint32_t divisor = 1;
  std::uint32_t multiplier = 1;
  std::uint32_t shift = 0;

  FastDivisor() = default;
  /// `value`: 1 to 2^31 - 1.
  explicit constexpr FastDivisor(std::int64_t value)
      : divisor(static_cast<std::uint32_t>(value)),
        shift(static_cast<std::uint32_t>(std::bit_width(divisor - 1))) {
    const std::uint64_t excess = (std::uint64_t{1} << shift) - divisor;
    multiplier = static_cast<std::uint32_t>((excess << 32) / divisor + 1);
  }
};

}  // namespace memops
