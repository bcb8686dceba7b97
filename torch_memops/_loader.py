"""Finds and loads the native libraries, and says what to do when they do not fit PyTorch."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import torch

LIBRARY_DIR = Path(__file__).resolve().parent / "lib"
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


def _cuda_library() -> Path:
    return LIBRARY_DIR / f"libmemops_torch{torch_minor_version()}_cuda.so"


def build_info() -> dict[str, object]:
    """What the kernels were built with: {"cuda": "13.0" or None, "architectures": [...]}.

    Kernels that the libraries for the running PyTorch do not use count as none.
    """
    path = LIBRARY_DIR / "build_info.json"
    info: dict[str, object] = json.loads(path.read_text()) if path.is_file() else {}
    if torch_minor_version() in built_versions() and not _cuda_library().is_file():
        return {"cuda": None, "architectures": []}
    return info


def library_paths() -> list[Path]:
    """The libraries for the running PyTorch, in the order in which a C++ program loads them."""
    candidates = [LIBRARY_DIR / f"libmemops_torch{torch_minor_version()}.so"]
    if build_info().get("cuda") is not None:
        candidates.append(_cuda_library())
    return [path for path in candidates if path.is_file()]


def checkout() -> Path | None:
    """The repository that this package lies in; None where it is installed."""
    root = LIBRARY_DIR.parent.parent
    return root if (root / "setup.py").is_file() and (root / "csrc").is_dir() else None


def installed_elsewhere() -> Path | None:
    """Another torch_memops on the path, which this one hides."""
    here = LIBRARY_DIR.parent
    for entry in sys.path:
        other = Path(entry).resolve() / "torch_memops"
        if other != here and (other / "_loader.py").is_file():
            return other
    return None


def advice() -> str:
    """How the libraries for the running Python and PyTorch come about."""
    root = checkout()
    if root is None:
        return "In a checkout of torch_memops: pip install --no-build-isolation ."
    build = (
        f"cd {shlex.quote(str(root))} && {shlex.quote(sys.executable)} setup.py build_ext --inplace"
    )
    other = installed_elsewhere()
    if other is None:
        return f"Build them: {build}"
    return (
        f"This folder hides the torch_memops installed in {other.parent}: start Python in another "
        f"folder, or build the libraries here too: {build}"
    )


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
        raise ImportError(f"torch_memops: {LIBRARY_DIR} holds no libraries. {advice()}")
    if version not in built:
        raise ImportError(
            f"torch_memops in {LIBRARY_DIR} is built for PyTorch {', '.join(built)}; this is "
            f"PyTorch {torch.__version__}. {advice()}"
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
