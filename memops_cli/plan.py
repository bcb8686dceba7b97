"""`memops plan`: prints which kernel a call takes, and why."""

from __future__ import annotations

import click

import torch_memops
from memops_cli.expression import ExpressionError, parse_call


@click.command()
@click.argument("call")
def plan(call: str) -> None:
    """Print which kernel CALL takes, and why.

    Tensors are written as a dtype and sizes; views of them as in PyTorch. No memory is allocated
    and no GPU is needed.

    \b
        memops plan "copy(f32[8192,8192].t())"
        memops plan "matmul(bf16[4096,4096], bf16[4096,512])"
        memops plan "conv1d_constant(f32[2**22], [0.25, 0.5, 0.25], padding=1)"
    """
    try:
        op, arguments, keywords = parse_call(call)
    except ExpressionError as error:
        raise click.BadParameter(str(error), param_hint="CALL") from error
    try:
        found = torch_memops.plan(op, *arguments, **keywords)
    except (ValueError, TypeError, RuntimeError, IndexError) as error:
        raise click.ClickException(str(error).strip().splitlines()[0]) from error
    click.echo(str(found))
