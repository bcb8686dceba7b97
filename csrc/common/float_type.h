// The floating types that the arithmetic kernels take, for code that knows no PyTorch.
#pragma once

#include <cstdint>
#include <stdexcept>

namespace memops {

enum class FloatType { kHalf, kBFloat16, kFloat, kDouble };

constexpr int bytes_of(FloatType type) {
  switch (type) {
    case FloatType::kHalf:
    case FloatType::kBFloat16:
      return 2;
    case FloatType::kFloat:
      return 4;
    case FloatType::kDouble:
      return 8;
  }
  throw std::runtime_error("memops: not one of the floating types");
}

/// Sums are kept in float32, those of float64 in float64.
constexpr std::int64_t accumulator_bytes(FloatType type) {
  return type == FloatType::kDouble ? 8 : 4;
}

constexpr const char* name(FloatType type) {
  switch (type) {
    case FloatType::kHalf:
      return "float16";
    case FloatType::kBFloat16:
      return "bfloat16";
    case FloatType::kFloat:
      return "float32";
    case FloatType::kDouble:
      return "float64";
  }
  throw std::runtime_error("memops: not one of the floating types");
}

}  // namespace memops
