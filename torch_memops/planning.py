"""The plan of a call: which kernel it takes and why, from the function that its launcher calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torch_memops.ops import both_sides


@dataclass(frozen=True)
class DeviceFacts:
    """What a plan may know about a GPU.

    Attributes:
        compute_capability: major * 10 + minor, 90 for an H200.
        multiprocessors: streaming multiprocessors.
        l2_bytes: size of the L2 cache.
        shared_bytes_per_block: the most shared memory a block may ask for.
    """

    compute_capability: int = 90
    multiprocessors: int = 132
    l2_bytes: int = 60 << 20
    shared_bytes_per_block: int = 227 << 10


@dataclass(frozen=True)
class Plan:
    """A printed plan: the kernel, the reason for it and the facts it was made from."""

    op: str
    kernel: str
    reason: str
    device: str
    facts: dict[str, Any]

    def __str__(self) -> str:
        facts = "".join(f"\n  {name}: {value}" for name, value in self.facts.items())
        return f"{self.op}: {self.kernel} ({self.reason}; device: {self.device}){facts}"


def _bind(op: str, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments by the names of the op's schema, defaults filled in."""
    arguments = getattr(torch.ops.memops, op).default._schema.arguments
    names = [argument.name for argument in arguments]
    if len(args) > len(names):
        raise TypeError(f"plan: {op} takes {len(names)} arguments, {len(args)} were given")
    bound = {a.name: a.default_value for a in arguments if a.has_default_value()}
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names or name in given:
            raise TypeError(f"plan: {op} takes no further argument {name!r}")
        given[name] = value
    bound |= given
    for name in names:
        if name not in bound:
            raise TypeError(f"plan: {op} misses its argument {name!r}")
    return {name: bound[name] for name in names}


def _numeric_padding(op: str, bound: dict[str, Any]) -> list[int]:
    """The padding as the public function passes it on: (left, right)."""
    kernel = len(bound["taps"]) if "taps" in bound else bound["weight"].shape[-1]
    return both_sides(
        op, bound["padding"], kernel, bound.get("dilation", 1), bound.get("stride", 1)
    )


def _sort_by_kind(
    op: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[torch.Tensor | None], list[int], list[float]]:
    """A call's values as `_plan` takes them: each kind in the order of the schema."""
    bound = _bind(op, args, kwargs)
    if "padding" in bound:
        bound["padding"] = _numeric_padding(op, bound)
    tensors: list[torch.Tensor | None] = []
    integers: list[int] = []
    floats: list[float] = []
    for argument in getattr(torch.ops.memops, op).default._schema.arguments:
        value = bound[argument.name]
        kind = str(argument.type)
        if "Tensor" in kind:
            tensors.append(value)
        elif kind == "List[float]":
            floats.extend(value)
        elif kind in ("List[int]", "List[bool]"):
            integers.extend(map(int, value))
        else:
            integers.append(int(value))
    return tensors, integers, floats


def _rows_of_embedding(
    input: torch.Tensor, weight: torch.Tensor, padding_idx: int | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The arguments of the gather that an embedding is."""
    return weight, input


def plan(op: str, *args: Any, device: DeviceFacts | None = None, **kwargs: Any) -> Plan:
    """The plan of ``torch.ops.memops.<op>(*args, **kwargs)``; nothing is launched.

    Tensors may be on any device: CUDA tensors are planned for their own GPU, others (meta tensors
    too) for ``device``, an H200 unless given.

    Raises:
        ValueError: there is no such op.
        TypeError: the arguments do not fit its schema.
        RuntimeError: the op has no plan, or refuses the arguments.
    """
    if op == "embedding":
        op, args, kwargs = "gather_aos", _rows_of_embedding(*args, **kwargs), {}
    if not hasattr(torch.ops.memops, op):
        raise ValueError(f"plan: there is no op named {op!r}")
    tensors, integers, floats = _sort_by_kind(op, args, kwargs)
    facts = (
        []
        if device is None
        else [
            device.compute_capability,
            device.multiprocessors,
            device.l2_bytes,
            device.shared_bytes_per_block,
        ]
    )
    text = torch.ops.memops._plan.default(op, tensors, integers, floats, facts)
    return Plan(**json.loads(text))
