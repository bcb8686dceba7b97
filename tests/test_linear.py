"""linear: the bias is added before rounding, of any shape that broadcasts."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.accuracy import assert_within_bound
from support.devices import FLOATS, name
from support.samples import LINEAR, Case
from support.tensors import Make
from torch import Tensor

import torch_memops

float_dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=name)


def check(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    """linear against float64, every element."""
    out = torch_memops.linear(input, weight, bias)
    args: list[Any] = [
        None if t is None else t.detach().double().cpu() for t in (input, weight, bias)
    ]
    assert out.dtype == input.dtype
    reference = F.linear(*args)
    sizes: list[Any] = [None if t is None else t.abs() for t in args]
    magnitude = F.linear(*sizes)
    assert_within_bound(out, reference, magnitude, weight.shape[-1] + 1, "linear")


@pytest.mark.sanitize
@float_dtypes
@pytest.mark.parametrize("case", LINEAR.cases, ids=lambda case: case.name)
def test_samples(case: Case, device: str, dtype: torch.dtype) -> None:
    args, _ = case.make(Make(device, dtype))
    check(*args)


def test_no_input_features(device: str) -> None:
    """pytorch#190050, pytorch#42082."""
    x = torch.ones(2, 0, device=device)
    weight = torch.ones(3, 0, device=device, requires_grad=True)
    bias = torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    out = torch_memops.linear(x, weight, bias)
    assert torch.equal(out, bias.detach().expand(2, 3))
    out.sum().backward()
    assert weight.grad is not None
    assert weight.grad.shape == (3, 0)
    assert bias.grad is not None
    assert torch.equal(bias.grad, torch.full_like(bias, 2))


def test_no_rows(device: str) -> None:
    """pytorch#34202, pytorch#27619: gradients of an empty batch are zeros, not None."""
    x = torch.ones(0, 5, device=device)
    weight = torch.ones(1, 5, device=device, requires_grad=True)
    bias = torch.ones(1, device=device, requires_grad=True)
    out = torch_memops.linear(x, weight, bias)
    assert out.shape == (0, 1)
    out.sum().backward()
    assert weight.grad is not None
    assert bias.grad is not None
    assert torch.equal(weight.grad, torch.zeros(1, 5, device=device))
    assert torch.equal(bias.grad, torch.zeros(1, device=device))


def test_0d_input_is_refused(device: str) -> None:
    """pytorch#119161."""
    one = torch.ones(1, device=device)
    with pytest.raises(RuntimeError, match=r"linear.*at least 1D.*0D"):
        torch_memops.linear(torch.tensor(1.0, device=device), torch.ones(1, 1, device=device), one)


@float_dtypes
def test_bias_that_is_expanded_or_2d(device: str, dtype: torch.dtype) -> None:
    """pytorch#180330, FlagGems#553: the bias's strides and shape are honoured."""
    x = torch.ones(2, 3, dtype=dtype, device=device)
    weight = torch.ones(4, 3, dtype=dtype, device=device)
    expanded = torch.tensor(2.0, dtype=dtype, device=device).expand(4)
    out = torch_memops.linear(x, weight, expanded)
    assert torch.equal(out, torch.full((2, 4), 5.0, dtype=dtype, device=device))
    matrix = torch.arange(8, dtype=dtype, device=device).view(2, 4)
    assert torch.equal(torch_memops.linear(x, weight, matrix), matrix + 3)
    strided = torch.arange(8, dtype=dtype, device=device)[::2]
    assert torch.equal(torch_memops.linear(x, weight, strided), (strided + 3).expand(2, 4))


def test_bias_is_added_before_rounding(device: str) -> None:
    """tt-metal#25935: 256 + 1 + 1 in bf16 is 258; with the product rounded first it is 256."""
    x = torch.tensor([[1.0, 1.0]], dtype=torch.bfloat16, device=device)
    weight = torch.tensor([[256.0, 1.0]], dtype=torch.bfloat16, device=device)
    bias = torch.tensor([1.0], dtype=torch.bfloat16, device=device)
    assert torch_memops.linear(x, weight, bias).item() == 258
    rows, columns = x.expand(17, 2), weight.expand(33, 2)
    assert torch_memops.linear(rows, columns, bias.expand(33)).eq(258).all()


def test_1d_weight(device: str) -> None:
    """F.linear takes a vector as weight and drops the last dimension."""
    make = Make(device)
    x, weight = make.tensor(2, 3), make.tensor(3)
    torch.testing.assert_close(torch_memops.linear(x, weight), F.linear(x, weight))


def test_gradients_through_leading_dimensions(device: str) -> None:
    make = Make(device, torch.float64, requires_grad=True)
    args = (make.tensor(2, 3, 4), make.tensor(5, 4), make.tensor(5))
    grad = Make(device, torch.float64, seed=2).tensor(2, 3, 5)
    ours = torch.autograd.grad(torch_memops.linear(*args), args, grad)
    theirs = torch.autograd.grad(F.linear(*args), args, grad)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)
