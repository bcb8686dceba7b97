"""Finds and loads the native libraries, and says what to do when they do not fit PyTorch."""

from __future__ import annotations

import json
import re
from pathlib import Path

import torch

LIBRARY_DIR = Path(__file__).resolve().parent / "lib"
REBUILD = "pip install --no-build-isolation ."
OLDEST_TORCH = (2, 11)


def torch_minor_version() -> str:
    """The running PyTorch's minor version: "2.14"."""
    match = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if match is None:
        raise ImportError(f"torch_memops: PyTorch's version {torch.__version__!r} is not readable")
    return f"{match.group(1)}.{match.group(2)}"


def built_versions() -> list[str]:
    """The PyTorch minor versions that adapter libraries are there for, oldest first."""
    names = (re.fullmatch(r"libmemops_torch(\d+\.\d+)\.so", p.name) for p in LIBRARY_DIR.glob("*"))
    found = {match.group(1) for match in names if match}
    return sorted(found, key=lambda version: tuple(map(int, version.split("."))))


def build_info() -> dict[str, object]:
    """What the kernels were built with: {"cuda": "13.0" or None, "architectures": [...]}."""
    path = LIBRARY_DIR / "build_info.json"
    info: dict[str, object] = json.loads(path.read_text()) if path.is_file() else {}
    return info


def library_paths() -> list[Path]:
    """The libraries for the running PyTorch, in the order in which a C++ program loads them."""
    version = torch_minor_version()
    candidates = [
        LIBRARY_DIR / f"libmemops_torch{version}.so",
        LIBRARY_DIR / f"libmemops_torch{version}_cuda.so",
    ]
    return [path for path in candidates if path.is_file()]


def _namespace_is_taken() -> bool:
    return any(name.startswith("memops::") for name in torch._C._dispatch_get_all_op_names())


def load() -> None:
    """Loads the libraries for the running PyTorch; starts no CUDA context.

    Raises ImportError, before anything is loaded, where PyTorch is too old, where the libraries are
    missing or built for another version, and where another library has taken the op namespace.
    """
    version = torch_minor_version()
    if tuple(map(int, version.split("."))) < OLDEST_TORCH:
        raise ImportError(
            f"torch_memops needs PyTorch 2.11 or newer; this is PyTorch {torch.__version__}."
        )
    built = built_versions()
    if not built:
        raise ImportError(f"torch_memops: {LIBRARY_DIR} holds no libraries. Build them: {REBUILD}")
    if version not in built:
        raise ImportError(
            f"torch_memops is built for PyTorch {', '.join(built)}; this is PyTorch "
            f"{torch.__version__}. Build it for this one: {REBUILD}"
        )
    if _namespace_is_taken():
        # A second registration would abort the process.
        raise ImportError(
            "torch_memops: the op namespace 'memops' is taken by a library loaded before; only one "
            "can be in a process."
        )
    for path in library_paths():
        if path.name.endswith("_cuda.so") and torch.version.cuda is None:
            continue
        torch.ops.load_library(str(path))
