"""Every copy kernel on the GPU, bit for bit: views that each of them takes, aligned and not.

Small tensors are planned for a device without an L2 to speak of, where otherwise element-by-element
copies would take most of them. The plans themselves are tested in test_plan_copy.py, without a GPU.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Iterable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.devices import name
from support.tensors import GuardedView, random_bits, strides_in_order, to_bytes
from torch import Tensor

import torch_memops
from torch_memops import DeviceFacts

pytestmark = pytest.mark.cuda

WIDTHS = (torch.uint8, torch.bfloat16, torch.float32, torch.int64, torch.complex128)
every_width = pytest.mark.parametrize("dtype", WIDTHS, ids=name)

NO_CACHE = DeviceFacts(l2_bytes=1)
FEW_BLOCKS = DeviceFacts(l2_bytes=1, multiprocessors=1)  # that move many boxes each


def some_sanitized(values: Iterable[Any], chosen: Container[Any]) -> list[Any]:
    """The parameters, of which the chosen ones alone run under compute-sanitizer too."""
    return [
        pytest.param(value, marks=pytest.mark.sanitize) if value in chosen else value
        for value in values
    ]


def copy_into(dst: Tensor, src: Tensor, device: DeviceFacts = NO_CACHE) -> str:
    """Copies by the plan for `device`; the kernel's name."""
    facts = (
        device.compute_capability,
        device.multiprocessors,
        device.l2_bytes,
        device.shared_bytes_per_block,
    )
    torch.ops.memops._copy_into_planned.default(dst, src, facts)
    return torch_memops.plan("copy_", dst, src, device=device).kernel


def check(
    dtype: torch.dtype,
    shape: tuple[int, ...],
    order: tuple[int, ...],
    src_pitch: int = 0,
    dst_pitch: int = 0,
    offsets: tuple[int, int] = (0, 0),
    device: DeviceFacts = NO_CACHE,
) -> str:
    """Copies a source that lies in memory in `order` to a destination in the natural order, both
    with guards round them; the kernel's name."""
    values = random_bits(shape, dtype)
    natural = tuple(range(len(shape)))
    src = GuardedView(values, strides_in_order(shape, order, pitch=src_pitch), offsets[0], "cuda")
    dst = GuardedView(
        torch.zeros_like(values),
        strides_in_order(shape, natural, pitch=dst_pitch),
        offsets[1],
        "cuda",
    )
    kernel = copy_into(dst.view, src.view, device)
    assert torch.equal(to_bytes(dst.view), to_bytes(values))
    src.assert_untouched()
    dst.assert_only_view_written()
    return kernel


@pytest.mark.sanitize
@every_width
@pytest.mark.parametrize("offsets", [(0, 0), (1, 0), (0, 3), (5, 9)], ids=str)
def test_flat(dtype: torch.dtype, offsets: tuple[int, int]) -> None:
    for count in (1, 15, 64, 2049):
        assert check(dtype, (count,), (0,), offsets=offsets) == "copy_flat"


@pytest.mark.sanitize
@every_width
@pytest.mark.parametrize("pitch", [(0, 4), (16, 0), (1, 3)], ids=str)
def test_rows(dtype: torch.dtype, pitch: tuple[int, int]) -> None:
    row = 1023 if pitch == (1, 3) else 1024 // dtype.itemsize
    kernels = {
        check(dtype, (5, 7, row), (1, 0, 2), *pitch),
        check(dtype, (3, row), (0, 1), *pitch, offsets=(2, 1)),
    }
    assert "copy_rows" in kernels


@pytest.mark.parametrize("fields", some_sanitized(range(2, 17), (2, 3, 7, 16)))
@pytest.mark.parametrize("dtype", WIDTHS[:4], ids=name)
def test_fields(dtype: torch.dtype, fields: int) -> None:
    count = 16 * 117  # not a whole number of blocks, nor of warps
    assert check(dtype, (fields, count), (1, 0)) == "copy_fields"
    assert check(dtype, (count, fields), (1, 0)) == "copy_fields"
    assert check(dtype, (3, fields, count), (0, 2, 1)) == "copy_fields"
    assert check(dtype, (3, count, fields), (0, 2, 1)) == "copy_fields"


SIDES = {1: (257, 384), 2: (193, 384), 4: (129, 192), 8: (97, 128), 16: (100, 60)}


