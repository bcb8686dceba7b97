"""conv1d: F.conv1d with a left and a right padding."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support import reference
from support.accuracy import assert_no_less_accurate, assert_within_bound, norm_error
from support.devices import FLOATS, HALVES, fp32_precision, name
from support.samples import CONV1D, Case
from support.tensors import Make, leave_nan_behind
from torch import Tensor

import torch_memops

float_dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=name)


def check(input: Tensor, weight: Tensor, bias: Tensor | None = None, **options: Any) -> Tensor:
    """conv1d against float64, every element; the result is returned."""
    out = torch_memops.conv1d(input, weight, bias, **options)
    args: list[Any] = [
        None if t is None else t.detach().double().cpu() for t in (input, weight, bias)
    ]
    expected = reference.conv1d(*args, **options)
    sizes: list[Any] = [None if t is None else t.abs() for t in args]
    magnitude = reference.conv1d(*sizes, **options)
    terms = weight.shape[1] * weight.shape[2] + 1
    assert out.dtype == input.dtype
    assert_within_bound(out, expected, magnitude, terms, "conv1d")
    return out


def values(text: str, *shape: int, device: str, requires_grad: bool = False) -> Tensor:
    """Whitespace-separated numbers as an f32 tensor."""
    numbers = torch.tensor([float(word) for word in text.split()], device=device)
    return numbers.view(shape).requires_grad_(requires_grad)


@pytest.mark.sanitize
@float_dtypes
@pytest.mark.parametrize("case", CONV1D.cases, ids=lambda case: case.name)
def test_samples(case: Case, device: str, dtype: torch.dtype) -> None:
    args, options = case.make(Make(device, dtype))
    leave_nan_behind(device, (2, 4, 8), (2, 4, 6), dtype=dtype)
    check(*args, **options)


def test_stride_leaves_a_remainder(device: str) -> None:
    """torch7-distro#20, opacus#245: inputs that no window reaches have gradient zero."""
    x = values("1 2 3 4 5 6", 1, 1, 6, device=device, requires_grad=True)
    w = values("1 10 100", 1, 1, 3, device=device, requires_grad=True)
    leave_nan_behind(device, (1, 1, 6), (1, 1, 3), dtype=torch.float32)
    y = torch_memops.conv1d(x, w, stride=2)
    assert y.tolist() == [[[321, 543]]]
    y.backward(values("1 2", 1, 1, 2, device=device))
    assert x.grad is not None
    assert w.grad is not None
    assert x.grad.tolist() == [[[1, 10, 102, 20, 200, 0]]]
    assert w.grad.tolist() == [[[7, 10, 13]]]

    x = values("1 2 3 4 5 6 7", 1, 1, 7, device=device, requires_grad=True)
    w = values("1 10", 1, 1, 2, device=device, requires_grad=True)
    torch_memops.conv1d(x, w, stride=4).sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    assert x.grad.tolist() == [[[1, 10, 0, 0, 1, 10, 0]]]
    assert w.grad.tolist() == [[[6, 8]]]


