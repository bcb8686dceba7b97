"""The demo's results as a table on the console and as a page that needs no network."""

from __future__ import annotations

import datetime
import importlib.resources
import platform
from dataclasses import dataclass
from pathlib import Path

import jinja2
import torch
from rich.table import Table
from rich.text import Text

from torch_memops.demo import figures
from torch_memops.demo.measure import Floor, Row
from torch_memops.demo.photograph import DTYPE_NAMES, Picture
from torch_memops.demo.training import History, accuracy_noise

NEEDS_GPU = (
    "the library's CUDA kernels: here every op ran its CPU path, and times and shares of the "
    "floor are the CPU's",
    "the photograph as a mosaic of 8 x 8, and the bf16 rows of the network's layers",
)


@dataclass(frozen=True)
class Outcome:
    """Everything the demo found; `failures` is empty where all of it is right, and `ours` None
    where the training with our layers raised."""

    device: torch.device
    floor: Floor
    rows: list[Row]
    pictures: list[Picture]
    ours: History | None
    theirs: History
    failures: list[str]


def device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor() or platform.machine()
    return f"{name}, {torch.get_num_threads()} threads"


def with_prefix(value: float, unit: str) -> str:
    """1.5e9, "B/s" -> "1.50 GB/s"; giga is the smallest prefix, so that columns compare."""
    if value >= 1e12:
        return f"{value / 1e12:.2f} T{unit}"
    return f"{value / 1e9:.2f} G{unit}"


def format_ms(ms: float | None) -> str:
    return "" if ms is None else f"{ms:.4f} ms" if ms < 1 else f"{ms:.2f} ms"


def format_rate(row: Row) -> str:
    return "" if row.rate is None else with_prefix(row.rate, row.rate_unit)


def format_share(row: Row) -> str:
    return "" if row.share is None else f"{row.share:.0%}"


def format_error(row: Row) -> str:
    if row.failure is not None:
        return row.failure
    return "equal" if row.error == 0 else f"{row.error:.1e}"


def floor_lines(floor: Floor) -> list[str]:
    lines = [f"plain copy {with_prefix(floor.copy_rate, 'B/s')} (read plus written)"]
    lines += [
        f"torch.matmul {DTYPE_NAMES[dtype]} {with_prefix(rate, 'FLOP/s')}"
        for dtype, rate in floor.matmul_rate.items()
    ]
    return lines


def console_table(rows: list[Row]) -> Table:
    table = Table(title="Every op against PyTorch", title_justify="left")
    table.add_column("op", no_wrap=True)
    table.add_column("shape", overflow="fold")
    table.add_column("error")
    for name in ("torch_memops", "PyTorch", "rate", "of floor"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        error = format_error(row)
        if row.against != "PyTorch":
            error += f" ({row.against})"
        table.add_row(
            row.op,
            row.shape,
            Text(error, style="bold red" if row.failure else "green"),
            format_ms(row.ours_ms),
            format_ms(row.reference_ms),
            format_rate(row),
            format_share(row),
        )
    return table


def write_report(path: Path, outcome: Outcome) -> None:
    text = importlib.resources.files("torch_memops.demo").joinpath("report.html").read_text()
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(
        ms=format_ms, rate=format_rate, share=format_share, error=format_error
    )
    page = environment.from_string(text).render(
        outcome=outcome,
        date=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
        device=device_name(outcome.device),
        torch_version=torch.__version__,
        floor=floor_lines(outcome.floor),
        needs_gpu=NEEDS_GPU if outcome.device.type == "cpu" else (),
        pictures=[(p.title, figures.encode_picture(p.pixels)) for p in outcome.pictures],
        losses=figures.plot_losses(outcome.ours, outcome.theirs) if outcome.ours else None,
        noise=accuracy_noise(outcome.theirs.accuracy),
        times=figures.plot_times(outcome.rows),
        shares=figures.plot_shares(outcome.rows),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
