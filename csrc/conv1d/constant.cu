// One filter whose taps are an argument of the launch: they sit in the constant bank of that launch
// alone, so no stream, thread or captured graph can see another's.
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "common/cuda/float_type.h"
#include "common/cuda/launch.h"
#include "conv1d/constant.h"

namespace memops {
namespace {

constexpr int kThreads = kConstantThreads;
constexpr int kOutputs = kConstantOutputsPerThread;
constexpr int kPartialTerms = 32;  // products that are summed before they join the total
constexpr std::int64_t kNoRow = -1;
constexpr std::size_t kMostArgumentBytes = 32764;  // of a launch

template <class A, int kTaps>
struct Filter {
  A taps[kTaps];
};

/// One launch: some of the tiles, some of the taps.
struct Pass {
  std::int64_t rows;
  std::int64_t length;
  std::int64_t out_length;
  std::int64_t step;
  std::int64_t left;  // before the first of this launch's taps
  std::int64_t first_tile;
  std::int64_t tiles_a_row;
  int tile_rows;
  int tile_outputs;
  int tile_pitch;
  int taps_per_pass;
  int taps;
  bool continues;   // there are sums of an earlier launch
  bool unfinished;  // a later launch adds to these sums
  int row_rank;
  std::int64_t row_sizes[kMaxRowDimensions];
  std::int64_t row_strides[kMaxRowDimensions];
};

__device__ std::int64_t row_offset(const Pass& pass, std::int64_t row) {
  std::int64_t offset = 0;
  for (int d = pass.row_rank - 1; d >= 0; --d) {
    const std::int64_t rest = row / pass.row_sizes[d];
    offset += (row - rest * pass.row_sizes[d]) * pass.row_strides[d];
    row = rest;
  }
  return offset;
}

/// Inputs and halo of a tile for the taps from `first_tap` on; zero outside the rows.
template <class T>
__device__ void fill_tile(Accumulator<T>* tile, const T* input, const std::int64_t* row_offsets,
                          const Pass& pass, std::int64_t origin, int inputs) {
  for (int i = threadIdx.x; i < pass.tile_rows * inputs; i += kThreads) {
    const int row = pass.tile_rows == 1 ? 0 : i / inputs;
    const int column = i - row * inputs;
    const std::int64_t offset = row_offsets[row];
    const std::int64_t position = origin + column;
    Accumulator<T> value = 0;
    if (offset != kNoRow && position >= 0 && position < pass.length) {
      value = widen(input[offset + position * pass.step]);
    }
    tile[row * pass.tile_pitch + column] = value;
  }
}

template <class T, int kTaps>
__global__ void __launch_bounds__(kThreads)
    conv1d_constant_kernel(T* const output, const T* const input, Accumulator<T>* const scratch,
                           const __grid_constant__ Pass pass,
                           const __grid_constant__ Filter<Accumulator<T>, kTaps> filter) {
  using A = Accumulator<T>;
  __shared__ A tile[kConstantTileInputs];
  __shared__ std::int64_t row_offsets[kThreads];
  const std::int64_t tile_number = pass.first_tile + blockIdx.x;
  const std::int64_t first_row = tile_number / pass.tiles_a_row * pass.tile_rows;
  const std::int64_t first_output = tile_number % pass.tiles_a_row * pass.tile_outputs;
  const std::int64_t own_row = first_row + threadIdx.x;
  row_offsets[threadIdx.x] = own_row < pass.rows ? row_offset(pass, own_row) : kNoRow;

  // A thread without an output works on the tile's first and stores nothing.
  const int tile_size = pass.tile_rows * pass.tile_outputs;
  int at[kOutputs];
#pragma unroll
  for (int i = 0; i < kOutputs; ++i) {
    const int output_number = threadIdx.x + i * kThreads;
    const int row = output_number / pass.tile_outputs;
    at[i] = output_number < tile_size
                ? row * pass.tile_pitch + output_number - row * pass.tile_outputs
                : 0;
  }

  A total[kOutputs] = {};
  for (int first_tap = 0; first_tap < pass.taps; first_tap += pass.taps_per_pass) {
    const int taps = min(pass.taps_per_pass, pass.taps - first_tap);
    __syncthreads();  // the row offsets are there, the previous filling is used up
    fill_tile(tile, input, row_offsets, pass, first_output - pass.left + first_tap,
              pass.tile_outputs + taps - 1);
    __syncthreads();
    for (int begin = 0; begin < taps; begin += kPartialTerms) {
      const int end = min(begin + kPartialTerms, taps);
      A partial[kOutputs] = {};
#pragma unroll 8
      for (int k = begin; k < end; ++k) {
        const A tap = filter.taps[first_tap + k];
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) partial[i] = fma(tap, tile[at[i] + k], partial[i]);
      }
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) total[i] += partial[i];
    }
  }

#pragma unroll
  for (int i = 0; i < kOutputs; ++i) {
    const int output_number = threadIdx.x + i * kThreads;
    if (output_number >= tile_size) continue;
    const int tile_row = output_number / pass.tile_outputs;
    const std::int64_t row = first_row + tile_row;
    const std::int64_t position = first_output + output_number - tile_row * pass.tile_outputs;
    if (row >= pass.rows || position >= pass.out_length) continue;
    const std::int64_t index = row * pass.out_length + position;
    if constexpr (std::is_same_v<T, A>) {
      output[index] = pass.continues ? output[index] + total[i] : total[i];
    } else {
      const std::int64_t slot = std::int64_t{blockIdx.x} * tile_size + output_number;
      const A sum = pass.continues ? scratch[slot] + total[i] : total[i];
      if (pass.unfinished) {
        scratch[slot] = sum;
      } else {
        output[index] = narrow<T>(sum);
      }
    }
  }
}

