"""One case, measured: checked against its reference, timed beside its peers, judged by its goal."""

from __future__ import annotations

import gc
import importlib.util
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch

from .environment import GpuStatus
from .floors import Copier, Peaks
from .timing import Clock, CpuClock, CudaClock, Estimate, summarize
from .workload import Call, Case, Check, Output, Peer, Problem, Workload, first

OVERHEAD_ROUNDS = 50
HOST_ROUNDS = 5
SLOW_MS = 20.0  # calls longer than this are repeated as little as possible
TF32_EPSILON = 2.0**-10
WRONG = 0.1  # no peer that computes the same function has this error
MESSAGE_LENGTH = 200

Row = dict[str, Any]


class WrongResult(Exception):
    """A result too far from its reference to be worth timing."""


@dataclass(frozen=True)
class Options:
    """`seconds`: of interleaved rounds a case; `peers`: the groups that run."""

    seconds: float = 0.5
    peers: frozenset[str] = frozenset()


@dataclass
class Bench:
    """A device with everything that measuring on it needs."""

    device: torch.device
    clock: Clock
    copier: Copier
    peaks: Peaks
    status: GpuStatus | None
    reads: bool
    notes: list[str] = field(default_factory=list)

    @classmethod
    def on(cls, device: torch.device) -> Bench:
        cuda = device.type == "cuda"
        clock: Clock = CudaClock(device) if cuda else CpuClock()
        status = GpuStatus(device) if cuda else None
        bench = cls(device, clock, Copier(device), Peaks(device, clock), status, reads=cuda)
        if cuda and importlib.util.find_spec("triton") is None:
            bench.without_reads("Triton is not installed")
        return bench

    def without_reads(self, why: str) -> None:
        """From here on nothing times kernels that only read."""
        self.reads = False
        self.notes.append(f"read_ms and probe_ms are null: {why}")

    def measure(self, case: Case, problem: Problem, options: Options) -> Row:
        """The case's row of the results file; a row with "failed" where ours raises or is wrong."""
        status = self.status if self.status is not None and self.status.immediate else None
        before = status.sm_clock_mhz() if status is not None else None
        try:
            with ExitStack() as stack:
                stack.enter_context(problem.settings.applied())
                if problem.overhead:
                    stack.enter_context(torch.no_grad())
                row = _Run(self, case, problem, options).row()
        except Exception as error:  # any failure of one case is a result; the others still run
            row = {"id": case.id, "failed": _message(error)}
        if status is not None:
            row["sm_clock_mhz"] = [before, status.sm_clock_mhz()]
        self._release()
        return row

    def _release(self) -> None:
        if self.device.type == "cuda":
            total = torch.cuda.get_device_properties(self.device).total_memory
            if torch.cuda.memory_reserved(self.device) > total // 2:
                gc.collect()
                torch.cuda.empty_cache()


