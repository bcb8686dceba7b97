"""Cases <op>/overhead/<shape>: CPU time of small f32 calls under torch.no_grad().

Such a case has one size. Ours and the peer take the same arguments, made twice from one seed,
because some ops write into them; the reference is the peer on the same arguments in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import torch_memops as memops

from . import conv1d_forms as forms
from .workload import (
    Case,
    Check,
    Data,
    Function,
    Output,
    Problem,
    Workload,
    eager,
    first,
    parse_sizes,
)


@dataclass(frozen=True)
class SmallCall:
    """`arguments` makes them from the sizes in the id."""

    ours: Function
    theirs: Function
    arguments: Callable[..., tuple[Any, ...]]
    peer: str = "eager"


def _normal(data: Data, *sizes: int) -> tuple[Tensor, ...]:
    return (data.normal(*sizes),)


def _layer(data: Data, m: int, n: int) -> tuple[Tensor, ...]:
    return data.normal(m, n), data.normal(n, n), data.normal(n)


def _two_views(data: Data, m: int, n: int) -> tuple[Tensor, ...]:
    return data.normal(n, m).t(), data.normal(m, n)


def _table(data: Data, rows: int, fields: int, count: int) -> tuple[Tensor, ...]:
    return data.normal(rows, fields), data.index(rows, count)


def _fields(data: Data, fields: int, columns: int, count: int) -> tuple[Tensor, ...]:
    return data.normal(fields, columns), data.index(columns, count)


def _dense(data: Data, batch: int, channels: int, length: int, outputs: int, taps: int) -> Any:
    return data.normal(batch, channels, length), data.normal(outputs, channels, taps)


def _constant(data: Data, length: int, taps: int) -> tuple[Any, ...]:
    return data.normal(length), (data.normal(taps) / math.sqrt(taps)).tolist()


def _causal(data: Data, batch: int, channels: int, length: int, taps: int) -> tuple[Tensor, ...]:
    return data.normal(batch, channels, length), data.normal(channels, taps)


def _step(data: Data, batch: int, channels: int, taps: int) -> tuple[Tensor, ...]:
    state = data.normal(batch, channels, taps - 1)
    return data.normal(batch, channels), state, data.normal(channels, taps)


def _clone(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _copy_into(dst: Tensor, src: Tensor) -> Tensor:
    return dst.copy_(src)


def _swap(x: Tensor) -> Tensor:
    return _clone(x.mT)


def _one_channel(x: Tensor, taps: list[float]) -> Tensor:
    w = torch.tensor(taps, dtype=x.dtype, device=x.device)
    return F.conv1d(x[None, None], w[None, None])[0, 0]


def _grouped(x: Tensor, w: Tensor) -> Tensor:
    wide = F.conv1d(x, w[:, None], padding=w.shape[1] - 1, groups=w.shape[0])
    return wide[..., : x.shape[-1]]


def _decode(x: Tensor, state: Tensor, w: Tensor) -> Output:
    return forms.update_step(state, x, w, None, silu=False)


CALLS = {
    "matmul": SmallCall(
        memops.matmul, torch.mm, lambda d, m, n: (d.normal(m, n), d.normal(n, n)), "torch.mm"
    ),
    "linear": SmallCall(memops.linear, F.linear, _layer),
    "copy": SmallCall(memops.copy, _clone, lambda d, m, n: (d.normal(m, n).t(),)),
    "copy_": SmallCall(memops.copy_, _copy_into, _two_views),
    "aos_to_soa": SmallCall(memops.aos_to_soa, _swap, _normal),
    "soa_to_aos": SmallCall(memops.soa_to_aos, _swap, _normal),
    "gather_aos": SmallCall(memops.gather_aos, lambda t, i: t.index_select(0, i), _table),
    "gather_soa": SmallCall(memops.gather_soa, lambda t, i: t.index_select(1, i), _fields),
    "embedding": SmallCall(
        lambda t, i: memops.embedding(i, t), lambda t, i: F.embedding(i, t), _table
    ),
    "conv1d": SmallCall(partial(memops.conv1d, padding=1), partial(F.conv1d, padding=1), _dense),
    "conv1d_constant": SmallCall(memops.conv1d_constant, _one_channel, _constant),
    "causal_conv1d": SmallCall(memops.causal_conv1d, _grouped, _causal),
    "causal_conv1d_update": SmallCall(memops.causal_conv1d_update, _decode, _step),
}


def small_call(case: Case, limit: int | None) -> Problem:
    """<op>/overhead/<sizes>[/<more sizes>]; 'K17' is a size too."""
    op, _, *texts = case.parts
    sizes = [size for text in texts for size in parse_sizes(text.replace("K", ""))]
    spec = CALLS[op]

    def make(device: torch.device) -> Workload:
        mine = spec.arguments(Data(case, device), *sizes)
        theirs = spec.arguments(Data(case, device), *sizes)

        def reference() -> list[Tensor]:
            return [first(spec.theirs(*map(_as_double, theirs)))]

        return Workload(
            ours=lambda: spec.ours(*mine),
            peers=[eager(spec.peer, spec.theirs, *theirs)],
            check=Check(lambda out: [first(out)], reference, "the whole result"),
        )

    return Problem(None, None, make, overhead=True)


def _as_double(argument: Any) -> Any:
    if isinstance(argument, Tensor) and argument.is_floating_point():
        return argument.double()
    return argument
