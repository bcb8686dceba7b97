"""The examples in README.md and docs/ run as printed."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import memops_cli
import torch_memops

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def python_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if python_blocks(p)], ids=lambda page: page.name)
def test_the_python_examples_of_a_page_run(page: Path) -> None:
    code = "\n".join(python_blocks(page))
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert not missing


def test_the_readme_installs_what_the_build_requires() -> None:
    section = (ROOT / "pyproject.toml").read_text().split("[build-system]")[1].split("\n[")[0]
    required = re.findall(r'^ +"(.+?)"', section, re.MULTILINE)
    assert required
    line = "    pip install " + " ".join(f"'{requirement}'" for requirement in required)
    assert f"{line}\n" in (ROOT / "README.md").read_text()


def test_the_project_describes_itself_in_the_same_words_everywhere() -> None:
    pyproject = (ROOT / "pyproject.toml").read_text()
    [description] = re.findall(r'^description = "(.+)"$', pyproject, re.MULTILINE)
    assert (ROOT / "README.md").read_text().split("\n\n")[1] == f"{description}."
    for text in (torch_memops.__doc__, memops_cli.main.help):
        assert " ".join((text or "").split()).startswith(f"{description}.")
