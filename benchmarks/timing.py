"""Clocks: how long calls take on a GPU (CUDA events, cold L2) or on the CPU (host clock).

All calls of a case are timed interleaved in rounds, so that a clock change or a busy neighbour
meets all of them alike; only ratios within one run count.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from .workload import Call

FLUSH_BYTES = 256 * 2**20
LEAST_ROUNDS, MOST_ROUNDS = 3, 100
MOST_READS = 16  # passes of the flush: about 1 ms, in which the host gets ahead of the device
WARM_MS, MOST_WARM_CALLS = 30.0, 50
# calls between two synchronisations when the host is timed: below the depth of the launch queue,
# about 1,024, for ops of several kernels too
HOST_BATCH_MS, MOST_HOST_CALLS = 20.0, 100


@dataclass(frozen=True)
class Estimate:
    """What one call takes: on the device, and on the host until it returns."""

    ms: float
    host_us: float


@dataclass(frozen=True)
class Summary:
    """Median and spread (interquartile range / median) of samples."""

    median: float
    spread: float


def summarize(samples: list[float]) -> Summary:
    """Raises ValueError without samples; one sample has spread 0."""
    if not samples:
        raise ValueError("no samples")
    median = statistics.median(samples)
    if len(samples) == 1 or median == 0:
        return Summary(median, 0.0)
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Summary(median, (high - low) / median)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Clock(ABC):
    """Times calls on one device."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits until the device is idle."""

    @abstractmethod
    def estimate(self, call: Call) -> Estimate:
        """Warms a call up, then times it once."""

    @abstractmethod
    def rounds(
        self, calls: Mapping[str, Call], estimates: Mapping[str, Estimate], seconds: float
    ) -> dict[str, list[float]]:
        """Milliseconds of every call in every round, cold where the device has a cache to flush.

        As many rounds as `seconds` allow, at least LEAST_ROUNDS, at most MOST_ROUNDS.
        """

    @abstractmethod
    def warm(self, call: Call, estimate: Estimate) -> float:
        """Milliseconds of a call among many, back to back."""

    def host(
        self, calls: Mapping[str, Call], estimates: Mapping[str, Estimate], rounds: int
    ) -> dict[str, list[float]]:
        """Microseconds of host time of a call, in rounds; the device's queue is never full."""
        samples: dict[str, list[float]] = {name: [] for name in calls}
        with _no_garbage_collection():
            for r in range(rounds):
                for name in rotated(list(calls), r):
                    call = calls[name]
                    batch = _count(HOST_BATCH_MS, estimates[name].ms, 1, MOST_HOST_CALLS)
                    self.synchronize()
                    start = time.perf_counter()
                    for _ in range(batch):
                        call()
                    samples[name].append((time.perf_counter() - start) / batch * 1e6)
        self.synchronize()
        return samples


def rotated(names: list[str], by: int) -> list[str]:
    """The names, beginning with another one each round."""
    by %= len(names)
    return names[by:] + names[:by]


def _count(total: float, each: float, least: int, most: int) -> int:
    return max(least, min(most, int(total / max(each, 1e-6))))


class CpuClock(Clock):
    """Host clock; caches are not flushed, so the cold and the warm column differ by noise alone."""

    SAMPLE_MS = 0.2

    def synchronize(self) -> None:
        pass

    def estimate(self, call: Call) -> Estimate:
        call()
        ms = self._time(call, 1)
        return Estimate(ms, ms * 1e3)

    def rounds(
        self, calls: Mapping[str, Call], estimates: Mapping[str, Estimate], seconds: float
    ) -> dict[str, list[float]]:
        repeats = {n: _count(self.SAMPLE_MS, e.ms, 1, 100) for n, e in estimates.items()}
        total = sum(repeats[name] * estimates[name].ms for name in calls)
        samples: dict[str, list[float]] = {name: [] for name in calls}
        with _no_garbage_collection():
            for r in range(_count(seconds * 1e3, total, LEAST_ROUNDS, MOST_ROUNDS)):
                for name in rotated(list(calls), r):
                    samples[name].append(self._time(calls[name], repeats[name]))
        return samples

    def warm(self, call: Call, estimate: Estimate) -> float:
        return self._time(call, _count(WARM_MS, estimate.ms, 1, MOST_WARM_CALLS))

    @staticmethod
    def _time(call: Call, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        return (time.perf_counter() - start) / count * 1e3


class CudaClock(Clock):
    """CUDA events around each call; the L2 is flushed before it by reading 256 MB.

    A memset would leave dirty lines that the timed kernel then pays to write back. The reading
    also hides the host: while the device reads, the host has time to enqueue the events and the
    call, so that no gap falls between them; calls that take the host long get several reads.
    """

    def __init__(self, device: torch.device) -> None:
        self._buffer = torch.ones(FLUSH_BYTES // 4, device=device)
        self._sum = torch.empty((), device=device)
        self.flush()
        self.synchronize()
        start, end = self._events()
        self.flush(8)
        end.record()
        self.synchronize()
        self._flush_ms = start.elapsed_time(end) / 8

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def flush(self, reads: int = 1) -> None:
        """Enqueues `reads` passes of a reduction over the buffer."""
        for _ in range(reads):
            torch.sum(self._buffer, dim=0, out=self._sum)

    def estimate(self, call: Call) -> Estimate:
        call()
        self.synchronize()
        start = time.perf_counter()
        call()
        host = time.perf_counter() - start
        self.synchronize()
        ms = self._one(call, self._reads(host * 1e6))
        self.synchronize()
        return Estimate(ms[0].elapsed_time(ms[1]), host * 1e6)

    def rounds(
        self, calls: Mapping[str, Call], estimates: Mapping[str, Estimate], seconds: float
    ) -> dict[str, list[float]]:
        reads = self._reads(max(estimates[name].host_us for name in calls))
        total = sum(estimates[name].ms + reads * self._flush_ms for name in calls)
        events: dict[str, list[tuple[torch.cuda.Event, torch.cuda.Event]]]
        events = {name: [] for name in calls}
        with _no_garbage_collection():
            for r in range(_count(seconds * 1e3, total, LEAST_ROUNDS, MOST_ROUNDS)):
                for name in rotated(list(calls), r):
                    events[name].append(self._one(calls[name], reads))
        self.synchronize()
        return {
            name: [start.elapsed_time(end) for start, end in pairs]
            for name, pairs in events.items()
        }

    def warm(self, call: Call, estimate: Estimate) -> float:
        count = _count(WARM_MS, estimate.ms, 1, MOST_WARM_CALLS)
        self.flush(self._reads(count * estimate.host_us))
        call()
        start, end = self._events()
        for _ in range(count):
            call()
        end.record()
        self.synchronize()
        return start.elapsed_time(end) / count

    def _reads(self, host_us: float) -> int:
        """Reads of the buffer during which the host gets twice the time it needs."""
        return min(MOST_READS, 1 + math.ceil(2 * host_us / (self._flush_ms * 1e3)))

    @staticmethod
    def _events() -> tuple[torch.cuda.Event, torch.cuda.Event]:
        """A pair of events, the first one recorded."""
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        start.record()
        return start, end

    def _one(self, call: Call, reads: int) -> tuple[torch.cuda.Event, torch.cuda.Event]:
        self.flush(reads)
        start, end = self._events()
        call()
        end.record()
        return start, end
