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

/// Sixteen bytes of two neighbouring vectors, from byte `begin` (0 to 15) of the first on.
__device__ inline uint4 shift_vectors(const uint4& low, const uint4& high, unsigned begin) {
  const std::uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  std::uint32_t from[5];
#pragma unroll
  for (int w = 0; w < 5; ++w) {
    const std::uint32_t even = begin & 4 ? words[w + 1] : words[w];
    const std::uint32_t odd = w + 3 < 8 ? (begin & 4 ? words[w + 3] : words[w + 2]) : 0;
    from[w] = begin & 8 ? odd : even;
  }
  const unsigned shift = 8 * (begin & 3);
  return {__funnelshift_r(from[0], from[1], shift), __funnelshift_r(from[1], from[2], shift),
          __funnelshift_r(from[2], from[3], shift), __funnelshift_r(from[3], from[4], shift)};
}

/// The 16 bytes at `src`, from the one or two aligned vectors that hold them: up to 15 bytes on
/// either side are read too, and must be the source's.
__device__ inline uint4 load_vector(const char* src) {
  const auto address = reinterpret_cast<std::uintptr_t>(src);
  const auto begin = static_cast<unsigned>(address & 15);
  const auto* const vectors = reinterpret_cast<const uint4*>(address & ~std::uintptr_t{15});
  const uint4 low = __ldg(vectors);
  return begin == 0 ? low : shift_vectors(low, __ldg(vectors + 1), begin);
}

/// The bytes from `begin` to `end` of a source: behind them nothing is read, before them the rest
/// of an aligned word at most.
struct SourceBytes {
  const char* begin;
  const char* end;

  /// The 16 bytes at `src`, 0 for those at `end` and beyond; `src` < `end`.
  __device__ uint4 load(const char* src) const {
    if (src - begin >= 15 && end - src >= 31) return load_vector(src);
    std::uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) words[w] = src + 4 * w < end ? load_word(src + 4 * w, end) : 0;
    return {words[0], words[1], words[2], words[3]};
  }
};

}  // namespace memops
