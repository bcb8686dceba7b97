"""Cases of the suite matmul: matmul/ and linear/, forward and backward. Rows are sampled."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import torch_memops as memops

from .workload import (
    DTYPES,
    Case,
    Check,
    Data,
    Output,
    Problem,
    Settings,
    Workload,
    compiled,
    compiled_gradients,
    eager,
    eager_gradients,
    every,
    first,
    gradients,
    parse_sizes,
    shrink,
)

FEW_ROWS = 128  # up to here the time is that of reading the weights
SAMPLED_ROWS = 64
AUTOTUNE = {"mode": "max-autotune-no-cudagraphs"}
# a product costs so many times fewer memory accesses than operations
PRODUCT_PER_ELEMENT = 16


@dataclass(frozen=True)
class Product:
    """a [M, K] times b [K, N] in one dtype; `layout`: n or t for each factor, t a transposed view."""

    m: int
    n: int
    k: int
    dtype: torch.dtype
    layout: str
    precision: str | None  # of f32: "highest" or "tf32"

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k

    @property
    def settings(self) -> Settings:
        return Settings(matmul_precision="high" if self.precision == "tf32" else "highest")

    @property
    def peak(self) -> str:
        names = {dtype: name for name, dtype in DTYPES.items()}
        return "tf32" if self.precision == "tf32" else names[self.dtype]

    def factors(self, data: Data) -> tuple[Tensor, Tensor]:
        return (
            _matrix(data, self.m, self.k, self.dtype, self.layout[0]),
            _matrix(data, self.k, self.n, self.dtype, self.layout[1]),
        )


def _matrix(data: Data, rows: int, columns: int, dtype: torch.dtype, layout: str) -> Tensor:
    if layout == "t":
        return data.normal(columns, rows, dtype=dtype).t()
    return data.normal(rows, columns, dtype=dtype)


def _product(parts: list[str], limit: int | None) -> Product:
    """[<dtype>, <layout or precision>, <sizes>] or [<dtype>, <sizes>]"""
    name, *choice, sizes = parts
    option = choice[0] if choice else "nn"
    precision = option if option in ("highest", "tf32") else None
    dims = parse_sizes(sizes)
    dims = dims * 3 if len(dims) == 1 else dims
    m, n, k = shrink(dims, limit and limit * PRODUCT_PER_ELEMENT)
    return Product(m, n, k, DTYPES[name], "nn" if precision else option, precision)


def matmul(case: Case, limit: int | None) -> Problem:
    """matmul/<dtype>/[<layout or precision>/]<sizes>"""
    p = _product(case.parts[1:], limit)

    def make(device: torch.device) -> Workload:
        a, b = p.factors(Data(case, device))
        rows = every(SAMPLED_ROWS, p.m, device)
        return Workload(
            ours=lambda: memops.matmul(a, b),
            peers=[
                eager("eager", torch.matmul, a, b),
                compiled("compile max-autotune", torch.matmul, a, b, **AUTOTUNE),
            ],
            check=Check(
                lambda out: [first(out)[rows]],
                lambda: [a[rows].double() @ b.double()],
                f"{len(rows):,} of {p.m:,} rows",
            ),
            weights=b if p.m <= FEW_ROWS else None,
        )

    moved = (p.m * p.k + p.k * p.n + p.m * p.n) * p.dtype.itemsize
    return Problem(moved, p.flops, make, p.peak, p.settings)


def matmul_backward(case: Case, limit: int | None) -> Problem:
    """matmul/backward/<dtype>/[<layout or precision>/]<sizes>"""
    p = _product(case.parts[2:], limit)

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        a, b = p.factors(data)
        grad = data.normal(p.m, p.n, dtype=p.dtype)
        rows, columns = every(SAMPLED_ROWS, p.m, device), every(SAMPLED_ROWS, p.k, device)

        def reference() -> list[Tensor]:
            return [
                grad[rows].double() @ b.double().t(),
                a[:, columns].double().t() @ grad.double(),
            ]

        return Workload(
            ours=gradients(memops.matmul, [a, b], grad),
            peers=[
                eager_gradients("eager", torch.matmul, [a, b], grad),
                compiled_gradients("compile", torch.matmul, [a, b], grad),
            ],
            check=Check(
                lambda out: [out[0][rows], out[1][columns]],
                reference,
                f"{len(rows):,} rows of each gradient",
            ),
        )

    moved = (2 * p.m * p.k + 2 * p.k * p.n + p.m * p.n) * p.dtype.itemsize
    return Problem(moved, 2 * p.flops, make, p.peak, p.settings)


def bmm(case: Case, limit: int | None) -> Problem:
    """matmul/<dtype>/bmm/<BxMxNxK>: the second factor is a transposed view"""
    _, name, _, sizes = case.parts
    batch, m, n, k = shrink(parse_sizes(sizes), limit and limit * PRODUCT_PER_ELEMENT)
    dtype = DTYPES[name]

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        a, b = data.normal(batch, m, k, dtype=dtype), data.normal(batch, n, k, dtype=dtype).mT
        rows = every(SAMPLED_ROWS, m, device)
        return Workload(
            ours=lambda: memops.matmul(a, b),
            peers=[
                eager("eager", torch.bmm, a, b),
                compiled("compile max-autotune", torch.bmm, a, b, **AUTOTUNE),
            ],
            check=Check(
                lambda out: [first(out)[:, rows]],
                lambda: [a[:, rows].double() @ b.double()],
                f"{len(rows):,} of {m:,} rows in each of {batch:,} batches",
            ),
        )

    moved = batch * (m * k + k * n + m * n) * dtype.itemsize
    return Problem(moved, 2 * batch * m * n * k, make, name)


def linear(case: Case, limit: int | None) -> Problem:
    """linear/<dtype>/<MxNxK>: with bias"""
    p = _product(case.parts[1:], limit)

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        x, w, bias = _layer(data, p)
        rows = every(SAMPLED_ROWS, p.m, device)
        return Workload(
            ours=lambda: memops.linear(x, w, bias),
            peers=[
                eager("eager", F.linear, x, w, bias),
                compiled("compile max-autotune", F.linear, x, w, bias, **AUTOTUNE),
            ],
            check=Check(
                lambda out: [first(out)[rows]],
                lambda: [x[rows].double() @ w.double().t() + bias.double()],
                f"{len(rows):,} of {p.m:,} rows",
            ),
            weights=w if p.m <= FEW_ROWS else None,
        )

    moved = (p.m * p.k + p.k * p.n + p.m * p.n + p.n) * p.dtype.itemsize
    return Problem(moved, p.flops, make, p.peak, p.settings)


def linear_backward(case: Case, limit: int | None) -> Problem:
    """linear/backward/<dtype>/<MxNxK>: gradients of input, weight and bias"""
    p = _product(case.parts[2:], limit)

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        x, w, bias = _layer(data, p)
        grad = data.normal(p.m, p.n, dtype=p.dtype)
        rows, outputs = every(SAMPLED_ROWS, p.m, device), every(SAMPLED_ROWS, p.n, device)

        def sample(out: Output) -> list[Tensor]:
            return [out[0][rows], out[1][outputs], out[2]]

        def reference() -> list[Tensor]:
            return [
                grad[rows].double() @ w.double(),
                grad[:, outputs].double().t() @ x.double(),
                grad.double().sum(0),
            ]

        return Workload(
            ours=gradients(memops.linear, [x, w, bias], grad),
            peers=[
                eager_gradients("eager", F.linear, [x, w, bias], grad),
                compiled_gradients("compile", F.linear, [x, w, bias], grad),
            ],
            check=Check(
                sample, reference, f"{len(rows):,} rows of each gradient, all of the bias's"
            ),
        )

    moved = (2 * p.m * p.k + 2 * p.k * p.n + p.m * p.n + p.n) * p.dtype.itemsize
    return Problem(moved, 2 * p.flops, make, p.peak, p.settings)


def _layer(data: Data, p: Product) -> tuple[Tensor, Tensor, Tensor]:
    """Input [M, K], weight [N, K] and bias [N]; the weight as a layer's initialisation scales it."""
    x = data.normal(p.m, p.k, dtype=p.dtype)
    w = data.normal(p.n, p.k, dtype=p.dtype) / math.sqrt(p.k)
    return x, w, data.normal(p.n, dtype=p.dtype)
