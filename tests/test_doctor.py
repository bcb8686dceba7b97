"""`memops doctor`: the rules over made-up machines, and the command on misfits of every kind."""

import dataclasses
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

import torch_memops
from memops_cli import doctor, main
from memops_cli.diagnosis import Facts, Finding, Gpu, diagnose, kernels_for, version_pair

H200 = Gpu("NVIDIA H200", (9, 0), 141 * 2**30)
A100 = Gpu("NVIDIA A100", (8, 0), 80 * 2**30)
T4 = Gpu("Tesla T4", (7, 5), 15 * 2**30)
B200 = Gpu("NVIDIA B200", (10, 0), 180 * 2**30)

CPU_MACHINE = Facts(
    python="3.12.1",
    torch="2.14.1+cpu",
    torch_path="/site/torch",
    package="/site/torch_memops",
    built_for=["2.14"],
    imported=True,
    trials={"cpu": ""},
)
GPU_MACHINE = dataclasses.replace(
    CPU_MACHINE,
    torch="2.14.1+cu130",
    torch_cuda="13.0",
    torch_sees_gpus=True,
    gpus=[H200],
    driver="580.95.05",
    driver_cuda="13.0",
    library_cuda="13.0",
    architectures=["80", "90a", "80-virtual"],
    trials={"cpu": "", "cuda:0": ""},
)


def states(facts: Facts) -> dict[str, str]:
    return {finding.subject: finding.state for finding in diagnose(facts)}


def the_mismatch(facts: Facts) -> Finding:
    (found,) = [finding for finding in diagnose(facts) if finding.state == "mismatch"]
    return found


@pytest.mark.parametrize(
    "facts",
    [
        CPU_MACHINE,
        GPU_MACHINE,
        dataclasses.replace(GPU_MACHINE, gpus=[H200, A100]),
        dataclasses.replace(CPU_MACHINE, built_for=["2.11", "2.14"]),
        # A CUDA library and a CUDA PyTorch on a machine without a GPU run the CPU path.
        dataclasses.replace(GPU_MACHINE, gpus=[], driver=None, driver_cuda=None),
        # A CUDA library on a PyTorch without CUDA: the CPU ops run.
        dataclasses.replace(CPU_MACHINE, library_cuda="13.0", architectures=["80"]),
        # Newer GPUs run the portable kernels through PTX.
        dataclasses.replace(GPU_MACHINE, gpus=[B200]),
    ],
)
def test_machines_that_fit(facts: Facts) -> None:
    assert "mismatch" not in states(facts).values()


@pytest.mark.parametrize(
    ("changes", "subject", "value", "fix"),
    [
        ({"built_for": ["2.11"]}, "library and PyTorch", "built for 2.11", "pip install"),
        ({"torch": "2.10.0"}, "PyTorch", "2.10.0", "pip install --upgrade 'torch>=2.11'"),
        ({"built_for": []}, "torch_memops", "no library in /site/torch_memops/lib", "pip install"),
        ({"package": None, "built_for": []}, "torch_memops", "not installed", "pip install"),
        ({"imported": False, "import_error": "ImportError: x"}, "import torch_memops", "x", "pip"),
        ({"trials": {"cpu": "wrong"}}, "an op on cpu", "wrong", ""),
        ({"build_error": "ValueError: bad JSON"}, "torch_memops", "bad JSON", "pip install"),
    ],
)
def test_misfits_of_any_machine(
    changes: dict[str, Any], subject: str, value: str, fix: str
) -> None:
    found = [
        f for f in diagnose(dataclasses.replace(CPU_MACHINE, **changes)) if f.subject == subject
    ]
    assert [f.state for f in found] == ["mismatch"]
    assert value in found[0].value
    assert fix in found[0].fix


