// Structures of a few fields to planes and back: every thread turns as many structures as a
// 16-byte vector of a plane holds, in its registers.
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "common/cuda/element_width.h"
#include "common/cuda/launch.h"
#include "common/math.h"
#include "copy/kernels.h"
#include "copy/views.h"

namespace memops {
namespace {

constexpr int kWarp = 32;

struct FieldsArguments {
  char* dst;
  const char* src;
  std::uint32_t structures;
  std::int64_t plane_bytes;  // from one plane to the next
  FastDivisor blocks;        // of one batch index
  StridedViews<kMostBatchDimensions> batch;
};

/// Element `from(e)` of `in` becomes element e of `out`; all indices are known to the compiler.
template <int kBytes, int kWords, class From>
__device__ void permute(const std::uint32_t (&in)[kWords], std::uint32_t (&out)[kWords],
                        From from) {
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    if constexpr (kBytes >= 4) {
      constexpr int kPerElement = kBytes / 4;
      out[w] = in[from(w / kPerElement) * kPerElement + w % kPerElement];
    } else if constexpr (kBytes == 2) {
      const int a = from(2 * w);
      const int b = from(2 * w + 1);
      out[w] = __byte_perm(in[a / 2], in[b / 2], (a % 2 ? 0x32 : 0x10) | (b % 2 ? 0x7600 : 0x5400));
    } else {
      std::uint32_t half[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int a = from(4 * w + 2 * h);
        const int b = from(4 * w + 2 * h + 1);
        half[h] = __byte_perm(in[a / 4], in[b / 4], a % 4 | (4 + b % 4) << 4);
      }
      out[w] = __byte_perm(half[0], half[1], 0x5410);
    }
  }
}

/// Where chunk `c` of a warp's structures lies in shared memory: neighbouring threads, kFields
/// chunks apart, use different banks.
__device__ int place(int c) { return c ^ (c / 8 % 8); }

/// Without a number of blocks ptxas spills, to fit as many as shared memory allows.
constexpr int blocks_per_multiprocessor(int fields) { return fields > 8 ? 4 : 8; }

template <int kBytes, int kFields, bool kToPlanes>
__global__ void __launch_bounds__(kFieldsThreads, blocks_per_multiprocessor(kFields))
    copy_fields_kernel(const __grid_constant__ FieldsArguments a) {
  constexpr int kPerThread = kVectorBytes / kBytes;  // structures
  constexpr int kWords = 4 * kFields;
  __shared__ uint4 staged[kFieldsThreads * kFields];
  uint4* const chunks = staged + threadIdx.x / kWarp * kWarp * kFields;
  const int lane = threadIdx.x % kWarp;

  const auto [batch, block] = divide(blockIdx.x, a.blocks);
  const auto base = offsets_of<std::int64_t>(a.batch, batch);
  const std::uint32_t thread = block * kFieldsThreads + threadIdx.x;
  const std::uint32_t first_of_warp = (thread - lane) * kPerThread;
  if (first_of_warp >= a.structures) return;
  const bool active = thread * kPerThread < a.structures;
  const int warp_chunks =
      static_cast<int>(min((a.structures - first_of_warp) / kPerThread, kWarp)) * kFields;
  const std::int64_t structures_offset = std::int64_t{first_of_warp} * (kFields * kBytes);
  const std::int64_t plane_offset = std::int64_t{thread} * kVectorBytes;

  union {
    uint4 vectors[kFields];
    std::uint32_t words[kWords];
  } in, out;
  if constexpr (kToPlanes) {
    const auto* const src = reinterpret_cast<const uint4*>(a.src + base.src + structures_offset);
#pragma unroll
    for (int i = 0; i < kFields; ++i) {
      const int c = i * kWarp + lane;
      if (c < warp_chunks) in.vectors[i] = __ldg(src + c);
    }
#pragma unroll
    for (int i = 0; i < kFields; ++i) chunks[place(i * kWarp + lane)] = in.vectors[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kFields; ++i) in.vectors[i] = chunks[place(lane * kFields + i)];
    permute<kBytes>(in.words, out.words,
                    [](int e) { return e % kPerThread * kFields + e / kPerThread; });
    if (!active) return;
#pragma unroll
    for (int i = 0; i < kFields; ++i) {
      *reinterpret_cast<uint4*>(a.dst + base.dst + i * a.plane_bytes + plane_offset) =
          out.vectors[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kFields; ++i) {
      if (active) {
        in.vectors[i] = __ldg(
            reinterpret_cast<const uint4*>(a.src + base.src + i * a.plane_bytes + plane_offset));
      }
    }
    permute<kBytes>(in.words, out.words,
                    [](int e) { return e % kFields * kPerThread + e / kFields; });
#pragma unroll
    for (int i = 0; i < kFields; ++i) chunks[place(lane * kFields + i)] = out.vectors[i];
    __syncwarp();
    auto* const dst = reinterpret_cast<uint4*>(a.dst + base.dst + structures_offset);
#pragma unroll
    for (int i = 0; i < kFields; ++i) {
      const int c = i * kWarp + lane;
      if (c < warp_chunks) dst[c] = chunks[place(c)];
    }
  }
}

using Kernel = void (*)(FieldsArguments);

/// The kernel for `fields` of 2 to kMostFields.
template <int kBytes, bool kToPlanes, int... kIndices>
Kernel kernel_for(int fields, std::integer_sequence<int, kIndices...>) {
  constexpr Kernel kKernels[] = {copy_fields_kernel<kBytes, kIndices + 2, kToPlanes>...};
  return kKernels[fields - 2];
}

}  // namespace

void launch(const FieldsCopy& copy, const CopyPlan& plan, const CopyParams& params,
            cudaStream_t stream) {
  const int bytes = plan.layout.element_bytes;
  const FieldsArguments arguments{
      static_cast<char*>(params.dst),
      static_cast<const char*>(params.src),
      static_cast<std::uint32_t>(copy.structures),
      copy.plane_stride * bytes,
      FastDivisor(blocks_per_batch(copy, bytes)),
      StridedViews<kMostBatchDimensions>(copy.batch, bytes),
  };
  const unsigned grid = grid_blocks(plan.blocks, "copy_fields");
  const auto run = [&](auto element) {
    constexpr int kBytes = sizeof(element);
    constexpr std::make_integer_sequence<int, kMostFields - 1> kCounts{};
    const Kernel kernel = copy.to_planes ? kernel_for<kBytes, true>(copy.fields, kCounts)
                                         : kernel_for<kBytes, false>(copy.fields, kCounts);
    kernel<<<grid, kFieldsThreads, 0, stream>>>(arguments);
  };
  switch (bytes) {
    case 1:
      return run(std::uint8_t{});
    case 2:
      return run(std::uint16_t{});
    case 4:
      return run(std::uint32_t{});
    case 8:
      return run(std::uint64_t{});
  }
  throw std::runtime_error("memops: no copy_fields kernel for elements of " +
                           std::to_string(bytes) + " bytes");
}

}  // namespace memops
