"""Generated layouts of the suite layouts: what an id says, and which ids there are.

An id is layouts/<dtype>/<shape>/<order>[/<variant>]: a source of this shape, its dimensions taken
in this order, copied to a contiguous result. `layouts/bf16/64x7x501/201/pitch4` reads a
bf16[64, 7, 501] that lies in rows of 505 elements and writes bf16[501, 64, 7].
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

import torch
from torch import Tensor

from .workload import DTYPES, SECTOR, Case, Data, parse_sizes, shrink

SEED = 5015
LAYOUTS, STEPPED = 240, 12
COMPILED_EVERY = 6  # every sixth layout has torch.compile as a peer
LEAST_BYTES, MOST_BYTES = 2**20, 2**28
WIDTHS = (("u8",), ("bf16",), ("f32",), ("f64", "i64"), ("c128",))
RANKS = (2, 3, 4, 5, 6)
FORMS = ("mixed", "odd", "powers", "tiny", "tiny", "long", "matrices")
KINDS = ("plain", "plain", "plain", "offset", "pitch", "into")
GOAL = {"vs_copy": 0.75, "vs_eager": 1.0}
COMPILE_GOAL = {"vs_compile": 0.95}

Item = TypeVar("Item")


@dataclass(frozen=True)
class Layout:
    """A permuted source and its destination; `kind` says what `extra` elements are for.

    plain: nothing; offset: the source begins that many elements into its storage; pitch: the
    source's rows are that much longer than what is read of them; into: the same of the
    destination's rows; step: of every so many elements of the innermost dimension one is read.
    """

    dtype: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    kind: str = "plain"
    extra: int = 0

    @classmethod
    def parse(cls, case_id: str) -> Layout:
        """The layout an id describes. Raises ValueError for anything else."""
        match = re.fullmatch(
            r"layouts/(\w+)/([\dx]+)/(\d+)(?:/(offset|pitch|into|step)([1-9]\d*))?", case_id
        )
        if match is None or match[1] not in DTYPES:
            raise ValueError(f"not a layout: {case_id!r}")
        shape, order = tuple(parse_sizes(match[2])), tuple(int(digit) for digit in match[3])
        if sorted(order) != list(range(len(shape))):
            raise ValueError(f"{match[3]} does not order the dimensions of {case_id!r}")
        return cls(match[1], shape, order, match[4] or "plain", int(match[5] or 0))

    @property
    def id(self) -> str:
        variant = "" if self.kind == "plain" else f"/{self.kind}{self.extra}"
        sizes, order = "x".join(map(str, self.shape)), "".join(map(str, self.order))
        return f"layouts/{self.dtype}/{sizes}/{order}{variant}"

    @property
    def itemsize(self) -> int:
        return DTYPES[self.dtype].itemsize

    @property
    def result(self) -> tuple[int, ...]:
        """The result's shape."""
        return tuple(self.shape[d] for d in self.order)

    @property
    def result_bytes(self) -> int:
        return math.prod(self.shape) * self.itemsize

    @property
    def bytes(self) -> int:
        """Bytes that DRAM moves: of rows with gaps, and of stepped ones, whole sectors.

        A sector that is written in part is read first: Nsight Compute counts it on an H200
        (docs/benchmarks.md).
        """
        read = written = self.result_bytes
        if self.kind == "pitch":
            read = SECTOR * self._sectors(self.shape)[0]
        elif self.kind == "into":
            touched, filled = self._sectors(self.result)
            written = SECTOR * (2 * touched - filled)
        elif self.kind == "step":
            read = math.prod(self.shape) * min(SECTOR, self.extra * self.itemsize)
        return read + written

    def _sectors(self, shape: Sequence[int]) -> tuple[int, int]:
        """How many sectors rows of this shape touch, each `extra` elements longer, and fill."""
        rows, row = math.prod(shape[:-1]), shape[-1] * self.itemsize
        pitch = row + self.extra * self.itemsize

        def count(rows: int) -> tuple[int, int]:
            touched, filled, end = 0, 0, 0
            for start in range(0, rows * pitch, pitch):
                last = -(-(start + row) // SECTOR)
                touched += last - max(start // SECTOR, end)
                filled += max(0, (start + row) // SECTOR + -start // SECTOR)
                end = last
            return touched, filled

        # every 32nd row begins at a sector's beginning
        whole, rest = count(SECTOR), count(rows % SECTOR)
        periods = rows // SECTOR
        return periods * whole[0] + rest[0], periods * whole[1] + rest[1]

    @property
    def inputs(self) -> str:
        """The case in words."""
        order = ", ".join(map(str, self.order))
        source = f"x {self.dtype}{list(self.shape)}"
        view = f"x.permute({order})"
        sectors = "bytes count 32-byte sectors"
        return {
            "plain": f"copy({view}), {source}",
            "offset": f"copy({view}), {source} at a storage offset of {self.extra}",
            "pitch": f"copy({view}), {source} in rows {self.extra} elements longer; {sectors}",
            "into": f"copy_(y, {view}), {source}, y in rows {self.extra} elements longer; {sectors}",
            "step": f"copy({view}), {source}, every {self.extra}nd element of its rows; {sectors}",
        }[self.kind]

    def shrunk(self, limit: int | None) -> Layout:
        """The same with at most about `limit` elements."""
        return replace(self, shape=tuple(shrink(self.shape, limit)))

    def source(self, data: Data) -> Tensor:
        """Random values behind the permuted view that is copied."""
        dtype, (*outer, inner) = DTYPES[self.dtype], self.shape
        if self.kind == "offset":
            flat = data.normal(math.prod(self.shape) + self.extra, dtype=dtype)
            base = flat[self.extra :].view(self.shape)
        elif self.kind == "pitch":
            base = data.normal(*outer, inner + self.extra, dtype=dtype)[..., :inner]
        elif self.kind == "step":
            base = data.normal(*outer, inner * self.extra, dtype=dtype)[..., :: self.extra]
        else:
            base = data.normal(*self.shape, dtype=dtype)
        return base.permute(self.order)

    def target(self, device: torch.device) -> Tensor:
        """A destination in rows `extra` elements longer."""
        *outer, inner = self.result
        dtype = DTYPES[self.dtype]
        return torch.empty(*outer, inner + self.extra, dtype=dtype, device=device)[..., :inner]


@cache
def generated() -> tuple[Case, ...]:
    """The cases: LAYOUTS that have to reach a share of the copy rate, then STEPPED ones.

    Widths and ranks take turns, sizes lie evenly in the logarithm; nothing but `random()` of a
    seeded generator is drawn from, whose sequence is the same in every version of Python.
    """
    draw = _Draw(random.Random(SEED))
    kinds, forms = draw.deck(KINDS, LAYOUTS), draw.deck(FORMS, LAYOUTS)
    strata = draw.deck(range(LAYOUTS), LAYOUTS)
    cases: dict[str, Case] = {}
    for i in range(LAYOUTS):
        goal = GOAL | (COMPILE_GOAL if i % COMPILED_EVERY == 0 else {})
        layout = draw.layout(i, kinds[i], forms[i], strata[i] / LAYOUTS, (strata[i] + 1) / LAYOUTS)
        cases[layout.id] = Case(layout.id, layout.inputs, layout.bytes, goal=goal)
    for i in range(STEPPED):
        layout = draw.layout(i, "step", FORMS[i % len(FORMS)], i / STEPPED, (i + 1) / STEPPED)
        goal = {"vs_eager": GOAL["vs_eager"]}
        cases[layout.id] = Case(layout.id, layout.inputs, layout.bytes, goal=goal)
    return tuple(cases.values())


class _Draw:
    """Draws layouts from one stream of random numbers."""

    def __init__(self, stream: random.Random) -> None:
        self._stream = stream

    def below(self, n: int) -> int:
        return int(self._stream.random() * n)

    def between(self, low: int, high: int) -> int:
        return low + self.below(high - low + 1)

    def deck(self, items: Sequence[Item], count: int) -> list[Item]:
        """`count` of the items, each as often as the others, shuffled."""
        cards = [items[i % len(items)] for i in range(count)]
        for i in range(count - 1, 0, -1):
            j = self.below(i + 1)
            cards[i], cards[j] = cards[j], cards[i]
        return cards

    def layout(self, i: int, kind: str, form: str, low: float, high: float) -> Layout:
        """The i-th: its size between these parts of the way from LEAST_BYTES to MOST_BYTES."""
        names = WIDTHS[i % len(WIDTHS)]
        dtype = names[i // len(WIDTHS) // len(RANKS) % len(names)]
        rank = RANKS[i // len(WIDTHS) % len(RANKS)]
        if form == "matrices" and rank == 2:
            form = "long"
        while True:
            part = low + (high - low) * self._stream.random()
            wanted = LEAST_BYTES * (MOST_BYTES / LEAST_BYTES) ** part
            order = self._order(rank, form)
            shape = self._shape(form, order, wanted / DTYPES[dtype].itemsize)
            layout = Layout(dtype, shape, order, kind, self._extra(kind, shape, order))
            *_, second, longest = sorted(shape)
            long_enough = form != "long" or longest >= 16 * second
            if long_enough and LEAST_BYTES <= layout.result_bytes <= MOST_BYTES:
                return layout

    def _order(self, rank: int, form: str) -> tuple[int, ...]:
        """Any order but that of the source; many small matrices are each transposed."""
        kept = [rank - 1, rank - 2] if form == "matrices" else []
        while True:
            order = (*self.deck(range(rank - len(kept)), rank - len(kept)), *kept)
            if order != tuple(range(rank)):
                return order

    def _shape(self, form: str, order: Sequence[int], elements: float) -> tuple[int, ...]:
        rank = len(order)
        sizes: dict[int, int] = {}
        if form == "tiny":
            sizes[(rank - 1, order[-1])[self.below(2)]] = self.between(2, 7)
        elif form == "matrices":
            sizes = {rank - 1: self.between(2, 32), rank - 2: self.between(2, 32)}
        elif form == "long":
            sizes = {d: self.between(2, 9) for d in range(rank)}
            del sizes[self.below(rank)]
        free = [d for d in range(rank) if d not in sizes]
        weights = [0.15 + self._stream.random() for _ in free]
        bits = math.log2(max(2.0, elements / math.prod(sizes.values())))
        for d, weight in zip(free, weights, strict=True):
            share = bits * weight / sum(weights)
            sizes[d] = 2 ** max(1, round(share)) if form == "powers" else max(2, int(2**share))
        if form != "powers":
            longest = max(free, key=sizes.__getitem__)
            others = math.prod(size for d, size in sizes.items() if d != longest)
            sizes[longest] = max(2, int(elements / others))
        return tuple(sizes[d] | (1 if form == "odd" else 0) for d in range(rank))

    def _extra(self, kind: str, shape: Sequence[int], order: Sequence[int]) -> int:
        """Offsets of 1 or 3 elements; gaps that make the pitch odd; steps of 2."""
        if kind == "offset":
            return (1, 3)[self.below(2)]
        if kind in ("pitch", "into"):
            inner = shape[-1 if kind == "pitch" else order[-1]]
            return self.between(0, 3) * 2 + (2 if inner % 2 else 1)
        return 2 if kind == "step" else 0
