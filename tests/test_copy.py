"""copy and copy_: any view to any view, bit for bit."""

import threading

import pytest
import torch
from support.devices import FLOATS, allocatable_dtypes, name
from support.samples import COPY, COPY_, Case
from support.tensors import (
    LAYOUTS,
    GuardedView,
    Make,
    assert_same_bits,
    from_bytes,
    random_bits,
    strides_for,
    to_bytes,
)
from torch import Tensor

import torch_memops

every_dtype = pytest.mark.parametrize("dtype", allocatable_dtypes(), ids=name)

# Signalling and quiet NaNs with payloads, a subnormal, and both signs of the smallest numbers.
STRANGE_BITS = {
    torch.float32: (0x7F800001, 0xFF800001, 0x7FC12345, 1, 0x80000000, 0x80000001),
    torch.float16: (0x7C01, 0xFC01, 0x7E55, 1, 0x8000, 0x8001),
    torch.bfloat16: (0x7F81, 0xFF81, 0x7FC5, 1, 0x8000, 0x8001),
    torch.float8_e4m3fn: (0x7F, 0xFF, 0x7E, 1, 0x80, 0x81),
    torch.float8_e5m2: (0x7D, 0xFD, 0x7F, 1, 0x80, 0x81),
}


def strange_values(dtype: torch.dtype, device: str) -> Tensor:
    """STRANGE_BITS as a tensor of shape [2, 3]."""
    width = dtype.itemsize
    data = b"".join(word.to_bytes(width, "little") for word in STRANGE_BITS[dtype])
    return torch.frombuffer(bytearray(data), dtype=dtype).view(2, 3).to(device)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATS, ids=name)
@pytest.mark.parametrize("case", COPY.cases, ids=lambda case: case.name)
def test_copy_samples(case: Case, device: str, dtype: torch.dtype) -> None:
    (src,), _ = case.make(Make(device, dtype))
    out = torch_memops.copy(src)
    assert_same_bits(out, src)
    assert out.stride() == torch.empty(src.shape).stride()
    assert out.data_ptr() != src.data_ptr() or src.numel() == 0


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATS, ids=name)
@pytest.mark.parametrize("case", COPY_.cases, ids=lambda case: case.name)
def test_copy_into_samples(case: Case, device: str, dtype: torch.dtype) -> None:
    (dst, src), _ = case.make(Make(device, dtype))
    expected = src.expand_as(dst).clone()
    assert torch_memops.copy_(dst, src) is dst
    assert_same_bits(dst, expected)


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_dtype_by_its_width(device: str, layout: str, dtype: torch.dtype) -> None:
    """pytorch#169656, pytorch#185330: random bytes of every dtype arrive as they left."""
    values = random_bits((3, 5, 7), dtype)
    src = GuardedView(values, *strides_for((3, 5, 7), layout), device=device)
    out = torch_memops.copy(src.view)
    assert out.dtype == dtype
    assert out.is_contiguous()
    assert torch.equal(to_bytes(out), to_bytes(values))
    dst = GuardedView(random_bits((3, 5, 7), dtype), *strides_for((3, 5, 7), layout), device=device)
    torch_memops.copy_(dst.view, src.view)
    assert torch.equal(to_bytes(dst.view), to_bytes(values))
    torch_memops.copy_(dst.view.mT, out.mT)
    assert torch.equal(to_bytes(dst.view), to_bytes(values))
    src.assert_untouched()
    dst.assert_only_view_written()


@pytest.mark.parametrize("dtype", STRANGE_BITS, ids=name)
def test_nan_payloads_and_signed_zeros(device: str, dtype: torch.dtype) -> None:
    """tt-metal#54899: copies, transposes and gathers move bits, not numbers."""
    values = strange_values(dtype, device)
    index = torch.tensor([1, 0, 1], device=device)
    data = to_bytes(values)
    assert torch.equal(to_bytes(torch_memops.copy(values)), data)
    assert torch.equal(to_bytes(torch_memops.copy(values.t())), data.transpose(0, 1))
    dst = torch.empty_like(values)
    torch_memops.copy_(dst, values)
    assert torch.equal(to_bytes(dst), data)
    torch_memops.copy_(dst.t(), values.t())
    assert torch.equal(to_bytes(dst), data)
    assert torch.equal(to_bytes(torch_memops.aos_to_soa(values)), data.transpose(0, 1))
    assert torch.equal(to_bytes(torch_memops.soa_to_aos(values)), data.transpose(0, 1))
    assert torch.equal(to_bytes(torch_memops.gather_aos(values, index)), data[index.cpu()])
    assert torch.equal(to_bytes(torch_memops.gather_soa(values, index)), data[:, index.cpu()])


