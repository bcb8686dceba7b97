"""copy_ with another dtype: Tensor.copy_'s bits for every pair, and the plans of casts."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from support.devices import name
from support.tensors import GuardedView, assert_same_bits, random_bits, strides_for
from torch import Tensor

import torch_memops
from torch_memops import plan

# The dtypes between which our kernels convert.
DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
)
PAIRS = tuple(itertools.permutations(DTYPES, 2))  # (source, target)
# Those that also convert while a tile is turned.
TILED = tuple(
    (source, target)
    for source, target in PAIRS
    if target in (torch.float32, torch.float16, torch.bfloat16)
    and source in (torch.float32, torch.float16, torch.bfloat16, torch.uint8, torch.int8)
)
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

every_source = pytest.mark.parametrize("source", DTYPES, ids=name)
every_pair = pytest.mark.parametrize(
    ("source", "target"), PAIRS, ids=[f"{name(s)}-{name(t)}" for s, t in PAIRS]
)
tiled_pairs = pytest.mark.parametrize(
    ("source", "target"), TILED, ids=[f"{name(s)}-{name(t)}" for s, t in TILED]
)


def f32_bits(words: Tensor) -> Tensor:
    """Low 32 bits of int64 words as float32."""
    return words.to(torch.int32).view(torch.float32)


def rounding_f32() -> Tensor:
    """Every bfloat16, and every float32 whose first 19 bits (float16 keeps 10 of its mantissa) are
    all there is, each with what lies just below, on and just above the middle to the next."""
    bfloat16 = torch.arange(1 << 16)[:, None] * (1 << 16)
    float16 = torch.arange(1 << 19)[:, None] * (1 << 13)
    return torch.cat(
        [
            f32_bits(bfloat16 + torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF])).flatten(),
            f32_bits(float16 + torch.tensor([0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF])).flatten(),
        ]
    )


def rounding_f64() -> Tensor:
    """What float32 holds and its neighbours, where rounding twice differs from rounding once."""
    exact = f32_bits(torch.arange(1 << 19) * (1 << 13) + (1 << 12)).double().view(torch.int64)
    nudged = exact[:, None] + torch.tensor([0, 1, -1, 1 << 28, (1 << 28) + 1, -(1 << 28)])
    return nudged.flatten().view(torch.float64)


def around_powers_of_two(bits: int) -> Tensor:
    """Integers near the powers of two, where floats round and narrower integers wrap."""
    powers = [1 << k for k in range(bits - 1)]
    near = {sign * (p + d) for p in powers for d in (-3, -2, -1, 0, 1, 2, 3) for sign in (1, -1)}
    near |= {sign * (p + p // 2 + d) for p in powers for d in (-1, 0, 1) for sign in (1, -1)}
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return torch.tensor(sorted(v for v in near | {low, high} if low <= v <= high))


def values_of(dtype: torch.dtype) -> Tensor:
    """All bit patterns of 8- and 16-bit dtypes; of wider ones the edges and random bits."""
    if dtype.itemsize == 1:
        return torch.arange(256).to(torch.uint8).view(dtype)
    if dtype.itemsize == 2:
        return torch.arange(1 << 16).to(torch.int16).view(dtype)
    generator = torch.Generator().manual_seed(7)
    random = random_bits((1 << 18,), dtype, generator)
    if dtype == torch.float32:
        return torch.cat([rounding_f32(), random])
    # Random exponents seldom fall into the range of an integer.
    scale = 2.0 ** torch.randint(-3, 66, (1 << 16,), generator=generator, dtype=torch.float64)
    moderate = torch.randn(1 << 16, generator=generator, dtype=torch.float64) * scale
    if dtype == torch.float64:
        return torch.cat([rounding_f64(), random, moderate, moderate.round()])
    shifts = torch.randint(dtype.itemsize * 8, (1 << 18,), generator=generator).to(dtype)
    edges = around_powers_of_two(dtype.itemsize * 8).to(dtype)
    return torch.cat([edges, random, random >> shifts])


def words(values: Tensor) -> Tensor:
    """The bits of a contiguous tensor, as integers of its width."""
    return values.view(WORDS[values.dtype.itemsize])


def sample(dtype: torch.dtype, *shape: int) -> Tensor:
    """Values of values_of, evenly spaced, in a shape."""
    values = values_of(dtype)
    count = math.prod(shape)
    return values[torch.linspace(0, len(values) - 1, count).long()].view(shape)


@every_source
def test_every_value(device: str, source: torch.dtype) -> None:
    """NaN, infinities, ties, overflow and what lies outside an integer's range: Tensor.copy_'s."""
    values = values_of(source).to(device)
    for target in DTYPES:
        if target == source:
            continue
        expected = torch.empty(values.shape, dtype=target, device=device).copy_(values)
        out = torch.zeros(values.shape, dtype=target, device=device)
        assert torch_memops.copy_(out, values) is out
        wrong = (words(out) != words(expected)).nonzero()[:3, 0]
        assert not len(wrong), (
            f"{name(source)} to {name(target)} of {values[wrong].tolist()}: "
            f"bits {words(out)[wrong].tolist()}, Tensor.copy_ gives {words(expected)[wrong].tolist()}"
        )


def check_cast(
    device: str,
    values: Tensor,
    target: torch.dtype,
    src_layout: tuple[Sequence[int], int],
    dst_layout: tuple[Sequence[int], int],
    kernel: str | None = None,
) -> None:
    """copy_ into a view among guard bytes does to all of its memory what Tensor.copy_ does.

    Layouts: strides and offset in elements. `kernel`: what the plan must name.
    """
    src = GuardedView(values, *src_layout, device)
    before = random_bits(values.shape, target)
    dst, expected = (GuardedView(before, *dst_layout, device) for _ in range(2))
    expected.view.copy_(src.view)
    if kernel is not None:
        assert plan("copy_", dst.view, src.view).kernel == kernel
    torch_memops.copy_(dst.view, src.view)
    assert torch.equal(dst.storage, expected.storage)
    dst.assert_only_view_written()
    src.assert_untouched()


def stretched(shape: Sequence[int], step: int) -> tuple[int, ...]:
    """The strides of every step-th element of a contiguous tensor."""
    return tuple(step * s for s in strides_for(shape, "contiguous")[0])


@every_pair
def test_flat_at_every_offset(device: str, source: torch.dtype, target: torch.dtype) -> None:
    """Heads, bodies and tails, both sides aligned and not."""
    for n in (1, 7, 16, 33, 67, 515):
        values = sample(source, n)
        for src_offset, dst_offset in ((0, 0), (1, 0), (0, 1), (3, 3), (2, 5), (15, 2)):
            layouts = ((1,), src_offset), ((1,), dst_offset)
            check_cast(device, values, target, *layouts, kernel="cast_rows")


@every_pair
def test_layouts(device: str, source: torch.dtype, target: torch.dtype) -> None:
    """Pitched rows, gaps, transposes, many dimensions, repeated elements, into slices."""
    shape = (5, 37, 67)
    values = sample(source, *shape)
    contiguous = strides_for(shape, "contiguous")
    for layout in ("transposed", "reversed", "strided", "pitched", "offset"):
        other = strides_for(shape, layout)
        check_cast(device, values, target, other, contiguous)
        check_cast(device, values, target, contiguous, other)
        check_cast(device, values, target, other, other)
    row = values[:1].expand(shape)
    check_cast(device, row.contiguous(), target, ((0, 67, 1), 0), contiguous)
    check_cast(
        device, values[..., :1].expand(shape).contiguous(), target, ((37, 1, 0), 0), contiguous
    )
    aligned = (3, 8, 96)
    rows = (((1024, 128, 1), 0), ((1536, 192, 1), 32))
    check_cast(device, sample(source, *aligned), target, *rows, kernel="cast_rows")
    eight = (2, 3, 2, 2, 3, 2, 2, 3)
    reversed_ = tuple(reversed(strides_for(eight[::-1], "contiguous")[0]))
    layouts = (reversed_, 0), (stretched(eight, 2), 1)
    check_cast(device, sample(source, *eight), target, *layouts, kernel="cast_strided")


@tiled_pairs
def test_tiles(device: str, source: torch.dtype, target: torch.dtype) -> None:
    """Whole tiles, parts of tiles, batches and composite runs, both sides aligned and not."""
    for shape in ((128, 256), (2, 144, 160), (3, 131, 257), (1, 70, 513)):
        values = sample(source, *shape)
        transposed, contiguous = strides_for(shape, "transposed"), strides_for(shape, "contiguous")
        check_cast(device, values, target, transposed, contiguous, kernel="cast_tile")
        check_cast(device, values, target, contiguous, transposed, kernel="cast_tile")
        for src_offset, dst_offset in ((1, 0), (0, 1), (3, 2)):
            layouts = (transposed[0], src_offset), (contiguous[0], dst_offset)
            check_cast(device, values, target, *layouts, kernel="cast_tile")
    # [B, H, W, C] from [B, C, H, W]: the run along the destination is H x W.
    images = (2, 16, 16, 48)
    layouts = ((48 * 256, 16, 1, 256), 0), strides_for(images, "contiguous")
    check_cast(device, sample(source, *images), target, *layouts, kernel="cast_tile")
    # Between slices of larger matrices: rows of 320 and 384 elements.
    layouts = ((1, 384), 64), ((320, 1), 16)
    check_cast(device, sample(source, 192, 128), target, *layouts, kernel="cast_tile")


@pytest.mark.sanitize
@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.uint8, torch.float16),
        (torch.int8, torch.float32),
        (torch.float64, torch.uint8),
        (torch.bool, torch.int64),
        (torch.int16, torch.bool),
    ],
    ids=name,
)
def test_every_kernel_small(device: str, source: torch.dtype, target: torch.dtype) -> None:
    """Few elements through every kernel that converts, for the memory checker."""

    def tensors(*shape: int) -> tuple[Tensor, Tensor]:
        return sample(source, *shape).to(device), torch.zeros(shape, dtype=target, device=device)

    def check(dst: Tensor, src: Tensor) -> None:
        expected = torch.empty(dst.shape, dtype=target, device=device).copy_(src)
        torch_memops.copy_(dst, src)
        assert_same_bits(dst.contiguous(), expected)

    for n in (1, 3, 17, 67, 515):
        for src_begin, dst_begin in ((0, 0), (1, 0), (0, 1), (3, 2)):
            src, dst = tensors(n + 3)
            check(dst[dst_begin : dst_begin + n], src[src_begin : src_begin + n])
    src, dst = tensors(6, 301)
    check(dst[:, 2:], src[:, 1:300])
    src, dst = tensors(4, 192)
    check(dst[:, :128], src[:, 64:])
    for side in (128, 131):
        src, dst = tensors(2, side, side)
        check(dst, src.mT)
    src, dst = tensors(30, 20)
    check(dst, src[:, ::2].repeat_interleave(2, 1)[:, ::1])
    check(dst[:, ::2], src[:, 1::2])
    check(dst, src[:1].expand(30, 20))
    src, dst = tensors(2, 2, 2, 2, 2, 2, 2, 2)
    check(dst, src.permute(7, 6, 5, 4, 3, 2, 1, 0))


def test_empty_tensors(device: str) -> None:
    for shape in ((0,), (3, 0), (0, 4)):
        dst = torch.zeros(shape, dtype=torch.bfloat16, device=device)
        assert torch_memops.copy_(dst, torch.zeros(shape, device=device)) is dst
    assert plan("copy_", dst, torch.zeros(0, 4, device=device)).kernel == "none"


def test_a_scalar_and_broadcasting(device: str) -> None:
    dst = torch.zeros((), dtype=torch.int32, device=device)
    torch_memops.copy_(dst, torch.tensor(-2.75, device=device))
    assert dst.item() == -2
    table = torch.zeros(4, 6, dtype=torch.float16, device=device)
    torch_memops.copy_(table, torch.arange(6, device=device))
    assert torch.equal(table, torch.arange(6.0, device=device).half().expand(4, 6))


def test_overlap_is_copied_as_if_cloned(device: str) -> None:
    """One memory as two types: pytorch#91894 with a cast."""
    memory = torch.arange(4096, dtype=torch.int32, device=device) * 37
    low = memory.view(torch.uint8).view(4096, 4)[:, 0]
    before = memory.clone()
    expected = before.clone()
    expected.view(torch.uint8).view(4096, 4)[1:, 0] = before[:-1].to(torch.uint8)
    torch_memops.copy_(low[1:], memory[:-1])
    assert torch.equal(memory, expected)


