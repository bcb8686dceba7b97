"""Autocast: matmul, linear and the convolutions take its type; copies and gathers pass through."""

from typing import Any

import pytest
import torch
from support.devices import name
from support.samples import (
    CAUSAL_CONV1D,
    CONV1D,
    CONV1D_CONSTANT,
    LINEAR,
    MATMUL,
    OPS,
    Op,
    each_op,
)
from support.tensors import Make
from torch import Tensor

import torch_memops

CASTING = (MATMUL, LINEAR, CONV1D, CONV1D_CONSTANT, CAUSAL_CONV1D)
PASSING = tuple(op for op in OPS if op not in CASTING and op.differentiable)


@pytest.fixture(params=[torch.bfloat16, torch.float16], ids=name)
def low(request: pytest.FixtureRequest) -> torch.dtype:
    """The type that autocast is set to."""
    return request.param


def result(op: Op, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The op's first result."""
    return op.functional(*args, **kwargs)[0]


@pytest.mark.parametrize("op", each_op(CASTING))
def test_floats_are_cast(op: Op, low: torch.dtype, device: str) -> None:
    """The same as casting every floating argument by hand."""
    args, kwargs = op.cases[0].make(Make(device))
    by_hand = tuple(a.to(low) if isinstance(a, Tensor) else a for a in args)
    expected = result(op, by_hand, kwargs)
    with torch.autocast(device, dtype=low):
        out = result(op, args, kwargs)
    assert out.dtype == low
    torch.testing.assert_close(out, expected)
    assert result(op, args, kwargs).dtype == torch.float32


@pytest.mark.parametrize("op", each_op(CASTING))
def test_mixed_arguments_work(op: Op, low: torch.dtype, device: str) -> None:
    """torch-xpu-ops#506: a half input with f32 weights and bias."""
    args, kwargs = op.cases[0].make(Make(device))
    mixed = (args[0].to(low), *args[1:])
    with torch.autocast(device, dtype=low):
        out = result(op, mixed, kwargs)
    assert out.dtype == low


@pytest.mark.parametrize("op", each_op(CASTING))
def test_float64_is_left_alone(op: Op, low: torch.dtype, device: str) -> None:
    """Autocast never touches f64, as with PyTorch's own ops."""
    args, kwargs = op.cases[0].make(Make(device, torch.float64))
    with torch.autocast(device, dtype=low):
        assert result(op, args, kwargs).dtype == torch.float64


@pytest.mark.parametrize("op", each_op(PASSING))
def test_others_pass_through(op: Op, low: torch.dtype, device: str) -> None:
    args, kwargs = op.cases[0].make(Make(device))
    expected = result(op, args, kwargs)
    with torch.autocast(device, dtype=low):
        out = result(op, args, kwargs)
    assert out.dtype == torch.float32
    assert torch.equal(out, expected)


@pytest.mark.parametrize("op", each_op(CASTING))
def test_gradients_have_the_leaves_type(op: Op, low: torch.dtype, device: str) -> None:
    args, kwargs = op.cases[0].make(Make(device, requires_grad=True))
    leaves = [a for a in args if isinstance(a, Tensor)]
    with torch.autocast(device, dtype=low):
        out = result(op, args, kwargs)
    grads = torch.autograd.grad(out.float().sum(), leaves)
    assert all(g.dtype == torch.float32 for g in grads)
    expected = torch.autograd.grad(result(op, args, kwargs).sum(), leaves)
    for mine, other in zip(grads, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=5e-2, atol=5e-2)


def test_disabled_inside(low: torch.dtype, device: str) -> None:
    make = Make(device)
    a, b = make.tensor(3, 4), make.tensor(4, 2)
    with torch.autocast(device, dtype=low), torch.autocast(device, enabled=False):
        assert torch_memops.matmul(a, b).dtype == torch.float32


@pytest.mark.cuda
@pytest.mark.parametrize(("here", "other"), [("cpu", "cuda"), ("cuda", "cpu")])
def test_the_other_devices_autocast_changes_nothing(
    here: str, other: str, low: torch.dtype
) -> None:
    make = Make(here)
    a, b = make.tensor(3, 4), make.tensor(4, 2)
    with torch.autocast(other, dtype=low):
        assert torch_memops.matmul(a, b).dtype == torch.float32


@pytest.mark.parametrize("op", each_op(CASTING))
def test_compiled_equals_eager(op: Op, low: torch.dtype, device: str) -> None:
    """Autocast around a compiled call and inside it."""

    def inside(*args: Any, **kwargs: Any) -> Tensor:
        with torch.autocast(device, dtype=low):
            return result(op, args, kwargs)

    args, kwargs = op.cases[0].make(Make(device))
    expected = inside(*args, **kwargs)
    torch._dynamo.reset()
    compiled = torch.compile(inside, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(*args, **kwargs), expected)
    torch._dynamo.reset()
    outside = torch.compile(op.functional, backend="aot_eager", fullgraph=True)
    with torch.autocast(device, dtype=low):
        torch.testing.assert_close(outside(*args, **kwargs)[0], expected)
