"""`memops doctor`: gathers the facts, prints what fits and what does not, and the fix."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from memops_cli.diagnosis import Facts, Finding, Gpu, diagnose, version_pair

PROBE = Path(__file__).with_name("probe.py")
PROBE_SECONDS = 180


def query_nvidia_smi() -> tuple[list[Gpu], str | None]:
    """The GPUs and the driver's version as nvidia-smi names them; nothing where it is missing."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return [], None
    query = "--query-gpu=name,compute_cap,memory.total,driver_version"
    try:
        answer = subprocess.run(
            [program, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return [], None
    gpus: list[Gpu] = []
    driver: str | None = None
    for line in answer.stdout.splitlines() if answer.returncode == 0 else []:
        # The name may hold commas; what a driver does not know it gives as "[N/A]".
        match = re.fullmatch(r"(.+), (\d+\.\d+), (\d+), (\S+)", line.strip())
        if match is not None:
            name, capability, megabytes, driver = match.groups()
            gpus.append(Gpu(name, version_pair(capability), int(megabytes) * 2**20))
    return gpus, driver


def run_probe(facts: Facts) -> None:
    """Imports PyTorch and torch_memops in a child process and fills in what they report."""
    search = os.pathsep.join(filter(None, sys.path))
    environment = dict(os.environ, PYTHONPATH=search, PYTHONSAFEPATH="1")
    try:
        child = subprocess.run(
            [sys.executable, str(PROBE)],
            capture_output=True,
            text=True,
            env=environment,
            timeout=PROBE_SECONDS,
        )
        output, ending = child.stdout, child.returncode
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        ending = None
    for line in output.splitlines():
        if line.startswith("{"):
            take_report(facts, json.loads(line))
    if ending == 0:
        return
    if ending is None:
        death = f"no answer within {PROBE_SECONDS} s"
    elif ending < 0:
        death = f"the process was killed by {signal.Signals(-ending).name}"
    else:
        death = f"the process ended with exit status {ending}"
    if facts.torch is None:
        facts.torch_error = facts.torch_error or death
    elif not facts.imported:
        facts.import_error = facts.import_error or death
    else:
        facts.trials["the last device"] = death


def take_report(facts: Facts, report: dict[str, Any]) -> None:
    """One line of the probe's; the names are those of the facts, but for "torch_gpus" and "trial"."""
    for name in report.keys() & {field.name for field in dataclasses.fields(Facts)}:
        setattr(facts, name, report[name])
    if "torch_gpus" in report:
        facts.torch_sees_gpus = bool(report["torch_gpus"])
        if not facts.gpus:
            facts.gpus = [
                Gpu(name, version_pair(capability), memory)
                for name, capability, memory in report["torch_gpus"]
            ]
    if "trial" in report:
        device, problem = report["trial"]
        facts.trials[device] = problem


def gather() -> Facts:
    facts = Facts(f"{platform.python_version()}, {sys.executable}", sys.executable)
    facts.gpus, facts.driver = query_nvidia_smi()
    run_probe(facts)
    return facts


def show(findings: list[Finding], console: Console) -> None:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    signs = {"ok": ("ok", "green"), "note": ("note", "yellow"), "mismatch": ("FAIL", "bold red")}
    for finding in findings:
        sign, style = signs[finding.state]
        text = Text(finding.value)
        if finding.fix:
            text.append(f"\nfix: {finding.fix}", style="bold")
        table.add_row(Text(sign, style=style), finding.subject, text)
    console.print(table)


@click.command()
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Check GPU, driver, CUDA, PyTorch and the built library, and whether they fit.

    The exit status is 0 where everything fits (a machine without a GPU and a library for the CPU
    fit, too), and 1 where something does not.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    findings = diagnose(gather())
    show(findings, console)
    wrong = sum(finding.state == "mismatch" for finding in findings)
    if wrong:
        console.print(f"\n{wrong} {'thing does' if wrong == 1 else 'things do'} not fit.")
        ctx.exit(1)
    console.print("\nEverything fits.")
