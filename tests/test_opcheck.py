"""torch.library.opcheck of every op and core: schema, autograd registration, Meta, AOT dispatch."""

from typing import Any

import pytest
import torch
from support.cores import CORES
from support.samples import OPS, Case, Op, each_case
from support.tensors import Make
from torch.utils import _pytree as pytree

import torch_memops

pytestmark = pytest.mark.core

ALL = (*OPS, *CORES)


def overload_arguments(op: Op, case: Case, make: Make) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The case's arguments as the overload takes them."""
    args, kwargs = case.make(make)
    if op.name == "embedding":
        index, weight = args
        padding = kwargs.get("padding_idx", -1)
        rows = weight.shape[0]
        return (weight, index, padding % rows if "padding_idx" in kwargs else -1), {}
    return args, kwargs


@pytest.mark.parametrize(("op", "case"), each_case(ALL))
def test_opcheck(op: Op, case: Case, device: str) -> None:
    args, kwargs = overload_arguments(op, case, Make(device))
    torch.library.opcheck(op.overload, args, kwargs)


@pytest.mark.parametrize(("op", "case"), each_case(op for op in ALL if op.differentiable))
def test_opcheck_with_gradients(op: Op, case: Case, device: str) -> None:
    args, kwargs = overload_arguments(op, case, Make(device, requires_grad=True))
    args = tuple(a.detach() if i in op.mutates else a for i, a in enumerate(args))
    torch.library.opcheck(op.overload, args, kwargs)


@pytest.mark.parametrize("op", [pytest.param(op, id=op.name) for op in ALL])
def test_tag(op: Op) -> None:
    """torch.compile asks for the tag before it trusts an op's Meta kernel."""
    assert torch.Tag.pt2_compliant_tag in op.overload.tags


def test_every_op_has_samples() -> None:
    """An op that is added to the library is added to the tables of samples too."""
    registered = {
        name.removeprefix("memops::").split(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("memops::")
    }
    sampled = {op.overload_name for op in ALL}
    assert registered - sampled == {"_plan", "_copy_into_planned"}  # for tests and for printing


def test_public_names_are_the_ops() -> None:
    public = {op.name for op in OPS}
    assert public <= set(torch_memops.__all__)


@pytest.mark.parametrize(("op", "case"), each_case(ALL))
def test_cores_equal_the_reference(op: Op, case: Case, device: str) -> None:
    """f64 values of every sample, the backward ops' among them."""
    args, kwargs = case.make(Make(device, torch.float64))
    ours = op.functional(*args, **kwargs)
    args, kwargs = case.make(Make(device, torch.float64))
    expected = op.expected(*args, **kwargs)
    assert len(ours) == len(expected)
    for mine, other in zip(pytree.tree_leaves(ours), pytree.tree_leaves(expected), strict=True):
        torch.testing.assert_close(mine, other)
