// Bytes from any address in aligned words.
#pragma once

#include <cstdint>

namespace memops {

/// The four bytes at `src`, of which those at `end` and beyond read as 0 and are not touched;
/// `src` < `end`. Reads up to three bytes before `src`, which lie in the same allocation because
/// an allocation begins on a multiple of four.
__device__ inline std::uint32_t load_word(const char* src, const char* end) {
  const auto misalignment = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(src) & 3);
  const auto within = [end](const char* at) {
    if (at + 4 <= end) return __ldg(reinterpret_cast<const std::uint32_t*>(at));
    std::uint32_t word = 0;
#pragma unroll 1  // a row's last word alone: unrolled, it is most of a tile kernel's code
    for (int i = 0; at + i < end; ++i) {
      word |= static_cast<std::uint32_t>(static_cast<unsigned char>(at[i])) << (8 * i);
    }
    return word;
  };
  const char* const aligned = src - misalignment;
  const std::uint32_t low = within(aligned);
  if (misalignment == 0) return low;
  return __funnelshift_r(low, within(aligned + 4), 8 * misalignment);
}

/// The bytes at `src` as words, all of them inside the source, as are the up to three on either
/// side.
template <int kWords>
__device__ void load_words(const char* src, std::uint32_t (&out)[kWords]) {
  const auto address = reinterpret_cast<std::uintptr_t>(src);
  const unsigned shift = 8 * (address & 3);
  const auto* words = reinterpret_cast<const std::uint32_t*>(address & ~std::uintptr_t{3});
  std::uint32_t w[kWords + 1];
#pragma unroll
  for (int i = 0; i < kWords; ++i) w[i] = __ldg(words + i);
  w[kWords] = shift == 0 ? 0 : __ldg(words + kWords);
#pragma unroll
  for (int i = 0; i < kWords; ++i) out[i] = __funnelshift_r(w[i], w[i + 1], shift);
}

/// The same for 16 bytes.
__device__ inline uint4 load_vector(const char* src) {
  std::uint32_t w[4];
  load_words(src, w);
  return {w[0], w[1], w[2], w[3]};
}

}  // namespace memops
