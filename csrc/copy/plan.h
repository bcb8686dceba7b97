// Which kernel a copy takes, what it is given, and why.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "common/device_facts.h"
#include "common/export.h"
#include "common/plan_report.h"
#include "copy/box_lanes.h"
#include "copy/element_type.h"
#include "copy/layout.h"

namespace memops {

struct CopyProblem {
  CopyLayout layout;          // coalesced, not empty
  std::uint64_t dst_address;  // only the alignment is used
  std::uint64_t src_address;
  /// Where the dtypes differ. The layout's element_bytes are then the source's, and the addresses
  /// are multiples of each side's own width.
  std::optional<Cast> cast = std::nullopt;

  MEMOPS_API int dst_element_bytes() const;
};

// What the kernels are compiled with.
constexpr std::int64_t kVectorBytes = 16;  // the widest access of a thread
constexpr int kMostBatchDimensions = 6;    // that a block's index counts

constexpr int kFlatThreads = 128;

constexpr int kFieldsThreads = 128;
constexpr int kMostFields = 16;

constexpr int kMostRunDimensions = 3;  // of a tile

constexpr int kMostBoxDimensions = 6;
constexpr int kBoxThreads = 256;
constexpr int kBoxBlocks = 4;      // of a multiprocessor
constexpr int kBoxLoads = 5;       // 16 bytes each, of a thread and box
constexpr int kBoxVectors = 6;     // stores of a thread and box, where rows are long,
constexpr int kBoxElements = 12;   // and where they are short
constexpr int kMostBoxStages = 5;  // boxes in shared memory at once
constexpr int kBoxSharedBytes = 48 << 10;
constexpr int kBoxImageBytes = 19 << 10;
constexpr int kBoxTableBytes = 8 << 10;
constexpr std::uint32_t kBoxBegins = 64;
constexpr int kBoxBeginBytes = 1536;       // where the next boxes begin
constexpr std::int64_t kSectorBytes = 32;  // what DRAM reads before a part of it is written

constexpr int kCastLoadBytes = 32;  // of a thread, at most
constexpr int kCastStoreBytes = 16;

/// Elements of one store.
constexpr int cast_vector(int dst_bytes, int src_bytes) {
  return std::min(kCastStoreBytes / dst_bytes, kCastLoadBytes / src_bytes);
}

/// Stores of a thread: two where one would move less than a copy's thread does.
constexpr int cast_steps(int dst_bytes, int src_bytes) {
  return cast_vector(dst_bytes, src_bytes) * (dst_bytes + src_bytes) < 2 * kVectorBytes ? 2 : 1;
}

constexpr int kCopyThreads = 256;    // one element a thread and step
constexpr int kStridedElements = 4;  // of a thread
constexpr int kFewDimensions = 6;    // with kernels for each number of them

/// Elements of a tile along the destination's run (x) and the source's (y): 16 KB, lines of 128
/// bytes or more. Measured best of 32 to 256 a side and 64 to 1,024 threads (2026-12-01).
struct TileShape {
  int x;
  int y;
  int threads;
};
constexpr TileShape tile_shape(int element_bytes) {
  return element_bytes == 1 ? TileShape{128, 128, 256} : TileShape{64, 256 / element_bytes, 256};
}

/// Both views are one run of bytes.
struct FlatCopy {
  std::int64_t bytes;
  std::int64_t head;    // bytes before the first 16-byte store
  std::int64_t chunks;  // 16-byte stores
  bool aligned;         // the source's chunks lie on 16-byte boundaries too
};

/// Runs contiguous in both views along the innermost dimension; the others place them.
struct RowsCopy {
  std::int64_t run_bytes;
  std::int64_t vectors;             // of the destination that a row can touch
  bool aligned;                     // every row begins on a 16-byte boundary in both views
  std::vector<CopyDimension> rows;  // outermost first
};

/// Two runs that share no dimension, one dense in the destination (x), one in the source (y):
/// tiles of both through shared memory.
struct TileCopy {
  Run x;
  Run y;
  std::vector<CopyDimension> batch;  // outermost first
  TileShape tile;
  bool aligned_loads;   // every run of the source begins on a 16-byte boundary
  bool aligned_stores;  // every run of the destination is whole vectors on such boundaries
};

/// Structures of a few fields to planes, or planes to structures; every run begins on a 16-byte
/// boundary.
struct FieldsCopy {
  bool to_planes;
  std::int64_t fields;
  std::int64_t structures;
  std::int64_t plane_stride;         // elements
  std::vector<CopyDimension> batch;  // outermost first
};

MEMOPS_API std::int64_t blocks_per_batch(const FieldsCopy& copy, int element_bytes);

/// Boxes that are long in both views. Shared memory holds images of the spans of the source in
/// which a box's elements lie, on the same place between 16-byte boundaries, so that whole vectors
/// are loaded wherever the spans begin; whole vectors of the destination are gathered from them.
struct BoxCopy {
  struct Part {
    int index;  // of the layout's dimensions
    CopyDimension dimension;
    std::int64_t tile;   // elements of this dimension in one box
    std::int64_t step;   // from one box to the next; less than a tile where boxes overlap
    std::int64_t place;  // bytes from one element to the next in shared memory

