"""An index out of range on CUDA: a device-side assertion that names the op, never a value.

Each case runs in a process of its own, since the assertion ends the process's CUDA context.
"""

import pytest
from support.devices import run_programs

pytestmark = pytest.mark.cuda

AOS = "m.gather_aos(torch.ones(5, 3, device='cuda'), index)"
SOA = "m.gather_soa(torch.ones(3, 5, device='cuda'), index)"

# name: (the op that the assertion names, the call, an index out of range, the index's dtype)
CASES = {
    "aos": ("gather_aos", AOS, 5, "int64"),
    "aos-wide": (
        "gather_aos",
        "m.gather_aos(torch.ones(5, 1000, device='cuda'), index)",
        5,
        "int64",
    ),
    "aos-bytes": (
        "gather_aos",
        "m.gather_aos(torch.ones(5, 3, device='cuda').to(torch.uint8), index)",
        5,
        "int32",
    ),
    "aos-width-0": (
        "gather_aos",
        "m.gather_aos(torch.ones(5, 0, device='cuda'), index)",
        5,
        "int64",
    ),
    "aos-strided": (
        "gather_aos",
        "m.gather_aos(torch.ones(3, 5, device='cuda').t(), index)",
        5,
        "int64",
    ),
    "aos-empty": ("gather_aos", "m.gather_aos(torch.ones(0, 4, device='cuda'), index)", 0, "int64"),
    "aos-minus-1": ("gather_aos", AOS, -1, "int64"),
    "aos-minus-1-int32": ("gather_aos", AOS, -1, "int32"),
    "aos-largest-int32": ("gather_aos", AOS, 2**31 - 1, "int32"),
    "aos-smallest-int32": ("gather_aos", AOS, -(2**31), "int32"),
    "aos-above-32-bits": ("gather_aos", AOS, 2**32, "int64"),
    "aos-smallest-int64": ("gather_aos", AOS, -(2**63), "int64"),
    "aos-backward": (
        "gather_aos",
        "torch.ops.memops._gather_aos_backward(torch.ones(4, 3, device='cuda'), index, 5, -1)",
        7,
        "int64",
    ),
    "soa": ("gather_soa", SOA, 5, "int64"),
    "soa-minus-1": ("gather_soa", SOA, -1, "int32"),
    "soa-above-32-bits": ("gather_soa", SOA, 2**32, "int64"),
    "soa-field-0": (
        "gather_soa",
        "m.gather_soa(torch.ones(0, 5, device='cuda'), index)",
        5,
        "int64",
    ),
    "soa-strided": (
        "gather_soa",
        "m.gather_soa(torch.ones(5, 3, device='cuda').t(), index)",
        5,
        "int64",
    ),
    "soa-backward": (
        "gather_soa",
        "torch.ops.memops._gather_soa_backward(torch.ones(3, 4, device='cuda'), index, 5)",
        -1,
        "int64",
    ),
    "embedding": ("gather_aos", "m.embedding(index, torch.ones(5, 3, device='cuda'))", 5, "int64"),
    "update": (
        "causal_conv1d_update",
        "m.causal_conv1d_update(torch.ones(4, 3, device='cuda'),"
        " torch.ones(5, 3, 3, device='cuda'), torch.ones(3, 4, device='cuda'),"
        " conv_state_indices=index)",
        5,
        "int32",
    ),
}

PROGRAM = """
import torch, torch_memops as m
index = torch.tensor([0, 1, {bad}, 2], dtype=torch.{dtype}, device="cuda")
try:
    out = {call}
    torch.cuda.synchronize()
    print("returned", out)
except (RuntimeError, IndexError) as error:
    print("raised", type(error).__name__, error)
"""


@pytest.fixture(scope="module")
def printed() -> dict[str, str]:
    """What the program of each case printed; all of them run beside each other."""
    return run_programs(
        {
            name: PROGRAM.format(call=call, bad=bad, dtype=dtype)
            for name, (_, call, bad, dtype) in CASES.items()
        }
    )


@pytest.mark.parametrize("name", CASES)
def test_assertion_names_the_op(name: str, printed: dict[str, str]) -> None:
    """pytorch#140791, tensorflow#15091, pytorch3d#1339: never a row of zeros or a neighbour's.

    An empty source may be refused on the host, before any launch.
    """
    text = printed[name]
    assert "returned" not in text, text
    assert "raised" in text or name == "aos-empty", text
    assert CASES[name][0] in text, text
    assert "assert" in text.lower() or name == "aos-empty", text
