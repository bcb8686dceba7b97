"""examples/cpp builds without find_package(Torch) and runs without Python."""

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
import torch

import torch_memops

SOURCE = Path(__file__).resolve().parent.parent / "examples/cpp"


def run(*command: str | Path) -> str:
    """The output of a command that must succeed; tools of the environment come first."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    result = subprocess.run(
        [shutil.which(command[0], path=path) or command[0], *command[1:]],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_cpp_example_builds_and_its_gradients_flow(tmp_path: Path) -> None:
    run(
        "cmake",
        *("-S", SOURCE, "-B", tmp_path, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"),
        f"-DTORCH_DIR={Path(torch.__file__).parent}",
    )
    run("cmake", "--build", tmp_path)
    output = run(tmp_path / "matmul_example", *torch_memops.library_paths())
    assert output.endswith(": ok\n"), output
    dependencies = run("ldd", tmp_path / "matmul_example")
    assert "libpython" not in dependencies
    assert "libtorch_python" not in dependencies
