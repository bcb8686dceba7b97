// One element's conversion, as PyTorch's CUDA kernels do it (c10/util/TypeCast.h), and dispatch by
// the two types.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

#include "copy/element_type.h"

namespace memops {

/// A bool as it lies in memory: any byte but 0 is true.
enum class StoredBool : std::uint8_t {};

/// What moves `kBytes` at once, a power of two up to 16.
template <int kBytes>
using AccessOf = std::conditional_t<
    kBytes == 16, uint4,
    std::conditional_t<
        kBytes == 8, std::uint64_t,
        std::conditional_t<kBytes == 4, std::uint32_t,
                           std::conditional_t<kBytes == 2, std::uint16_t, std::uint8_t>>>>;

/// Elements side by side, and what moves them.
template <class Element, int kCount>
union ElementPack {
  static constexpr int kBytes = kCount * static_cast<int>(sizeof(Element));
  static constexpr int kWords = kBytes / 4;
  using Access = AccessOf < kBytes<16 ? kBytes : 16>;
  using Bits = AccessOf<sizeof(Element)>;
  static constexpr int kAccesses = kBytes / static_cast<int>(sizeof(Access));

  Access accesses[kAccesses];
  std::uint32_t words[kWords > 0 ? kWords : 1];
  Bits bits[kCount];
  Element values[kCount];
};

/// An element as a number that C++ converts: 16-bit floats through float32, also to each other.
template <class T>
__device__ auto number(T value) {
  if constexpr (std::is_same_v<T, StoredBool>) {
    return value != StoredBool{0};
  } else if constexpr (std::is_same_v<T, __half>) {
    return __half2float(value);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    return __bfloat162float(value);
  } else {
    return value;
  }
}

/// Out of range and NaN to integers: what the device's own instructions give. uint8 goes through
/// int64, float64 to 16-bit floats through float32 (rounded twice).
template <class Dst, class Src>
__device__ Dst convert(Src value) {
  if constexpr (std::is_same_v<Dst, StoredBool>) {
    return static_cast<StoredBool>(static_cast<bool>(number(value)));
  } else if constexpr (std::is_same_v<Dst, std::uint8_t>) {
    return static_cast<std::uint8_t>(static_cast<std::int64_t>(number(value)));
  } else if constexpr (std::is_same_v<Dst, __half>) {
    return __float2half_rn(static_cast<float>(number(value)));
  } else if constexpr (std::is_same_v<Dst, __nv_bfloat16>) {
    return __float2bfloat16_rn(static_cast<float>(number(value)));
  } else {
    return static_cast<Dst>(number(value));
  }
}

template <class Dst, class Src, int kCount>
__device__ ElementPack<Dst, kCount> convert(const ElementPack<Src, kCount>& from) {
  ElementPack<Dst, kCount> to;
#pragma unroll
  for (int i = 0; i < kCount; ++i) to.values[i] = convert<Dst>(from.values[i]);
  return to;
}

/// In the order of ElementType.
using StoredTypes = std::tuple<StoredBool, std::uint8_t, std::int8_t, std::int16_t, std::int32_t,
                               std::int64_t, __half, __nv_bfloat16, float, double>;
/// The type as it lies in memory.
template <ElementType kType>
using Stored = std::tuple_element_t<static_cast<std::size_t>(kType), StoredTypes>;

/// Calls `launch` with the type as an integral constant.
template <class Launch>
void by_element_type(ElementType type, Launch&& launch) {
  const auto found = [&]<std::size_t... kIndices>(std::index_sequence<kIndices...>) {
    return ((static_cast<std::size_t>(type) == kIndices &&
             (launch(std::integral_constant<ElementType, ElementType{kIndices}>{}), true)) ||
            ...);
  };
  if (!found(std::make_index_sequence<std::tuple_size_v<StoredTypes>>{})) {
    throw std::runtime_error("memops: no kernel for elements of this type");
  }
}

/// The same with both types of a cast, which differ.
template <class Launch>
void by_cast(const Cast& cast, Launch&& launch) {
  by_element_type(cast.dst, [&](auto dst) {
    by_element_type(cast.src, [&](auto src) {
      if constexpr (dst() != src()) {
        launch(dst, src);
      } else {
        throw std::runtime_error("memops: a cast between equal types");
      }
    });
  });
}

}  // namespace memops
