"""torch.export with dynamic dimensions: one program for all sizes, which holds our ops."""

import io
from typing import Any

import pytest
import torch
from support.compare import assert_equal_results
from support.samples import OPS, Op, each_op
from support.tensors import Make
from torch import Tensor

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("fresh_compiler")]


class Program(torch.nn.Module):
    """An op as a module, for torch.export."""

    def __init__(self, op: Op, options: dict[str, Any]) -> None:
        super().__init__()
        self.op, self.options = op, options

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return self.op.functional(*tensors, **self.options)


def exportable(op: Op, make: Make, n: int) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
    """The sized arguments as tensors alone; everything else is fixed in the module."""
    args, kwargs = op.sized(make, n)
    if op.name == "conv1d_constant":
        return args[:1], {"taps": args[1], **kwargs}
    fixed = {k: v for k, v in kwargs.items() if not isinstance(v, Tensor)}
    assert len(fixed) == len(kwargs)
    return args, fixed


@pytest.mark.parametrize("strict", [False, True], ids=["non-strict", "strict"])
@pytest.mark.parametrize("op", each_op(OPS))
def test_export_with_dynamic_dimensions(op: Op, strict: bool, device: str) -> None:
    """One exported program serves other sizes, and holds our ops."""
    small, options = exportable(op, Make(device), 6)
    large, _ = exportable(op, Make(device), 8)
    dims = tuple(
        {d: torch.export.Dim.AUTO for d in range(a.dim()) if a.shape[d] != b.shape[d]}
        for a, b in zip(small, large, strict=True)
    )
    module = Program(op, options)
    exported = torch.export.export(module, small, dynamic_shapes=(dims,), strict=strict)
    targets = {str(node.target) for node in exported.graph.nodes}
    assert any(target.startswith("memops.") for target in targets), targets
    for n in (6, 8, 11):
        given, _ = exportable(op, Make(device, seed=n), n)
        assert_equal_results(exported.module()(*given), module(*given))


def test_saved_program_runs_after_loading(device: str) -> None:
    """torch.export.save and load keep the ops by their names."""
    op = next(op for op in OPS if op.name == "causal_conv1d")
    given, options = exportable(op, Make(device), 6)
    module = Program(op, options)
    buffer = io.BytesIO()
    torch.export.save(torch.export.export(module, given), buffer)
    buffer.seek(0)
    loaded = torch.export.load(buffer).module()
    assert_equal_results(loaded(*given), module(*given))