@pytest.mark.sanitize
@every_width
def test_tiles_of_whole_vectors(dtype: torch.dtype) -> None:
    rows, columns = SIDES[dtype.itemsize]
    rows += -rows % (16 // dtype.itemsize)
    assert check(dtype, (columns, rows), (1, 0)) == "copy_tile"
    assert check(dtype, (2, columns, 3, rows), (2, 0, 3, 1)) == "copy_tile"
    # runs of several dimensions: the source's innermost and the destination's are 8 long
    assert check(dtype, (16, 8, 16, 8, 16, 8), (5, 4, 3, 2, 1, 0)) == "copy_tile"


@pytest.mark.parametrize("offsets", [(0, 0), (1, 0), (0, 1), (3, 7)], ids=str)
@pytest.mark.parametrize(
    "pitch", some_sanitized([(0, 0), (1, 0), (0, 1), (5, 2)], [(0, 0), (5, 2)]), ids=str
)
def test_tiles_of_bytes_begin_anywhere(offsets: tuple[int, int], pitch: tuple[int, int]) -> None:
    rows, columns = SIDES[1]
    for shape, order in (((columns, rows), (1, 0)), ((3, columns, rows), (0, 2, 1))):
        assert check(torch.uint8, shape, order, *pitch, offsets, FEW_BLOCKS) == "copy_tile"


BOXES = (
    # shape of the result, order of its dimensions in the source
    ((9, 11, 7, 10), (1, 0, 3, 2)),
    ((31, 5, 18, 19), (0, 1, 3, 2)),
    ((50, 60, 3), (1, 0, 2)),
    ((2000, 5), (1, 0)),
    ((5, 2001), (1, 0)),
    ((6, 5, 4, 3, 2, 7), (5, 4, 3, 2, 1, 0)),
    ((4, 3, 64, 65), (3, 0, 2, 1)),
    ((1031, 77), (1, 0)),
    ((193, 385), (1, 0)),
    ((96, 3, 128), (2, 1, 0)),
    ((3, 4000), (1, 0)),
    ((7, 5, 3, 301), (2, 1, 3, 0)),
)


@every_width
@pytest.mark.parametrize("box", BOXES, ids=lambda box: "x".join(map(str, box[0])))
@pytest.mark.parametrize("pitch", some_sanitized([(0, 0), (3, 0), (0, 5)], [(3, 0)]), ids=str)
def test_boxes(
    dtype: torch.dtype,
    box: tuple[tuple[int, ...], tuple[int, ...]],
    pitch: tuple[int, int],
) -> None:
    shape, order = box
    for offsets in ((0, 0), (1, 3)):
        check(dtype, shape, order, *pitch, offsets)
        check(dtype, shape, order, *pitch, offsets, FEW_BLOCKS)


@every_width
def test_boxes_are_taken(dtype: torch.dtype) -> None:
    """The shapes above reach the kernel that they are for."""
    taken = [check(dtype, shape, order) for shape, order in BOXES]
    assert taken.count("copy_box") >= 6


def box_of_short_rows(dtype: torch.dtype, rows: int, row: int, device: DeviceFacts) -> Any:
    """Moves rows of `row` elements with gaps; the plan's facts."""
    values = random_bits((rows, row), dtype)
    src = GuardedView(values, (1, rows), 1, "cuda")
    dst = GuardedView(torch.zeros_like(values), (row + 2, 1), 1, "cuda")
    assert copy_into(dst.view, src.view, device) == "copy_box"
    assert torch.equal(to_bytes(dst.view), to_bytes(values))
    dst.assert_only_view_written()
    return torch_memops.plan("copy_", dst.view, src.view, device=device).facts


@pytest.mark.sanitize
@every_width
def test_rows_too_short_for_vectors(dtype: torch.dtype) -> None:
    stores = {
        box_of_short_rows(dtype, 3001, row, device)["vector_stores"]
        for row in (2, 3, 5, 7)
        for device in (NO_CACHE, FEW_BLOCKS)
    }
    assert 0 in stores


@every_width
def test_blocks_of_more_boxes_than_they_place_at_once(dtype: torch.dtype) -> None:
    facts = box_of_short_rows(dtype, 600_001, 3, FEW_BLOCKS)
    assert facts["boxes"] > 64 * facts["blocks"]
    if dtype in WIDTHS[1:4]:
        facts = box_of_short_rows(dtype, 2051, 1025, FEW_BLOCKS)
        assert facts["vector_stores"]
        assert facts["boxes"] > 64 * facts["blocks"]


@pytest.mark.sanitize
@every_width
def test_strided(dtype: torch.dtype) -> None:
    cached = DeviceFacts()
    for shape, order in BOXES:
        for pitch in ((0, 0), (2, 3)):
            check(dtype, shape, order, *pitch, (1, 2), device=cached)
    values = random_bits((301, 7), dtype)
    for step in (2, 3, 32):
        src = GuardedView(values, (7 * step, step), 1, "cuda")
        out = torch.empty((301, 7), dtype=dtype, device="cuda")
        copy_into(out, src.view, cached)
        assert torch.equal(to_bytes(out), to_bytes(values))
        copy_into(out.zero_(), src.view)
        assert torch.equal(to_bytes(out), to_bytes(values))


@every_width
def test_many_dimensions(dtype: torch.dtype) -> None:
    """More than the kernels of known rank take: 12 dimensions of 2 and 3, reversed."""
    shape = (2, 3, 2, 2, 3, 2, 2, 2, 3, 2, 2, 2)
    check(dtype, shape, tuple(reversed(range(12))))
    check(dtype, shape, tuple(reversed(range(12))), 1, 1, (1, 1))


@every_width
def test_repeated_sources(dtype: torch.dtype) -> None:
    """Broadcast (stride 0) and overlapping (sliding windows) sources."""
    row = random_bits((70,), dtype).cuda()
    windows = row.unfold(0, 9, 1)
    long_row = random_bits((37 * 210 + 417,), dtype).cuda()
    for src in (
        row.expand(90, 70),
        row[:, None].expand(70, 90),
        row[:, None, None].expand(70, 3, 50),
        windows,
        windows.t(),
        # tiles of equal size are shorter than the step between windows: runs fall apart
        long_row.unfold(0, 213, 108)[:37].t(),
        long_row.unfold(0, 417, 210)[:37].t(),
    ):
        dst = torch.empty(src.shape, dtype=dtype, device="cuda")
        copy_into(dst, src)
        assert torch.equal(to_bytes(dst), to_bytes(src.contiguous()))


def random_layouts(count: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    draw = random.Random(7)
    while count:
        rank = draw.randint(2, 6)
        shape = tuple(draw.choice((2, 3, 5, 8, 16, 17, 33, 64, 100, 129)) for _ in range(rank))
        if 500 <= math.prod(shape) <= 300_000:
            order = tuple(draw.sample(range(rank), rank))
            count -= 1
            yield shape, order


@every_width
def test_random_layouts(dtype: torch.dtype) -> None:
    """Many shapes, both ways of planning; the guards are those of the other tests."""
    for shape, order in random_layouts(60):
        values = random_bits(shape, dtype)
        src = torch.empty_strided(shape, strides_in_order(shape, order), dtype=dtype, device="cuda")
        src.copy_(values.cuda())
        for device in (NO_CACHE, DeviceFacts()):
            out = torch.empty(shape, dtype=dtype, device="cuda")
            kernel = copy_into(out, src, device)
            assert torch.equal(to_bytes(out), to_bytes(values)), (kernel, shape, order)


@given(data=st.data(), dtype=st.sampled_from(WIDTHS))
def test_fuzz(data: st.DataObject, dtype: torch.dtype) -> None:
    sizes = st.lists(
        st.one_of(st.integers(1, 9), st.integers(10, 200)), min_size=1, max_size=5
    ).filter(lambda shape: math.prod(shape) < 60_000)
    shape = tuple(data.draw(sizes))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    pitches = data.draw(st.tuples(st.integers(0, 3), st.integers(0, 3)))
    offsets = data.draw(st.tuples(st.integers(0, 17), st.integers(0, 17)))
    device = data.draw(st.sampled_from([NO_CACHE, DeviceFacts()]))
    check(dtype, shape, order, *pitches, offsets, device)


def test_the_planned_copy_refuses_what_it_does_not_take() -> None:
    src = torch.ones(4, device="cuda")
    with pytest.raises(RuntimeError, match=r"_copy_into_planned: dst .* one dtype, one shape"):
        copy_into(torch.empty(4, dtype=torch.int32, device="cuda"), src)
    with pytest.raises(RuntimeError, match="_plan: device has 1 entries"):
        torch.ops.memops._copy_into_planned.default(torch.empty(4, device="cuda"), src, [1])
