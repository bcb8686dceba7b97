"""Builds the native libraries with CMake; everything static is in pyproject.toml.

Environment: MEMOPS_CUDA=1/0 forces or forbids the CUDA kernels (default: build them when nvcc 13.0
is found and the installed PyTorch is a CUDA build), TORCH_CUDA_ARCH_LIST narrows the architectures
("8.0;9.0a;8.0+PTX"), MAX_JOBS bounds the compilers running at once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
DEFAULT_ARCHITECTURES = ["80", "90a", "80-virtual"]
MEMORY_PER_JOB_GB = 3


def torch_location() -> tuple[Path, str, str | None]:
    """The installed torch package's folder, its version and its CUDA version, without importing it."""
    import importlib.util

    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        sys.exit(
            "torch_memops is built against the PyTorch that is installed, and none is.\n"
            "Install PyTorch 2.11 or newer, then: pip install --no-build-isolation ."
        )
    folder = Path(spec.origin).parent
    text = (folder / "version.py").read_text()
    version = re.search(r"__version__ = '([^']+)'", text)
    cuda = re.search(r"^cuda: .*= '([^']+)'", text, re.MULTILINE)
    if version is None:
        sys.exit(f"{folder}/version.py names no version")
    return folder, version.group(1), cuda.group(1) if cuda else None


def find_nvcc() -> str | None:
    """nvcc from CUDA_HOME, the PATH or PyPI's nvidia packages; None where there is none."""
    candidates = [
        Path(os.environ["CUDA_HOME"]) / "bin/nvcc" if "CUDA_HOME" in os.environ else None,
        Path(found).resolve() if (found := shutil.which("nvcc")) else None,
        Path(sysconfig.get_path("platlib")) / "nvidia/cu13/bin/nvcc",
    ]
    for candidate in candidates:
        if candidate is not None and candidate.is_file():
            # A launcher script on the PATH hides where the toolkit is; nvcc itself knows.
            dry_run = subprocess.run(
                [candidate, "--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null"],
                capture_output=True,
                text=True,
            )
            top = re.search(r"^#\$ TOP=(.+)$", dry_run.stderr, re.MULTILINE)
            home = Path(top.group(1)).resolve() if top else candidate.parent.parent
            return str(home / "bin/nvcc")
    return None


def architectures() -> list[str]:
    """CMake's architecture list from TORCH_CUDA_ARCH_LIST ("8.0;9.0a+PTX"), or the default."""
    wanted = os.environ.get("TORCH_CUDA_ARCH_LIST", "").replace(" ", ";")
    result = []
    for entry in filter(None, wanted.split(";")):
        match = re.fullmatch(r"(\d+)\.(\d)(a?)(\+PTX)?", entry)
        if match is None:
            sys.exit(f"TORCH_CUDA_ARCH_LIST: {entry!r} is not of the form 9.0a or 8.0+PTX")
        name = "".join(match.group(1, 2, 3))
        result += [name] + ([f"{name}-virtual"] if match.group(4) else [])
    return result or DEFAULT_ARCHITECTURES


def jobs() -> int:
    """Compilers at once: MAX_JOBS, else as many as cores and memory allow."""
    if "MAX_JOBS" in os.environ:
        return max(1, int(os.environ["MAX_JOBS"]))
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(1, min(len(os.sched_getaffinity(0)), int(memory_gb / MEMORY_PER_JOB_GB)))


def run(command: list[str], stdout: int | None = None) -> None:
    """Runs a build step; its own output tells what went wrong, so no traceback follows it."""
    # CMake and Ninja may be installed beside the Python that runs this, and that not be on the PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    if subprocess.run(command, stdout=stdout, env=os.environ | {"PATH": path}).returncode != 0:
        sys.exit(f"torch_memops: the build stopped at: {' '.join(command[:3])} ...")


class CMakeBuild(build_ext):
    """Configures and builds CMakeLists.txt into torch_memops/lib (in place or in the wheel)."""

    def run(self) -> None:
        torch_dir, version, torch_cuda = torch_location()
        minor = ".".join(version.split(".")[:2])
        nvcc = find_nvcc()
        wanted = os.environ.get("MEMOPS_CUDA")
        with_cuda = wanted == "1" if wanted else nvcc is not None and torch_cuda is not None
        if with_cuda and nvcc is None:
            sys.exit("MEMOPS_CUDA=1, but no nvcc is on the PATH, in CUDA_HOME or from PyPI")
        if with_cuda and torch_cuda is None:
            sys.exit(f"MEMOPS_CUDA=1, but PyTorch {version} is built without CUDA")
        print(f"torch_memops: PyTorch {version}, " + (nvcc if with_cuda and nvcc else "CPU only"))

        package = ROOT if self.inplace or self.editable_mode else Path(self.build_lib).resolve()
        output = package / "torch_memops/lib"
        build = ROOT / "build" / ("cuda" if with_cuda else "cpu")
        configure = [
            "cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", "-Wno-deprecated",
            f"-DMEMOPS_OUTPUT_DIR={output}",
            f"-DMEMOPS_TORCH_DIR={torch_dir}",
            f"-DMEMOPS_TORCH_VERSION={minor}",
            f"-DMEMOPS_CUDA={'ON' if with_cuda else 'OFF'}",
            f"-DMEMOPS_NVCC={nvcc if with_cuda else ''}",
            f"-DMEMOPS_CUDA_ARCHITECTURES={';'.join(architectures())}",
        ]  # fmt: skip
        run(configure, stdout=subprocess.DEVNULL)
        run(["cmake", "--build", str(build), "--parallel", str(jobs())])
        info = {
            "cuda": torch_cuda if with_cuda else None,
            "architectures": architectures() if with_cuda else [],
        }
        (output / "build_info.json").write_text(json.dumps(info, indent=2) + "\n")


class PlatformWheel(bdist_wheel):
    """Tags the wheel for this platform and every Python: the libraries hold no Python API."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


setup(
    ext_modules=[Extension("torch_memops.lib", sources=[])],
    cmdclass={"build_ext": CMakeBuild, "bdist_wheel": PlatformWheel},
)
