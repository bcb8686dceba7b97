"""Results files: one a suite and GPU, written after every case; goals judged, runs compared."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .workload import Case

RESULTS = Path(__file__).with_name("results")
FORMAT_KEYS = ("environment", "cases", "left_out")
PARTIAL = "-partial"

Row = dict[str, Any]


class ResultsError(ValueError):
    """A file that is not a results file."""


@dataclass
class Results:
    """`left_out`: the ids of the suite that were not measured."""

    environment: dict[str, Any]
    cases: list[Row]
    left_out: list[str]

    def write(self, path: Path) -> None:
        """Replaces `path` in one step, so that a killed run leaves a whole file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {name: getattr(self, name) for name in FORMAT_KEYS}
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(json.dumps(content, indent=1) + "\n")
        draft.replace(path)

    @classmethod
    def read(cls, path: Path) -> Results:
        """Raises ResultsError for anything that is not a results file."""
        try:
            content = json.loads(path.read_text())
            return cls(content["environment"], content["cases"], content.get("left_out", []))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResultsError(f"{path} is not a results file: {error}") from error

    def measured(self) -> dict[str, Row]:
        """Rows by id, without the failed ones."""
        return {row["id"]: row for row in self.cases if "failed" not in row}


def judge(case: Case, row: Row) -> dict[str, bool | None]:
    """For each goal whether it is met; None where this run cannot tell.

    Met: the median ratio of the interleaved rounds reaches the goal within the run's spread, that
    is, the goal lies at most half an interquartile range above the median. A goal against the
    fastest peer that is reached without the fastest published peer having run is not decided.
    """
    verdicts: dict[str, bool | None] = {}
    published = case.published_h200.get("peers", {})
    for name, goal in case.goal.items():
        if name not in row["ratios"]:
            verdicts[name] = None
            continue
        median, spread = row["ratios"][name]
        met: bool | None = median * (1 + spread / 2) >= goal
        if met and name == "vs_peer" and published:
            fastest = min(published, key=published.__getitem__)
            met = True if fastest in row["peers"] else None
        verdicts[name] = met
    return verdicts


def fastest_peer(row: Row) -> str | None:
    """The name of the peer with the smallest median."""
    return min(row["peers"], key=row["peers"].__getitem__) if row["peers"] else None


def share_of_floor(row: Row) -> float | None:
    """Floor / ours."""
    return row["floor_ms"] / row["ms"] if row.get("floor_ms") else None


@dataclass(frozen=True)
class Move:
    """How a case moved between two runs.

    `change`: new time / old time. `relative`: the same after dividing each by the yardstick
    (copy_ms, else the first common peer) of its own run; None without one. `verdict`: "slower",
    "faster", "machine" (ours moved as the yardstick did), "same", "new", "gone", "failed", or "other
    device" (a GPU in one run and a CPU in the other: the sizes differ too).
    """

    id: str
    verdict: str
    old_ms: float | None = None
    new_ms: float | None = None
    change: float | None = None
    relative: float | None = None
    spread: float | None = None


MOVED = ("failed", "gone", "slower", "faster", "machine", "other device", "new")


def compare(old: Results, new: Results, selected: Iterable[str]) -> list[Move]:
    """One entry a selected case; what stayed within the spread of both runs is "same"."""
    before, after = old.measured(), new.measured()
    failed = {row["id"] for row in new.cases if "failed" in row}
    on_gpu = [run.environment["gpu"] is not None for run in (old, new)]
    moves = []
    for case_id in selected:
        if case_id in failed:
            moves.append(Move(case_id, "failed"))
        elif case_id in before and case_id in after:
            same = on_gpu[0] == on_gpu[1]
            move = _move(before[case_id], after[case_id]) if same else Move(case_id, "other device")
            moves.append(move)
        elif case_id in before:
            moves.append(Move(case_id, "gone"))
        elif case_id in after:
            moves.append(Move(case_id, "new"))
    return moves


def _move(old: Row, new: Row) -> Move:
    spread = max(old["spread"], new["spread"])
    change = new["ms"] / old["ms"]
    yardstick = _yardstick(old, new)
    relative = None if yardstick is None else change / yardstick
    verdict = _direction(change, spread)
    if verdict != "same" and relative is not None and _direction(relative, spread) != verdict:
        verdict = "machine"
    return Move(old["id"], verdict, old["ms"], new["ms"], change, relative, spread)


def _direction(change: float, spread: float) -> str:
    if change > 1 + spread:
        return "slower"
    return "faster" if change < 1 / (1 + spread) else "same"


def _yardstick(old: Row, new: Row) -> float | None:
    """How something that is not ours moved: new time / old time."""
    if old.get("copy_ms") and new.get("copy_ms"):
        return float(new["copy_ms"] / old["copy_ms"])
    for name, ms in old["peers"].items():
        if name in new["peers"]:
            return float(new["peers"][name] / ms)
    return None
