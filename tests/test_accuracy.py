"""Errors against float64: norm-wise never above 1.05 x PyTorch's own, and a bound for every element.

TF32 is off (conftest.py). Where PyTorch is exact, so are we.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import reference
from support.accuracy import assert_no_less_accurate, assert_within_bound
from support.devices import FLOATS, name
from support.tensors import Make
from torch import Tensor

import torch_memops

float_dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=name)


def wide(tensor: Tensor) -> Tensor:
    """f64 on the CPU."""
    return tensor.detach().double().cpu()


def normal(make: Make, *shape: int) -> Tensor:
    return make.tensor(*shape)


def uniform(make: Make, *shape: int) -> Tensor:
    """All of one sign: sums grow, nothing cancels."""
    return make.tensor(*shape).abs()


def wide_exponents(make: Make, *shape: int) -> Tensor:
    """Magnitudes over 40 binades (8 in f16, whose sums must not overflow)."""
    span = 4 if make.dtype == torch.float16 else 20
    powers = torch.randint(-span, span, shape, generator=make.generator)
    return make.tensor(*shape) * torch.exp2(powers.double()).to(make.device, make.dtype)


DATA = {"normal": normal, "one-sign": uniform, "wide-exponents": wide_exponents}
every_data = pytest.mark.parametrize("fill", DATA.values(), ids=DATA)


def compare(
    ours: Tensor,
    peer: Tensor,
    expected: Tensor,
    magnitude: Tensor,
    terms: int,
    fill: Callable[..., Tensor] = normal,
) -> None:
    """Both judgements; data of wide exponents by the elementwise one alone."""
    if fill is not wide_exponents:
        assert_no_less_accurate(ours, peer, expected, "ours against PyTorch", terms)
    assert_within_bound(ours, expected, magnitude, terms, "ours")


@every_data
@float_dtypes
@pytest.mark.parametrize("k", [1, 2, 3, 4, 8, 16, 64, 257, 1024, 4096])
def test_matmul(fill: Callable[..., Tensor], dtype: torch.dtype, k: int, device: str) -> None:
    make = Make(device, dtype)
    a, b = fill(make, 128, k), fill(make, k, 120)
    expected = wide(a) @ wide(b)
    out = torch_memops.matmul(a, b)
    compare(out, torch.matmul(a, b), expected, wide(a).abs() @ wide(b).abs(), k, fill)


@float_dtypes
@pytest.mark.parametrize("k", [64, 1024, 4096])
def test_matmul_of_cancelling_sums(dtype: torch.dtype, k: int, device: str) -> None:
    """The second half of K takes the first away again, but for a small rest."""
    make = Make(device, dtype)
    half, factor = make.tensor(32, k // 2), make.tensor(k // 2, 24)
    a = torch.cat([half, -half], 1)
    b = torch.cat([factor, factor + torch.finfo(dtype).eps * 4], 0).to(dtype)
    expected = wide(a) @ wide(b)
    magnitude = wide(a).abs() @ wide(b).abs()
    assert_within_bound(torch_memops.matmul(a, b), expected, magnitude, k, "ours")


@float_dtypes
@pytest.mark.parametrize("k", [1, 16, 1000])
def test_linear_with_bias(dtype: torch.dtype, k: int, device: str) -> None:
    make = Make(device, dtype)
    x, weight, bias = make.tensor(128, k), make.tensor(120, k), make.tensor(120)
    expected = F.linear(wide(x), wide(weight), wide(bias))
    magnitude = F.linear(wide(x).abs(), wide(weight).abs(), wide(bias).abs())
    compare(
        torch_memops.linear(x, weight, bias), F.linear(x, weight, bias), expected, magnitude, k + 1
    )


@float_dtypes
@pytest.mark.parametrize("order", ["nn", "nt", "tn", "tt"])
def test_matmul_operand_orders(dtype: torch.dtype, order: str, device: str) -> None:
    make = Make(device, dtype)
    a = make.tensor(129, 300, layout="transposed" if order[0] == "t" else "contiguous")
    b = make.tensor(300, 131, layout="transposed" if order[1] == "t" else "contiguous")
    expected, magnitude = wide(a) @ wide(b), wide(a).abs() @ wide(b).abs()
    compare(torch_memops.matmul(a, b), torch.matmul(a, b), expected, magnitude, 300)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "dense": ((4, 32, 130), (40, 32, 5), {"padding": 2}),
    "grouped": ((4, 32, 130), (40, 8, 5), {"padding": 2, "groups": 4}),
    "depthwise": ((4, 32, 130), (32, 1, 7), {"padding": 3, "groups": 32}),
    "one-channel": ((2, 1, 8200), (1, 1, 65), {"padding": 32}),
    "strided": ((2, 16, 131), (24, 16, 4), {"stride": 3, "dilation": 2}),
}


@every_data
@float_dtypes
@pytest.mark.parametrize("kind", CONVOLUTIONS)
def test_conv1d(fill: Callable[..., Tensor], dtype: torch.dtype, kind: str, device: str) -> None:
    x_shape, w_shape, options = CONVOLUTIONS[kind]
    make = Make(device, dtype)
    x, weight = fill(make, *x_shape), fill(make, *w_shape)
    expected = reference.conv1d(wide(x), wide(weight), **options)
    out = torch_memops.conv1d(x, weight, **options)
    peer = F.conv1d(x, weight, **options)
    if fill is not wide_exponents:
        assert_no_less_accurate(out, peer, expected, "ours against PyTorch")
    if device == "cuda" or dtype in (torch.float32, torch.float64):
        magnitude = reference.conv1d(wide(x).abs(), wide(weight).abs(), **options)
        assert_within_bound(out, expected, magnitude, w_shape[1] * w_shape[2], "ours")


@every_data
@float_dtypes
@pytest.mark.parametrize("count", [1, 5, 17, 255, 3001])
def test_conv1d_constant(
    fill: Callable[..., Tensor], dtype: torch.dtype, count: int, device: str
) -> None:
    """PyTorch's own: conv1d in the input's type with taps of that type."""
    make = Make(device, dtype)
    x = fill(make, 3, 4096)
    taps = torch.randn(count, generator=make.generator).to(dtype).double().tolist()
    expected = reference.conv1d_constant(wide(x), taps, (count // 2, count // 2))
    out = torch_memops.conv1d_constant(x, taps, (count // 2, count // 2))
    weight = torch.tensor(taps, dtype=dtype, device=device).view(1, 1, -1)
    peer = F.conv1d(x[:, None], weight, padding=count // 2)[:, 0]
    absolute = [abs(t) for t in taps]
    magnitude = reference.conv1d_constant(wide(x).abs(), absolute, (count // 2, count // 2))
    compare(out, peer, expected, magnitude, count, fill)


@pytest.mark.parametrize("fill", [normal, uniform], ids=["normal", "one-sign"])
@float_dtypes
@pytest.mark.parametrize("silu", [False, True])
def test_causal_conv1d(
    fill: Callable[..., Tensor], dtype: torch.dtype, silu: bool, device: str
) -> None:
    make = Make(device, dtype)
    x, weight, bias = fill(make, 2, 64, 131), fill(make, 64, 4), make.tensor(64)
    expected, _ = reference.causal_conv1d(wide(x), wide(weight), wide(bias), silu=silu)
    out, _ = torch_memops.causal_conv1d(x, weight, bias, silu=silu)
    peer = reference.causal_conv1d_peer(x, weight, bias, silu=silu)
    assert_no_less_accurate(out, peer, expected, "ours against PyTorch")


Program = tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]


def gradient_programs(make: Make) -> dict[str, Program]:
    """Ours, PyTorch's and the leaves, with enough elements that their norms are no accident."""
    index = make.index(600, 36_000)
    return {
        "matmul": (
            torch_memops.matmul,
            torch.matmul,
            (make.tensor(130, 260), make.tensor(260, 66)),
        ),
        "conv1d": (
            lambda x, w, b: torch_memops.conv1d(x, w, b, padding=1),
            lambda x, w, b: F.conv1d(x, w, b, padding=1),
            (make.tensor(4, 64, 130), make.tensor(64, 64, 3), make.tensor(64)),
        ),
        "causal_conv1d": (
            lambda x, w, b: torch_memops.causal_conv1d(x, w, b)[0],
            lambda x, w, b: reference.causal_conv1d_peer(x, w, b),
            (make.tensor(1, 1024, 33), make.tensor(1024, 4), make.tensor(1024)),
        ),
        "gather_aos": (
            lambda t: torch_memops.gather_aos(t, index),
            lambda t: F.embedding(index.to(t.device), t),
            (make.tensor(600, 33),),
        ),
        "gather_soa": (
            lambda t: torch_memops.gather_soa(t, index),
            lambda t: t.index_select(1, index.to(t.device)),
            (make.tensor(33, 600),),
        ),
    }


