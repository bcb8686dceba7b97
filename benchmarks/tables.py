"""What a run prints: a line a case, one table a suite, what moved since an earlier run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from .results import MOVED, Move, Results, fastest_peer, judge, share_of_floor
from .workload import Case

Row = dict[str, Any]

MARKS = {True: "met", False: "missed", None: "open"}
STYLES = {True: "green", False: "red", None: "yellow"}


def milliseconds(value: float | None) -> str:
    """'1.234', '0.00557'; '-' for None."""
    return "-" if value is None else f"{value:.4g}"


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


def error_text(value: float | None) -> str:
    """'0' for exact, else two digits."""
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.1e}"


def rate(row: Row) -> str:
    """TFLOP/s where the case counts operations and they bound it, else GB/s of its bytes."""
    if row["flops"] and row["bytes"] and row["flops"] / row["bytes"] > 50:
        return f"{row['flops'] / row['ms'] / 1e9:.3g} TFLOP/s"
    if row["bytes"]:
        return f"{row['bytes'] / row['ms'] / 1e6:.4g} GB/s"
    return "-"


def ratio_text(row: Row) -> str:
    """Fastest peer / ours with its spread."""
    if "vs_peer" not in row["ratios"]:
        return "-"
    median, spread = row["ratios"]["vs_peer"]
    return f"{median:.2f} ± {median * spread / 2:.2f}"


def goal_text(case: Case, row: Row) -> str:
    """'vs_peer 1.02/1.0 met, vs_copy 0.9/0.97 missed'"""
    parts = []
    for name, verdict in judge(case, row).items():
        measured = row["ratios"].get(name)
        value = "-" if measured is None else f"{measured[0]:.2f}"
        parts.append(f"{name} {value}/{case.goal[name]:g} {MARKS[verdict]}")
    return ", ".join(parts) or "-"


def line(row: Row) -> str:
    """One line for a log."""
    if "failed" in row:
        return f"{row['id']}: {row['failed']}"
    peer = fastest_peer(row)
    against = f"; {peer} {milliseconds(row['peers'][peer])} ms" if peer else ""
    return f"{row['id']}: {milliseconds(row['ms'])} ms ± {percent(row['spread'])}{against}"


def suite_table(title: str, results: Results, cases: Sequence[Case]) -> Table:
    """Ours, each peer, ratio to the fastest, share of the floor, errors and goals; no failures."""
    by_id = {case.id: case for case in cases}
    table = Table(title=title, caption=_caption(results), title_justify="left")
    for name in ("case", "ms", "spread", "warm ms", "CPU us", "rate", "peers ms"):
        table.add_column(name, justify="left" if name in ("case", "peers ms") else "right")
    for name in ("peer/ours", "of floor", "error", "peer's", "goal"):
        table.add_column(name, justify="left" if name == "goal" else "right")
    for row in results.measured().values():
        peers = "\n".join(f"{name} {milliseconds(ms)}" for name, ms in row["peers"].items())
        case = by_id[row["id"]]
        # the goals are those of a GPU at full size
        verdicts = judge(case, row) if results.environment["gpu"] else {}
        goal = goal_text(case, row) if verdicts else "-"
        if verdicts:
            met = (
                False
                if False in verdicts.values()
                else (None if None in verdicts.values() else True)
            )
            goal = f"[{STYLES[met]}]{goal}[/]"
        table.add_row(
            row["id"],
            milliseconds(row["ms"]),
            percent(row["spread"]),
            milliseconds(row["warm_ms"]),
            milliseconds(row["cpu_us"]),
            rate(row),
            _escape(peers) or "-",
            ratio_text(row),
            percent(share_of_floor(row)),
            error_text(row["error"]),
            error_text(row["peer_error"]),
            goal,
        )
    return table


def _caption(results: Results) -> str:
    environment = results.environment
    where = environment["gpu"] or environment["note"]
    return (
        f"{where}, torch {environment['torch']}, CUDA {environment['cuda']}, "
        f"commit {environment['commit']}, {environment['date']}"
    )


def _escape(text: str) -> str:
    return text.replace("[", "\\[")


def moves_table(title: str, moves: Sequence[Move]) -> Table:
    """What moved beyond the spread, worst first; what did not is counted in the caption."""
    moved = sorted(
        (move for move in moves if move.verdict in MOVED),
        key=lambda move: (MOVED.index(move.verdict), -(move.change or 0)),
    )
    same = len(moves) - len(moved)
    table = Table(
        title=title, caption=f"{same} of {len(moves)} within the spread", title_justify="left"
    )
    for name in ("case", "verdict", "old ms", "new ms", "new/old", "of yardstick", "spread"):
        table.add_column(name, justify="left" if name in ("case", "verdict") else "right")
    for move in moved:
        table.add_row(
            move.id,
            move.verdict,
            milliseconds(move.old_ms),
            milliseconds(move.new_ms),
            milliseconds(move.change),
            milliseconds(move.relative),
            percent(move.spread),
        )
    return table
