// The dtypes between which copies convert, for code that knows no PyTorch.
#pragma once

#include <stdexcept>

namespace memops {

enum class ElementType {
  kBool,
  kUInt8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64
};

/// The dtypes of a copy that converts; they differ.
struct Cast {
  ElementType dst;
  ElementType src;

  bool operator==(const Cast&) const = default;
};

constexpr bool is_float_of_32_or_16_bits(ElementType type) {
  return type == ElementType::kFloat32 || type == ElementType::kFloat16 ||
         type == ElementType::kBFloat16;
}

/// The pairs whose tiles are turned and converted in one pass.
constexpr bool has_tile_kernel(const Cast& cast) {
  return is_float_of_32_or_16_bits(cast.dst) &&
         (is_float_of_32_or_16_bits(cast.src) || cast.src == ElementType::kUInt8 ||
          cast.src == ElementType::kInt8);
}

constexpr int bytes_of(ElementType type) {
  switch (type) {
    case ElementType::kBool:
    case ElementType::kUInt8:
    case ElementType::kInt8:
      return 1;
    case ElementType::kInt16:
    case ElementType::kFloat16:
    case ElementType::kBFloat16:
      return 2;
    case ElementType::kInt32:
    case ElementType::kFloat32:
      return 4;
    case ElementType::kInt64:
    case ElementType::kFloat64:
      return 8;
  }
  throw std::runtime_error("memops: not one of the types that copies convert");
}

constexpr const char* name(ElementType type) {
  switch (type) {
    case ElementType::kBool:
      return "bool";
    case ElementType::kUInt8:
      return "uint8";
    case ElementType::kInt8:
      return "int8";
    case ElementType::kInt16:
      return "int16";
    case ElementType::kInt32:
      return "int32";
    case ElementType::kInt64:
      return "int64";
    case ElementType::kFloat16:
      return "float16";
    case ElementType::kBFloat16:
      return "bfloat16";
    case ElementType::kFloat32:
      return "float32";
    case ElementType::kFloat64:
      return "float64";
  }
  throw std::runtime_error("memops: not one of the types that copies convert");
}

}  // namespace memops
