"""Cases of the suite layouts: each generated layout, compared as a whole, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import torch_memops as memops

from .layouts import Layout
from .workload import Call, Case, Check, Compiler, Data, Function, Peer, Problem, Workload, first

# A sample moves at least this much, about 16 us of an H200, or is this many copies.
SAMPLE_BYTES, MOST_REPEATS = 2**26, 16


def layout(case: Case, limit: int | None) -> Problem:
    """layouts/<dtype>/<shape>/<order>[/<variant>]: a call copies each of several sources once.

    torch.compile is a peer where the case has a goal against it.
    """
    this = Layout.parse(case.id).shrunk(limit)
    repeats = max(1, min(MOST_REPEATS, -(-SAMPLE_BYTES // this.bytes)))

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        sources = [this.source(data) for _ in range(repeats)]
        into = this.kind == "into"

        def arguments() -> list[Sequence[Tensor]]:
            return [[this.target(device) for _ in sources], sources] if into else [sources]

        def compiled(compiler: Compiler) -> Call:
            return _each(compiler(theirs, dynamic=False), arguments())

        ours, theirs = (memops.copy_, Tensor.copy_) if into else (memops.copy, _clone)
        peers = [Peer("eager", "eager", lambda _: _each(theirs, arguments()))]
        if "vs_compile" in case.goal:
            peers.append(Peer("compile", "compile", compiled))
        return Workload(
            ours=_each(ours, arguments()),
            peers=peers,
            check=Check(list, lambda: [_clone(x) for x in sources], "the whole result", exact=True),
        )

    return Problem(this.bytes, None, make, repeats=repeats)


def _clone(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _each(function: Function, arguments: Sequence[Sequence[Tensor]]) -> Call:
    """The function on one argument of each list after another; no result is freed before the last."""
    sets = list(zip(*arguments, strict=True))

    def call() -> tuple[Tensor, ...]:
        return tuple(first(function(*each)) for each in sets)

    return call