@float_dtypes
@pytest.mark.parametrize("op", ["matmul", "conv1d", "causal_conv1d", "gather_aos", "gather_soa"])
def test_gradients(op: str, dtype: torch.dtype, device: str) -> None:
    """Every gradient is as accurate as PyTorch's."""
    ours, theirs, leaves = gradient_programs(Make(device, dtype, requires_grad=True))[op]
    out = ours(*leaves)
    grad = Make(device, dtype, seed=6).tensor(*out.shape)
    found = torch.autograd.grad(out, leaves, grad)
    peers = torch.autograd.grad(theirs(*leaves), leaves, grad)
    wide_leaves = tuple(wide(t).requires_grad_() for t in leaves)
    expected = torch.autograd.grad(theirs(*wide_leaves), wide_leaves, wide(grad))
    for mine, peer, other in zip(found, peers, expected, strict=True):
        if mine.numel() >= 2048:
            assert_no_less_accurate(mine, peer, other, f"gradient of {op}")
        else:
            limit = 2 * torch.finfo(dtype).eps * other.abs().max() + 1e-3 * peer.abs().max()
            assert (wide(mine) - other).abs().max() <= limit.cpu()


def test_f32_products_lose_no_bit(device: str) -> None:
    """K = 1: a split into two TF32 terms would lose a bit in a quarter of all values."""
    a = Make(device).tensor(4096, 1)
    b = torch.tensor([[1.0, 3.0, 1.0 / 3.0]], device=device)
    assert torch.equal(torch_memops.matmul(a, b), a * b)


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-60, 2.0**60, 2.0**100])
def test_f32_extreme_exponents(scale: float, device: str) -> None:
    """Products near the ends of the range: as accurate as in the middle."""
    make = Make(device)
    a, b = make.tensor(33, 64), make.tensor(64, 17)
    low, high = a * scale, b / scale
    expected = wide(low) @ wide(high)
    magnitude = wide(low).abs() @ wide(high).abs()
    compare(torch_memops.matmul(low, high), torch.matmul(low, high), expected, magnitude, 64)


def test_f32_subnormal_operands(device: str) -> None:
    """Subnormal inputs are not flushed to zero."""
    tiny = torch.full((4, 4), 2.0**-140, device=device)
    large = torch.eye(4, device=device) * 2.0**100
    assert torch.equal(torch_memops.matmul(tiny, large), torch.full_like(tiny, 2.0**-40))
