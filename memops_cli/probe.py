"""What PyTorch and torch_memops say of themselves; run by `memops doctor` in a process of its own.

Prints JSON objects, one a line, each as soon as it is known: an import that kills the process
loses only the lines after it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any


def emit(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def probe_driver() -> None:
    """The newest CUDA the driver serves; asks the driver without creating a context."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    version = ctypes.c_int()
    if driver.cuDriverGetVersion(ctypes.byref(version)) == 0 and version.value:
        emit(driver_cuda=f"{version.value // 1000}.{version.value % 1000 // 10}")


def probe_torch() -> bool:
    try:
        import torch
    except Exception as error:
        emit(torch_error=f"{type(error).__name__}: {error}")
        return False
    emit(torch=torch.__version__, torch_cuda=torch.version.cuda, torch_path=torch.__path__[0])
    if torch.version.cuda is None:
        return True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.cuda.init()
            properties = [
                torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())
            ]
        except (RuntimeError, AssertionError) as error:
            emit(cuda_error=str(error).strip().splitlines()[0])
            return True
    emit(torch_gpus=[[p.name, f"{p.major}.{p.minor}", p.total_memory] for p in properties])
    return True


def load_loader(package: Path) -> ModuleType:
    """torch_memops._loader by its path: importing it by name runs the package's __init__, which
    raises on a misfit."""
    spec = importlib.util.spec_from_file_location("memops_loader", package / "_loader.py")
    if spec is None or spec.loader is None:
        raise ImportError(f"{package} holds no _loader.py")
    loader = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loader)
    return loader


def probe_build() -> None:
    """What the library was built for."""
    package = importlib.util.find_spec("torch_memops")
    folders = list(package.submodule_search_locations or []) if package else []
    if not folders:
        return
    folder = Path(folders[0]).resolve()
    emit(package=str(folder))
    if (folder.parent / "csrc").is_dir():
        emit(checkout=str(folder.parent))
    try:
        loader = load_loader(folder)
        info = loader.build_info()
        emit(
            built_for=loader.built_versions(),
            library_cuda=info.get("cuda"),
            architectures=info.get("architectures", []),
        )
    except (OSError, ImportError, ValueError, AttributeError) as error:
        emit(build_error=f"{type(error).__name__}: {error}")
    probe_folder(folder)


def probe_folder(package: Path) -> None:
    """Another torch_memops in the folder that Python would be started in: `python -c`, `python -m`
    and notebooks find it first."""
    here = Path.cwd().resolve() / "torch_memops"
    if here == package or not (here / "_loader.py").is_file():
        return
    try:
        emit(hiding=str(here), hiding_built_for=load_loader(here).built_versions())
    except (OSError, ImportError, AttributeError):
        emit(hiding=str(here), hiding_built_for=[])


def probe_library() -> None:
    try:
        import torch_memops
    except Exception as error:
        emit(import_error=f"{type(error).__name__}: {error}")
        return
    emit(imported=True, cuda_available=torch_memops.cuda_available())

    import torch

    devices = ["cpu"]
    if torch_memops.cuda_available():
        devices += [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    for device in devices:
        try:
            source = torch.arange(1024.0, device=device).view(32, 32).t()
            same = torch.equal(torch_memops.copy(source), source)
            outcome = "" if same else "copy returned other values than its source holds"
        except Exception as error:
            outcome = f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
        emit(trial=[device, outcome])


if __name__ == "__main__":
    probe_driver()
    if probe_torch():
        probe_build()
        probe_library()
