"""What a results file says about where it was measured: the GPU and the software, never the place."""

from __future__ import annotations

import datetime
import re
import subprocess
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
CPU_NOTE = "CPU run: the CPU path at reduced sizes, host clock, caches not flushed"


class GpuStatus:
    """Clock and driver of one GPU, through nvidia-ml-py where it is installed, else nvidia-smi."""

    def __init__(self, device: torch.device) -> None:
        properties = torch.cuda.get_device_properties(device)
        self._uuid = f"GPU-{properties.uuid}"
        self._nvml, self._handle = _nvml(self._uuid)

    @property
    def immediate(self) -> bool:
        """Whether reading the clock takes microseconds, not the start of a process."""
        return self._nvml is not None

    def sm_clock_mhz(self) -> int | None:
        if self._nvml is not None:
            return int(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))
        text = self._smi("clocks.sm")
        return int(text) if text and text.isdigit() else None

    def driver(self) -> str | None:
        if self._nvml is not None:
            return str(self._nvml.nvmlSystemGetDriverVersion())
        return self._smi("driver_version")

    def _smi(self, query: str) -> str | None:
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
        try:
            answer = subprocess.run(
                [*command, f"--id={self._uuid}"], capture_output=True, text=True, timeout=20
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return answer.stdout.strip() if answer.returncode == 0 else None


def _nvml(uuid: str) -> tuple[Any, Any]:
    """nvidia-ml-py's module and its handle of the GPU; (None, None) where it cannot tell."""
    try:
        import pynvml
    except ImportError:
        return None, None
    try:
        pynvml.nvmlInit()
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError:
        return None, None


def commit() -> str | None:
    """The commit of the working tree, with -dirty where it differs; None outside a repository."""
    try:
        answer = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--exclude=*"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=20,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() or None


def describe(
    device: torch.device, status: GpuStatus | None, commit_name: str | None
) -> dict[str, Any]:
    """The environment part of a results file; the runner fills in `sm_clock_mhz`."""
    common = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "commit": commit_name or commit(),
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }
    if status is None:
        return {"gpu": None, "cpu": _cpu_model(), "note": CPU_NOTE, "driver": None, **common}
    gpu = torch.cuda.get_device_name(device)
    cudnn = torch.backends.cudnn.version()
    return {"gpu": gpu, "driver": status.driver(), **common, "cudnn": cudnn, "sm_clock_mhz": []}


def folder(environment: dict[str, Any]) -> str:
    """Where results of this hardware lie: 'NVIDIA H200' -> 'h200'; a CPU run -> 'cpu'."""
    if environment["gpu"] is None:
        return "cpu"
    name = re.sub(r"^nvidia\s+", "", environment["gpu"].lower())
    return re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "unknown"