def test_overlap_gives_what_a_clone_would(device: str) -> None:
    """pytorch#91894: overlap that Tensor.copy_ does not notice."""
    b = torch.arange(24.0, device=device).view(2, 4, 3)
    expected = b.clone()
    expected[:, 1:] = b[:, :3].clone()
    torch_memops.copy_(b[:, 1:], b[:, :3])
    assert torch.equal(b, expected)
    for wide, high in ((1000, 7), (5, 3000)):
        line = torch.arange(float(wide * high), device=device).view(high, wide)
        expected = line.clone()
        expected[1:, 1:] = line[:-1, :-1].clone()
        torch_memops.copy_(line[1:, 1:], line[:-1, :-1])
        assert torch.equal(line, expected)


def test_overlap_with_a_cast(device: str) -> None:
    """The same bytes as two types: a view as bytes onto the numbers they come from."""
    words = torch.arange(64, dtype=torch.int32, device=device)
    head = words.view(torch.uint8).view(64, 4)[:, 0]
    expected = words.clone()
    expected.view(torch.uint8).view(64, 4)[:, 0] = (words.clone() + 1).to(torch.uint8)
    torch_memops.copy_(head, words + 1)
    assert torch.equal(words, expected)


@pytest.mark.parametrize("kind", ["shifted", "transposed"])
def test_overlap_that_pytorch_refuses_is_refused(device: str, kind: str) -> None:
    """pytorch#91894: Tensor.copy_ raises for these, and nothing is written."""
    x = torch.arange(9.0, device=device).view(3, 3)
    dst, src = (x, x.t()) if kind == "transposed" else (x.view(-1)[1:], x.view(-1)[:-1])
    before = x.clone()
    with pytest.raises(RuntimeError, match=r"copy_.*dst.*overlap"):
        torch_memops.copy_(dst, src)
    assert torch.equal(x, before)


def test_copy_to_itself(device: str) -> None:
    x = torch.arange(6.0, device=device).view(2, 3)
    assert torch_memops.copy_(x, x) is x
    assert torch.equal(x, torch.arange(6.0, device=device).view(2, 3))


def test_destination_that_repeats_its_elements(device: str) -> None:
    """pytorch#34880, pytorch#23063: refused, and nothing is written."""
    one = torch.zeros(1, device=device)
    with pytest.raises(RuntimeError, match=r"(?s)copy_.*dst.*more than once"):
        torch_memops.copy_(one.expand(10), torch.randn(10, device=device))
    assert one.item() == 0
    rows = torch.zeros(1, 3, device=device)
    with pytest.raises(RuntimeError, match=r"(?s)copy_.*dst.*more than once"):
        torch_memops.copy_(rows.expand(4, 3), torch.ones(3, device=device))
    assert not rows.any()


def test_source_with_more_dimensions(device: str) -> None:
    """pytorch#17935: a destination is never enlarged."""
    dst = torch.zeros(3, device=device)
    with pytest.raises(RuntimeError, match=r"copy_.*src.*\[1, 3\].*\[3\]"):
        torch_memops.copy_(dst, torch.ones(1, 3, device=device))
    assert not dst.any()


def test_shapes_that_look_alike(device: str) -> None:
    """ROCm/pytorch#1993, csarofeen/pytorch#755: transposes with dimensions of size 1."""
    for shape in ((5, 1, 1), (1, 5, 1), (1, 1, 5)):
        x = torch.arange(5.0, device=device).view(shape)
        for view in (x.transpose(0, 1), x.transpose(1, 2), x.transpose(0, 2), x.permute(1, 2, 0)):
            assert torch_memops.copy(view).flatten().tolist() == [0, 1, 2, 3, 4]
            assert torch_memops.copy(view).shape == view.shape
            assert torch_memops.copy(view).stride() == torch.empty(view.shape).stride()
    pairs = torch.arange(8.0, device=device).view(2, 2, 1, 2)
    view = pairs.expand(2, 2, 3, 2).permute(3, 2, 1, 0)
    out = torch_memops.copy(view)
    assert out.flatten(2).tolist() == [[[0, 4, 2, 6]] * 3, [[1, 5, 3, 7]] * 3]


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_casts_have_pytorchs_values(device: str) -> None:
    """pytorch#87556, pytorch#140347: to bool, to integers, from complex."""

    def cast(values: list[complex], source: torch.dtype, target: torch.dtype) -> list[object]:
        src = torch.tensor(values, dtype=source, device=device)
        return torch_memops.copy_(
            torch.zeros(len(values), dtype=target, device=device), src
        ).tolist()

    nan = float("nan")
    assert cast([0.5, -0.0, nan, 0], torch.float32, torch.bool) == [True, False, True, False]
    assert cast([1.9, 255], torch.float32, torch.uint8) == [1, 255]
    assert cast([1.9, -1.5], torch.float32, torch.int32) == [1, -1]
    assert cast([1j, 2], torch.complex64, torch.float32) == [0, 2]
    assert cast([1j, 0], torch.complex64, torch.bool) == [True, False]