    MEMOPS_API std::int64_t boxes() const;
  };
  std::vector<Part> src_rows;        // the dimensions that count a box's spans of the source
  std::vector<Part> dst_rows;        // those that count its runs of the destination
  std::vector<Part> columns;         // those along a run of the destination, innermost first
  std::vector<Part> cut;             // those of which a box holds a part only
  std::vector<CopyDimension> batch;  // the dimensions of which a box has one index, outermost first
  int overlap_cut = -1;  // the cut along which boxes overlap, so that each sector of the
                         // destination is written whole by one of them; or -1
  int element_bytes;
  std::int64_t elements;    // of a box
  std::int64_t span_bytes;  // of the source, one row
  std::int64_t dst_run;     // elements
  std::int64_t image_bytes;
  std::int64_t stages;  // images that are loaded or stored at once
  bool vectors;         // whole vectors are stored, else elements
  bool whole_sectors;   // every run of the destination is whole sectors on their boundaries
  std::int64_t row_vectors = 1;  // that a run of the destination can touch
  BoxLanes lanes;
  std::int64_t period;        // columns whose places the table holds; later ones repeat them,
  std::int64_t period_place;  // so many bytes on
  std::int64_t copies;        // of the table, each begins a column later

  MEMOPS_API std::int64_t boxes() const;
  MEMOPS_API std::int64_t spans() const;
  MEMOPS_API std::int64_t chunks() const;        // of 16 bytes that a box's spans can touch
  MEMOPS_API std::int64_t rows() const;          // of the destination
  MEMOPS_API std::int64_t stores() const;        // that a box can need
  MEMOPS_API std::int64_t table_stride() const;  // places of one copy of the table
  MEMOPS_API std::int64_t images_at() const;     // bytes of shared memory before them
  MEMOPS_API std::int64_t shared_bytes() const;
};

/// Element by element in the destination's order, any strides.
struct StridedCopy {
  bool wide_offsets;  // a byte offset passes 2^31
  bool packed;        // the destination is contiguous: neighbouring elements share a store
};

/// Runs contiguous in both views, converted in vectors on the destination's grid; one run in both
/// is a single row.
struct CastRows {
  std::int64_t run;                 // elements
  std::int64_t vectors;             // of the destination that a row can touch
  bool aligned;                     // every vector of both views lies on its boundaries
  std::vector<CopyDimension> rows;  // outermost first
};

/// A tile copy whose elements are converted when they are stored.
struct CastTile {
  TileCopy tile;
};

/// Element by element in the destination's order, any strides, converted.
struct CastStrided {
  bool wide_offsets;  // a byte offset passes 2^31, or there are more than kFewDimensions
};

struct CopyPlan {
  using Kernel = std::variant<FlatCopy, RowsCopy, FieldsCopy, TileCopy, BoxCopy, StridedCopy,
                              CastRows, CastTile, CastStrided>;

  Kernel kernel;
  CopyLayout layout;  // the elements that the kernel moves
  std::int64_t blocks;
  const char* reason;
  std::optional<Cast> cast = std::nullopt;  // the layout's element_bytes are the source's

  MEMOPS_API PlanReport report() const;
};

/// A part of a copy, at these byte offsets from its addresses.
struct CopyPiece {
  CopyProblem problem;
  std::int64_t dst_offset;
  std::int64_t src_offset;
};

/// The copy in pieces that plan_copy takes: elements that lie on multiples of their width, and few
/// enough for 31 bits, which all kernels but copy_flat need.
MEMOPS_API std::vector<CopyPiece> split_copy(CopyProblem problem);

MEMOPS_API const char* name(const CopyPlan::Kernel& kernel);

MEMOPS_API CopyPlan plan_copy(CopyProblem problem, const DeviceFacts& device);

}  // namespace memops
