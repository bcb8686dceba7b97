"""An index out of range on CUDA: a device-side assertion that names the op, never a value.

Each case runs in a process of its own, since the assertion ends the process's CUDA context.
"""

import pytest
from support.devices import run_python

pytestmark = pytest.mark.cuda

CALLS = {
    "gather_aos": "m.gather_aos(torch.ones(5, 3, device='cuda'), index)",
    "gather_aos-wide": "m.gather_aos(torch.ones(5, 1000, device='cuda'), index)",
    "gather_aos-bytes": "m.gather_aos(torch.ones(5, 3, device='cuda').to(torch.uint8), index)",
    "gather_aos-width-0": "m.gather_aos(torch.ones(5, 0, device='cuda'), index)",
    "gather_aos-strided": "m.gather_aos(torch.ones(3, 5, device='cuda').t(), index)",
    "gather_soa": "m.gather_soa(torch.ones(3, 5, device='cuda'), index)",
    "gather_soa-field-0": "m.gather_soa(torch.ones(0, 5, device='cuda'), index)",
    "gather_soa-strided": "m.gather_soa(torch.ones(5, 3, device='cuda').t(), index)",
    "embedding": "m.embedding(index, torch.ones(5, 3, device='cuda'))",
    "causal_conv1d_update": (
        "m.causal_conv1d_update(torch.ones(4, 3, device='cuda'), torch.ones(5, 3, 3, device='cuda'),"
        " torch.ones(3, 4, device='cuda'), conv_state_indices=index.int())"
    ),
}

PROGRAM = """
import torch, torch_memops as m
index = torch.tensor([0, 1, {bad}, 2], dtype=torch.{dtype}, device="cuda")
{prepare}
try:
    out = {call}
    torch.cuda.synchronize()
    print("returned", out)
except (RuntimeError, IndexError) as error:
    print("raised", type(error).__name__, error)
"""


def run(call: str, bad: int, dtype: str = "int64", prepare: str = "") -> str:
    """What the program printed, standard error included."""
    source = PROGRAM.format(call=call, bad=bad, dtype=dtype, prepare=prepare)
    done = run_python(source)
    assert "returned" not in done.stdout, done.stdout
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", CALLS)
def test_assertion_names_the_op(name: str) -> None:
    """pytorch#140791, tensorflow#15091: never a row of zeros or a neighbour's."""
    text = run(CALLS[name], 5)
    assert "assert" in text.lower(), text
    op = name.split("-")[0]
    named = "gather_aos" if op == "embedding" else op
    assert named in text, text


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("bad", [-1, 2**31 - 1, -(2**31)])
def test_negative_and_extreme(bad: int, dtype: str) -> None:
    """pytorch3d#1339: -1 is no padding."""
    text = run(CALLS["gather_aos"], bad, dtype)
    assert "assert" in text.lower(), text
    assert "gather_aos" in text, text


def test_int64_is_not_cut_to_32_bits() -> None:
    for name in ("gather_aos", "gather_soa"):
        text = run(CALLS[name], 2**32)
        assert "assert" in text.lower(), text


@pytest.mark.parametrize("source", ["torch.ones(0, 4, device='cuda')"])
def test_empty_source(source: str) -> None:
    """pytorch#70675: an empty table is not read: an error on the host or an assertion."""
    text = run(f"m.gather_aos({source}, index)", 0)
    assert "gather_aos" in text, text


def test_assertion_in_backward() -> None:
    """An index that was changed after the forward pass is checked again."""
    prepare = (
        "leaf = torch.ones(5, 3, device='cuda', requires_grad=True)\n"
        "good = torch.tensor([0, 1], device='cuda')\n"
        "grad = torch.ops.memops._gather_aos_backward\n"
    )
    text = run("grad(torch.ones(4, 3, device='cuda'), index, 5, -1)", 7, prepare=prepare)
    assert "assert" in text.lower(), text
    assert "gather_aos" in text, text
