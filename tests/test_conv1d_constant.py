"""conv1d_constant: one filter, its taps carried by the launch."""

import math
import threading
from typing import Any

import pytest
import torch
from support import reference
from support.accuracy import assert_within_bound
from support.devices import FLOATS, name
from support.samples import CONV1D_CONSTANT, Case
from support.tensors import Make, assert_same_bits, leave_nan_behind
from torch import Tensor

import torch_memops

float_dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=name)
SIZE_CLASSES = (1, 2, 31, 32, 33, 255, 256, 257, 2047, 2048, 2049, 7999, 8000, 8001, 16001)


def single_precision(taps: list[float]) -> list[float]:
    """Taps as the op uses them for inputs other than f64."""
    return torch.tensor(taps, dtype=torch.float32).double().tolist()


def check(input: Tensor, taps: list[float], padding: reference.Padding = 0) -> Tensor:
    """conv1d_constant against float64, every element; the result is returned."""
    out = torch_memops.conv1d_constant(input, taps, padding)
    used = taps if input.dtype == torch.float64 else single_precision(taps)
    wide = input.detach().double().cpu()
    expected = reference.conv1d_constant(wide, used, padding)
    magnitude = reference.conv1d_constant(wide.abs(), [abs(t) for t in used], padding)
    assert out.dtype == input.dtype
    assert out.is_contiguous()
    assert_within_bound(out, expected, magnitude, len(taps), "conv1d_constant")
    return out


def random_taps(count: int) -> list[float]:
    """A filter with every tap different."""
    generator = torch.Generator().manual_seed(count)
    return torch.randn(count, generator=generator, dtype=torch.float64).tolist()


@pytest.mark.sanitize
@float_dtypes
@pytest.mark.parametrize("case", CONV1D_CONSTANT.cases, ids=lambda case: case.name)
def test_samples(case: Case, device: str, dtype: torch.dtype) -> None:
    (x, taps), options = case.make(Make(device, dtype))
    leave_nan_behind(device, x.shape, dtype=dtype)
    check(x, taps, **options)


@float_dtypes
@pytest.mark.parametrize("count", SIZE_CLASSES)
def test_filters_of_every_size_class(device: str, count: int, dtype: torch.dtype) -> None:
    """Both sides of each size class of the launch's arguments, and several launches."""
    check(Make(device, dtype).tensor(2, 1031), random_taps(count), (count // 2, count // 2))


@pytest.mark.sanitize
@pytest.mark.parametrize("count", [33, 257, 2049, 8001])
def test_size_classes_small(device: str, count: int) -> None:
    check(Make(device).tensor(1, 65), random_taps(count), (count - 1, 0))


@float_dtypes
@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 127, 128, 129, 1023, 1024, 1025, 4099])
def test_lengths_round_tile_edges(device: str, length: int, dtype: torch.dtype) -> None:
    check(Make(device, dtype).tensor(3, length), random_taps(17), 8)


def test_convolution_or_correlation(device: str) -> None:
    """audio#1624, torchsynth#68: it is a correlation, as in conv1d."""
    delta = torch.zeros(5, device=device)
    delta[2] = 1
    out = torch_memops.conv1d_constant(delta, [1.0, 2.0, 3.0], padding=1)
    assert out.tolist() == [0, 3, 2, 1, 0]


def test_zero_taps_are_not_skipped(device: str) -> None:
    """astropy#893: 0 x inf is NaN."""
    x = torch.tensor([math.inf, 1, 1, 1], device=device)
    out = torch_memops.conv1d_constant(x, [0.0, 1.0, 0.0], padding=1)
    expected = torch.tensor([math.inf, math.nan, 1, 1], device=device)
    torch.testing.assert_close(out, expected, equal_nan=True, rtol=0, atol=0)


def test_infinite_inputs_beside_the_row_do_not_leak(device: str) -> None:
    """The padding is zeros, whatever the rows above and below hold."""
    x = torch.tensor([[math.inf] * 5, [1.0] * 5, [math.nan] * 5], device=device)
    out = torch_memops.conv1d_constant(x, [1.0, 1.0, 1.0], padding=1)
    assert out[1].tolist() == [2, 3, 3, 3, 2]


