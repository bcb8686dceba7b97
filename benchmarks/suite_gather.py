"""Cases of the suite gather: rows of an array of structures, columns of a structure of arrays."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import torch_memops as memops

from .workload import (
    DTYPES,
    Case,
    Check,
    Data,
    Peer,
    Problem,
    Settings,
    Workload,
    compiled,
    eager,
    every,
    first,
    gradients,
    shrink,
)

# rows of the table by (dtype, fields); half as many are gathered
ROWS = {("f32", 4): 2**25, ("f32", 3): 2**23, ("f32", 7): 2**23, ("f32", 16): 2**23}
ROWS |= {("bf16", fields): 2**18 for fields in (64, 128, 512, 1024, 4096)}
INDEX_BYTES = 8


def _sizes(dtype: str, fields: int, limit: int | None) -> tuple[int, int, int]:
    """(rows of the table, fields, rows gathered)"""
    rows, fields = shrink([ROWS[dtype, fields], fields], limit)
    return rows, fields, max(rows // 2, 1)


def _index(data: Data, rows: int, count: int, order: str) -> Tensor:
    index = data.index(rows, count)
    return index.sort().values if order == "sorted" else index


def aos(case: Case, limit: int | None) -> Problem:
    """gather/aos/<dtype>/<fields>/<random or sorted>"""
    _, _, name, width, order = case.parts
    rows, fields, count = _sizes(name, int(width), limit)
    size = DTYPES[name].itemsize

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        table = data.normal(rows, fields, dtype=DTYPES[name])
        index = _index(data, rows, count, order)
        sampled = every(2**16, count, device)

        def indexed(t: Tensor, i: Tensor) -> Tensor:
            return t[i]

        return Workload(
            ours=lambda: memops.gather_aos(table, index),
            peers=[
                eager("eager", torch.index_select, table, 0, index),
                eager("eager t[i]", indexed, table, index),
                compiled("compile", indexed, table, index),
            ],
            check=Check(
                lambda out: [first(out)[sampled]],
                lambda: [table[index[sampled]]],
                f"{len(sampled):,} of {count:,} rows",
                exact=True,
            ),
            rows=(table, index),
        )

    return Problem(count * (INDEX_BYTES + 2 * fields * size), None, make)


def soa(case: Case, limit: int | None) -> Problem:
    """gather/soa/<dtype>/<fields>/<random or sorted>"""
    _, _, name, width, order = case.parts
    columns, fields, count = _sizes(name, int(width), limit)
    size = DTYPES[name].itemsize

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        table = data.normal(fields, columns, dtype=DTYPES[name])
        index = _index(data, columns, count, order)
        sampled = every(2**16, count, device)

        def indexed(t: Tensor, i: Tensor) -> Tensor:
            return t[:, i]

        return Workload(
            ours=lambda: memops.gather_soa(table, index),
            peers=[
                eager("eager", torch.index_select, table, 1, index),
                eager("eager t[:, i]", indexed, table, index),
                compiled("compile", indexed, table, index),
            ],
            check=Check(
                lambda out: [first(out)[:, sampled]],
                lambda: [table[:, index[sampled]]],
                f"{len(sampled):,} of {count:,} columns",
                exact=True,
            ),
            rows=(table, index),
            planes=fields,
        )

    return Problem(count * (INDEX_BYTES + 2 * fields * size), None, make)


def aos_backward(case: Case, limit: int | None) -> Problem:
    """gather/aos/backward[-deterministic]/<dtype>/<fields>"""

    def peers(table: Tensor, index: Tensor, grad: Tensor) -> list[Peer]:
        def dense_backward(g: Tensor, i: Tensor) -> Tensor:
            return torch.ops.aten.embedding_dense_backward(g, i, table.shape[0], -1, False)

        return [
            *_adding(table, index, grad, 0),
            eager("embedding_dense_backward", dense_backward, grad, index),
        ]

    return _backward(case, limit, memops.gather_aos, 0, peers)


def soa_backward(case: Case, limit: int | None) -> Problem:
    """gather/soa/backward[-deterministic]/<dtype>/<fields>"""
    return _backward(
        case, limit, memops.gather_soa, 1, lambda table, index, grad: _adding(table, index, grad, 1)
    )


def _adding(table: Tensor, index: Tensor, grad: Tensor, dim: int) -> list[Peer]:
    def add(i: Tensor, g: Tensor) -> Tensor:
        return torch.zeros_like(table).index_add_(dim, i, g)

    return [
        eager("zeros + index_add_", add, index, grad),
        compiled("compile zeros + index_add", add, index, grad),
    ]


def _backward(
    case: Case,
    limit: int | None,
    gather: Callable[[Tensor, Tensor], Tensor],
    dim: int,
    peers: Callable[[Tensor, Tensor, Tensor], list[Peer]],
) -> Problem:
    _, _, kind, name, width = case.parts
    rows, fields, count = _sizes(name, int(width), limit)

    def shape(length: int) -> list[int]:
        return [length, fields] if dim == 0 else [fields, length]

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        table = data.normal(*shape(rows), dtype=DTYPES[name])
        index = data.index(rows, count)
        grad = data.normal(*shape(count), dtype=DTYPES[name])
        sampled = every(64, fields, device)

        def reference() -> list[Tensor]:
            wanted = grad.index_select(1 - dim, sampled).double()
            out = wanted.new_zeros([rows, len(sampled)] if dim == 0 else [len(sampled), rows])
            return [out.index_add_(dim, index, wanted)]

        return Workload(
            ours=gradients(lambda t: gather(t, index), [table], grad),
            peers=peers(table, index, grad),
            check=Check(
                lambda out: [first(out).index_select(1 - dim, sampled)],
                reference,
                f"{len(sampled):,} of {fields:,} fields",
            ),
        )

    moved = count * (INDEX_BYTES + fields * DTYPES[name].itemsize)
    moved += rows * fields * DTYPES[name].itemsize
    return Problem(
        moved, None, make, settings=Settings(deterministic=kind.endswith("-deterministic"))
    )
