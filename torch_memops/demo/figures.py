"""The report's pictures and plots, each as the base64 text of a PNG."""

from __future__ import annotations

import base64
import io

from matplotlib.figure import Figure
from matplotlib.image import imsave
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from torch_memops.demo.measure import Row
from torch_memops.demo.training import History

OURS, THEIRS = "#1f6f8b", "#c56b3a"


def encode_picture(pixels: Tensor) -> str:
    """A picture, [H, W, 3] in 0 to 1."""
    buffer = io.BytesIO()
    imsave(buffer, (pixels * 255).round().byte().numpy(), format="png")
    return base64.b64encode(buffer.getvalue()).decode()


def encode_figure(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110, bbox_inches="tight")
    return base64.b64encode(buffer.getvalue()).decode()


def plot_losses(ours: History, theirs: History) -> str:
    figure = Figure(figsize=(9, 3.4))
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, history, name, colour in (
        (left, theirs, "torch.nn", THEIRS),
        (right, ours, "torch_memops.nn", OURS),
    ):
        epochs = range(1, len(history.losses) + 1)
        axes.plot(epochs, history.losses, color=colour, marker="o", markersize=3)
        axes.set_title(f"{name}: test accuracy {history.accuracy:.1%}")
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_yscale("log")
        axes.grid(True, alpha=0.3)
    left.set_ylabel("training loss (cross entropy)")
    return encode_figure(figure)


def plot_times(rows: list[Row]) -> str:
    """Time of ours and of PyTorch, one pair of bars a row, logarithmic."""
    timed = [row for row in rows if row.ours_ms and row.reference_ms]
    figure = Figure(figsize=(9, 0.42 * len(timed) + 1))
    axes = figure.subplots()
    places = range(len(timed))
    axes.barh([p - 0.2 for p in places], [row.ours_ms or 0 for row in timed], 0.38,
              color=OURS, label="torch_memops")  # fmt: skip
    axes.barh([p + 0.2 for p in places], [row.reference_ms or 0 for row in timed], 0.38,
              color=THEIRS, label="PyTorch")  # fmt: skip
    _finish(figure, timed)
    if timed:
        axes.set_xscale("log")
    axes.set_xlabel("time, ms (logarithmic; shorter is better)")
    axes.legend()
    return encode_figure(figure)


def plot_shares(rows: list[Row]) -> str:
    """The share of the floor that each row reaches, in percent."""
    timed = [row for row in rows if row.share is not None]
    figure = Figure(figsize=(9, 0.36 * len(timed) + 1))
    axes = figure.subplots()
    axes.barh(range(len(timed)), [100 * (row.share or 0) for row in timed], 0.6, color=OURS)
    _finish(figure, timed)
    axes.axvline(100, color="black", linewidth=1)
    axes.set_xlabel("share of the floor, %")
    return encode_figure(figure)


def _finish(figure: Figure, rows: list[Row]) -> None:
    (axes,) = figure.axes
    axes.set_yticks(range(len(rows)), [f"{row.op}  {row.shape}" for row in rows], fontsize=7)
    axes.invert_yaxis()
    axes.grid(True, axis="x", alpha=0.3)
