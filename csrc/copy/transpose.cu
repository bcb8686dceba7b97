// Source and destination contiguous along different dimensions: 32 x 32 tiles through shared
// memory.
#include <cstdint>
#include <string>

#include "common/cuda/launch.h"
#include "common/math.h"
#include "copy/copy.h"
#include "copy/views.h"

namespace memops {
namespace {

constexpr int kTile = 32;
constexpr int kRows = 8;  // rows of the tile moved at once: 256 threads

struct TileGrid {
  CopyDimension x;  // contiguous in the destination
  CopyDimension y;  // contiguous in the source
  std::int64_t x_tiles;
  std::int64_t y_tiles;
  StridedViews batch;  // the other dimensions
};

template <class Element>
__global__ void __launch_bounds__(kTile* kRows)
    copy_transpose_kernel(Element* dst, const Element* src, const __grid_constant__ TileGrid grid) {
  // One element of padding a row frees the column reads of bank conflicts at every element width.
  __shared__ Element tile[kTile][kTile + 1];
  const std::int64_t x_tile = blockIdx.x % grid.x_tiles;
  const std::int64_t rest = blockIdx.x / grid.x_tiles;
  const std::int64_t y_tile = rest % grid.y_tiles;
  const ViewOffsets<std::int64_t> base = offsets_of(grid.batch, rest / grid.y_tiles);

  const std::int64_t x0 = x_tile * kTile;
  const std::int64_t y0 = y_tile * kTile;
  const std::int64_t load_y = y0 + threadIdx.x;
#pragma unroll
  for (int row = threadIdx.y; row < kTile; row += kRows) {
    if (x0 + row < grid.x.size && load_y < grid.y.size) {
      tile[row][threadIdx.x] = src[base.src + (x0 + row) * grid.x.src_stride + load_y];
    }
  }
  __syncthreads();
  const std::int64_t store_x = x0 + threadIdx.x;
#pragma unroll
  for (int row = threadIdx.y; row < kTile; row += kRows) {
    if (y0 + row < grid.y.size && store_x < grid.x.size) {
      dst[base.dst + (y0 + row) * grid.y.dst_stride + store_x] = tile[threadIdx.x][row];
    }
  }
}

}  // namespace

void launch_copy_transpose(const CopyPlan& plan, const CopyParams& params, cudaStream_t stream) {
  const auto& dims = plan.layout.dimensions;
  const int last = static_cast<int>(dims.size()) - 1;
  TileGrid tiles{.x = dims[last],
                 .y = dims[plan.src_dimension],
                 .x_tiles = ceil_div<std::int64_t>(dims[last].size, kTile),
                 .y_tiles = ceil_div<std::int64_t>(dims[plan.src_dimension].size, kTile),
                 .batch = {}};
  std::int64_t batch = 1;
  for (int d = 0; d < last; ++d) {
    if (d == plan.src_dimension) continue;
    tiles.batch.append(dims[d]);
    batch *= dims[d].size;
  }
  const unsigned grid = grid_blocks(tiles.x_tiles * tiles.y_tiles * batch, "copy_transpose");
  by_element_width(plan.layout.element_bytes, [&](auto element) {
    using Element = decltype(element);
    copy_transpose_kernel<Element><<<grid, dim3(kTile, kRows), 0, stream>>>(
        static_cast<Element*>(params.dst), static_cast<const Element*>(params.src), tiles);
  });
  check_launch("copy_transpose");
}

}  // namespace memops
