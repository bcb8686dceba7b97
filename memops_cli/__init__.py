"""The `memops` command.

A package beside torch_memops and not inside it: `memops --help` answers without importing PyTorch,
and `memops doctor` runs where `import torch_memops` raises ImportError.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from pathlib import Path

import click

COMMANDS = {
    "bench": (
        "benchmarks.runner:bench",
        "Time the ops against PyTorch and the floor (in a checkout).",
    ),
    "demo": (
        "torch_memops.demo.command:demo",
        "Run every op on a photograph, train a small model (extra: demo).",
    ),
    "doctor": ("memops_cli.doctor:doctor", "Check GPU, driver, PyTorch and the built library."),
    "plan": ("memops_cli.plan:plan", "Print which kernel a call takes, and why."),
}


class LazyGroup(click.Group):
    """A group that imports a sub-command's module when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        if module.startswith("benchmarks."):
            _require_checkout()
        try:
            command = getattr(importlib.import_module(module), attribute)
        except ImportError as error:
            raise click.ClickException(
                f"cannot start `memops {cmd_name}`: {error}\n{_advice(error)}"
            ) from error
        if not isinstance(command, click.Command):
            raise TypeError(f"{module}.{attribute} is not a click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


def _advice(error: ImportError) -> str:
    name = error.name or ""
    if isinstance(error, ModuleNotFoundError) and name.split(".")[0] in (
        "jinja2", "matplotlib", "numpy", "PIL", "scipy", "sklearn",
    ):  # fmt: skip
        return "It belongs to the demo's requirements: pip install 'torch_memops[demo]'"
    return "`memops doctor` says what does not fit, and how to mend it."


def _require_checkout() -> None:
    """Makes the repository's `benchmarks` package importable, or says that there is none."""
    root = Path(__file__).resolve().parent.parent
    if not (root / "benchmarks" / "runner.py").is_file():
        raise click.ClickException(
            "the benchmarks are part of the repository, and torch_memops runs from "
            f"{root}, which is no checkout of it.\n"
            "Clone the repository, then in it: make bench"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    try:
        version = importlib.metadata.version("torch_memops")
    except importlib.metadata.PackageNotFoundError:
        version = "(run from a folder, not installed)"
    click.echo(f"torch_memops {version}")
    ctx.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """PyTorch operators in C++ and CUDA: matrix products, 1-D convolutions, copies and gathers,
    each with a plan that says what runs."""
