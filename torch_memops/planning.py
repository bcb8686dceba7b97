"""The plan of a call: which kernel it takes and why, from the function that its launcher calls."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode

from torch_memops import ops


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


class _Recorder(TorchFunctionMode):
    """Notes the first call of one of our ops: what the public function made of its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.call: tuple[OpOverload, tuple[Any, ...], dict[str, Any]] | None = None

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if self.call is None and isinstance(func, OpOverload) and func.namespace == "memops":
            self.call = (func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _on_meta(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor like it without memory: same shape, strides and offset."""
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_quantized:
        return tensor.detach() if tensor.is_meta else tensor.detach().to("meta")
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    elements = tensor.storage_offset() + (reach + 1 if tensor.numel() else 0)
    base = torch.empty(elements, dtype=tensor.dtype, device="meta")
    return base.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _function(op: object) -> Callable[..., Any]:
    """The public function of that name, or the op itself for a core."""
    if isinstance(op, str) and op.isidentifier():
        packet = getattr(torch.ops.memops, op, None)
        if op == "embedding" or (isinstance(packet, OpOverloadPacket) and not op.startswith("_")):
            return getattr(ops, op)
        if isinstance(packet, OpOverloadPacket) and op != "_plan":
            return packet.default
    raise ValueError(f"plan: there is no op named {str(op)[:80]!r}")


def _record(
    op: object, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[OpOverload, list[Any]]:
    """Runs the call without memory, so that it refuses what the op refuses, in its words.

    Returns the op and its arguments in the order of its schema, the caller's tensors among them.
    """
    originals: dict[int, torch.Tensor] = {}

    def twin(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        meta = _on_meta(value)
        originals[id(meta)] = value
        return meta

    twins = [twin(value) for value in args]
    named_twins = {name: twin(value) for name, value in kwargs.items()}
    function = _function(op)
    with torch.no_grad(), _Recorder() as recorder:
        function(*twins, **named_twins)
    if recorder.call is None:
        raise RuntimeError(f"plan: {op} has no plan")
    overload, given, named = recorder.call
    values = list(given)
    for argument in overload._schema.arguments[len(given) :]:
        values.append(named.get(argument.name, argument.default_value))
    return overload, [originals.get(id(value), value) for value in values]


def _sort_by_kind(
    overload: OpOverload, values: Sequence[Any]
) -> tuple[list[torch.Tensor | None], list[int], list[float]]:
    """A call's values as `_plan` takes them: each kind in the order of the schema."""
    tensors: list[torch.Tensor | None] = []
    integers: list[int] = []
    floats: list[float] = []
    for argument, value in zip(overload._schema.arguments, values, strict=True):
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


def plan(op: str, /, *args: Any, device: DeviceFacts | None = None, **kwargs: Any) -> Plan:
    """The plan of ``torch_memops.<op>(*args, **kwargs)``, or of a core; nothing is launched.

    Tensors may be on any device: CUDA tensors are planned for their own GPU, others (meta tensors
    too) for ``device``, an H200 unless given. Every plan of a kernel has the fact ``bytes``, what
    the call has to read and write, and, where it computes, ``flops``.

    Raises:
        ValueError: there is no such op.
        TypeError: ``device`` is no DeviceFacts.
        What the op raises for these arguments on a GPU; RuntimeError where it has no plan.
    """
    if device is not None and not isinstance(device, DeviceFacts):
        raise TypeError(f"plan: device is {device!r}; DeviceFacts or None is accepted")
    overload, values = _record(op, args, kwargs)
    tensors, integers, floats = _sort_by_kind(overload, values)
    facts = [] if device is None else list(astuple(device))
    name = overload._schema.name.removeprefix("memops::")
    text = torch.ops.memops._plan.default(name, tensors, integers, floats, facts)
    return Plan(**json.loads(text))