@pytest.mark.cuda
def test_casts_in_a_graph() -> None:
    """Nothing allocates or synchronises: captured casts replay on new values."""
    src = torch.zeros(1000, 300, device="cuda")
    flat = torch.zeros(1000, 300, dtype=torch.bfloat16, device="cuda")
    turned = torch.zeros(300, 1000, dtype=torch.bfloat16, device="cuda")

    def run() -> None:
        torch_memops.copy_(flat, src)
        torch_memops.copy_(turned, src.t())

    run()  # loads the kernels
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    src.normal_()
    graph.replay()
    assert torch.equal(flat, src.to(torch.bfloat16))
    assert torch.equal(turned, src.t().to(torch.bfloat16))


# Plans, without a GPU.


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


BF16, F64, U8 = torch.bfloat16, torch.float64, torch.uint8


@pytest.mark.parametrize(
    ("dst", "src", "kernel", "aligned"),
    [
        (meta(1 << 20, dtype=BF16), meta(1 << 20), "cast_rows", 1),
        (meta((1 << 20) + 1, dtype=BF16)[1:], meta(1 << 20), "cast_rows", 0),
        (meta((1 << 20) + 2)[2:], meta(1 << 20, dtype=BF16), "cast_rows", 0),
        (meta(1 << 20, dtype=BF16), meta((1 << 20) + 1)[1:], "cast_rows", 0),
        (meta(3, 5, 7, dtype=BF16).mT, meta(3, 5, 7).mT, "cast_rows", 1),
        (meta(dtype=BF16), meta(), "cast_rows", 1),
        (meta(64, 1024, dtype=BF16)[:, 512:], meta(64, 512), "cast_rows", 1),
        (meta(64, 1001, dtype=BF16)[:, 1:], meta(64, 1000), "cast_rows", 0),
        (meta(64, 31, dtype=BF16)[:, 1:], meta(64, 30), "cast_strided", None),
        (meta(8192, 8192, dtype=BF16), meta(8192, 8192).t(), "cast_tile", None),
        (meta(8191, 8193), meta(8193, 8191, dtype=U8).t(), "cast_tile", None),
        (meta(8192, 8192, dtype=F64), meta(8192, 8192).t(), "cast_strided", None),
        (meta(1 << 20, dtype=BF16), meta(1 << 21)[::2], "cast_strided", None),
        (meta(100, 77, dtype=BF16), meta(77).expand(100, 77), "cast_rows", 0),
        (meta(77, 100, dtype=BF16).t(), meta(77).expand(100, 77), "cast_tile", None),
        (meta(100, 154, dtype=BF16)[:, ::2], meta(77).expand(100, 77), "cast_strided", None),
        (meta(4, dtype=torch.float8_e4m3fn), meta(4), "aten::copy_", None),
        (meta(4, dtype=torch.complex64), meta(4), "aten::copy_", None),
        (meta(4), meta(4, dtype=torch.uint16), "aten::copy_", None),
        (meta(0, 4, dtype=BF16), meta(0, 4), "none", None),
    ],
)
def test_the_kernel_of_a_cast(dst: Tensor, src: Tensor, kernel: str, aligned: int | None) -> None:
    chosen = plan("copy_", dst, src)
    assert chosen.kernel == kernel
    assert chosen.reason
    if aligned is not None:
        assert chosen.facts["aligned"] == aligned


