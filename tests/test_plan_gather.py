"""The plans of the gathers and their gradients, without a GPU."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

import torch_memops as tm

WARP = 32
THREADS = 256


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def indices(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return meta(*shape, dtype=dtype)


def spelled(value: object) -> str:
    """A test's id: a tensor's shape, strides and offset."""
    if not isinstance(value, Tensor):
        return str(value)
    return f"{tuple(value.shape)} by {value.stride()} from {value.storage_offset()}"


@given(
    rows=st.integers(1, 50),
    width=st.integers(1, 5000),
    pitch=st.integers(0, 9),
    offset=st.integers(0, 9),
    count=st.integers(1, 10_000),
    dtype=st.sampled_from([torch.uint8, torch.bfloat16, torch.float32, torch.complex128]),
)
def test_vectors_divide_rows_and_lanes_cover_them(
    rows: int, width: int, pitch: int, offset: int, count: int, dtype: torch.dtype
) -> None:
    table = meta(rows * (width + pitch) + offset, dtype=dtype)[offset:]
    table = table.as_strided((rows, width), (width + pitch, 1), offset)
    facts = tm.plan("gather_aos", table, indices(count)).facts
    vector, lanes = facts["vector_bytes"], facts["lanes_per_row"]
    element = table.element_size()
    assert facts["row_bytes"] == width * element
    for value in (facts["row_bytes"], facts["row_stride_bytes"], offset * element):
        assert value % vector == 0
    assert vector == 16 or any(
        value % (2 * vector)
        for value in (facts["row_bytes"], facts["row_stride_bytes"], offset * element)
    )
    vectors = facts["row_bytes"] // vector
    assert lanes == min(WARP, 1 << (vectors - 1).bit_length())
    assert facts["rows_per_block"] * lanes % THREADS == 0
    assert facts["scratch_bytes"] == 0


@pytest.mark.parametrize(
    ("table", "copied"),
    [
        (meta(64, 8), False),
        (meta(64, 4, 8), False),
        (meta(64, 16)[:, 3:11], False),
        (meta(1, 8).expand(64, 8), False),
        (meta(64, 1, 8)[:, :, :1], False),
        (meta(64, 16)[:, ::2], True),
        (meta(8, 64).t(), True),
        (meta(64, 4, 16)[:, :, :8], True),
        (meta(64, 1).expand(64, 8), True),
    ],
    ids=spelled,
)
def test_which_rows_are_read_in_place(table: Tensor, copied: bool) -> None:
    plan = tm.plan("gather_aos", table, indices(5))
    assert plan.kernel == "gather_rows"
    assert ("copied" in plan.reason) == copied
    assert plan.facts["scratch_bytes"] == (table.numel() * 4 if copied else 0)


def test_long_rows_spread_over_blocks() -> None:
    assert tm.plan("gather_aos", meta(8, 1024), indices(8)).facts["panels_per_row"] == 1
    assert tm.plan("gather_aos", meta(8, 1 << 20), indices(8)).facts["panels_per_row"] == 1024


@pytest.mark.parametrize("op", ["gather_aos", "gather_soa"])
def test_results_without_elements_only_check_the_index(op: str) -> None:
    empty = meta(3, 0) if op == "gather_aos" else meta(0, 3)
    assert tm.plan(op, empty, indices(2)).kernel == "gather_check"
    assert tm.plan(op, empty, indices(0)).kernel == "none"


def test_fields_pass_by_pass_where_the_table_exceeds_the_l2() -> None:
    small, large = meta(4, 1 << 10), meta(4, 1 << 25)
    assert tm.plan("gather_soa", small, indices(9)).facts["fields_per_thread"] == 4
    assert tm.plan("gather_soa", large, indices(9)).facts["fields_per_thread"] == 1
    device = tm.DeviceFacts(l2_bytes=1 << 40)
    assert tm.plan("gather_soa", large, indices(9), device=device).facts["fields_per_thread"] == 4


def test_strides_of_fields_are_read_in_place() -> None:
    plan = tm.plan("gather_soa", meta(7, 5, 3)[:, :, 1].t(), indices(9))
    assert plan.facts["strides"] == [3, 15]
    assert plan.facts["scratch_bytes"] == 0


def test_a_grid_never_passes_its_limit() -> None:
    facts = tm.plan("gather_soa", meta(1 << 32, 1, dtype=torch.uint8), indices(1)).facts
    assert -(-(1 << 32) // facts["fields_per_thread"]) < 1 << 31


BACKWARD = {
    "_gather_aos_backward": ((6, 8), (4, -1)),
    "_gather_soa_backward": ((8, 6), (4,)),
}


@pytest.mark.parametrize("op", BACKWARD)
@pytest.mark.parametrize(
    ("dtype", "kernel", "element_bytes"),
    [
        (torch.float16, "gather_runs", 2),
        (torch.bfloat16, "gather_runs", 2),
        (torch.float32, "gather_add", 4),
        (torch.float64, "gather_add", 8),
        (torch.complex32, "gather_runs", 2),
        (torch.complex64, "gather_add", 4),
        (torch.float8_e4m3fn, "gather_add", 4),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_only_wide_types_are_added_by_atomics(
    op: str, dtype: torch.dtype, kernel: str, element_bytes: int
) -> None:
    shape, sizes = BACKWARD[op]
    plan = tm.plan(op, meta(*shape, dtype=dtype), indices(6), *sizes)
    assert (plan.kernel, plan.facts["element_bytes"]) == (kernel, element_bytes)
    assert plan.facts["fields"] == (16 if dtype.is_complex else 8)
    torch.use_deterministic_algorithms(True)
    assert tm.plan(op, meta(*shape, dtype=dtype), indices(6), *sizes).kernel == "gather_runs"


@pytest.mark.parametrize(
    ("grad", "vector_bytes"),
    [
        (meta(6, 8, dtype=torch.bfloat16), 16),
        (meta(6, 9, dtype=torch.bfloat16), 2),
        (meta(6, 9, dtype=torch.bfloat16)[:, 1:], 2),
        (meta(6, 16, dtype=torch.bfloat16)[:, 8:], 16),
        (meta(6, 16, dtype=torch.bfloat16)[:, 4:12], 2),
        (meta(8, 6, dtype=torch.bfloat16).t(), 2),
        (meta(1, 1, dtype=torch.bfloat16).expand(6, 8), 2),
    ],
    ids=spelled,
)
def test_gradients_are_read_in_place(grad: Tensor, vector_bytes: int) -> None:
    index = indices(6, dtype=torch.int32)
    facts = tm.plan("_gather_aos_backward", grad, index, 4, -1).facts
    assert facts["vector_bytes"] == vector_bytes
    assert facts["scratch_bytes"] == 6 * (4 + 8)  # the sorted index and its order


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_the_index_counts_among_the_bytes(dtype: torch.dtype) -> None:
    index, width = indices(6, dtype=dtype), dtype.itemsize
    rows = tm.plan("gather_aos", meta(5, 4), index).facts
    assert rows["bytes"] == 6 * (2 * 16 + width)
    columns = tm.plan("gather_soa", meta(4, 5), index).facts
    assert columns["bytes"] == 6 * (2 * 16 + width)
    gradient = tm.plan("_gather_aos_backward", meta(6, 4), index, 5, -1).facts
    assert gradient["bytes"] == (6 + 5) * 16 + 6 * width
    assert gradient["flops"] == 6 * 4


@pytest.mark.parametrize("op", BACKWARD)
def test_an_index_too_long_to_sort_is_refused_as_by_the_call(op: str) -> None:
    def plan(count: int, dtype: torch.dtype) -> tm.Plan:
        aos = op == "_gather_aos_backward"
        grad = meta(count, 1, dtype=dtype) if aos else meta(1, count, dtype=dtype)
        return tm.plan(op, grad, indices(count), 4 * count, *([-1] if aos else []))

    assert plan(2**31 - 1, torch.bfloat16).kernel == "gather_runs"
    assert plan(2**31, torch.float32).kernel == "gather_add"
    words = f"{op[1:]}: index has 2147483648 entries to sort; up to 2\\^31 - 1 are accepted"
    with pytest.raises(NotImplementedError, match=words):
        plan(2**31, torch.bfloat16)


def test_the_plan_refuses_what_the_op_refuses() -> None:
    with pytest.raises(RuntimeError, match="gather_aos: index is Byte; int32 or int64"):
        tm.plan("gather_aos", meta(3, 4), indices(2, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match=r"gather_soa: soa has 1 dimensions; \[F, N\]"):
        tm.plan("gather_soa", meta(3), indices(2))
