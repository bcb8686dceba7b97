"""Fills the running virtual environment with what the project needs; called by the Makefile.

Usage: set_up.py TORCH_REQUIREMENT

Installs PyTorch, the build tools, the native libraries' build and the project itself (editable)
with everything that `make run`, `make test` and `make lint` use. Where there is a GPU, or
MEMOPS_CUDA=1, and no nvcc 13.0, the compiler comes from PyPI (MEMOPS_CUDA=0: never). What is there
already is kept.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import subprocess
import sys
from pathlib import Path

from cuda_compiler import CUDA_VERSION, find_nvcc

ROOT = Path(__file__).resolve().parent.parent
BUILD_TOOLS = ["setuptools>=77,<83", "wheel", "cmake>=3.25,<5", "ninja>=1.11,<2"]
CUDA_COMPILER = [
    f"{package}=={CUDA_VERSION}.*"
    for package in (
        "nvidia-cuda-nvcc",
        "nvidia-cuda-crt",
        "nvidia-nvvm",
        "nvidia-cuda-runtime",
        "nvidia-cuda-cccl",
    )
]


def pip_install(*requirements: str) -> None:
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    if subprocess.run([*command, *requirements], cwd=ROOT).returncode != 0:
        sys.exit(f"set_up: pip could not install {' '.join(requirements)}")


def cuda_compiler() -> None:
    """Installs nvcc where it is wanted and missing; says what there is."""
    wanted = os.environ.get("MEMOPS_CUDA", "")
    if wanted not in ("", "1"):
        print(f"not needed: MEMOPS_CUDA={wanted}")
        return
    nvcc, found = find_nvcc()
    print(found)
    if nvcc is not None:
        return
    if wanted == "1" or Path("/dev/nvidiactl").exists():
        pip_install(*CUDA_COMPILER)
    else:
        print("no GPU either: the CPU operators alone are built (MEMOPS_CUDA=1 builds all)")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    torch = sys.argv[1]
    if importlib.util.find_spec("pip") is None:
        sys.exit(
            f"set_up: {sys.prefix} has no pip: the environment was left half-made. Delete it and "
            f"run make again: rm -rf {shlex.quote(sys.prefix)}"
        )
    print(f"[1/4] PyTorch ({torch}) and the build tools", flush=True)
    pip_install(torch, *BUILD_TOOLS)

    print("[2/4] CUDA compiler", flush=True)
    cuda_compiler()

    print("[3/4] Native libraries", flush=True)
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    if subprocess.run(build, cwd=ROOT).returncode != 0:
        sys.exit("set_up: the native libraries did not build")

    print("[4/4] torch_memops and its tools", flush=True)
    pip_install("--no-build-isolation", "-e", ".[demo,test,lint]", torch)


if __name__ == "__main__":
    main()
