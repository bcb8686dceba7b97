"""Every program in examples/ runs to its end; each checks its own results."""

import runpy
from pathlib import Path

import pytest
from support.devices import REPOSITORY

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
