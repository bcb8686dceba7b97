"""The build around CMake: what a wheel holds, which nvcc is taken, what a broken set-up says."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
import torch
from support.devices import REPOSITORY

from torch_memops import _loader

MINOR = _loader.torch_minor_version()

# Loads the tree's setup.py with a CMake that makes empty libraries, and runs its commands.
DRIVER = """
import importlib.util, re, sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("setup_script", "setup.py")
script = importlib.util.module_from_spec(spec)
spec.loader.exec_module(script)

def cmake(command, stdout=None):
    options = dict(re.fullmatch(r"-D(\\w+)=(.*)", o).groups() for o in command if o.startswith("-D"))
    if not options:
        return
    output, version = Path(options["MEMOPS_OUTPUT_DIR"]), options["MEMOPS_TORCH_VERSION"]
    output.mkdir(parents=True, exist_ok=True)
    names = ["plan", f"torch{version}"]
    names += ["kernels", f"torch{version}_cuda"] if options["MEMOPS_CUDA"] == "ON" else []
    for name in names:
        (output / f"libmemops_{name}.so").touch()

script.run = cmake
script.find_nvcc = lambda: (Path("/cuda/bin/nvcc"), "nvcc 13.0, /cuda/bin/nvcc")
script.setup(
    ext_modules=[script.Extension("torch_memops.lib", sources=[])],
    cmdclass={"build_ext": script.CMakeBuild, "bdist_wheel": script.PlatformWheel},
)
"""


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def cuda_compiler(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/cuda_compiler.py where no nvcc is but those of the test."""
    module = load(REPOSITORY / "tools/cuda_compiler.py", "cuda_compiler")
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(module.sysconfig, "get_path", lambda name: "/nowhere")
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout in whose lib folder other builds have left their libraries."""
    root = tmp_path / "a checkout"
    for folder in ("torch_memops", "memops_cli", "tools"):
        shutil.copytree(
            REPOSITORY / folder, root / folder, ignore=shutil.ignore_patterns("lib", "__pycache__")
        )
    for name in ("setup.py", "pyproject.toml", "README.md"):
        shutil.copy(REPOSITORY / name, root / name)
    (root / "torch_memops/lib").mkdir()
    for name in ("plan", "kernels", f"torch{MINOR}", f"torch{MINOR}_cuda", "torch1.0"):
        (root / f"torch_memops/lib/libmemops_{name}.so").touch()
    (root / "torch_memops/lib/build_info.json").write_text('{"cuda": "13.0", "architectures": []}')
    return root


def run_setup(tree: Path, *command: str, cuda: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", DRIVER, *command],
        cwd=tree,
        env=os.environ | {"MEMOPS_CUDA": cuda},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def library_names(tree: Path) -> set[str]:
    return {path.name for path in (tree / "torch_memops/lib").glob("*.so")}


cuda_builds = pytest.mark.skipif(torch.version.cuda is None, reason="PyTorch is built without CUDA")


@pytest.mark.parametrize("cuda", ["0", pytest.param("1", marks=cuda_builds)])
def test_a_wheel_holds_the_libraries_of_its_own_build_alone(tree: Path, cuda: str) -> None:
    stale = tree / "build"
    run_setup(tree, "bdist_wheel", cuda="0")
    for folder in stale.rglob("torch_memops/lib"):
        (folder / "libmemops_torch1.0.so").touch()
    shutil.rmtree(tree / "dist")
    run_setup(tree, "bdist_wheel", cuda=cuda)
    [wheel] = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {Path(n).name for n in archive.namelist() if n.startswith("torch_memops/lib/")}
        info = json.loads(archive.read("torch_memops/lib/build_info.json"))
        assert "torch_memops/py.typed" in archive.namelist()
        assert "torch_memops/demo/report.html" in archive.namelist()
    built = {"libmemops_plan.so", f"libmemops_torch{MINOR}.so", "build_info.json"}
    if cuda == "1":
        built |= {"libmemops_kernels.so", f"libmemops_torch{MINOR}_cuda.so"}
    assert names == built
    assert info["cuda"] == (torch.version.cuda if cuda == "1" else None)


def test_a_cpu_build_in_place_leaves_no_kernels_behind(tree: Path) -> None:
    output = run_setup(tree, "build_ext", "--inplace", cuda="0")
    assert "CPU only: MEMOPS_CUDA=0" in output
    assert library_names(tree) == {
        "libmemops_plan.so", f"libmemops_torch{MINOR}.so", "libmemops_torch1.0.so",
    }  # fmt: skip
    info = json.loads((tree / "torch_memops/lib/build_info.json").read_text())
    assert info == {"cuda": None, "architectures": []}


def test_a_cpu_build_in_place_keeps_the_kernels_of_another_pytorch(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "torch_memops/lib/libmemops_torch1.0_cuda.so").touch()
    run_setup(tree, "build_ext", "--inplace", cuda="0")
    assert "libmemops_kernels.so" in library_names(tree)
    assert f"libmemops_torch{MINOR}_cuda.so" not in library_names(tree)
    # The file still describes the kernels; for this PyTorch there are none.
    monkeypatch.setattr(_loader, "LIBRARY_DIR", tree / "torch_memops/lib")
    assert _loader.build_info() == {"cuda": None, "architectures": []}
    assert [path.name for path in _loader.library_paths()] == [f"libmemops_torch{MINOR}.so"]
    monkeypatch.setattr(_loader, "torch_minor_version", lambda: "1.0")
    assert _loader.build_info()["cuda"] == "13.0"
    assert len(_loader.library_paths()) == 2


def fake_nvcc(folder: Path, version: str) -> Path:
    program = folder / "bin/nvcc"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f'case "$1" in --version) echo "Cuda compilation tools, release {version}, V{version}.88";;\n'
        f"*) echo '#$ TOP={folder}' >&2;; esac\n"
    )
    program.chmod(0o755)
    return program


def test_an_nvcc_of_another_version_is_passed_over_and_named(
    cuda_compiler: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cuda_compiler.find_nvcc() == (
        None,
        "no nvcc 13.0 in CUDA_HOME, on the PATH or from PyPI",
    )
    old = fake_nvcc(tmp_path / "old", "12.4")
    monkeypatch.setenv("PATH", f"{old.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
    nvcc, found = cuda_compiler.find_nvcc()
    assert nvcc is None
    assert f"{old} is 12.4" in found
    right = fake_nvcc(tmp_path / "right", "13.0")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "right"))
    assert cuda_compiler.find_nvcc() == (right, f"nvcc 13.0, {right}")


def test_setup_and_set_up_ask_the_same_function() -> None:
    for script in ("setup.py", "tools/set_up.py"):
        text = (REPOSITORY / script).read_text()
        assert "from cuda_compiler import" in text
        assert "release" not in text


def test_an_environment_without_pip_is_named_with_the_way_out(tmp_path: Path) -> None:
    environment = tmp_path / "half made"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    result = subprocess.run(
        [environment / "bin/python", REPOSITORY / "tools/set_up.py", "torch"],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    assert result.returncode == 1
    assert f"rm -rf '{environment}'" in result.stderr


def test_sanitize_says_what_is_missing(tmp_path: Path) -> None:
    result = subprocess.run(
        ["/bin/bash", REPOSITORY / "tools/sanitize.sh"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
    )
    assert result.returncode == 127
    assert "compute-sanitizer is not on the PATH" in result.stderr