class _Run:
    """The steps of one measurement; `calls` are what is timed interleaved."""

    def __init__(self, bench: Bench, case: Case, problem: Problem, options: Options) -> None:
        self.bench, self.case, self.problem, self.options = bench, case, problem, options
        self.work: Workload = problem.make(bench.device)
        self.expected = self.work.check.reference()
        self.left_out: dict[str, str] = {}
        self.peers: dict[str, Call] = {}

    def row(self) -> Row:
        error, peer_error = self._errors()
        self._prepare_peers()
        row = self._overhead() if self.problem.overhead else self._times()
        row |= {"error": error, "peer_error": peer_error, "checked": self.work.check.covers}
        if self.left_out:
            row["peers_left_out"] = self.left_out
        return row

    def _errors(self) -> tuple[float, float | None]:
        """Our error and the first peer's (None if it raises), both before anything is timed."""
        check, peer = self.work.check, self.work.peers[0]
        peer_error: float | None
        try:
            peer_error = _rounded(check.error(peer.prepare(torch.compile)(), self.expected))
        except (RuntimeError, NotImplementedError):
            peer_error = None
        out = self.work.ours()
        error = _rounded(check.error(out, self.expected))
        bound = _rounding(check, first(out).dtype, self.problem.peak)
        if not error <= max(bound, 4 * (peer_error or 0.0)):
            raise WrongResult(f"error {error} on {check.covers}; {peer.name}: {peer_error}")
        return error, peer_error

    def _prepare_peers(self) -> None:
        """Every peer that was asked for; why the others are missing goes to `left_out`."""
        wanted: list[Peer] = []
        for peer in self.work.peers:
            if peer.group not in self.options.peers:
                self.left_out[peer.name] = "not asked for"
            elif not peer.installed:
                self.left_out[peer.name] = f"{peer.package} is not installed"
            else:
                wanted.append(peer)
        if any(peer.group == "compile" for peer in wanted):
            # Dynamo silently runs eager after eight shapes; a reset later would undo the first peer
            torch._dynamo.reset()
        for peer in wanted:
            try:
                call = peer.prepare(torch.compile)
                out = call()
                if peer is not self.work.peers[0]:  # the first one was checked before
                    self._same_result(out)
            except Exception as error:  # a peer that cannot do the case is a result as well
                self.left_out[peer.name] = _message(error)
            else:
                self.peers[peer.name] = call

    def _same_result(self, out: Output) -> None:
        """A peer that computes something else is none."""
        error = self.work.check.error(out, self.expected)
        if not error <= (0.0 if self.work.check.exact else WRONG):
            raise WrongResult(f"error {error:.3g} on {self.work.check.covers}")

    def _overhead(self) -> Row:
        clock = self.bench.clock
        calls = {"ours": self.work.ours, **self.peers}
        estimates = {name: clock.estimate(call) for name, call in calls.items()}
        samples = clock.host(calls, estimates, OVERHEAD_ROUNDS)
        in_ms = {name: [us / 1e3 for us in values] for name, values in samples.items()}
        row = self._row(in_ms, {})
        row["cpu_us"] = _rounded(row["ms"] * 1e3)
        return row

    def _times(self) -> Row:
        clock = self.bench.clock
        floors = self._floor_calls()
        calls = {"ours": self.work.ours, **self.peers, **floors}
        estimates = {name: clock.estimate(call) for name, call in calls.items()}
        repeats = self.problem.repeats
        samples = {
            name: [ms / repeats for ms in values]
            for name, values in clock.rounds(calls, estimates, self.options.seconds).items()
        }
        row = self._row(samples, floors)
        ours: Mapping[str, Estimate] = {"ours": estimates["ours"]}
        row["warm_ms"] = _rounded(clock.warm(self.work.ours, estimates["ours"]) / repeats)
        rounds = HOST_ROUNDS if estimates["ours"].ms < SLOW_MS else 1
        host = clock.host({"ours": self.work.ours}, ours, rounds)["ours"]
        row["cpu_us"] = _rounded(summarize(host).median / repeats)
        if repeats > 1:
            row["repeats"] = repeats
        return row

    def _floor_calls(self) -> dict[str, Call]:
        """Calls named copy_ms, read_ms and probe_ms, as far as the case and the device have them."""
        calls: dict[str, Call] = {}
        if self.problem.bytes is not None:
            calls["copy_ms"] = self.bench.copier.call(self.problem.bytes, self.problem.repeats)
        if self.bench.reads:
            try:
                calls |= self._read_calls()
            except Exception as error:  # Triton needs a C compiler, for one
                self.bench.without_reads(_message(error))
        return calls

    def _read_calls(self) -> dict[str, Call]:
        from . import probes

        calls: dict[str, Call] = {}
        if self.work.weights is not None:
            calls["read_ms"] = probes.read_call(self.work.weights)
        if self.work.rows is not None:
            calls["probe_ms"] = probes.rows_call(*self.work.rows, self.work.planes)
        for call in calls.values():
            call()
        return calls

    def _row(self, samples: dict[str, list[float]], floors: Mapping[str, Call]) -> Row:
        summaries = {name: summarize(values) for name, values in samples.items()}
        medians = {name: _rounded(summary.median) for name, summary in summaries.items()}
        row: Row = {
            "id": self.case.id,
            "ms": medians["ours"],
            "spread": _rounded(summaries["ours"].spread),
            "peers": {name: medians[name] for name in self.peers},
            "warm_ms": None,
            "cpu_us": None,
            "copy_ms": medians.get("copy_ms"),
            "read_ms": medians.get("read_ms"),
            "probe_ms": medians.get("probe_ms"),
            "bytes": self.problem.bytes,
            "flops": self.problem.flops,
            "rounds": len(samples["ours"]),
        }
        row["floor_ms"] = self._floor(row)
        row["ratios"] = self._ratios(samples)
        return row

    def _floor(self, row: Row) -> float | None:
        """The least time this device needs: memory, random rows or arithmetic, whichever is most.

        Few rows of input: what reading the weights takes stands for the memory's part.
        """
        memory = row["copy_ms"] if row["read_ms"] is None else row["read_ms"]
        parts = [memory, row["probe_ms"]]
        if self.problem.peak is not None and self.problem.flops is not None:
            parts.append(self.problem.flops / self.bench.peaks.rate(self.problem.peak) / 1e9)
        known = [part for part in parts if part is not None]
        return _rounded(max(known)) if known else None

    def _ratios(self, samples: dict[str, list[float]]) -> dict[str, list[float]]:
        """[median, spread] of their time over ours, round by round: above 1 ours is sooner.

        A goal vs_<peer> has the ratio to that peer beside the one to the fastest.
        """
        others = {"vs_copy": "copy_ms", "vs_read": "read_ms"}
        others |= {f"vs_{name}": name for name in self.peers if f"vs_{name}" in self.case.goal}
        if self.peers:
            others["vs_peer"] = min(self.peers, key=lambda n: summarize(samples[n]).median)
        ratios = {}
        for ratio, name in others.items():
            if name in samples:
                pairs = zip(samples[name], samples["ours"], strict=True)
                summary = summarize([theirs / ours for theirs, ours in pairs])
                ratios[ratio] = [_rounded(summary.median), _rounded(summary.spread)]
        return ratios


def _rounding(check: Check, dtype: torch.dtype, peak: str | None) -> float:
    """An error that rounding alone explains; 0 for exact ops."""
    if check.exact or not dtype.is_floating_point:
        return 0.0
    return 16 * max(torch.finfo(dtype).eps, TF32_EPSILON if peak == "tf32" else 0.0)


def _message(error: Exception) -> str:
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:MESSAGE_LENGTH]


def _rounded(value: float) -> float:
    """Five significant digits: more than any of these numbers has."""
    return float(f"{value:.5g}")