def has_numbers(dtype: torch.dtype) -> bool:
    """Whether Tensor.copy_ converts to and from the dtype: not raw bits, not parts of a byte."""
    if name(dtype).startswith(("bits", "float4", "bcomplex")):
        return False
    return name(dtype) not in {f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)}


CAST_DTYPES = tuple(dtype for dtype in allocatable_dtypes() if has_numbers(dtype))


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.parametrize("source", CAST_DTYPES, ids=name)
def test_casts_between_all_dtypes(device: str, source: torch.dtype) -> None:
    """numpy#23481: what C leaves undefined (NaN to an integer) comes out as Tensor.copy_'s bits."""
    special = [float("nan"), float("inf"), -float("inf"), 300.0, -1.0, 70000.0, 0.5, 3e9, -0.0]
    values = torch.tensor(special * 9, dtype=torch.float64).view(9, 9).to(source).to(device)
    for target in CAST_DTYPES:
        for view in (values, values.t(), values[:, 1:], values[:, ::2], values[:1].expand(9, 9)):
            expected = torch.zeros(view.shape, dtype=target, device=device)
            expected.copy_(view)
            out = torch_memops.copy_(torch.ones_like(expected), view)
            assert_same_bits(out, expected)


@pytest.mark.parametrize(
    ("dtype", "source"),
    [
        (torch.float8_e4m3fn, [500, 448, 464, -1e6, float("inf"), float("nan"), 0.3]),
        (torch.float8_e5m2, [7e4, 57344, 1e9, float("nan"), 0.3]),
    ],
    ids=["e4m3fn", "e5m2"],
)
def test_casts_to_float8(device: str, dtype: torch.dtype, source: list[float]) -> None:
    """pytorch#177769: the same for every length and offset, vector body and tail alike.

    What lies beyond the largest number became NaN in PyTorch 2.11 and is clamped in newer ones:
    the values are those of Tensor.copy_, number by number.
    """
    single = [torch.tensor([v], device=device).to(dtype) for v in source]
    assert single[1].item() in (448.0, 57344.0)
    expected = torch.cat([to_bytes(s) for s in single]).repeat(70, 1)
    for n in range(1, 66):
        for offset in (0, 1, 3):
            line = torch.tensor(source, device=device).repeat(n + 3)[: n + offset]
            out = torch.zeros(n, dtype=dtype, device=device)
            torch_memops.copy_(out, line[offset:])
            assert torch.equal(to_bytes(out), expected[offset : n + offset])


WIDTHS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


