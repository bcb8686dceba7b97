"""examples/cpp builds without find_package(Torch), by its page's commands, and runs without Python."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

import torch_memops

ROOT = Path(__file__).resolve().parent.parent


def run(*command: str | Path, cwd: Path) -> str:
    """The output of a command that must succeed in `cwd`, where `python` is the running one."""
    python = cwd / "bin/python"
    python.parent.mkdir(exist_ok=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    path = os.pathsep.join([str(python.parent), sysconfig.get_path("scripts"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(cwd)}
    result = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_cpp_example_builds_and_its_gradients_flow(tmp_path: Path) -> None:
    """The commands of its page as printed, from a folder with a space in its name."""
    folder = tmp_path / "a folder"
    shutil.copytree(ROOT / "examples/cpp", folder / "examples/cpp")
    shutil.copytree(Path(torch_memops.__path__[-1]), folder / "torch_memops")
    page = (ROOT / "examples/cpp/README.md").read_text()
    commands = textwrap.dedent("".join(re.findall(r"^    .*\n", page, re.MULTILINE)))
    output = run("bash", "-euc", f"set -o pipefail\n{commands}", cwd=folder)
    assert output.endswith(": ok\n"), output
    dependencies = run("ldd", folder / "build/example/matmul_example", cwd=folder)
    assert "libpython" not in dependencies
    assert "libtorch_python" not in dependencies
