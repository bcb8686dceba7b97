"""Cases of the suite copy: copy/ and layout/. Layouts are compared as a whole, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

import torch_memops as memops

from .workload import (
    DTYPES,
    SECTOR,
    Case,
    Check,
    Data,
    Problem,
    Workload,
    compiled,
    eager,
    every,
    first,
    parse_size,
    parse_sizes,
    shrink,
)


def _clone(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _swap(x: Tensor) -> Tensor:
    return _clone(x.mT)


def _layout(
    case: Case,
    shape: list[int],
    dtype: torch.dtype,
    moved: int,
    view: Callable[[Tensor], Tensor] = lambda x: x,
    ours: Callable[[Tensor], Tensor] = memops.copy,
    theirs: Callable[[Tensor], Tensor] = _clone,
) -> Problem:
    """`ours(view(x))` against `theirs(view(x))`; `moved`: bytes read and written."""

    def make(device: torch.device) -> Workload:
        source = view(Data(case, device).normal(*shape, dtype=dtype))
        return Workload(
            ours=lambda: ours(source),
            peers=[eager("eager", theirs, source), compiled("compile", theirs, source)],
            check=Check(
                lambda out: [first(out)],
                lambda: [theirs(source)],
                "the whole result",
                exact=True,
            ),
        )

    return Problem(moved, None, make)


def contiguous(case: Case, limit: int | None) -> Problem:
    """copy/contiguous/<dtype>/<n>"""
    _, _, name, size = case.parts
    [n] = shrink([parse_size(size)], limit)
    return _layout(case, [n], DTYPES[name], 2 * n * DTYPES[name].itemsize)


def misaligned(case: Case, limit: int | None) -> Problem:
    """copy/misaligned/<dtype>/<n>+<offset>"""
    _, _, name, size = case.parts
    offset = int(size.split("+")[1])
    [n] = shrink([parse_size(size)], limit)
    moved = 2 * (n - offset) * DTYPES[name].itemsize
    return _layout(case, [n], DTYPES[name], moved, view=lambda x: x[offset:])


def strided(case: Case, limit: int | None) -> Problem:
    """copy/strided/<dtype>/<stride>: the result has 2^24 elements; reads count whole sectors."""
    _, _, name, step = case.parts
    dtype, stride = DTYPES[name], int(step)
    [n] = shrink([2**24], limit)
    moved = n * (min(SECTOR, stride * dtype.itemsize) + dtype.itemsize)
    return _layout(case, [n * stride], dtype, moved, view=lambda x: x[::stride])


def transpose(case: Case, limit: int | None) -> Problem:
    """copy/transpose/<dtype>/<shape>"""
    _, _, name, sizes = case.parts
    shape = shrink(parse_sizes(sizes), limit)
    moved = 2 * math.prod(shape) * DTYPES[name].itemsize
    return _layout(case, shape, DTYPES[name], moved, view=lambda x: x.mT)


def permute(case: Case, limit: int | None) -> Problem:
    """copy/permute/<dtype>/<shape>/<order of dimensions>"""
    _, _, name, sizes, digits = case.parts
    shape = shrink(parse_sizes(sizes), limit)
    order = [int(d) for d in digits]
    moved = 2 * math.prod(shape) * DTYPES[name].itemsize
    return _layout(case, shape, DTYPES[name], moved, view=lambda x: x.permute(order))


def aos_to_soa(case: Case, limit: int | None) -> Problem:
    """layout/aos_to_soa/<dtype>/<shape>"""
    return _structures(case, limit, memops.aos_to_soa)


def soa_to_aos(case: Case, limit: int | None) -> Problem:
    """layout/soa_to_aos/<dtype>/<shape>"""
    return _structures(case, limit, memops.soa_to_aos)


def _structures(case: Case, limit: int | None, ours: Callable[[Tensor], Tensor]) -> Problem:
    _, _, name, sizes = case.parts
    shape = shrink(parse_sizes(sizes), limit)
    moved = 2 * math.prod(shape) * DTYPES[name].itemsize
    return _layout(case, shape, DTYPES[name], moved, ours=ours, theirs=_swap)


def cast(case: Case, limit: int | None) -> Problem:
    """copy/cast/<from>-<to>/<n>: compared with the source itself, so the error is the rounding."""
    _, _, names, size = case.parts
    source_type, target_type = (DTYPES[name] for name in names.split("-"))
    [n] = shrink([parse_size(size)], limit)

    def make(device: torch.device) -> Workload:
        source = Data(case, device).normal(n, dtype=source_type)
        sampled = every(2**20, n, device)

        def into(target: Tensor, x: Tensor) -> Tensor:
            return target.copy_(x)

        def target() -> Tensor:
            return torch.empty(n, dtype=target_type, device=device)

        mine = target()
        return Workload(
            ours=lambda: memops.copy_(mine, source),
            peers=[
                eager("eager", into, target(), source),
                compiled("compile", into, target(), source),
            ],
            check=Check(
                lambda out: [first(out)[sampled]],
                lambda: [source[sampled].double()],
                f"{len(sampled):,} of {n:,} elements",
            ),
        )

    return Problem(n * (source_type.itemsize + target_type.itemsize), None, make)
