"""`memops bench`: runs suites of cases, shows them, compares them, writes their results."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import torch_memops

from . import environment, report, sweep
from .cases import SUITES, SWEEPS, build, of_suite
from .measure import Bench, Options
from .results import PARTIAL, RESULTS, Results, ResultsError, compare
from .tables import line, moves_table, suite_table
from .workload import PEER_GROUPS, Case

DEFAULT_PEERS = tuple(group for group in PEER_GROUPS if group != "compile")
SECONDS, SWEEP_SECONDS, QUICK_SECONDS = 0.5, 0.2, 0.05
CPU_LIMIT, QUICK_CPU_LIMIT = 2**20, 2**14
TABLE_WIDTH = 200  # where the output is no terminal


@dataclass(frozen=True)
class Plan:
    """What one invocation measures, and for how long."""

    cases: dict[str, list[Case]]
    options: dict[str, Options]
    limit: int | None
    deadline: float | None
    commit: str | None
    partial: bool
    out: Path | None

    def path(self, suite: str, folder: str) -> Path:
        """Where the suite's results go; a part of a suite never replaces the whole one's file."""
        if self.out is not None and self.out.suffix == ".json":
            return self.out
        parent = self.out if self.out is not None else RESULTS / folder
        return parent / f"{suite}{PARTIAL if self.partial else ''}.json"


def run_suite(suite: str, plan: Plan, bench: Bench, console: Console) -> tuple[Results, Path]:
    """Measures a suite's cases; the file is complete after every case, whatever happens next."""
    cases = plan.cases[suite]
    about = environment.describe(bench.device, bench.status, plan.commit)
    path = plan.path(suite, environment.folder(about))
    results = Results(about, [], [case.id for case in cases])
    longest = 0.0
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task(suite, total=len(cases))
        if bench.status is not None:
            about["sm_clock_mhz"] = [bench.status.sm_clock_mhz()]
        for case in cases:
            started = time.monotonic()
            if plan.deadline is not None and started + longest > plan.deadline:
                break
            progress.update(task, description=case.id)
            row = bench.measure(case, build(case, plan.limit), plan.options[suite])
            results.cases.append(row)
            results.left_out.remove(case.id)
            about["peak_tflops"] = {n: round(rate, 1) for n, rate in bench.peaks.tflops.items()}
            about["notes"] = bench.notes
            results.write(path)
            longest = max(longest, time.monotonic() - started)
            progress.advance(task)
            if not console.is_terminal:
                _say(console, line(row))
    if bench.status is not None and results.cases:
        about["sm_clock_mhz"].append(bench.status.sm_clock_mhz())
        results.write(path)
    return results, path


def _peers(context: click.Context, parameter: click.Parameter, value: str) -> frozenset[str]:
    names = [name for name in value.split(",") if name]
    if names == ["all"]:
        return frozenset(PEER_GROUPS)
    if names == ["none"]:
        return frozenset()
    unknown = [name for name in names if name not in PEER_GROUPS]
    if unknown:
        raise click.BadParameter(
            f"unknown: {', '.join(unknown)}; known: {', '.join(PEER_GROUPS)}, all, none"
        )
    return frozenset(names)


def _suites(context: click.Context, parameter: click.Parameter, value: Sequence[str]) -> list[str]:
    known = [*SUITES, *SWEEPS]
    unknown = [name for name in value if name not in known]
    if unknown:
        raise click.BadParameter(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    return list(dict.fromkeys(value)) or list(SUITES)


def _pattern(context: click.Context, parameter: click.Parameter, value: str) -> re.Pattern[str]:
    try:
        return re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"not a regular expression: {error}") from error


def _select(suites: Sequence[str], pattern: re.Pattern[str]) -> dict[str, list[Case]]:
    chosen = {s: [c for c in of_suite(s) if pattern.search(c.id)] for s in suites}
    chosen = {suite: cases for suite, cases in chosen.items() if cases}
    if not chosen:
        raise click.UsageError(
            f"no case of {', '.join(suites)} matches {pattern.pattern!r}; --list shows the ids"
        )
    return chosen


def _device(name: str | None) -> torch.device:
    if name == "cuda" and not torch_memops.cuda_available():
        raise click.UsageError("no CUDA run here: `memops doctor` says what is missing")
    if name is None:
        name = "cuda" if torch_memops.cuda_available() else "cpu"
    return torch.device(name)


def _seconds(suite: str, quick: bool) -> float:
    """Of rounds a case."""
    return QUICK_SECONDS if quick else SWEEP_SECONDS if suite in SWEEPS else SECONDS


