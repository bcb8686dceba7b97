"""The plans of causal_conv1d, its backward and its update: no GPU needed, tensors without memory."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

import torch_memops
from torch_memops.planning import DeviceFacts

SCRATCH_LIMIT = 256 << 20
DEVICES = [DeviceFacts(multiprocessors=n) for n in (1, 8, 66, 108, 132)]


def meta(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def channels_last(batch: int, channels: int, length: int, pitch: int = 0) -> Tensor:
    return meta(batch, length, pitch or channels)[..., :channels].transpose(1, 2)


def backward_plan(
    x: Tensor, width: int, *, silu: bool = True, wanted: tuple[int, ...] = (1, 1, 1, 1)
) -> dict[str, Any]:
    weight = meta(x.shape[1], width, dtype=x.dtype)
    tensors = [x, None, x, weight, None, None, None]
    text = torch.ops.memops._plan("_causal_conv1d_backward", tensors, [int(silu), *wanted], [], [])
    return json.loads(text)


@pytest.mark.parametrize("device", DEVICES, ids=lambda d: f"{d.multiprocessors} SMs")
def test_kernel_follows_the_layout(device: DeviceFacts) -> None:
    weight = meta(64, 4)
    for x, kernel in [
        (meta(2, 64, 33), "causal_along_length"),
        (channels_last(2, 64, 33), "causal_along_channels"),
        (channels_last(2, 64, 33, pitch=128), "causal_along_channels"),
        (meta(2, 64, 66)[..., ::2], "causal_along_length"),
        (meta(2, 64, 1), "causal_along_length"),
        (meta(2, 64, 1).expand(2, 64, 33), "causal_along_channels"),
    ]:
        plan = torch_memops.plan("causal_conv1d", x, weight, device=device)
        assert plan.kernel == kernel, (x.shape, x.stride())


def test_one_channel_is_channels_first() -> None:
    plan = torch_memops.plan("causal_conv1d", channels_last(2, 1, 33, pitch=5), meta(1, 4))
    assert plan.kernel == "causal_along_length"


def test_facts() -> None:
    x, weight, state = meta(2, 3, 7), meta(3, 4), meta(2, 3, 3)
    seq_idx = meta(2, 7, dtype=torch.int32)
    plan = torch_memops.plan(
        "causal_conv1d", x, weight, meta(3), state, seq_idx, silu=True, final_state=True
    )
    assert plan.facts["flops"] == 2 * 2 * 3 * 7 * 4
    # x, weight, bias, state, y, new state, seq_idx
    assert plan.facts["bytes"] == 4 * (42 + 12 + 3 + 18 + 42 + 18) + 4 * 14
    assert plan.facts["layout"] == "channels-first"
    assert plan.facts["dtype"] == "float32"
    assert "causal_along_length" in str(plan)


def test_nothing_to_compute() -> None:
    assert torch_memops.plan("causal_conv1d", meta(0, 3, 7), meta(3, 4)).kernel == "none"
    assert torch_memops.plan(
        "causal_conv1d_update", meta(0, 3), meta(0, 3, 3), meta(3, 4)
    ).kernel == ("none")


def test_the_plan_refuses_what_the_op_refuses() -> None:
    with pytest.raises(RuntimeError, match="causal_conv1d: weight of shape"):
        torch_memops.plan("causal_conv1d", meta(2, 3, 7), meta(2, 4))
    with pytest.raises(NotImplementedError, match="causal_conv1d: x is Long"):
        torch_memops.plan("causal_conv1d", meta(2, 3, 7).long(), meta(3, 4).long())


@pytest.mark.parametrize("steps", [(), (2,)])
def test_update(steps: tuple[int, ...]) -> None:
    x, state, weight = meta(2, 3, *steps), meta(5, 3, 4), meta(3, 4)
    lengths = meta(2, dtype=torch.int32)
    rows = meta(2, dtype=torch.int32)
    shift = torch_memops.plan("causal_conv1d_update", x, state, weight, conv_state_indices=rows)
    ring = torch_memops.plan(
        "causal_conv1d_update", x, state, weight, cache_seqlens=lengths, conv_state_indices=rows
    )
    assert shift.kernel == "causal_update_shift"
    assert ring.kernel == "causal_update_ring"
    assert shift.facts["steps"] == (steps[0] if steps else 1)
    assert shift.facts["bytes"] > ring.facts["bytes"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("silu", [False, True])
def test_backward_scratch_stays_below_the_limit(dtype: torch.dtype, silu: bool) -> None:
    shapes = [
        (1, 1, 1),
        (2, 64, 33),
        (8, 4096, 2048),
        (1, 2, 3 << 25),  # a row longer than the scratch
        (1 << 16, 70_000, 1),
        (3, 5, (1 << 31) + 7),
    ]
    for batch, channels, length in shapes:
        for width in (1, 4, 129, 1 << 12, 1 << 22, 1 << 25):
            if silu and width == 1 << 25 and length > 1 << 24:
                continue
            plan = backward_plan(meta(batch, channels, length, dtype=dtype), width, silu=silu)
            facts = plan["facts"]
            panel_batch, panel_channels, panel_length, columns = facts["panel"]
            assert 0 < facts["scratch_bytes"] <= SCRATCH_LIMIT
            assert 1 <= panel_batch <= batch
            assert 1 <= panel_channels <= channels
            assert 1 <= panel_length <= length
            assert 1 <= columns <= width + 1
            accumulator = 8 if dtype == torch.float64 else 4
            if silu:
                window = panel_batch * panel_channels * panel_length
                assert window * accumulator <= SCRATCH_LIMIT // 2
            if panel_length < length:
                assert (panel_batch, panel_channels) == (1, 1)


def test_backward_takes_whole_problems_where_they_fit() -> None:
    facts = backward_plan(channels_last(8, 2048, 1024), 4)["facts"]
    assert facts["panel"] == [8, 2048, 1024, 5]
    facts = backward_plan(channels_last(64, 2048, 4096), 4)["facts"]
    assert facts["panel"] == [4, 2048, 4096, 5]


def test_backward_needs_no_scratch_without_silu_and_sums() -> None:
    plan = backward_plan(meta(2, 3, 7), 4, silu=False, wanted=(1, 0, 0, 1))
    assert plan["facts"]["scratch_bytes"] == 0
    assert plan["facts"]["panel"] == [2, 3, 7, 0]


def test_backward_refuses_a_window_longer_than_the_scratch() -> None:
    with pytest.raises(RuntimeError, match="causal_conv1d's backward with silu"):
        backward_plan(meta(1, 1, 1 << 26), (1 << 25) + 1)
    backward_plan(meta(1, 1, 1 << 26), (1 << 25) + 1, silu=False)
