"""Devices and dtypes that the tests run on."""

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[2]

DEVICES = (
    pytest.param("cpu", id="cpu"),
    pytest.param("cuda", id="cuda", marks=pytest.mark.cuda),
)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
HALVES = (torch.float16, torch.bfloat16)


def name(dtype: torch.dtype) -> str:
    """The dtype's name without the module, for test ids."""
    return str(dtype).removeprefix("torch.")


def allocatable_dtypes() -> tuple[torch.dtype, ...]:
    """Every dtype of the running PyTorch that a plain, non-quantized tensor can have."""
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    plain = []
    for dtype in sorted(found, key=str):
        if name(dtype).startswith(("qint", "quint")):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # complex32 is announced as experimental
            try:
                torch.empty(1, dtype=dtype)
            except (RuntimeError, TypeError):
                continue
        plain.append(dtype)
    return tuple(plain)


def run_python(
    source: str, *, timeout: float = 120, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `source` in a fresh interpreter that imports the same torch_memops and test helpers."""
    paths = [*filter(None, sys.path), str(REPOSITORY / "tests"), str(REPOSITORY)]
    merged = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        **(environment or {}),
    }
    return subprocess.run(
        [sys.executable, "-c", source],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=merged,
        check=False,
    )


def run_programs(sources: dict[str, str], *, workers: int = 8) -> dict[str, str]:
    """What each program printed (standard error included), several running at a time."""

    def run(source: str) -> str:
        done = run_python(source)
        return done.stdout + done.stderr

    with ThreadPoolExecutor(workers) as pool:
        return dict(zip(sources, pool.map(run, sources.values()), strict=True))


@contextmanager
def fp32_precision(matmul: str | None = None, conv: str | None = None) -> Iterator[None]:
    """Set PyTorch's newer TF32 switches ("ieee" or "tf32") and clear them again."""
    cudnn: Any = torch.backends.cudnn  # its stub lacks `conv`
    try:
        if matmul is not None:
            torch.backends.cuda.matmul.fp32_precision = matmul
        if conv is not None:
            cudnn.conv.fp32_precision = conv
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = "none"
        cudnn.conv.fp32_precision = "none"