def _earlier(path: Path | None, suites: Sequence[str]) -> dict[str, Results]:
    """The earlier results by suite: one file, or a folder of <suite>.json."""
    if path is None:
        return {}
    if path.is_dir():
        files = {s: path / f"{s}.json" for s in suites if (path / f"{s}.json").exists()}
        if not files:
            raise click.UsageError(f"{path} holds no results of {', '.join(suites)}")
    elif len(suites) > 1:
        raise click.UsageError("--compare with several suites takes a folder of results")
    else:
        files = {suites[0]: path}
    try:
        return {suite: Results.read(file) for suite, file in files.items()}
    except ResultsError as error:
        raise click.UsageError(str(error)) from error


@click.command()
@click.argument("suites", nargs=-1, callback=_suites, metavar="[SUITE]...")
@click.option(
    "--filter",
    "pattern",
    default="",
    callback=_pattern,
    metavar="REGEX",
    help="Only the cases whose id matches.",
)
@click.option(
    "--peers",
    default=",".join(DEFAULT_PEERS),
    show_default=True,
    callback=_peers,
    help=f"Comma-separated groups of {', '.join(PEER_GROUPS)}; all; none. compile takes minutes.",
)
@click.option("--quick", is_flag=True, help="Few rounds; on the CPU also small sizes.")
@click.option(
    "--compare",
    "old",
    type=click.Path(exists=True, path_type=Path),
    metavar="OLD.json",
    help="Say what moved since these results (a file, or a folder of suites).",
)
@click.option(
    "--time-budget",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Start no case that would end later than this.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A folder for <suite>.json, or with one suite a .json file.",
)
@click.option(
    "--device", type=click.Choice(["cuda", "cpu"]), help="Default: the GPU if there is one."
)
@click.option("--commit", help="The commit to record where the tree is no git repository.")
@click.option("--list", "listing", is_flag=True, help="Print the ids that would run.")
@click.option(
    "--update-readme",
    is_flag=True,
    help="Rewrite tables and plots from the committed results; measures nothing.",
)
def bench(
    suites: list[str],
    pattern: re.Pattern[str],
    peers: frozenset[str],
    quick: bool,
    old: Path | None,
    time_budget: float | None,
    out: Path | None,
    device: str | None,
    commit: str | None,
    listing: bool,
    update_readme: bool,
) -> None:
    """Time the ops beside their peers: copy, gather, conv1d, matmul (default: all four).

    The suite layouts, a sweep of generated layouts, runs when it is named.
    """
    if update_readme:
        _update_readme()
        return
    chosen = _select(suites, pattern)
    if listing:
        click.echo("\n".join(case.id for cases in chosen.values() for case in cases))
        return
    if out is not None and out.suffix == ".json" and len(chosen) > 1:
        raise click.UsageError("--out with several suites takes a folder")
    earlier = _earlier(old, list(chosen))
    target = _device(device)
    plan = Plan(
        cases=chosen,
        options={suite: Options(_seconds(suite, quick), peers) for suite in chosen},
        limit=None if target.type == "cuda" else QUICK_CPU_LIMIT if quick else CPU_LIMIT,
        deadline=None if time_budget is None else time.monotonic() + time_budget,
        commit=commit,
        partial=quick or bool(pattern.pattern),
        out=out,
    )
    if not _run(plan, target, earlier):
        sys.exit(1)


def _run(plan: Plan, device: torch.device, earlier: dict[str, Results]) -> bool:
    """Whether no case failed."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_WIDTH)
    device_bench = Bench.on(device)
    if device.type == "cpu":
        _say(console, environment.CPU_NOTE)
    failed = 0
    for suite, cases in plan.cases.items():
        results, path = run_suite(suite, plan, device_bench, console)
        if results.cases:
            console.print(suite_table(suite, results, cases))
            _say(console, f"written: {path}")
            if suite in SWEEPS and results.environment["gpu"]:
                for text in sweep.summary(results, cases):
                    _say(console, text)
        if suite in earlier:
            moves = compare(earlier[suite], results, [case.id for case in cases])
            console.print(moves_table(f"{suite}: moved beyond the spread", moves))
        if results.left_out:
            _say(console, f"{suite}: out of time, left out: {', '.join(results.left_out)}")
        for row in results.cases:
            if "failed" in row:
                failed += 1
                _say(console, f"failed: {line(row)}")
    for note in device_bench.notes:
        _say(console, note)
    return failed == 0


def _say(console: Console, text: str) -> None:
    """A line as it is: not wrapped, not read as markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _update_readme() -> None:
    try:
        written = report.update(report.README, RESULTS)
    except report.MarkersMissing as error:
        raise click.UsageError(str(error)) from error
    for path in written:
        click.echo(f"written: {path}")


def main(args: Sequence[str] | None = None) -> None:
    """`memops bench` with these arguments (default: the process's); exits."""
    bench.main(args=None if args is None else list(args), prog_name="memops bench")


if __name__ == "__main__":
    main()
