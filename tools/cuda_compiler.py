"""Which nvcc the kernels are built with; setup.py and tools/set_up.py ask here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

CUDA_VERSION = "13.0"


def candidates() -> list[Path]:
    """Every nvcc of CUDA_HOME, the PATH and PyPI's nvidia packages, in this order."""
    found = [
        Path(os.environ["CUDA_HOME"]) / "bin/nvcc" if "CUDA_HOME" in os.environ else None,
        Path(on_path).resolve() if (on_path := shutil.which("nvcc")) else None,
        Path(sysconfig.get_path("platlib")) / "nvidia/cu13/bin/nvcc",
    ]
    return [path for path in found if path is not None and path.is_file()]


def version_of(nvcc: Path) -> str | None:
    """ "13.0"; None where the program does not say."""
    try:
        answer = subprocess.run([nvcc, "--version"], capture_output=True, text=True)
    except OSError:
        return None
    release = re.search(r"release (\d+\.\d+),", answer.stdout)
    return release.group(1) if release else None


def _real_path(nvcc: Path) -> Path:
    """A launcher script on the PATH hides where the toolkit is; nvcc itself knows."""
    dry_run = subprocess.run(
        [nvcc, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"],
        capture_output=True,
        text=True,
    )
    top = re.search(r"^#\$ TOP=(.+)$", dry_run.stderr, re.MULTILINE)
    return (Path(top.group(1)).resolve() if top else nvcc.parent.parent) / "bin/nvcc"


def find_nvcc() -> tuple[Path | None, str]:
    """The first nvcc of the right version, and in words what was found.

    An nvcc of another version is passed over: plans, tests and the compiler's reports are for 13.0.
    """
    passed_over = []
    for nvcc in candidates():
        version = version_of(nvcc)
        if version == CUDA_VERSION:
            path = _real_path(nvcc)
            return path, f"nvcc {version}, {path}"
        passed_over.append(f"{nvcc} is {version or 'of unknown version'}")
    others = f" ({'; '.join(passed_over)})" if passed_over else ""
    return None, f"no nvcc {CUDA_VERSION} in CUDA_HOME, on the PATH or from PyPI{others}"
