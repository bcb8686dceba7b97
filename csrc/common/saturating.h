// Counts that stop at the largest int64: expanded views and tensors without memory have no bound.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace memops {

/// The product of numbers from 0, the largest int64 where it does not fit.
inline std::int64_t saturating_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors) {
    if (factor == 0) return 0;
    if (__builtin_mul_overflow(product, factor, &product)) {
      product = std::numeric_limits<std::int64_t>::max();
    }
  }
  return product;
}

/// The same for a sum.
inline std::int64_t saturating_sum(std::initializer_list<std::int64_t> terms) {
  std::int64_t sum = 0;
  for (const std::int64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) sum = std::numeric_limits<std::int64_t>::max();
  }
  return sum;
}

}  // namespace memops
