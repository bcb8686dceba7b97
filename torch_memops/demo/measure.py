"""Clocks, the machine's floor, and the comparison of one op with its reference."""

from __future__ import annotations

import math
import statistics
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

Results = Tensor | tuple[Tensor, ...]
Call = Callable[[], Results]

# 2**-p for a significand of p bits: half the distance between 1 and the next number.
UNIT_ROUNDOFF = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8}
FLUSH_BYTES = 256 * 2**20
ERROR_CHUNK = 2**24
# What an op that is wrong or missing may raise: a result of the demo, not the end of it.
OP_ERRORS = (RuntimeError, TypeError, ValueError, IndexError)


def describe_error(error: BaseException) -> str:
    """The type, and the first words of the message."""
    first_line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {textwrap.shorten(first_line, 120, placeholder=' ...')}"


class Clock:
    """Times calls in turns, so that a drift of the machine's clock meets all of them alike."""

    def __init__(self, device: torch.device, quick: bool) -> None:
        self.device = device
        self.quick = quick
        self.flush = torch.zeros(FLUSH_BYTES // 4, device=device) if device.type == "cuda" else None

    def times_ms(self, *calls: Call) -> list[float]:
        """The median time of each call, in milliseconds, after one call that is not counted."""
        for call in calls:
            call()
        samples = self._cuda(calls) if self.device.type == "cuda" else self._cpu(calls)
        return [statistics.median(s) for s in samples]

    def _cpu(self, calls: tuple[Call, ...]) -> list[list[float]]:
        samples: list[list[float]] = [[] for _ in calls]
        fewest, most, budget_s = (1, 3, 0.02) if self.quick else (5, 50, 0.3)
        start = time.perf_counter()
        while len(samples[0]) < fewest or (
            len(samples[0]) < most and time.perf_counter() - start < budget_s
        ):
            for call, sample in zip(calls, samples, strict=True):
                begin = time.perf_counter()
                call()
                sample.append((time.perf_counter() - begin) * 1e3)
        return samples

    def _cuda(self, calls: tuple[Call, ...]) -> list[list[float]]:
        """CUDA events round each call; reading 256 MB before it empties L2 and keeps the GPU
        busy while the host prepares the call."""
        assert self.flush is not None
        rounds = 3 if self.quick else 20
        pairs: list[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = [[] for _ in calls]
        for _ in range(rounds):
            for call, events in zip(calls, pairs, strict=True):
                begin = torch.cuda.Event(enable_timing=True)
                end = torch.cuda.Event(enable_timing=True)
                self.flush.sum()
                begin.record()
                call()
                end.record()
                events.append((begin, end))
        torch.cuda.synchronize(self.device)
        return [[begin.elapsed_time(end) for begin, end in events] for events in pairs]


@dataclass(frozen=True)
class Floor:
    """What this machine reaches at best: bytes a second of a plain copy (read plus written), and
    operations a second of a large torch.matmul, by dtype."""

    copy_rate: float
    matmul_rate: dict[torch.dtype, float]

    def limit_ms(self, nbytes: int, flops: int, dtype: torch.dtype) -> tuple[float, bool]:
        """The least time for that work, and whether arithmetic (and not memory) sets it."""
        memory_ms = nbytes / self.copy_rate * 1e3
        arithmetic_ms = flops / self.matmul_rate[dtype] * 1e3 if flops else 0.0
        return max(memory_ms, arithmetic_ms), arithmetic_ms > memory_ms


def measure_floor(clock: Clock, dtypes: list[torch.dtype]) -> Floor:
    device = clock.device
    on_gpu = device.type == "cuda"
    numel = 2**27 if on_gpu else 2**22 if clock.quick else 2**24
    source = torch.ones(numel, device=device)
    target = torch.empty_like(source)
    (copy_ms,) = clock.times_ms(partial(target.copy_, source))
    del source, target
    size = 8192 if on_gpu else 1024 if clock.quick else 1536
    rates = {}
    for dtype in dtypes:
        a = torch.randn(size, size, device=device, dtype=dtype)
        b = torch.randn(size, size, device=device, dtype=dtype)
        (matmul_ms,) = clock.times_ms(partial(torch.matmul, a, b))
        rates[dtype] = 2 * size**3 / matmul_ms * 1e3
    return Floor(8 * numel / copy_ms * 1e3, rates)


@dataclass(frozen=True)
class Case:
    """One op on one input.

    terms: how many products each output element sums; 0 means that the op only moves data, so
    that the result must be equal bit by bit.
    """

    op: str
    shape: str
    ours: Call
    reference: Call
    inputs: tuple[Tensor, ...]
    terms: int = 0
    flops: int = 0


@dataclass(frozen=True)
class Row:
    """What came of a case; times in milliseconds, rates in units a second."""

    op: str
    shape: str
    against: str
    error: float | None = None
    allowed: float = 0.0
    ours_ms: float | None = None
    reference_ms: float | None = None
    rate: float | None = None
    rate_unit: str = "B/s"
    share: float | None = None
    failure: str | None = None


def relative_error(result: Tensor, expected: Tensor) -> float:
    """norm(result - expected) / norm(expected), in float64, some elements at a time."""
    squares = torch.zeros(2, dtype=torch.float64, device=result.device)
    chunks = (t.reshape(-1).split(ERROR_CHUNK) for t in (result, expected))
    for a, b in zip(*chunks, strict=True):
        squares[0] += (a.double() - b.double()).square().sum()
        squares[1] += b.double().square().sum()
    difference, size = squares.sqrt().tolist()
    if difference == 0:
        return 0.0
    return difference / size if size else math.inf


def allowed_error(terms: int, dtype: torch.dtype) -> float:
    """Two sums of `terms` f32 (or f64) products in different orders, each then rounded to dtype."""
    if not terms:
        return 0.0
    accumulation = UNIT_ROUNDOFF[torch.float64 if dtype == torch.float64 else torch.float32]
    return 2 * terms * accumulation + (2 * UNIT_ROUNDOFF[dtype] if dtype == torch.bfloat16 else 0)


def judge(results: Results, expected: Results, terms: int) -> tuple[float, float, str | None]:
    """The largest error, the error allowed, and what is wrong (None where nothing is)."""
    ours = results if isinstance(results, tuple) else (results,)
    theirs = expected if isinstance(expected, tuple) else (expected,)
    allowed = allowed_error(terms, theirs[0].dtype)
    if len(ours) != len(theirs):
        return math.nan, allowed, f"{len(ours)} results where {len(theirs)} were expected"
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return (
                math.nan,
                allowed,
                f"{a.dtype} {list(a.shape)} where {b.dtype} {list(b.shape)} was expected",
            )
        error = relative_error(a, b)
        worst = error if not error <= worst else worst  # NaN wins
    if not worst <= allowed:
        return worst, allowed, f"error {worst:.2e}, at most {allowed:.2e} is allowed"
    return worst, allowed, None


@dataclass
class Comparison:
    """Runs cases, times both sides and collects the rows."""

    clock: Clock
    floor: Floor
    rows: list[Row] = field(default_factory=list)

    def run(self, case: Case) -> Results:
        """Ours where it is right, else the reference's result, so that later cases still mean
        something."""
        expected = case.reference()
        against = "PyTorch"
        try:
            results = case.ours()
        except OP_ERRORS as raised:
            self.rows.append(Row(case.op, case.shape, against, failure=describe_error(raised)))
            return expected
        error, allowed, failure = judge(results, expected, case.terms)
        if failure is not None:
            self.rows.append(Row(case.op, case.shape, against, error, allowed, failure=failure))
            return expected
        outputs = results if isinstance(results, tuple) else (results,)
        nbytes = sum(t.numel() * t.element_size() for t in (*case.inputs, *outputs))
        # In-place ops change what they return at each call: keep the values of the first.
        kept = tuple(t.clone() for t in outputs)
        ours_ms, reference_ms = self.clock.times_ms(case.ours, case.reference)
        limit_ms, by_arithmetic = self.floor.limit_ms(nbytes, case.flops, outputs[0].dtype)
        work, unit = (case.flops, "FLOP/s") if by_arithmetic else (nbytes, "B/s")
        self.rows.append(
            Row(
                case.op,
                case.shape,
                against,
                error,
                allowed,
                ours_ms,
                reference_ms,
                work / ours_ms * 1e3,
                unit,
                limit_ms / ours_ms,
            )
        )
        return kept if isinstance(results, tuple) else kept[0]

    def check(self, op: str, shape: str, against: str, result: Tensor, expected: Tensor,
              terms: int, made_by: str) -> None:  # fmt: skip
        """A row without times: a result of the op `made_by`, held against another library's."""
        if any(row.op == made_by and row.failure for row in self.rows):
            # `run` went on with PyTorch's result: whether that is right says nothing about ours.
            self.rows.append(Row(op, shape, against, failure=f"{made_by} failed before"))
            return
        error, allowed, failure = judge(result, expected, terms)
        self.rows.append(Row(op, shape, against, error, allowed, failure=failure))
