"""The layout algebra and the copy plan, without a GPU: the planned dimensions move every element."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import example, given
from torch import Tensor

import torch_memops as tm

DEVICES = [tm.DeviceFacts(multiprocessors=n) for n in (1, 8, 66, 108, 132)]


def byte_moves(
    sizes: list[int], dst_strides: list[int], src_strides: list[int], width: int
) -> Counter[tuple[int, int]]:
    """Every (destination byte, source byte) pair that a strided copy moves."""
    moves: Counter[tuple[int, int]] = Counter()
    for coordinate in itertools.product(*map(range, sizes)):
        dst = sum(c * s for c, s in zip(coordinate, dst_strides, strict=True)) * width
        src = sum(c * s for c, s in zip(coordinate, src_strides, strict=True)) * width
        moves.update((dst + byte, src + byte) for byte in range(width))
    return moves


@st.composite
def views(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """A destination and a source view of one shape, on meta: sliced, permuted, expanded."""
    dtype = draw(st.sampled_from([torch.uint8, torch.bfloat16, torch.float32, torch.complex128]))
    shape = draw(st.lists(st.integers(1, 6), min_size=0, max_size=5))

    def view(may_expand: bool) -> Tensor:
        order = draw(st.permutations(range(len(shape))))
        steps = [draw(st.integers(1, 3)) for _ in shape]
        base_shape = [0] * len(shape)
        expanded = [may_expand and draw(st.booleans()) for _ in shape]
        for position, dimension in enumerate(order):
            size = 1 if expanded[dimension] else shape[dimension] * steps[dimension]
            base_shape[position] = size
        offset = draw(st.integers(0, 3))
        elements = 1
        for size in base_shape:
            elements *= size
        base = torch.empty(elements + offset, dtype=dtype, device="meta")[offset:].view(base_shape)
        out = base.permute([order.index(d) for d in range(len(shape))])
        for dimension in range(len(shape)):
            if expanded[dimension]:
                continue
            out = out[(slice(None),) * dimension + (slice(None, None, steps[dimension]),)]
        return out.expand(shape)

    return view(may_expand=False), view(may_expand=True)


@given(views())
def test_the_planned_dimensions_move_the_same_bytes(pair: tuple[Tensor, Tensor]) -> None:
    dst, src = pair
    plan = tm.plan("copy_", dst, src)
    planned = byte_moves(
        plan.facts["sizes"],
        plan.facts["dst_strides"],
        plan.facts["src_strides"],
        plan.facts["element_bytes"],
    )
    expected = byte_moves(
        list(dst.shape), list(dst.stride()), list(src.stride()), dst.element_size()
    )
    assert planned == expected


@given(views())
def test_the_planned_dimensions_are_the_fewest(pair: tuple[Tensor, Tensor]) -> None:
    plan = tm.plan("copy_", *pair)
    dimensions = list(
        zip(plan.facts["sizes"], plan.facts["dst_strides"], plan.facts["src_strides"], strict=True)
    )
    assert all(size > 1 for size, _, _ in dimensions)
    assert [d[1] for d in dimensions] == sorted((d[1] for d in dimensions), reverse=True)
    for (_, outer_dst, outer_src), (size, dst, src) in itertools.pairwise(dimensions):
        assert (outer_dst, outer_src) != (size * dst, size * src)


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: f"{d.multiprocessors}SM")
@pytest.mark.parametrize(
    ("src", "kernel"),
    [
        (meta(1 << 20), "copy_flat"),
        (meta((1 << 20) + 1)[1:], "copy_flat"),
        (meta(3, 1, 5).permute(1, 0, 2), "copy_flat"),
        (meta(), "copy_flat"),
        (meta(8, 64, 32, 128).permute(0, 2, 1, 3), "copy_rows"),
        (meta(64, 1024)[:, 1:1001], "copy_rows"),
        (meta(1 << 20, 4).t(), "copy_fields"),
        (meta(16, 1 << 20, dtype=torch.uint8).t(), "copy_fields"),
        (meta(256, 224, 224, 3, dtype=torch.uint8).permute(0, 3, 1, 2), "copy_fields"),
        (meta(256, 3, 224, 224).permute(0, 2, 3, 1), "copy_fields"),
        (meta(8192, 8192).t(), "copy_tile"),
        (meta(64, 1024, 1024, dtype=torch.bfloat16).mT, "copy_tile"),
        (meta(8191, 8193, dtype=torch.uint8).t(), "copy_tile"),
        (meta(32, 32, 32, 32, 8, 8).permute(5, 4, 3, 2, 1, 0), "copy_tile"),
        (meta(8191, 8193).t(), "copy_box"),
        (meta(8191, 8193, dtype=torch.bfloat16).t(), "copy_box"),
        (meta(1039, 197, 7, 10).permute(1, 0, 3, 2), "copy_box"),
        (meta(100_000, 77)[:1].expand(100_000, 77), "copy_box"),
        (meta(4, 918, 19, 18).permute(0, 1, 3, 2), "copy_strided"),  # the L2 holds it
        (meta(1 << 20)[::2], "copy_strided"),
        (meta(1, 77).expand(1000, 77), "copy_strided"),
        (meta(*[2] * 26, dtype=torch.uint8).permute(*reversed(range(26))), "copy_strided"),
    ],
    ids=lambda value: "x".join(map(str, value.shape)) if isinstance(value, Tensor) else value,
)
def test_the_kernel_of_a_view(src: Tensor, kernel: str, device: tm.DeviceFacts) -> None:
    assert tm.plan("copy", src, device=device).kernel == kernel


def test_rows_move_in_the_widest_elements_that_fit() -> None:
    rows = meta(64, 48, dtype=torch.uint8)[:, :32]
    assert tm.plan("copy", rows).facts["element_bytes"] == 16
    assert tm.plan("copy", rows[:, 4:28]).facts["element_bytes"] == 4
    assert tm.plan("copy", rows[:, 1:]).facts["element_bytes"] == 1


def test_tiles_know_which_side_lies_on_vector_boundaries() -> None:
    whole = meta(8192, 8192, dtype=torch.uint8)
    for src, loads, stores in (
        (whole.t(), True, True),
        (whole[:, 1:].t(), False, True),
        (whole[1:].t(), True, False),
        (whole[1:, 1:].t(), False, False),
    ):
        facts = tm.plan("copy", src).facts
        assert (facts["aligned_loads"], facts["aligned_stores"]) == (loads, stores)


def test_offsets_past_31_bits_are_indexed_with_64() -> None:
    assert tm.plan("copy", meta(1 << 10, 1 << 10)[::2, ::2]).facts["index_bits"] == 32
    far = torch.empty_strided((2, 3), (1 << 33, 2), device="meta")
    assert tm.plan("copy", far).facts["index_bits"] == 64


def test_more_elements_than_31_bits_count_go_in_pieces() -> None:
    assert tm.plan("copy", meta(1 << 16, (1 << 15) - 1).t()).facts["launches"] == 1
    assert tm.plan("copy", meta(1 << 16, 1 << 15).t()).facts["launches"] == 2
    assert tm.plan("copy", meta(1 << 16, 1 << 17).t()).facts["launches"] == 8
    assert tm.plan("copy", meta(1 << 33)).facts["launches"] == 1


def assert_box_is_right(facts: dict[str, Any]) -> None:
    """It fits shared memory and its threads' registers, and the boxes cover all."""
    box, width = facts["box"], facts["element_bytes"]
    assert box * facts["boxes"] >= math.prod(facts["sizes"])
    assert box == facts["dst_run"] * math.prod(facts["dst_runs"])
    assert facts["shared_bytes"] <= 48 << 10
    assert facts["stages"] * facts["image_bytes"] < facts["shared_bytes"]
    spans = math.prod(facts["src_spans"])
    assert spans * facts["src_span_bytes"] <= facts["image_bytes"]
    assert spans * -(-facts["src_span_bytes"] // 16) <= facts["loads"] <= 5 * facts["threads"]
    if facts["vector_stores"]:
        assert box * width <= 16 * facts["stores"] <= 16 * 6 * facts["threads"]
    else:
        assert box == facts["stores"] <= 12 * facts["threads"]
    assert not (facts["whole_sectors"] and facts["overlapped"])
    assert max(width // 4, 1) <= facts["wavefronts"] / 4 <= 32


@given(views())
def test_boxes_fit_shared_memory_and_cover_all(pair: tuple[Tensor, Tensor]) -> None:
    facts = tm.plan("copy_", *pair, device=tm.DeviceFacts(l2_bytes=1)).facts
    if "box" in facts:
        assert_box_is_right(facts)


@given(
    window=st.integers(20, 600),
    count=st.integers(2, 129),
    step=st.integers(1, 300),
    batch=st.integers(1, 3),
    dtype=st.sampled_from([torch.uint8, torch.bfloat16, torch.float32]),
)
@example(window=213, count=37, step=108, batch=1, dtype=torch.bfloat16)
@example(window=417, count=37, step=210, batch=1, dtype=torch.uint8)
def test_boxes_of_overlapping_windows_fit(
    window: int, count: int, step: int, batch: int, dtype: torch.dtype
) -> None:
    """Tiles of equal size may break a run that the larger ones made, and runs are padded."""
    row = meta(batch, (count - 1) * step + window, dtype=dtype)
    src = row.unfold(1, window, step).transpose(1, 2)
    facts = tm.plan("copy", src, device=tm.DeviceFacts(l2_bytes=1)).facts
    if "box" in facts:
        assert_box_is_right(facts)


def test_small_structures_far_apart_share_a_box() -> None:
    """A box of one 7 x 10 matrix would leave most of its threads without work."""
    facts = tm.plan("copy", meta(1039, 197, 7, 10).permute(1, 0, 3, 2)).facts
    assert facts["box"] > 1024
    assert min(facts["dst_run"] * 4, facts["src_span_bytes"]) >= 128


def test_boxes_overlap_where_sectors_straddle_them() -> None:
    """Rows of whole sectors are cut between them; others are written once by one box or the other.

    The seam costs a box the elements of a sector, 8 of 4 bytes."""
    even = tm.plan("copy", meta(4096, 16384)[:, 1:].t()).facts
    assert even["whole_sectors"]
    assert not even["overlapped"]
    odd = tm.plan("copy", meta(8191, 8193).t()).facts
    assert odd["overlapped"]
    assert not odd["whole_sectors"]
    across = -(-(8191 - 8) // (odd["dst_run"] - 7))
    assert odd["boxes"] % across == 0


def test_boxes_read_every_field_of_the_structures_that_they_hold() -> None:
    """A box of one field alone would read all of them for it."""
    facts = tm.plan("copy", meta(3_000_001, 6, dtype=torch.uint8).t()).facts
    assert facts["dst_runs"] == [6]
    assert facts["src_span_bytes"] == facts["box"]


def test_short_rows_go_element_by_element() -> None:
    dst = meta(30_000_000, 4, dtype=torch.bfloat16)[:, :3]
    facts = tm.plan("copy_", dst, meta(3, 30_000_000, dtype=torch.bfloat16).t()).facts
    assert not facts["vector_stores"]
    assert facts["dst_runs"][0] == 3


def test_a_plan_found_again_is_the_same() -> None:
    src = meta(513, 1025, 33).permute(2, 1, 0)
    first = tm.plan("copy", src)
    for more in range(40):  # more than are remembered
        tm.plan("copy", meta(513 + more, 1025, 33).permute(2, 1, 0))
    assert tm.plan("copy", src) == first
    assert tm.plan("copy", src[1:]).facts["sizes"] != first.facts["sizes"]
    smaller = tm.DeviceFacts(multiprocessors=16)
    assert tm.plan("copy", src, device=smaller).facts["blocks"] == 4 * 16


def test_casts_without_a_kernel_name_pytorch() -> None:
    plan = tm.plan("copy_", meta(4, dtype=torch.float8_e5m2), meta(4))
    assert plan.kernel == "aten::copy_"
    assert "PyTorch" in plan.reason


def test_an_unknown_op_is_named() -> None:
    with pytest.raises(ValueError, match="no op named 'transmogrify'"):
        tm.plan("transmogrify", meta(4))


def test_a_plan_prints_its_kernel_reason_and_facts() -> None:
    text = str(tm.plan("copy", meta(64, 64).t()))
    assert "copy_tile" in text
    assert "NVIDIA H200" in text
    assert "sizes: [64, 64]" in text