@pytest.mark.parametrize(
    ("shape", "count", "padding"),
    [((3, 0), 2, 1), ((0, 5), 2, 0), ((0,), 3, 1), ((2, 0), 1, 0), ((0, 0), 2, 1)],
)
def test_empty_inputs(device: str, shape: tuple[int, ...], count: int, padding: int) -> None:
    """pytorch#31425: the same outcome on every device and on Meta; zeros where there is a result."""
    taps = random_taps(count)

    def outcome(on: str) -> Any:
        try:
            out = torch_memops.conv1d_constant(torch.zeros(shape, device=on), taps, padding)
        except RuntimeError:
            return RuntimeError
        if on != "meta":
            assert torch.equal(out.cpu(), torch.zeros(out.shape))
        return out.shape

    assert outcome(device) == outcome("cpu") == outcome("meta")
    length = shape[-1] + 2 * padding - count + 1
    if 0 in shape[:-1] and shape[-1]:
        assert outcome(device) == (*shape[:-1], length)


def test_float64_uses_float64_taps(device: str) -> None:
    third = 1.0 / 3.0
    out = torch_memops.conv1d_constant(torch.ones(4, dtype=torch.float64, device=device), [third])
    assert out.tolist() == [third] * 4


def test_python_paddings(device: str) -> None:
    x = torch.arange(1.0, 6.0, device=device)
    assert torch_memops.conv1d_constant(x, [1.0, 10.0], "same").tolist() == [21, 32, 43, 54, 5]
    assert torch_memops.conv1d_constant(x, [1.0, 10.0], "valid").tolist() == [21, 32, 43, 54]
    causal = torch_memops.conv1d_constant(x, [1.0, 10.0], (1, 0))
    assert causal.tolist() == [10, 21, 32, 43, 54]


def test_gradient_is_the_reversed_filter(device: str) -> None:
    x = torch.zeros(1, 6, device=device, requires_grad=True)
    y = torch_memops.conv1d_constant(x, [1.0, 10.0, 100.0], (2, 0))
    grad = torch.tensor([[1.0, 2, 3, 4, 5, 6]], device=device)
    (ours,) = torch.autograd.grad(y, x, grad)
    assert ours.tolist() == [[123, 234, 345, 456, 560, 600]]


def threads_with_own_filters(device: str, streams: int, calls: int) -> None:
    x = Make(device).tensor(2, 999)
    filters = [random_taps(17 + n) for n in range(8)]
    expected = [torch_memops.conv1d_constant(x, taps, 8) for taps in filters]
    wrong: list[int] = []

    def work(n: int) -> None:
        results = [torch_memops.conv1d_constant(x, filters[n], 8) for _ in range(calls)]
        if not all(torch.equal(result, expected[n]) for result in results):
            wrong.append(n)

    def on_stream(n: int) -> None:
        if device == "cuda":
            stream = pool[n % streams]
            stream.wait_stream(torch.cuda.default_stream())
            with torch.cuda.stream(stream):
                work(n)
        else:
            work(n)

    pool = [torch.cuda.Stream() for _ in range(streams)] if device == "cuda" else []
    threads = [threading.Thread(target=on_stream, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("streams", [1, 2])
def test_threads_keep_their_own_filters(device: str, streams: int) -> None:
    """arrayfire#3711, opencv#6742: no thread ever sees another's taps."""
    threads_with_own_filters(device, streams, 1000 if device == "cuda" else 100)


@pytest.mark.cuda
def test_threads_while_a_graph_replays() -> None:
    """A captured filter stays what it was while other filters run."""
    x = Make("cuda").tensor(2, 999)
    taps = random_taps(33)
    expected = torch_memops.conv1d_constant(x, taps, 16)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = torch_memops.conv1d_constant(x, taps, 16)
    stop = threading.Event()
    stream = torch.cuda.Stream()
    different = []

    def replay() -> None:
        with torch.cuda.stream(stream):
            while not stop.is_set():
                captured.fill_(math.nan)
                graph.replay()
                if not torch.equal(captured, expected):
                    different.append(captured.clone())
                    return

    thread = threading.Thread(target=replay)
    thread.start()
    try:
        threads_with_own_filters("cuda", 2, 200)
    finally:
        stop.set()
        thread.join()
    assert not different


@float_dtypes
def test_other_strides_give_the_same_bits(device: str, dtype: torch.dtype) -> None:
    x, taps = Make(device, dtype).tensor(5, 37), random_taps(9)
    plain = torch_memops.conv1d_constant(x, taps, 4)
    for layout in ("transposed", "strided", "offset", "pitched"):
        view = Make(device, dtype).tensor(5, 37, layout=layout)
        assert_same_bits(torch_memops.conv1d_constant(view, taps, 4), plain)
    repeated = x[:1].expand(5, 37)
    assert_same_bits(torch_memops.conv1d_constant(repeated, taps, 4), plain[:1].expand(5, -1))
