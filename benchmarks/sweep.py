"""The suite layouts as a whole: the worst cases in words, every case in a plot."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .layouts import COMPILE_GOAL, GOAL, Layout
from .results import Results, judge
from .tables import percent
from .workload import Case

# bytes an element -> colour; distinguishable with any colour vision
COLOURS = {1: "#d55e00", 2: "#e69f00", 4: "#009e73", 8: "#0072b2", 16: "#000000"}


def summary(results: Results, cases: Sequence[Case]) -> list[str]:
    """A line on the whole, one for each kind of goal: how many miss it, and the worst case."""
    measured = results.measured()
    rows = [(case, measured[case.id]) for case in cases if case.id in measured]
    failed = len(results.cases) - len(measured)
    lines = [f"{len(rows)} of {len(cases)} layouts measured, {failed} failed"]
    share, eager, compiled = GOAL["vs_copy"], GOAL["vs_eager"], COMPILE_GOAL["vs_compile"]
    for name, goal, what, below in (
        ("vs_copy", share, "share of copy rate", f"below {percent(share)}"),
        ("vs_eager", eager, "eager / ours", "lose to eager"),
        ("vs_compile", compiled, "compile / ours", f"lose more than {percent(1 - compiled)}"),
    ):
        judged = [(case, row) for case, row in rows if name in case.goal and name in row["ratios"]]
        if not judged:
            lines.append(f"{what}: not measured")
            continue
        medians = {case.id: row["ratios"][name][0] for case, row in judged}
        worst = min(medians, key=medians.__getitem__)
        missed = sum(judge(case, row)[name] is False for case, row in judged)
        under = sum(median < goal for median in medians.values())
        lines.append(
            f"{what}: {len(judged)} cases, median {statistics.median(medians.values()):.2f}, "
            f"worst {medians[worst]:.2f} ({worst}), {under} {below}, "
            f"{missed} of them beyond the spread"
        )
    return lines


def plot(path: Path, suite: str, results: Results) -> Path:
    """The share of the copy rate against the result's size, ours beside eager's."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    rows = [(Layout.parse(row["id"]), row) for row in results.measured().values()]
    settings: Any = {"svg.hashsalt": suite, "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(settings):
        figure, panels = pyplot.subplots(1, 2, sharey=True, figsize=(11, 4.5), layout="constrained")
        for axes, name in zip(panels, ("ours", "eager"), strict=True):
            _points(axes, name, rows)
            axes.axhline(100, color="black", linewidth=0.8)
            axes.axhline(100 * GOAL["vs_copy"], color="black", linewidth=0.8, linestyle=":")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.set(title=name, xlabel="size of the result, MiB")
        panels[0].set(ylabel="share of the copy rate, %", ylim=(0, None))
        panels[0].legend(title="bytes an element", fontsize=8)
        figure.suptitle(
            f"{len(rows)} generated layouts, {results.environment['gpu']} "
            "(crosses: slices with a step; dotted: the goal of the others)"
        )
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
    return path


def _points(axes: Any, name: str, rows: Sequence[tuple[Layout, dict[str, Any]]]) -> None:
    """One mark a layout that was timed under this name."""
    for (width, colour), stepped in itertools.product(COLOURS.items(), (False, True)):
        points = [
            (layout.result_bytes / 2**20, 100 * row["copy_ms"] / ms)
            for layout, row in rows
            if (layout.itemsize, layout.kind == "step") == (width, stepped)
            and (ms := row["ms"] if name == "ours" else row["peers"].get(name))
        ]
        sizes, shares = zip(*points, strict=True) if points else ((), ())
        mark, label = ("x", None) if stepped else ("o", str(width))
        axes.scatter(sizes, shares, s=14, marker=mark, color=colour, label=label)
