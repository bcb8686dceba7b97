"""`memops demo`: runs everything, prints the table, writes the report."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

import torch_memops
import torch_memops.nn
from torch_memops.demo.measure import (
    OP_ERRORS,
    Clock,
    Comparison,
    describe_error,
    measure_floor,
)
from torch_memops.demo.photograph import Photograph, load_photograph
from torch_memops.demo.report import (
    NEEDS_GPU,
    Outcome,
    console_table,
    device_name,
    floor_lines,
    write_report,
)
from torch_memops.demo.training import History, accuracy_noise, disagreement, train

GPU_MOSAIC = 8
QUICK_CROP = (120, 160)
EPOCHS, QUICK_EPOCHS = 15, 2


def choose_device(name: str | None) -> torch.device:
    if name == "cuda" and not torch_memops.cuda_available():
        raise click.UsageError(
            "--device cuda: the library has no CUDA kernels here, or PyTorch sees no GPU; "
            "`memops doctor` says which"
        )
    return torch.device(name or ("cuda" if torch_memops.cuda_available() else "cpu"))


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """f32 products without TF32, for PyTorch's ops and ours alike."""
    cudnn: Any = torch.backends.cudnn
    # cuDNN's two settings must agree, or the older getters (allow_tf32) raise.
    settings: list[Any] = [torch.backends.cuda.matmul, cudnn.conv, cudnn.rnn]
    before = [setting.fp32_precision for setting in settings]
    try:
        for setting in settings:
            setting.fp32_precision = "ieee"
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.fp32_precision = value


def run_demo(device: torch.device, quick: bool, progress: Progress) -> Outcome:
    """Every op on the photograph, then both trainings."""
    dtypes = [torch.float32] + [torch.bfloat16] * (device.type == "cuda")
    with full_precision():
        with torch.no_grad():
            task = progress.add_task("the machine's floor", total=1)
            clock = Clock(device, quick)
            floor = measure_floor(clock, dtypes)
            progress.advance(task)
            mosaic = GPU_MOSAIC if device.type == "cuda" and not quick else 1
            photo = load_photograph(mosaic, QUICK_CROP if quick else None)
            comparison = Comparison(clock, floor)
            photograph = Photograph(photo, device, comparison)
            parts = list(photograph.parts())
            task = progress.add_task("the photograph", total=len(parts))
            for name, work in parts:
                progress.update(task, description=f"the photograph: {name}")
                work()
                progress.advance(task)
            progress.update(task, description="the photograph through every op")
        epochs = QUICK_EPOCHS if quick else EPOCHS
        failures = [
            f"{row.op} ({row.shape}) against {row.against}: {row.failure}"
            for row in comparison.rows
            if row.failure is not None
        ]
        theirs = _train(torch.nn, device, epochs, progress)
        ours = None
        try:
            ours = _train(torch_memops.nn, device, epochs, progress)
        except OP_ERRORS as error:
            failures.append(f"training with torch_memops.nn: {describe_error(error)}")
        if ours is not None and (difference := disagreement(ours, theirs)) is not None:
            failures.append(difference)
    return Outcome(device, floor, comparison.rows, photograph.pictures, ours, theirs, failures)


def _train(layers: ModuleType, device: torch.device, epochs: int, progress: Progress) -> History:
    name = f"training with {layers.__name__}"
    task = progress.add_task(name, total=epochs)

    def after_epoch(loss: float) -> None:
        progress.update(task, advance=1, description=f"{name}: loss {loss:.4f}")

    return train(layers, device, epochs, after_epoch)


def print_outcome(outcome: Outcome, console: Console) -> None:
    console.print(console_table(outcome.rows))
    console.print("Floor: " + ", ".join(floor_lines(outcome.floor)))
    if any(row.rate_unit == "B/s" and (row.share or 0) > 1 for row in outcome.rows):
        console.print(
            "A share above 100 % means that the data stayed in a cache, or, by a few per cent, "
            "noise of the clock."
        )
    theirs, ours = outcome.theirs, outcome.ours
    text = f"Training: test accuracy {theirs.accuracy:.1%} with torch.nn ({theirs.seconds:.1f} s)"
    if ours is not None:
        text += f", {ours.accuracy:.1%} with torch_memops.nn ({ours.seconds:.1f} s)"
    console.print(f"{text}; up to {accuracy_noise(theirs.accuracy):.1%} is noise")
    if outcome.device.type == "cpu":
        console.print("A GPU is needed for:")
        for line in NEEDS_GPU:
            console.print(f"  - {line}")


@click.command()
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out"),
    show_default=True,
    help="Folder for report.html.",
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda where it works, else cpu."
)
@click.option("--quick", is_flag=True, help="A crop of the photograph, few runs, two epochs.")
@click.pass_context
def demo(ctx: click.Context, out: Path, device: str | None, quick: bool) -> None:
    """Run every op on a photograph and train a small model, each against PyTorch.

    Prints one table and writes report.html into the folder OUT. The exit status is 1 where a result
    does not agree with PyTorch's, or the blur with scipy.ndimage's.
    """
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    chosen = choose_device(device)
    console.print(f"{device_name(chosen)}, PyTorch {torch.__version__}")
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        try:
            outcome = run_demo(chosen, quick, progress)
        except torch.OutOfMemoryError as error:
            raise click.ClickException(
                "the GPU has too little free memory (8 GB are enough); --quick needs 3 GB"
            ) from error
        task = progress.add_task("report", total=1)
        path = out / "report.html"
        try:
            write_report(path, outcome)
        except OSError as error:
            raise click.ClickException(f"cannot write {path}: {error.strerror}") from error
        progress.advance(task)
    print_outcome(outcome, console)
    console.print(f"Report: {escape(str(path))}")
    if outcome.failures:
        console.print(f"\n{len(outcome.failures)} of the results do not agree:", style="bold red")
        for failure in outcome.failures:
            console.print(f"  - {escape(failure)}")
        ctx.exit(1)
    console.print("Every result agrees with PyTorch's, and the blur with scipy.ndimage's.")
