"""Generated shapes, strides, offsets and dtypes, against float64 or bit for bit.

Every argument is a view with guard bytes round it and NaN in its gaps, so that a read outside shows
in the result and a write outside in the guards; outputs are allocated on memory that held NaN.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from support import reference
from support.accuracy import assert_within_bound
from support.devices import FLOATS, HALVES, allocatable_dtypes
from support.tensors import GuardedView, assert_same_bits, from_bytes, random_bits, to_bytes
from torch import Tensor

import torch_memops

Draw = Callable[[st.SearchStrategy[Any]], Any]


@contextmanager
def poisoned_memory(dtype: torch.dtype = torch.float32) -> Iterator[None]:
    """What at::empty hands out is filled with NaN, outputs and scratch alike.

    PyTorch cannot fill a few dtypes (bits16, int4 ...): for these nothing is poisoned.
    """
    assert getattr(torch.utils.deterministic, "fill_uninitialized_memory")  # noqa: B009
    torch.use_deterministic_algorithms(True)
    try:
        try:
            torch.empty(2, dtype=dtype)
        except NotImplementedError:
            torch.use_deterministic_algorithms(False)
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@st.composite
def layouts(
    draw: Draw, shape: tuple[int, ...], overlapping: bool = True
) -> tuple[tuple[int, ...], int]:
    """Strides and offset: dimensions in any order, gaps between elements, some of stride 0."""
    order = draw(st.permutations(range(len(shape))))
    strides, reach = [0] * len(shape), 1
    for axis in order:
        if overlapping and draw(st.integers(0, 9)) == 0:
            continue
        step = reach + draw(st.sampled_from([0, 0, 0, 1, 2, 5]))
        strides[axis] = step
        reach = step * max(shape[axis], 1) if shape[axis] != 1 else reach
    return tuple(strides), draw(st.integers(0, 9))


def spread(values: Tensor, strides: tuple[int, ...]) -> Tensor:
    """The values that a view with stride-0 dimensions can hold: its first slices, repeated."""
    data = to_bytes(values)
    for axis, stride in enumerate(strides):
        if stride == 0 and values.shape[axis] > 1:
            data = data.narrow(axis, 0, 1).expand(data.shape)
    return from_bytes(data, values.dtype)


def guarded(draw: Draw, values: Tensor, device: str, overlapping: bool = True) -> GuardedView:
    """The values in a drawn layout."""
    strides, offset = draw(layouts(tuple(values.shape), overlapping))
    return GuardedView(spread(values, strides), strides, offset, device)


@dataclass
class Arguments:
    """Draws operands of one dtype and checks their surroundings afterwards."""

    draw: Draw
    device: str
    dtype: torch.dtype

    def __post_init__(self) -> None:
        self.views: list[GuardedView] = []
        self.generator = torch.Generator().manual_seed(self.draw(st.integers(0, 2**31)))

    def floats(self, *shape: int) -> Tensor:
        values = torch.randn(shape, generator=self.generator, dtype=torch.float64).to(self.dtype)
        self.views.append(guarded(self.draw, values, self.device))
        return self.views[-1].view

    def bits(self, *shape: int, overlapping: bool = True) -> GuardedView:
        values = random_bits(shape, self.dtype, self.generator)
        self.views.append(guarded(self.draw, values, self.device, overlapping))
        return self.views[-1]

    def index(self, high: int, *shape: int) -> Tensor:
        dtype = self.draw(st.sampled_from([torch.int32, torch.int64]))
        values = torch.randint(high, shape, generator=self.generator, dtype=dtype)
        self.views.append(guarded(self.draw, values, self.device))
        return self.views[-1].view

    def assert_untouched(self) -> None:
        for view in self.views:
            view.assert_untouched()


def wide(tensor: Tensor) -> Tensor:
    """A copy in f64 on the CPU."""
    return tensor.detach().cpu().to(torch.float64, copy=True)


sizes = st.one_of(
    st.integers(0, 3),
    st.sampled_from([15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129]),
    st.integers(4, 70),
)
small_sizes = st.integers(0, 4)
float_dtypes = st.sampled_from(FLOATS)
every_dtype = st.sampled_from(allocatable_dtypes())


def check(out: Tensor, expected: Tensor, magnitude: Tensor, terms: int, device: str) -> None:
    """Within the bound; 16-bit convolutions of ATen on the CPU may round in between."""
    if device == "cpu" and out.dtype in HALVES:
        unit = torch.finfo(out.dtype).eps
        limit = unit * (4 * magnitude + expected.abs()) + 1e-30
        assert not ((wide(out) - expected).abs() > limit).any()
        assert not out.isnan().any()
        return
    assert_within_bound(out, expected, magnitude, terms, repeated=True)


@given(data=st.data(), dtype=float_dtypes)
def test_matmul(device: str, data: st.DataObject, dtype: torch.dtype) -> None:
    draw = data.draw
    arguments = Arguments(draw, device, dtype)
    m, k, n = draw(sizes), draw(sizes), draw(sizes)
    batch = draw(st.lists(small_sizes, max_size=2))
    left = [draw(st.sampled_from([b, 1])) for b in batch][draw(st.integers(0, len(batch))) :]
    a = arguments.floats(*left, m, k) if draw(st.integers(0, 4)) else arguments.floats(k)
    b = arguments.floats(*batch, k, n) if draw(st.integers(0, 4)) else arguments.floats(k)
    with poisoned_memory():
        out = torch_memops.matmul(a, b)
    expected = torch.matmul(wide(a), wide(b))
    magnitude = torch.matmul(wide(a).abs(), wide(b).abs())
    check(out, expected, magnitude, k, device)
    arguments.assert_untouched()


@given(data=st.data(), dtype=float_dtypes)
def test_linear(device: str, data: st.DataObject, dtype: torch.dtype) -> None:
    draw = data.draw
    arguments = Arguments(draw, device, dtype)
    features, outputs = draw(sizes), draw(sizes)
    rows = draw(st.lists(st.integers(0, 17), max_size=2))
    x, weight = arguments.floats(*rows, features), arguments.floats(outputs, features)
    bias = arguments.floats(outputs) if draw(st.booleans()) else None
    with poisoned_memory():
        out = torch_memops.linear(x, weight, bias)
    tensors: list[Any] = [None if t is None else wide(t) for t in (x, weight, bias)]
    expected = F.linear(*tensors)
    sizes_of: list[Any] = [None if t is None else t.abs() for t in tensors]
    magnitude = F.linear(*sizes_of)
    check(out, expected, magnitude, features + 1, device)
    arguments.assert_untouched()


@given(data=st.data(), dtype=float_dtypes)
def test_conv1d(device: str, data: st.DataObject, dtype: torch.dtype) -> None:
    """Forward, and the three gradients from a strided incoming one."""
    draw = data.draw
    arguments = Arguments(draw, device, dtype)
    groups = draw(st.sampled_from([1, 1, 2, 3]))
    c_in, c_out = groups * draw(st.integers(1, 4)), groups * draw(st.integers(1, 4))
    batch, length, width = (
        draw(st.integers(0, 3)),
        draw(st.integers(1, 70)),
        draw(st.integers(1, 6)),
    )
    stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    padding = (draw(st.integers(0, 7)), draw(st.integers(0, 7)))
    assume(length + sum(padding) > dilation * (width - 1))
    options: dict[str, Any] = {
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
    }
    x = arguments.floats(batch, c_in, length).requires_grad_()
    weight = arguments.floats(c_out, c_in // groups, width).requires_grad_()
    bias = arguments.floats(c_out).requires_grad_() if draw(st.booleans()) else None
    leaves = [t for t in (x, weight, bias) if t is not None]
    with poisoned_memory():
        out = torch_memops.conv1d(x, weight, bias, **options)
        grad = arguments.floats(*out.shape)
        grads = torch.autograd.grad(out, leaves, grad)
    wide_leaves: list[Any] = [wide(t).requires_grad_() for t in leaves]
    sizes_of: list[Any] = [wide(t).abs().requires_grad_() for t in leaves]
    expected = reference.conv1d(*wide_leaves, *([None] if bias is None else []), **options)
    magnitude = reference.conv1d(*sizes_of, *([None] if bias is None else []), **options)
    terms = c_in // groups * width + 1
    check(out, expected.detach(), magnitude.detach(), terms, device)
    wide_grads = torch.autograd.grad(expected, wide_leaves, wide(grad))
    magnitudes = torch.autograd.grad(magnitude, sizes_of, wide(grad).abs())
    for mine, other, size in zip(grads, wide_grads, magnitudes, strict=True):
        check(mine, other, size, max(out.numel(), 1), device)
    arguments.assert_untouched()


@given(data=st.data(), dtype=float_dtypes)
def test_conv1d_constant(device: str, data: st.DataObject, dtype: torch.dtype) -> None:
    draw = data.draw
    arguments = Arguments(draw, device, dtype)
    rows = draw(st.lists(st.integers(0, 4), max_size=2))
    length, count = draw(st.integers(1, 300)), draw(st.integers(1, 40))
    padding = (draw(st.integers(0, 40)), draw(st.integers(0, 40)))
    assume(length + sum(padding) >= count)
    taps = torch.randn(count, generator=arguments.generator).tolist()
    x = arguments.floats(*rows, length)
    with poisoned_memory():
        out = torch_memops.conv1d_constant(x, taps, padding)
    expected = reference.conv1d_constant(wide(x), taps, padding)
    magnitude = reference.conv1d_constant(wide(x).abs(), [abs(t) for t in taps], padding)
    check(out, expected, magnitude, count, device)
    arguments.assert_untouched()


def causal_reference(
    tensors: list[Any], seq_idx: Tensor | None, final: bool
) -> tuple[Tensor, Tensor]:
    """The reference of x, weight, bias and initial state."""
    x, weight, bias, state = tensors
    return reference.causal_conv1d(x, weight, bias, state, seq_idx, False, final)


@given(data=st.data(), dtype=float_dtypes)
def test_causal_conv1d(device: str, data: st.DataObject, dtype: torch.dtype) -> None:
    draw = data.draw
    arguments = Arguments(draw, device, dtype)
    batch, channels = draw(st.integers(0, 3)), draw(st.integers(1, 40))
    length, width = draw(st.integers(0, 70)), draw(st.integers(1, 6))
    x, weight = arguments.floats(batch, channels, length), arguments.floats(channels, width)
    bias = arguments.floats(channels) if draw(st.booleans()) else None
    state = arguments.floats(batch, channels, width - 1) if draw(st.booleans()) else None
    final = draw(st.booleans())
    seq_idx = None
    if draw(st.booleans()):
        steps = torch.randint(2, (batch, length), generator=arguments.generator)
        seq_idx = steps.cumsum(1).to(device, torch.int32)
    with poisoned_memory():
        out, last = torch_memops.causal_conv1d(x, weight, bias, state, seq_idx, False, final)
    tensors: list[Any] = [None if t is None else wide(t) for t in (x, weight, bias, state)]
    owner = None if seq_idx is None else seq_idx.cpu()
    expected, expected_last = causal_reference(tensors, owner, final)
    absolute: list[Any] = [None if t is None else t.abs() for t in tensors]
    magnitude, _ = causal_reference(absolute, owner, final)
    check(out, expected, magnitude, width + 1, device)
    if final:
        assert torch.equal(wide(last), expected_last)
    arguments.assert_untouched()


@given(data=st.data(), dtype=float_dtypes)
def test_causal_conv1d_update(device: str, data: st.DataObject, dtype: torch.dtype) -> None:
    """The state's surroundings stay as they were."""
    draw = data.draw
    arguments = Arguments(draw, device, dtype)
    batch, channels, width = (
        draw(st.integers(0, 3)),
        draw(st.integers(1, 40)),
        draw(st.integers(1, 5)),
    )
    steps, size = draw(st.integers(1, 4)), width - 1 + draw(st.integers(0, 3))
    assume(size > 0)
    x, weight = arguments.floats(batch, channels, steps), arguments.floats(channels, width)
    rows = batch + draw(st.integers(0, 2))
    values = torch.randn(rows, channels, size, generator=arguments.generator).to(dtype)
    state = guarded(draw, values, device, overlapping=False)
    indices = None
    if rows != batch or draw(st.booleans()):
        order = torch.randperm(rows, generator=arguments.generator)[:batch]
        indices = order.to(device, torch.int32)
    lengths = None
    if draw(st.booleans()):
        seen = torch.randint(100, (batch,), generator=arguments.generator, dtype=torch.int32)
        lengths = seen.to(device)
    expected_state = wide(state.view)
    host = [None if t is None else t.cpu() for t in (lengths, indices)]
    expected = reference.causal_conv1d_update(
        wide(x), expected_state, wide(weight), None, False, *host
    )
    with poisoned_memory():
        out = torch_memops.causal_conv1d_update(
            x, state.view, weight, None, False, lengths, indices
        )
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(wide(out), expected, rtol=4 * unit, atol=16 * unit)
    assert torch.equal(wide(state.view), expected_state)
    state.assert_only_view_written()
    arguments.assert_untouched()