@pytest.mark.parametrize(
    ("changes", "subject", "value", "fix"),
    [
        (
            {"torch_cuda": None, "torch_sees_gpus": False},
            "PyTorch and GPU",
            "built without CUDA",
            "install a CUDA build of PyTorch",
        ),
        (
            {"torch_sees_gpus": False, "cuda_error": "driver too old", "library_cuda": None,
             "torch_cuda": "13.0", "driver_cuda": "12.4"},
            "PyTorch and GPU",
            "driver too old",
            "update the NVIDIA driver to one that serves CUDA 13.0",
        ),
        ({"library_cuda": None}, "library and GPU", "without CUDA kernels", "MEMOPS_CUDA=1"),
        ({"torch_cuda": "12.8"}, "library and CUDA", "PyTorch brings 12.8", "CUDA 13"),
        ({"gpus": [T4]}, "library and GPU 0", "compute capability 7.5", "Ampere"),
        ({"architectures": ["90a"], "gpus": [A100]}, "library and GPU 0", "8.0", "ARCH_LIST=8.0"),
        ({"driver_cuda": "12.4"}, "library and driver", "ends at 12.4", "update the NVIDIA driver"),
    ],
)  # fmt: skip
def test_misfits_of_a_gpu_machine(
    changes: dict[str, Any], subject: str, value: str, fix: str
) -> None:
    facts = dataclasses.replace(GPU_MACHINE, **changes)
    found = [f for f in diagnose(facts) if f.subject == subject]
    assert [f.state for f in found] == ["mismatch"]
    assert value in found[0].value
    assert fix in found[0].fix


def test_a_hopper_gpu_without_hopper_kernels_is_noted() -> None:
    facts = dataclasses.replace(GPU_MACHINE, architectures=["80", "80-virtual"])
    assert states(facts)["library and GPU 0"] == "note"


def test_in_a_checkout_the_fix_builds_there_for_this_python() -> None:
    facts = dataclasses.replace(
        CPU_MACHINE, executable="/usr/bin/python3", checkout="/my clone", built_for=["2.11"]
    )
    build = "cd '/my clone' && /usr/bin/python3 setup.py build_ext --inplace"
    found = [f for f in diagnose(facts) if f.subject == "library and PyTorch"]
    assert found[0].fix == f"rebuild: `{build}`"


@pytest.mark.parametrize(("built_for", "state"), [([], "mismatch"), (["2.14"], "note")])
def test_a_checkout_that_hides_the_installed_package(built_for: list[str], state: str) -> None:
    facts = dataclasses.replace(
        CPU_MACHINE, hiding="/my clone/torch_memops", hiding_built_for=built_for
    )
    found = [f for f in diagnose(facts) if f.subject == "current folder"]
    assert [f.state for f in found] == [state]
    assert ("cd '/my clone' && python setup.py build_ext" in found[0].fix) == (not built_for)


