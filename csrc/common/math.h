#pragma once

#include <concepts>

namespace memops {

template <std::integral T>
constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

}  // namespace memops
