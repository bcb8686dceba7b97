"""Tensors on a GPU that is not the current one."""

from typing import Any

import pytest
import torch
from support.cores import CORES
from support.samples import OPS, Op, differentiable, each_op
from support.tensors import Make, assert_same_bits
from torch import Tensor
from torch.utils import _pytree as pytree

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def moved(value: Any, device: str) -> Any:
    """Every tensor of a nest on another device."""
    return pytree.tree_map_only(Tensor, lambda t: t.to(device), value)


@pytest.mark.parametrize("op", each_op((*OPS, *CORES)))
def test_second_device_while_the_first_is_current(op: Op) -> None:
    """fast-transformers#58, flashinfer#349: kernels follow their tensors, not the current device."""
    args, kwargs = op.sized(Make("cuda:0"), 37)
    expected = op.functional(*args, **kwargs)
    there_args, there_kwargs = moved((args, kwargs), "cuda:1")
    with torch.cuda.device(0):
        results = op.functional(*there_args, **there_kwargs)
        assert torch.cuda.current_device() == 0
    for mine, other in zip(results, expected, strict=True):
        assert mine.device == torch.device("cuda:1")
        if op.name.endswith("_backward"):  # atomics add up in any order
            torch.testing.assert_close(mine.cpu(), other.cpu())
        else:
            assert_same_bits(mine.cpu(), other.cpu())


@pytest.mark.parametrize("op", each_op(differentiable(OPS)))
def test_backward_on_the_second_device(op: Op) -> None:
    make = Make("cuda:1", requires_grad=True)
    args, kwargs = op.sized(make, 37)
    leaves = [
        t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor) and t.requires_grad
    ]
    with torch.cuda.device(0):
        result = op.functional(*args, **kwargs)[0]
        grads = torch.autograd.grad(result.sum(), leaves, allow_unused=True)
    for grad in grads:
        assert grad is None or grad.device == torch.device("cuda:1")


@pytest.mark.parametrize("op", each_op(OPS))
def test_two_gpus_in_one_call(op: Op) -> None:
    """Arguments of two GPUs are refused; copy_ alone moves between them."""
    args, kwargs = op.sized(Make("cuda:0"), 37)
    tensors = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    if len(tensors) < 2:
        return
    mixed = list(args)
    mixed[tensors[1]] = mixed[tensors[1]].to("cuda:1")
    if op.name == "copy_":
        assert_same_bits(op.functional(*mixed, **kwargs)[0], op.functional(*args, **kwargs)[0])
        return
    with pytest.raises(RuntimeError, match=op.name if op.name != "embedding" else "gather_aos"):
        op.functional(*mixed, **kwargs)


def test_current_stream_of_the_second_device() -> None:
    """The stream is the current one of the tensors' device."""
    x = torch.zeros(1 << 20, device="cuda:1")
    stream = torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(40_000_000)
        x.fill_(3)
        with torch.cuda.device(0):
            pass
        out = torch.ops.memops.copy.default(x)
    stream.synchronize()
    assert out.eq(3).all()