@float_dtypes
@pytest.mark.parametrize(
    ("x_shape", "stride", "padding", "dilation", "groups"),
    [
        ((1, 16, 218979), 4000, (0, 0), 1, 1),
        ((2, 4, 5), 65536, (0, 0), 1, 1),
        ((2, 4, 9), 70000, (70001, 70000), 2, 2),
    ],
)
def test_gradients_at_large_strides(
    device: str,
    dtype: torch.dtype,
    x_shape: tuple[int, int, int],
    stride: int,
    padding: tuple[int, int],
    dilation: int,
    groups: int,
) -> None:
    """F.conv1d on the CPU crashes the process in the first two: oneDNN reaches outside."""
    make = Make(device, dtype, requires_grad=True)
    x, w = make.tensor(*x_shape), make.tensor(4, x_shape[1] // groups, 3)
    y = torch_memops.conv1d(x, w, None, stride, padding, dilation, groups)
    grad = Make(device, dtype, seed=2).tensor(*y.shape)
    ours = torch.autograd.grad(y, (x, w), grad)
    wide = tuple(t.detach().double().cpu().requires_grad_() for t in (x, w))
    total = F.conv1d(F.pad(wide[0], padding), wide[1], None, stride, 0, dilation, groups)
    expected = torch.autograd.grad(total, wide, grad.double().cpu())
    rtol = {torch.float64: 1e-12, torch.float32: 1e-5}.get(dtype, 2e-2)
    for mine, other in zip(ours, expected, strict=True):
        difference = torch.linalg.vector_norm(mine.double().cpu() - other)
        assert difference <= rtol * torch.linalg.vector_norm(other)


def test_window_mostly_outside(device: str) -> None:
    """pytorch#15501: stride, padding and dilation together."""
    x = values("5 2 4 1", 2, 1, 2, device=device, requires_grad=True)
    w = values("3 6 7 8", 2, 1, 2, device=device, requires_grad=True)
    y = torch_memops.conv1d(x, w, stride=2, padding=1, dilation=2)
    assert y.flatten().tolist() == [12, 16, 6, 8]
    y.sum().backward()
    assert x.grad is not None
    assert w.grad is not None
    assert x.grad.tolist() == [[[0, 14]], [[0, 14]]]
    assert w.grad.tolist() == [[[0, 3]], [[0, 3]]]


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "options"),
    [
        ((2, 4, 9), (4, 2, 3), {"stride": 2, "padding": 1, "dilation": 2, "groups": 2}),
        ((1, 3, 6), (3, 1, 3), {"stride": 2, "groups": 3}),
    ],
)
def test_double_backward_with_groups(
    device: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...], options: dict[str, Any]
) -> None:
    """pytorch#1972."""
    make = Make(device, torch.float64, requires_grad=True)
    inputs = (make.tensor(*x_shape), make.tensor(*w_shape))
    assert torch.autograd.gradgradcheck(
        lambda x, w: torch_memops.conv1d(x, w, **options), inputs, nondet_tol=1e-12
    )


def test_empty_batch(device: str) -> None:
    """pytorch#31425, cudnn-frontend#101."""
    x = torch.ones(0, 3, 5, device=device, requires_grad=True)
    w = torch.ones(4, 3, 2, device=device, requires_grad=True)
    bias = torch.ones(4, device=device, requires_grad=True)
    y = torch_memops.conv1d(x, w, bias)
    assert y.shape == (0, 4, 4)
    y.sum().backward()
    for leaf in (x, w, bias):
        assert leaf.grad is not None
        assert torch.equal(leaf.grad, torch.zeros_like(leaf))


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "padding"),
    [
        ((2, 3, 0), (4, 3, 2), 1),
        ((2, 0, 5), (4, 0, 2), 0),
        ((2, 3, 0), (4, 3, 1), 0),
        ((0, 3, 0), (4, 3, 2), 1),
    ],
    ids=["length-0-padded", "channels-0", "length-0", "batch-0-length-0"],
)
def test_empty_length_or_channels(
    device: str, x_shape: tuple[int, ...], w_shape: tuple[int, ...], padding: int
) -> None:
    """pytorch#31425, pytorch#19599: one outcome on all devices: zeros, or an error everywhere.

    F.conv1d itself gives zeros for no channels, and differs between devices for no length.
    """

    def outcome(on: str) -> Any:
        x, w = torch.zeros(x_shape, device=on), torch.ones(w_shape, device=on)
        try:
            y = torch_memops.conv1d(x, w, padding=padding)
        except RuntimeError as error:
            return str(error)
        assert on == "meta" or not y.any()
        return y.shape

    assert outcome(device) == outcome("cpu") == outcome("meta")
    if 0 not in x_shape[2:]:
        assert outcome(device) == F.conv1d(torch.zeros(x_shape), torch.ones(w_shape)).shape


def test_slice_of_width_one_as_weight(device: str) -> None:
    """pytorch#18948: the weight's strides are honoured where its width is 1."""
    x = values("9 9 2 9 9 1 9 9 0", 3, 3, device=device)[:, 2].view(1, 3, 1)
    w = values("9 9 4 9 9 3 9 9 5", 3, 3, device=device)[:, 2].view(1, 3, 1)
    assert torch_memops.conv1d(x, w).item() == 11
    channels = values("9 9 2 9 9 1 9 9 0", 3, 3, device=device)[None, :, 2:]
    weights = values("9 9 4 9 9 3 9 9 5", 3, 3, device=device)[None, :, 2:]
    assert torch_memops.conv1d(channels, weights).item() == 11