@every_pair
def test_every_pair_has_a_kernel(source: torch.dtype, target: torch.dtype) -> None:
    flat = plan("copy_", meta(1000, dtype=target), meta(1000, dtype=source))
    assert flat.kernel == "cast_rows"
    assert flat.facts["src_dtype"] == name(source)
    assert flat.facts["dst_dtype"] == name(target)
    assert flat.facts["element_bytes"] == [target.itemsize, source.itemsize]
    assert flat.facts["bytes"] == 1000 * (target.itemsize + source.itemsize)
    turned = plan("copy_", meta(512, 512, dtype=target), meta(512, 512, dtype=source).t())
    assert turned.kernel == ("cast_tile" if (source, target) in TILED else "cast_strided")


def test_casts_past_31_bits_are_split() -> None:
    """Elements are counted with 31 bits in every kernel that converts; offsets with 64 if need be."""
    flat = plan("copy_", meta(5 << 30, dtype=U8), meta(5 << 30))
    assert (flat.kernel, flat.facts["launches"]) == ("cast_rows", 5)
    assert plan("copy_", meta(1 << 30, dtype=BF16), meta(1 << 30)).facts["launches"] == 1
    far = torch.empty_strided((2, 3), (1 << 33, 2), dtype=BF16, device="meta")
    assert plan("copy_", far, meta(2, 3)).facts["index_bits"] == 64
    assert plan("copy_", meta(2, 3, dtype=BF16), meta(2, 6)[:, ::2]).facts["index_bits"] == 32
    # 2^30 elements: past 31 bits as bytes of float32, within them as bytes of uint8.
    bytes_ = torch.empty_strided((2, 3), (1 << 30, 2), dtype=U8, device="meta")
    floats = torch.empty_strided((2, 3), (1 << 30, 2), device="meta")
    assert plan("copy_", bytes_, meta(2, 3)).facts["index_bits"] == 32
    assert plan("copy_", floats, meta(2, 3, dtype=U8)).facts["index_bits"] == 64
    assert plan("copy_", meta(2, 3, dtype=U8), floats).facts["index_bits"] == 64


