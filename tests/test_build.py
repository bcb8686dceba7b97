"""What was built: its dependencies, its size, the compiler's report and the machine code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torch_memops import _loader

REPORTS = Path(__file__).resolve().parent.parent / "build/cuda/kernels"
KERNELS = _loader.LIBRARY_DIR / "libmemops_kernels.so"
PYPI_TOOLS = Path(sysconfig.get_path("platlib")) / "nvidia/cu13/bin"
LARGEST_LIBRARY = 40 << 20

needs_kernels = pytest.mark.skipif(not KERNELS.is_file(), reason="built without CUDA kernels")


def dynamic_section(library: Path) -> str:
    return subprocess.run(
        ["readelf", "-d", library], capture_output=True, text=True, check=True
    ).stdout


def needed(library: Path) -> set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic_section(library)))


def libraries() -> list[Path]:
    return sorted(_loader.LIBRARY_DIR.glob("*.so"))


@pytest.mark.core
@pytest.mark.parametrize("library", libraries(), ids=lambda path: path.name)
def test_no_library_depends_on_python_or_on_where_it_was_built(library: Path) -> None:
    assert not any("python" in name for name in needed(library))
    run_path = re.findall(r"R(?:UN)?PATH.*\[(.*)\]", dynamic_section(library))
    assert run_path in ([], ["$ORIGIN"])
    if library != KERNELS:  # nvcc's -lineinfo, which profilers read, names the sources in full
        content = library.read_bytes()
        for folder in (REPORTS.parents[2], Path(torch.__file__).parent):
            assert os.fsencode(f"{folder}/") not in content


def test_the_plans_need_neither_pytorch_nor_cuda() -> None:
    names = needed(_loader.LIBRARY_DIR / "libmemops_plan.so")
    assert not any("torch" in name or "c10" in name or "cuda" in name for name in names)


@needs_kernels
def test_the_kernels_do_not_need_pytorch() -> None:
    assert not any("torch" in name or "c10" in name for name in needed(KERNELS))


@pytest.mark.core
def test_the_cpu_side_does_not_need_cuda() -> None:
    cpu_side = _loader.library_paths()[0]
    assert not any("cuda" in name or name.startswith("libmemops_k") for name in needed(cpu_side))


@needs_kernels
def test_the_kernel_library_stays_small() -> None:
    assert KERNELS.stat().st_size < LARGEST_LIBRARY


def reports() -> Iterator[tuple[str, str]]:
    for path in sorted(REPORTS.glob("*.ptxas")):
        yield path.stem, path.read_text()


def machine_architectures() -> list[str]:
    """The machine code that was built: ["sm_80", "sm_90a"]."""
    built = _loader.build_info().get("architectures", [])
    assert isinstance(built, list)
    return [f"sm_{name}" for name in built if not name.endswith("-virtual")]


@needs_kernels
def test_no_kernel_spills_and_every_target_is_reported() -> None:
    if not REPORTS.is_dir():
        pytest.skip("the library was built elsewhere: no compiler reports here")
    found = dict(reports())
    sources = {
        str(path.relative_to(REPORTS.parents[2] / "csrc")).replace("/", "_")
        for path in (REPORTS.parents[2] / "csrc").rglob("*.cu")
    }
    assert sources <= set(found)
    for name, text in found.items():
        spills = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", text)
        assert all(pair == ("0", "0") for pair in spills), name
        if spills:
            assert set(re.findall(r"for '(sm_\w+)'", text)) >= set(machine_architectures()), name


def disassembly(architecture: str) -> dict[str, str]:
    """Machine code by mangled kernel name."""
    tool = shutil.which("cuobjdump", path=f"{PYPI_TOOLS}{os.pathsep}{os.environ['PATH']}")
    if tool is None:
        pytest.skip("cuobjdump is not installed")
    environment = os.environ | {"PATH": f"{Path(tool).parent}{os.pathsep}{os.environ['PATH']}"}
    text = subprocess.run(
        [tool, "-sass", "-arch", architecture, KERNELS],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    ).stdout
    parts = re.split(r"Function : (\S+)", text)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope="module")
def machine_code() -> dict[str, str]:
    """The newest architecture's."""
    architectures = machine_architectures()
    if not architectures:
        pytest.skip("PTX alone was built")
    return disassembly(architectures[-1])


