"""The `memops` command: help without PyTorch, expressions of `memops plan`, clear messages."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from click.testing import CliRunner, Result
from support.devices import REPOSITORY, run_python

import memops_cli
from memops_cli.expression import ExpressionError, parse_call


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(memops_cli.main, list(arguments))


def run_command(
    *arguments: str, first_on_path: Path, cwd: Path
) -> subprocess.CompletedProcess[str]:
    """`memops` in a process that finds `first_on_path`'s packages before any other."""
    paths = [str(first_on_path), str(REPOSITORY), *filter(None, sys.path)]
    return subprocess.run(
        [sys.executable, "-m", "memops_cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=False,
    )


def test_help_imports_no_torch() -> None:
    result = run_python(
        "import sys\n"
        "from memops_cli import main\n"
        "main(['--help'], standalone_mode=False)\n"
        "assert 'torch' not in sys.modules and 'torch_memops' not in sys.modules\n"
    )
    assert result.returncode == 0, result.stderr
    for name in memops_cli.COMMANDS:
        assert f"  {name} " in result.stdout


@pytest.mark.parametrize("name", [name for name in memops_cli.COMMANDS])
def test_every_command_has_help(name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.output


def test_version() -> None:
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.output.startswith("torch_memops ")


def test_unknown_command() -> None:
    result = invoke("nonsense")
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output


def test_bench_outside_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memops_cli, "__file__", str(tmp_path / "memops_cli" / "__init__.py"))
    result = invoke("bench")
    assert result.exit_code == 1
    assert "which is no checkout" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", [["demo"], ["plan", "copy(f32[2])"]], ids=lambda c: c[0])
def test_library_that_does_not_fit(command: list[str], tmp_path: Path) -> None:
    package = tmp_path / "torch_memops"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('built for PyTorch 1.0')\n")
    result = run_command(*command, first_on_path=tmp_path, cwd=tmp_path)
    assert result.returncode == 1
    assert "built for PyTorch 1.0" in result.stderr
    assert "memops doctor" in result.stderr
    assert "Traceback" not in result.stderr


def test_missing_requirement_of_the_demo(tmp_path: Path) -> None:
    (tmp_path / "jinja2.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'jinja2'\", name='jinja2')\n"
    )
    result = run_command("demo", first_on_path=tmp_path, cwd=tmp_path)
    assert result.returncode == 1
    assert "torch_memops[demo]" in result.stderr
    assert "Traceback" not in result.stderr


def strided(tensor: Any) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype


@pytest.mark.parametrize(
    ("text", "shape", "strides", "offset", "dtype"),
    [
        ("f32[8192,8192].t()", (8192, 8192), (1, 8192), 0, torch.float32),
        ("bf16[7]", (7,), (1,), 0, torch.bfloat16),
        ("f32[2**26+1][1:]", (2**26,), (1,), 1, torch.float32),
        ("u8[4, 6][:, ::2].T", (3, 4), (2, 6), 0, torch.uint8),
        ("f64[2,3,4].permute(2, 0, 1)", (4, 2, 3), (1, 12, 4), 0, torch.float64),
        ("f16[3,1].expand(-1, 5)", (3, 5), (1, 0), 0, torch.float16),
        ("i64[6].view([2, 3]).mT[..., None, -1]", (3, 1), (1, 0), 3, torch.int64),
        ("bool[4, 4].narrow(dim=1, start=1, length=2)", (4, 2), (4, 1), 1, torch.bool),
        ("f32[()]", (), (), 0, torch.float32),
        ("f8_e4m3fn[0,3]", (0, 3), (3, 1), 0, torch.float8_e4m3fn),
        ("f32[6].as_strided((2, 2), (3, 1), 1)", (2, 2), (3, 1), 1, torch.float32),
    ],
)
def test_tensor_expressions(
    text: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, dtype: torch.dtype
) -> None:
    name, (tensor,), keywords = parse_call(f"copy({text})")
    assert name == "copy"
    assert not keywords
    assert tensor.device.type == "meta"
    if 1 in shape:
        strides = tensor.stride()  # arbitrary in dimensions of size 1
    assert strided(tensor) == (shape, strides, offset, dtype)


def test_other_arguments() -> None:
    name, arguments, keywords = parse_call(
        "op(-1, 2.5, [0.25, -0.5], (1, 2*3), 'same', None, flag=True, padding=2**4//3 - 1)"
    )
    assert name == "op"
    assert arguments == [-1, 2.5, [0.25, -0.5], (1, 6), "same", None]
    assert keywords == {"flag": True, "padding": 4}


BAD_CALLS = {
    "not a call": ("f32[3]", "expected a call"),
    "not an op": ("torch.copy(f32[3])", "expected an op's name"),
    "syntax": ("copy(f32[3)", "cannot be read"),
    "empty": ("", "cannot be read"),
    "null byte": ("copy(\0)", "cannot be read"),
    "dtype": ("copy(float[3])", "unknown dtype 'float'; known are f16, bf16"),
    "negative size": ("copy(f32[-3])", "whole numbers from 0 on"),
    "float size": ("copy(f32[1.5])", "whole numbers from 0 on"),
    "too large": ("copy(f32[2**40, 2**40])", "f32[2 ** 40, 2 ** 40]"),
    "huge power": ("copy(f32[9**9**9])", "cannot be computed"),
    "overflow": ("copy(f32[2**62 * 4])", "larger than 2**63 - 1"),
    "division by zero": ("copy(f32[3//0])", "cannot be computed"),
    "method": ("copy(f32[3].numpy())", ".numpy() is not understood"),
    "attribute": ("copy(f32[3].data)", ".data is not understood"),
    "method without call": ("copy(f32[3,4].t)", "t needs parentheses"),
    "view": ("copy(f32[3].permute(1, 0))", "permute(1, 0)"),
    "view keyword": ("copy(f32[3].t(dim=1))", "f32[3].t(dim=1)"),
    "index": ("copy(f32[3][7])", "f32[3][7]"),
    "index type": ("copy(f32[3]['a'])", "expected numbers, slices"),
    "no tensor": ("copy([1].t())", "is no tensor"),
    "bare name": ("copy(x)", "'x' is not understood"),
    "code": ("copy(__import__('os').system('true'))", "is not understood"),
    "dunder": ("copy(f32[3].__class__)", ".__class__ is not understood"),
    "lambda": ("copy(lambda: 0)", "is not understood"),
    "comprehension": ("copy([x for x in (1,)])", "is not understood"),
    "star": ("copy(*[1])", "is not understood"),
    "star star": ("copy(**{})", "** is not understood"),
    "float arithmetic": ("copy(1.5 + 1)", "whole numbers only"),
    "deep": ("copy(" + "[" * 5000 + "]" * 5000 + ")", "cannot be read"),
}


@pytest.mark.parametrize(("text", "words"), BAD_CALLS.values(), ids=list(BAD_CALLS))
def test_bad_expressions(text: str, words: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_call(text)
    assert words in str(caught.value)


def test_plan_prints_the_plan() -> None:
    result = invoke("plan", "copy(f32[8192,8192].t())")
    assert result.exit_code == 0, result.output
    assert "copy" in result.output
    assert "8192" in result.output


@pytest.mark.parametrize(
    ("call", "words", "status"),
    [
        ("copy(f32[3)", "cannot be read", 2),
        ("copy(f32[3].numpy())", ".numpy() is not understood", 2),
        ("nonsense(f32[3])", "nonsense", 1),
        ("copy()", "src", 1),
        ("copy(f32[3], f32[3])", "1 positional argument", 1),
        ("copy(f32[3], dim=1)", "dim", 1),
        ("matmul(f32[3,4], f32[5,6])", "matmul", 1),
    ],
)
def test_plan_refuses_clearly(call: str, words: str, status: int) -> None:
    result = invoke("plan", call)
    assert result.exit_code == status, result.output
    assert words in result.output
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_commands_are_click_commands() -> None:
    with click.Context(memops_cli.main) as context:
        for name in memops_cli.COMMANDS:
            command = memops_cli.main.get_command(context, name)
            assert command is not None
            assert command.name == name