def element_moves(
    sizes: Sequence[int], dst_strides: Sequence[int], src_strides: Sequence[int]
) -> Counter[tuple[int, int]]:
    """Every (destination element, source element) pair of a strided copy."""

    def offsets(strides: Sequence[int]) -> Iterator[int]:
        for at in itertools.product(*map(range, sizes)):
            yield sum(c * s for c, s in zip(at, strides, strict=True))

    return Counter(zip(offsets(dst_strides), offsets(src_strides), strict=True))


@given(data=st.data())
def test_the_planned_dimensions_convert_every_element(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), max_size=5))
    source, target = data.draw(st.sampled_from(PAIRS))

    def view(dtype: torch.dtype) -> Tensor:
        order = data.draw(st.permutations(range(len(shape))))
        step = data.draw(st.integers(1, 3))
        strides, reach = [0] * len(shape), step
        for axis in order:
            strides[axis] = reach
            reach *= shape[axis] + data.draw(st.integers(0, 1))
        return torch.empty_strided(shape, strides, dtype=dtype, device="meta")

    dst, src = view(target), view(source)
    facts = plan("copy_", dst, src).facts
    planned = element_moves(facts["sizes"], facts["dst_strides"], facts["src_strides"])
    assert planned == element_moves(shape, dst.stride(), src.stride())
