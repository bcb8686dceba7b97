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
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "tools"))

from cuda_compiler import find_nvcc  # noqa: E402  pip runs this file without its folder on the path

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


def remove_cuda_side(output: Path, minor: str) -> bool:
    """Takes this PyTorch's CUDA library out of `output`; whether another PyTorch's still needs the
    kernels, which go with the last."""
    (output / f"libmemops_torch{minor}_cuda.so").unlink(missing_ok=True)
    if any(output.glob("libmemops_torch*_cuda.so")):
        return True
    (output / "libmemops_kernels.so").unlink(missing_ok=True)
    return False


class CMakeBuild(build_ext):
    """Configures and builds CMakeLists.txt into torch_memops/lib (in place or in the wheel)."""

    def run(self) -> None:
        torch_dir, version, torch_cuda = torch_location()
        minor = ".".join(version.split(".")[:2])
        nvcc, found = find_nvcc()
        wanted = os.environ.get("MEMOPS_CUDA")
        if torch_cuda is None:
            nvcc, found = None, f"PyTorch {version} is built without CUDA"
        if wanted == "1" and nvcc is None:
            sys.exit(f"MEMOPS_CUDA=1, but {found}")
        with_cuda = wanted == "1" if wanted else nvcc is not None
        if wanted and not with_cuda:
            found = f"MEMOPS_CUDA={wanted}"
        print(f"torch_memops: PyTorch {version}, {found if with_cuda else f'CPU only: {found}'}")

        in_place = self.inplace or self.editable_mode
        package = ROOT if in_place else Path(self.build_lib).resolve()
        output = package / "torch_memops/lib"
        if not in_place:
            # What an earlier build left in setuptools' folder would go into this wheel.
            shutil.rmtree(output, ignore_errors=True)
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
        if not with_cuda and remove_cuda_side(output, minor):
            return  # the kernels that build_info.json describes are another PyTorch's
        info = {
            "cuda": torch_cuda if with_cuda else None,
            "architectures": architectures() if with_cuda else [],
        }
        (output / "build_info.json").write_text(json.dumps(info, indent=2) + "\n")


class PlatformWheel(bdist_wheel):
    """Tags the wheel for this platform and every Python: the libraries hold no Python API."""

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", super().get_tag()[2])


if __name__ == "__main__":
    setup(
        ext_modules=[Extension("torch_memops.lib", sources=[])],
        cmdclass={"build_ext": CMakeBuild, "bdist_wheel": PlatformWheel},
    )