@given(data=st.data(), dtype=every_dtype)
def test_copy_and_copy_into(device: str, data: st.DataObject, dtype: torch.dtype) -> None:
    draw = data.draw
    arguments = Arguments(draw, device, dtype)
    shape = tuple(draw(st.lists(st.one_of(small_sizes, st.integers(5, 40)), max_size=4)))
    assume(math.prod(shape) < 100_000)
    src = arguments.bits(*shape)
    with poisoned_memory(dtype):
        out = torch_memops.copy(src.view)
    assert torch.equal(to_bytes(out), to_bytes(src.view))
    assert out.stride() == torch.empty(shape).stride()
    dst = guarded(draw, random_bits(shape, dtype, arguments.generator), device, overlapping=False)
    torch_memops.copy_(dst.view, src.view)
    assert torch.equal(to_bytes(dst.view), to_bytes(src.view))
    dst.assert_only_view_written()
    if shape:
        one = arguments.bits(1, *shape[1:])
        torch_memops.copy_(dst.view, one.view)
        assert torch.equal(to_bytes(dst.view), to_bytes(one.view).expand(*shape, dtype.itemsize))
        dst.assert_only_view_written()
    arguments.assert_untouched()


NUMBERS = (*FLOATS, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@given(data=st.data(), pair=st.sampled_from(list(permutations(NUMBERS, 2))))
def test_casts(device: str, data: st.DataObject, pair: tuple[torch.dtype, torch.dtype]) -> None:
    """Into any view from any view of another dtype: the whole memory is what Tensor.copy_ makes."""
    draw = data.draw
    source, target = pair
    arguments = Arguments(draw, device, source)
    shape = tuple(draw(st.lists(st.one_of(small_sizes, sizes), max_size=4)))
    assume(math.prod(shape) < 100_000)
    src = arguments.bits(*shape)
    before = random_bits(shape, target, arguments.generator)
    strides, offset = draw(layouts(shape, overlapping=False))
    dst, expected = (GuardedView(before, strides, offset, device) for _ in range(2))
    torch_memops.copy_(dst.view, src.view)
    expected.view.copy_(src.view)
    assert torch.equal(dst.storage, expected.storage)
    dst.assert_only_view_written()
    arguments.assert_untouched()


@given(data=st.data(), dtype=every_dtype)
def test_layouts(device: str, data: st.DataObject, dtype: torch.dtype) -> None:
    draw = data.draw
    arguments = Arguments(draw, device, dtype)
    batch = draw(st.lists(st.integers(0, 3), max_size=2))
    values = arguments.bits(*batch, draw(sizes), draw(sizes))
    swapped = to_bytes(values.view).transpose(-2, -3)
    for op in (torch_memops.aos_to_soa, torch_memops.soa_to_aos):
        with poisoned_memory(dtype):
            out = op(values.view)
        assert torch.equal(to_bytes(out), swapped)
        assert out.is_contiguous()
    arguments.assert_untouched()


@given(data=st.data(), dtype=every_dtype)
def test_gathers(device: str, data: st.DataObject, dtype: torch.dtype) -> None:
    draw = data.draw
    arguments = Arguments(draw, device, dtype)
    rows = draw(st.integers(1, 70))
    fields = draw(st.lists(st.one_of(small_sizes, sizes), max_size=2))
    assume(rows * math.prod(fields) < 20_000)
    index = arguments.index(rows, *draw(st.lists(st.integers(0, 9), max_size=2)))
    host = index.cpu().long()
    aos = arguments.bits(rows, *fields)
    with poisoned_memory(dtype):
        out = torch_memops.gather_aos(aos.view, index)
    assert torch.equal(to_bytes(out), to_bytes(aos.view)[host])
    soa = arguments.bits(draw(sizes), rows)
    with poisoned_memory(dtype):
        out = torch_memops.gather_soa(soa.view, index)
    assert torch.equal(to_bytes(out), to_bytes(soa.view)[:, host])
    arguments.assert_untouched()


@given(data=st.data(), dtype=float_dtypes)
def test_gather_gradients(device: str, data: st.DataObject, dtype: torch.dtype) -> None:
    """Repeated rows summed in f32 or wider, whatever the incoming gradient's strides."""
    draw = data.draw
    arguments = Arguments(draw, device, dtype)
    rows, width = draw(st.integers(1, 40)), draw(st.integers(0, 70))
    index = arguments.index(rows, *draw(st.lists(st.integers(0, 30), min_size=1, max_size=2)))
    padding = draw(st.integers(-1, rows - 1))
    grad = arguments.floats(*index.shape, width)
    with poisoned_memory():
        ours = torch.ops.memops._gather_aos_backward(grad, index, rows, padding)
    flat = index.cpu().long().reshape(-1)
    kept = flat != padding
    lines = wide(grad).reshape(flat.numel(), width)[kept]
    expected = torch.zeros(rows, width, dtype=torch.float64).index_add(0, flat[kept], lines)
    magnitude = torch.zeros_like(expected).index_add(0, flat[kept], lines.abs())
    assert_within_bound(ours, expected, magnitude, max(flat.numel(), 1), repeated=True)
    soa_grad = arguments.floats(width, *index.shape)
    with poisoned_memory():
        ours = torch.ops.memops._gather_soa_backward(soa_grad, index, rows)
    columns = wide(soa_grad).reshape(width, flat.numel())
    expected = torch.zeros(width, rows, dtype=torch.float64).index_add(1, flat, columns)
    magnitude = torch.zeros_like(expected).index_add(1, flat, columns.abs())
    assert_within_bound(ours, expected, magnitude, max(flat.numel(), 1), repeated=True)
    arguments.assert_untouched()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_poison_is_seen(dtype: torch.dtype, device: str) -> None:
    """The fuzz's own tools: poison is NaN, and a write outside a view is noticed."""
    with poisoned_memory():
        assert torch.empty(3, dtype=dtype, device=device).isnan().all()
    view = GuardedView(torch.ones(4).to(dtype), (2,), 1, device)
    view.view[1] = 5
    view.assert_only_view_written()
    view.storage[0] = 7
    with pytest.raises(AssertionError):
        view.assert_only_view_written()
    assert_same_bits(from_bytes(to_bytes(view.view), dtype, device), view.view)