def test_same_padding_with_an_even_kernel(device: str) -> None:
    """pytorch#3867, pytorch#67551: the longer side of the padding is on the right."""
    x = values("1 2 3 4 5", 1, 1, 5, device=device)
    two = values("1 10", 1, 1, 2, device=device)
    four = values("1 10 100 1000", 1, 1, 4, device=device)
    assert torch_memops.conv1d(x, two, padding="same").tolist() == [[[21, 32, 43, 54, 5]]]
    expected = [[[3210, 4321, 5432, 543, 54]]]
    assert torch_memops.conv1d(x, four, padding="same").tolist() == expected
    assert torch_memops.conv1d(x, two, padding="valid").tolist() == [[[21, 32, 43, 54]]]
    with pytest.raises(RuntimeError, match=r"same"):
        torch_memops.conv1d(x, two, padding="same", stride=2)


@pytest.mark.parametrize("dtype", HALVES, ids=name)
def test_bias_of_another_type(device: str, dtype: torch.dtype) -> None:
    """torch-xpu-ops#1588: refused with both types named, accepted under autocast."""
    make = Make(device, dtype)
    x, w, bias = make.tensor(2, 3, 8), make.tensor(4, 3, 3), torch.ones(4, device=device)
    named = {torch.float16: "(Half|float16)", torch.bfloat16: "(BFloat16|bfloat16)"}[dtype]
    with pytest.raises(RuntimeError, match=rf"(?s)conv1d.*({named}.*[Ff]loat|[Ff]loat.*{named})"):
        torch_memops.conv1d(x, w, bias)
    with torch.autocast(device, dtype=dtype):
        assert torch_memops.conv1d(x, w, bias).dtype == dtype


def test_fake_strides_are_the_real_ones(device: str) -> None:
    """pytorch#128626, pytorch#124256, cuEquivariance#223: forward and backward."""
    x = torch.randn(10, 100, 1, device=device).permute(0, 2, 1).requires_grad_()
    plain = torch.randn(16, 1, 3, device=device)
    spread = torch.randn(16 * 18, device=device).as_strided((16, 1, 3), (16, 1, 16))
    for w in (plain, spread):
        leaf = w.detach().requires_grad_()
        torch._dynamo.reset()
        compiled = torch.compile(torch_memops.conv1d, backend="aot_eager", fullgraph=True)
        eager, traced = (f(x, leaf, padding=1) for f in (torch_memops.conv1d, compiled))
        assert eager.stride() == traced.stride()
        torch.testing.assert_close(eager, traced)
        grad = torch.randn_like(eager)
        for mine, other in zip(
            torch.autograd.grad(eager, (x, leaf), grad),
            torch.autograd.grad(traced, (x, leaf), grad),
            strict=True,
        ):
            assert mine.stride() == other.stride()
            torch.testing.assert_close(mine, other)


@pytest.mark.sanitize
@float_dtypes
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "options"),
    [
        ((2, 5, 131), (7, 5, 4), {"padding": (3, 0)}),
        ((1, 1, 1031), (1, 1, 17), {"padding": 8}),
        ((3, 33, 67), (33, 1, 5), {"groups": 33, "padding": 2}),
        ((2, 6, 65), (9, 2, 3), {"groups": 3, "stride": 3, "dilation": 2, "padding": 4}),
        ((1, 2, 9), (3, 2, 9), {}),
        ((1, 3, 4), (2, 3, 3), {"padding": 7}),
        ((1, 64, 40), (64, 64, 9), {}),
        ((2, 3, 50), (4, 3, 2), {"stride": 2**29}),
    ],
    ids=[
        "dense",
        "one-channel",
        "depthwise",
        "grouped",
        "one-output",
        "padding-wide",
        "weight-above-64-KB",
        "stride-wide",
    ],
)
def test_odd_shapes(
    device: str,
    x_shape: tuple[int, ...],
    w_shape: tuple[int, ...],
    options: dict[str, int],
    dtype: torch.dtype,
) -> None:
    make = Make(device, dtype)
    check(make.tensor(*x_shape), make.tensor(*w_shape), make.tensor(w_shape[0]), **options)


