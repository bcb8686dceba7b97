"""The plan of a call: which kernel it takes and why, from the function that its launcher calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch


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


def _sort_by_kind(
    op: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[torch.Tensor | None], list[int], list[float]]:
    """Binds a call's arguments to the op's schema and sorts the values by kind."""
    if not hasattr(torch.ops.memops, op):
        raise ValueError(f"plan: there is no op named {op!r}")
    schema = getattr(torch.ops.memops, op).default._schema
    names = [argument.name for argument in schema.arguments]
    if len(args) > len(names):
        raise TypeError(f"plan: {op} takes {len(names)} arguments, {len(args)} were given")
    bound = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names or name in bound:
            raise TypeError(f"plan: {op} takes no further argument {name!r}")
        bound[name] = value
    tensors: list[torch.Tensor | None] = []
    integers: list[int] = []
    floats: list[float] = []
    for argument in schema.arguments:
        if argument.name in bound:
            value = bound[argument.name]
        elif argument.has_default_value():
            value = argument.default_value
        else:
            raise TypeError(f"plan: {op} misses its argument {argument.name!r}")
        kind = str(argument.type)
        if "Tensor" in kind:
            tensors.append(value)
        elif kind == "List[float]":
            floats.extend(value)
        elif kind == "List[int]":
            pair = [value, value] if isinstance(value, int) else list(value)
            integers.extend(pair * 2 if len(pair) == 1 else pair)
        else:
            integers.append(int(value))
    return tensors, integers, floats


def plan(op: str, *args: Any, device: DeviceFacts | None = None, **kwargs: Any) -> Plan:
    """The plan of ``torch.ops.memops.<op>(*args, **kwargs)``; nothing is launched.

    Tensors may be on any device: CUDA tensors are planned for their own GPU, others (meta tensors
    too) for ``device``, an H200 unless given.

    Raises:
        ValueError: there is no such op.
        TypeError: the arguments do not fit its schema.
        RuntimeError: the op has no plan, or refuses the arguments.
    """
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