template <class T, int kTaps>
void launch_pass(const Conv1dConstantParams& params, const Pass& pass, const double* taps,
                 unsigned grid, cudaStream_t stream) {
  using A = Accumulator<T>;
  static_assert(3 * sizeof(void*) + sizeof(Pass) + sizeof(Filter<A, kTaps>) <= kMostArgumentBytes);
  Filter<A, kTaps> filter{};
  std::transform(taps, taps + pass.taps, filter.taps, [](double t) { return static_cast<A>(t); });
  conv1d_constant_kernel<T, kTaps><<<grid, kThreads, 0, stream>>>(
      static_cast<T*>(params.output), static_cast<const T*>(params.input),
      static_cast<A*>(params.scratch), pass, filter);
  check_launch("conv1d_constant");
}

template <class T>
void launch_class(int size, const Conv1dConstantParams& params, const Pass& pass,
                  const double* taps, unsigned grid, cudaStream_t stream) {
  constexpr auto& kClasses = std::is_same_v<T, double> ? kTapClassesDouble : kTapClasses;
  switch (size) {
    case kClasses[0]:
      return launch_pass<T, kClasses[0]>(params, pass, taps, grid, stream);
    case kClasses[1]:
      return launch_pass<T, kClasses[1]>(params, pass, taps, grid, stream);
    case kClasses[2]:
      return launch_pass<T, kClasses[2]>(params, pass, taps, grid, stream);
    case kClasses[3]:
      return launch_pass<T, kClasses[3]>(params, pass, taps, grid, stream);
  }
  throw std::runtime_error("memops: no conv1d_constant kernel of " + std::to_string(size) +
                           " taps");
}

Pass whole_pass(const Conv1dConstantPlan& plan, const Conv1dConstantParams& params) {
  if (params.rows.size() > kMaxRowDimensions) {
    throw std::runtime_error("memops: conv1d_constant over too many row dimensions");
  }
  const Conv1dConstantProblem& problem = plan.problem;
  Pass pass{.rows = problem.rows,
            .length = problem.length,
            .out_length = problem.out_length,
            .step = params.step,
            .left = params.left,
            .first_tile = 0,
            .tiles_a_row = (problem.out_length + plan.tile_outputs - 1) / plan.tile_outputs,
            .tile_rows = plan.tile_rows,
            .tile_outputs = plan.tile_outputs,
            .tile_pitch = plan.tile_pitch,
            .taps_per_pass = plan.taps_per_pass,
            .taps = 0,
            .continues = false,
            .unfinished = false,
            .row_rank = static_cast<int>(params.rows.size()),
            .row_sizes = {},
            .row_strides = {}};
  for (std::size_t d = 0; d < params.rows.size(); ++d) {
    pass.row_sizes[d] = params.rows[d].size;
    pass.row_strides[d] = params.rows[d].stride;
  }
  return pass;
}

template <class T>
void launch_tiles(const Conv1dConstantPlan& plan, const Conv1dConstantParams& params,
                  cudaStream_t stream) {
  Pass pass = whole_pass(plan, params);
  const auto taps = static_cast<std::int64_t>(params.taps.size());
  for (std::int64_t tile = 0; tile < plan.tiles; tile += plan.panel_tiles) {
    const unsigned grid =
        grid_blocks(std::min(plan.panel_tiles, plan.tiles - tile), "conv1d_constant");
    pass.first_tile = tile;
    for (std::int64_t first = 0; first < taps; first += plan.taps_per_launch) {
      pass.taps = static_cast<int>(std::min(plan.taps_per_launch, taps - first));
      pass.left = params.left - first;
      pass.continues = first > 0;
      pass.unfinished = first + pass.taps < taps;
      launch_class<T>(tap_class(plan.problem.type, pass.taps), params, pass,
                      params.taps.data() + first, grid, stream);
    }
  }
}

}  // namespace

void launch_conv1d_constant(const Conv1dConstantPlan& plan, const Conv1dConstantParams& params,
                            cudaStream_t stream) {
  if (plan.kernel != Conv1dConstantKernel::kTile) {
    throw std::runtime_error("memops: the conv1d_constant plan names no kernel");
  }
  by_float_type(plan.problem.type,
                [&](auto element) { launch_tiles<decltype(element)>(plan, params, stream); });
}

}  // namespace memops