@needs_kernels
@pytest.mark.parametrize(
    ("kernel", "instructions"),
    [
        ("copy_flat_kernelILb1E", ["LDG.E.128", "STG.E.128"]),
        ("copy_flat_kernelILb0E", ["LDG.E.128", "SHF.R", "STG.E.128"]),
        ("copy_rows_kernelILb1E", ["LDG.E.128", "STG.E.128"]),
        ("cast_rows_kernelI13__nv_bfloat16f", ["LDG.E.128", "STG.E.128"]),
        ("copy_strided_kernelI5uint4", ["LDG.E.128", "STG.E.128"]),
        ("copy_fields_kernelILi1ELi3ELb1E", ["LDG.E.128", "STS.128", "LDS.128", "STG.E.128"]),
        ("copy_tile_kernelINS0_4TileIjXtlNS_9TileShape", ["LDGSTS.E.BYPASS.128", "STG.E.128"]),
        ("copy_box_kernelItNS0_12VectorStores", ["LDGSTS.E.BYPASS.128", "STG.E.128"]),
        ("copy_box_kernelI5uint4", ["LDGSTS.E.BYPASS.128", "LDS.128", "STG.E.128"]),
    ],
)
def test_kernels_move_16_bytes_an_access(
    kernel: str, instructions: list[str], machine_code: dict[str, str]
) -> None:
    matching = [code for name, code in machine_code.items() if kernel in name]
    assert matching, f"no kernel named {kernel}"
    for code in matching:
        for instruction in instructions:
            assert instruction in code


@pytest.mark.core
def test_importing_starts_no_cuda_context() -> None:
    code = "import torch, torch_memops; assert not torch.cuda.is_initialized()"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.core
def test_a_second_load_is_an_import_error_not_an_abort() -> None:
    with pytest.raises(ImportError, match="namespace 'memops' is taken"):
        _loader.load()


def test_another_pytorch_is_named_with_the_command_that_rebuilds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_loader, "torch_minor_version", lambda: "2.99")
    with pytest.raises(ImportError) as caught:
        _loader.load()
    message = str(caught.value)
    assert ", ".join(_loader.built_versions()) in message
    assert torch.__version__ in message
    assert _loader.advice() in message


def test_an_old_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_loader, "torch_minor_version", lambda: "2.10")
    with pytest.raises(ImportError, match=r"needs PyTorch 2\.11 or newer"):
        _loader.load()


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_loader, "LIBRARY_DIR", tmp_path)
    with pytest.raises(ImportError, match="holds no libraries"):
        _loader.load()


@pytest.mark.core
def test_a_checkout_without_libraries_names_what_it_hides_and_the_fix_that_works(
    tmp_path: Path,
) -> None:
    """Installed, and Python started in the repository: its folder comes first on the path."""
    clone, installed = tmp_path / "a clone", tmp_path / "site"
    for root in (clone, installed):
        (root / "torch_memops").mkdir(parents=True)
        for name in ("__init__.py", "_loader.py"):
            shutil.copy(Path(_loader.__file__).parent / name, root / "torch_memops" / name)
    (clone / "csrc").mkdir()
    (clone / "setup.py").touch()

    def message() -> str:
        result = subprocess.run(
            [sys.executable, "-c", "import torch_memops"],
            capture_output=True,
            text=True,
            cwd=clone,
            env=os.environ | {"PYTHONPATH": str(installed)},
        )
        assert result.returncode == 1
        return result.stderr.strip().splitlines()[-1]

    build = f"cd '{clone}' && {sys.executable} setup.py build_ext --inplace"
    assert f"hides the torch_memops installed in {installed}: start Python in another" in message()
    assert message().endswith(build)
    shutil.rmtree(installed / "torch_memops")
    assert message().endswith(f"holds no libraries. Build them: {build}")