def test_this_machine_in_a_checkout_without_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch_memops").mkdir()
    source = Path(torch_memops.__path__[-1])
    shutil.copy(source / "_loader.py", tmp_path / "torch_memops/_loader.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(source.parent), *filter(None, sys.path)])
    result = invoke()
    assert result.exit_code == 1, result.output
    assert "start Python in another folder" in " ".join(result.output.split())


def test_no_torch() -> None:
    facts = Facts("3.12.1", torch_error="ModuleNotFoundError: No module named 'torch'")
    found = the_mismatch(facts)
    assert (found.subject, found.value) == ("PyTorch", "not installed")
    assert found.fix == "pip install 'torch>=2.11'"


@pytest.mark.parametrize(
    ("capability", "architectures", "how"),
    [
        ((8, 0), ["80"], "native"),
        ((8, 6), ["80"], "native"),
        ((8, 0), ["86"], None),
        ((9, 0), ["80"], None),
        ((9, 0), ["80-virtual"], "ptx"),
        ((9, 0), ["80-virtual", "90a"], "native"),
        ((10, 0), ["90a"], None),
        ((10, 0), ["80", "90a", "80-virtual"], "ptx"),
        ((12, 0), ["120"], "native"),
        ((10, 3), ["90a-virtual"], None),
        ((7, 5), ["80", "80-virtual"], None),
        ((9, 0), [], None),
    ],
)
def test_kernels_for(
    capability: tuple[int, int], architectures: list[str], how: str | None
) -> None:
    assert kernels_for(capability, architectures) == how


@pytest.mark.parametrize(
    ("text", "pair"),
    [("2.14.1+cu130", (2, 14)), ("2.15.0a0+git1", (2, 15)), ("13.0", (13, 0)), ("9.0", (9, 0))],
)
def test_version_pair(text: str, pair: tuple[int, int]) -> None:
    assert version_pair(text) == pair


def invoke() -> Result:
    return CliRunner().invoke(main, ["doctor"])


def test_this_machine() -> None:
    result = invoke()
    assert "import torch_memops" in result.output
    assert result.exit_code == 0, result.output
    assert torch.__version__ in result.output
    assert "Everything fits." in result.output


@pytest.mark.cuda
def test_this_gpu() -> None:
    result = invoke()
    assert result.exit_code == 0, result.output
    assert torch.cuda.get_device_name(0) in result.output
    assert "an op on cuda:0" in result.output


def test_library_for_another_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real package around a library that claims another PyTorch."""
    package = tmp_path / "torch_memops"
    (package / "lib").mkdir(parents=True)
    source = Path(torch_memops.__path__[-1])
    for name in ("__init__.py", "_loader.py"):
        shutil.copy(source / name, package / name)
    (package / "lib" / "libmemops_torch1.0.so").write_bytes(b"")
    (package / "lib" / "build_info.json").write_text('{"cuda": null, "architectures": []}')
    monkeypatch.syspath_prepend(tmp_path)
    result = invoke()
    assert result.exit_code == 1, result.output
    text = " ".join(result.output.split())
    assert f"built for 1.0, and PyTorch is {torch.__version__}" in text
    assert "ImportError" in text
    assert f"fix: rebuild: `{shlex.quote(sys.executable)} -m pip install" in text
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("raise ModuleNotFoundError(\"No module named 'torch'\")", "not installed"),
        ("raise OSError('libcudart.so.13: cannot open')", "libcudart.so.13: cannot open"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "killed by SIGSEGV"),
        ("import os; os._exit(3)", "exit status 3"),
    ],
)
def test_broken_torch(
    source: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    result = invoke()
    assert result.exit_code == 1
    assert words in " ".join(result.output.split())
    assert "pip install 'torch>=2.11'" in " ".join(result.output.split())


def test_library_that_kills_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "torch_memops"
    package.mkdir()
    (package / "__init__.py").write_text("import os; os.abort()")
    (package / "_loader.py").write_text(
        "def built_versions():\n"
        f"    return ['{'.'.join(torch.__version__.split('.')[:2])}']\n"
        "def build_info():\n"
        "    return {'cuda': None, 'architectures': []}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    result = invoke()
    assert result.exit_code == 1
    assert "killed by SIGABRT" in " ".join(result.output.split())


def test_probe_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch.py").write_text("import time; time.sleep(60)")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "PROBE_SECONDS", 0.5)
    result = invoke()
    assert result.exit_code == 1
    assert "no answer within 0.5 s" in " ".join(result.output.split())


def fake_nvidia_smi(folder: Path, body: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)


def test_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA H200, NVL, 9.0, 143771, 580.95.05'")
    gpus, driver = doctor.query_nvidia_smi()
    assert driver == "580.95.05"
    assert gpus == [Gpu("NVIDIA H200, NVL", (9, 0), 143771 * 2**20)]
    fake_nvidia_smi(tmp_path, "echo 'NVIDIA-SMI has failed'; exit 9")
    assert doctor.query_nvidia_smi() == ([], None)
    fake_nvidia_smi(tmp_path, "echo 'GPU, [N/A], [N/A], 1.2'")
    assert doctor.query_nvidia_smi() == ([], None)