@pytest.mark.parametrize("width", WIDTHS)
def test_heads_and_tails_stay_inside(device: str, width: int) -> None:
    """LeetCUDA#249, risc0#3803: every length to 67 at every misalignment, guard bytes round it."""
    dtype = WIDTHS[width]
    offsets = range(max(16 // width, 2))
    lengths = range(1, 68) if device == "cpu" else (1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 67)
    for n in lengths:
        values = random_bits((n,), dtype)
        for source in offsets:
            for target in offsets:
                src = GuardedView(values, (1,), source, device)
                dst = GuardedView(random_bits((n,), dtype), (1,), target, device)
                torch_memops.copy_(dst.view, src.view)
                assert_same_bits(dst.view, values.to(device))
                dst.assert_only_view_written()
                assert_same_bits(torch_memops.copy(src.view), values.to(device))


@pytest.mark.sanitize
@pytest.mark.parametrize("width", WIDTHS)
def test_heads_and_tails_small(device: str, width: int) -> None:
    """The same kernels on few bytes, for the memory checker."""
    dtype = WIDTHS[width]
    for n in (1, 3, 17, 67):
        for source, target in ((0, 0), (1, 1), (0, 1)):
            values = random_bits((n + 1, n), dtype).to(device)
            src, dst = values[source:, source:], torch.zeros_like(values)[target:, target:]
            if src.shape == dst.shape:
                torch_memops.copy_(dst, src)
                assert_same_bits(dst, src)
            assert_same_bits(torch_memops.copy(src), src)
            assert_same_bits(torch_memops.copy(src.t()), src.t())


@pytest.mark.parametrize("offset", [1, 2, 3])
def test_pointer_not_aligned_to_the_dtype(device: str, offset: int) -> None:
    """pytorch#191238, pytorch#190043: f32 that starts at an odd byte: right values or an error."""
    if device == "cuda":
        pytest.skip("PyTorch makes no CUDA tensor whose pointer is not aligned to its dtype")
    numbers = torch.arange(3072, dtype=torch.float32) / 7
    memory = bytearray(12296)
    memory[offset : offset + 12288] = bytes(to_bytes(numbers).flatten().tolist())
    weight = torch.frombuffer(memory, dtype=torch.float32, count=3072, offset=offset).view(64, 48)
    aligned = numbers.view(64, 48)
    index = torch.tensor([3, 47, 0])
    assert torch.equal(torch_memops.copy(weight), aligned)
    assert torch.equal(torch_memops.copy(weight.t()), aligned.t())
    assert torch.equal(torch_memops.copy_(torch.zeros(64, 48), weight), aligned)
    assert torch.equal(torch_memops.gather_aos(weight, index), aligned[index])
    assert torch.equal(torch_memops.gather_soa(weight, index), aligned[:, index])
    for rows in (1, 2):
        x = Make().tensor(rows, 48)
        torch.testing.assert_close(torch_memops.linear(x, weight), x @ aligned.t())


def test_negative_and_conjugate_bits_are_resolved(device: str) -> None:
    z = Make(device, torch.complex64).tensor(4, 5)
    out = torch_memops.copy(z.conj())
    assert not out.is_conj()
    assert torch.equal(out, z.conj().resolve_conj())
    negative = torch._neg_view(z.real)
    assert not torch_memops.copy(negative).is_neg()
    assert torch.equal(torch_memops.copy(negative), -z.real)
    dst = torch.zeros(4, 5, dtype=torch.complex64, device=device)
    torch_memops.copy_(dst, z.conj())
    assert torch.equal(dst, z.conj())
    torch_memops.copy_(dst.conj(), z)
    assert torch.equal(dst.conj(), z)
    real = torch.zeros(4, 5, device=device)
    torch_memops.copy_(torch._neg_view(real), z.real)
    assert torch.equal(real, -z.real)


def test_gradient_through_an_overwritten_base(device: str) -> None:
    """A core that writes without saying so loses gradients in silence; Tensor.copy_'s come out."""
    make = Make(device, torch.float64, requires_grad=True)
    base, src = make.tensor(3, 4), make.tensor(4)

    def run(copy: object) -> tuple[Tensor, ...]:
        whole = base * 2
        copy(whole[1], src)  # type: ignore[operator]
        copy(whole.t()[0], src[:3] * 3)  # type: ignore[operator]
        return torch.autograd.grad((whole**2).sum(), (base, src))

    for mine, other in zip(
        run(torch_memops.copy_), run(lambda dst, src: dst.copy_(src)), strict=True
    ):
        torch.testing.assert_close(mine, other)


def test_leaf_that_requires_grad_is_refused(device: str) -> None:
    leaf = torch.zeros(3, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        torch_memops.copy_(leaf, torch.ones(3, device=device))
    with torch.no_grad():
        torch_memops.copy_(leaf, torch.ones(3, device=device))
    assert torch.equal(leaf.detach(), torch.ones(3, device=device))


@pytest.mark.parametrize("grad_mode", [True, False])
def test_version_is_bumped(device: str, grad_mode: bool) -> None:
    """Backward must notice that a value it saved was overwritten."""
    scale = torch.ones(3, device=device, requires_grad=True)
    saved = torch.ones(3, device=device)
    y = (scale * saved).sum()
    with torch.set_grad_enabled(grad_mode):
        torch_memops.copy_(saved, torch.zeros(3, device=device))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.cuda
@pytest.mark.parametrize("direction", ["to-cuda", "to-cpu"])
def test_between_devices(direction: str) -> None:
    """copy_ moves between host and device, as Tensor.copy_ does, with casts and any strides."""
    here, there = ("cpu", "cuda") if direction == "to-cuda" else ("cuda", "cpu")
    src = Make(here).tensor(7, 9, layout="transposed")
    dst = torch.zeros(9, 7, dtype=torch.float64, device=there).t()
    torch_memops.copy_(dst, src)
    assert torch.equal(dst.cpu(), src.double().cpu())


def test_threads_copy_into_their_own_rows(device: str) -> None:
    """Eight threads write disjoint rows of one tensor."""
    src = Make(device).tensor(8, 1001)
    dst = torch.zeros(1001, 8, device=device).t()
    threads = [threading.Thread(target=torch_memops.copy_, args=(dst[i], src[i])) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.equal(dst, src)


def test_bytes_helper_round_trip() -> None:
    """The comparison's own tools: bytes out and in again."""
    values = random_bits((2, 3), torch.float16)
    assert torch.equal(to_bytes(from_bytes(to_bytes(values), torch.float16)), to_bytes(values))