@pytest.mark.sanitize
@float_dtypes
@pytest.mark.parametrize("case", CONV1D.cases, ids=lambda case: case.name)
def test_gradients(case: Case, device: str, dtype: torch.dtype) -> None:
    """Input, weight and bias gradients against float64.

    On the CPU ATen's 16-bit gradients round in between: there they are held to ATen's own error.
    """
    args, options = case.make(Make(device, dtype, requires_grad=True))
    y = torch_memops.conv1d(*args, **options)
    grad = Make(device, dtype, seed=2).tensor(*y.shape)
    ours = torch.autograd.grad(y, args, grad)
    peers = torch.autograd.grad(reference.conv1d(*args, **options), args, grad)
    wide = tuple(t.detach().double().cpu().requires_grad_() for t in args)
    expected = torch.autograd.grad(reference.conv1d(*wide, **options), wide, grad.double().cpu())
    sizes = tuple(t.detach().abs().requires_grad_() for t in wide)
    total = reference.conv1d(*sizes, **options)
    magnitudes = torch.autograd.grad(total, sizes, grad.double().cpu().abs())
    for i, leaf in enumerate(args):
        assert ours[i].shape == leaf.shape
        assert ours[i].dtype == dtype
        if device == "cpu" and dtype in HALVES and y.numel():
            assert_no_less_accurate(ours[i], peers[i], expected[i], f"gradient {i}")
        else:
            terms = max(y.numel(), 1)
            assert_within_bound(ours[i], expected[i], magnitudes[i], terms, f"gradient {i}")


@pytest.mark.parametrize("dtype", HALVES, ids=name)
@pytest.mark.cuda
def test_large_batch_in_half(dtype: torch.dtype) -> None:
    """pytorch#59515, pytorch#133114: more than 1,250 samples, forward and both gradients."""
    x = torch.randn(1300, 4, 33, device="cuda", dtype=dtype, requires_grad=True)
    w = torch.randn(6, 4, 3, device="cuda", dtype=dtype, requires_grad=True)
    y = check(x, w, None, padding=1)
    grad = torch.randn_like(y)
    ours = torch.autograd.grad(y, (x, w), grad)
    x64, w64 = (t.detach().double().requires_grad_() for t in (x, w))
    expected = torch.autograd.grad(F.conv1d(x64, w64, padding=1), (x64, w64), grad.double())
    for mine, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine.double(), other, rtol=2e-2, atol=0.5)


def test_padding_through_torch_ops(device: str) -> None:
    """A list of one means both sides; a list of two left and right."""
    make = Make(device)
    x, w = make.tensor(2, 3, 8), make.tensor(4, 3, 3)
    both = torch.ops.memops.conv1d(x, w, None, 1, [2])
    assert torch.equal(both, torch_memops.conv1d(x, w, padding=2))
    causal = torch.ops.memops.conv1d(x, w, None, 1, [2, 0])
    assert torch.equal(causal, both[..., :8])
    assert torch.equal(torch.ops.memops.conv1d(x, w), torch_memops.conv1d(x, w))


@pytest.mark.parametrize("kind", ["one-channel", "depthwise", "causal"])
def test_small_convolutions_never_use_tf32(device: str, kind: str) -> None:
    """TF32 is for dense convolutions alone, also where PyTorch's switch allows it."""
    make = Make(device)
    channels = 1 if kind == "one-channel" else 24
    x, w = make.tensor(2, channels, 130), make.tensor(channels, 1, 7)
    with fp32_precision(conv="tf32"):
        if kind == "causal":
            y, _ = torch_memops.causal_conv1d(x, w[:, 0])
        else:
            y = torch_memops.conv1d(x, w, padding=(6, 0), groups=channels)
    expected = reference.conv1d(x.double().cpu(), w.double().cpu(), padding=(6, 0), groups=channels)
    assert norm_error(y, expected) < 5e-7


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64], ids=name)
def test_other_dtypes(device: str, dtype: torch.dtype) -> None:
    """On the CPU whatever F.conv1d has; on CUDA the four floating types are named."""
    make = Make(device, dtype)
    x, w = make.tensor(2, 3, 8), make.tensor(4, 3, 3)
    if device == "cuda":
        with pytest.raises(NotImplementedError, match=r"conv1d.*(?i:float16|half)"):
            torch_memops.conv1d(x, w)
    else:
        torch.testing.assert_close(torch_memops.conv1d(x, w), F.conv1d(x, w))


def test_gradients_of_only_what_needs_them(device: str) -> None:
    make = Make(device)
    x, w = make.tensor(2, 3, 8), make.tensor(4, 3, 3).requires_grad_()
    torch_memops.conv1d(x, w, make.tensor(4)).sum().backward()
    assert x.grad is None
    assert w.grad is not None
