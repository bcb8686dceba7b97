"""The plans of conv1d, its backward and conv1d_constant: no GPU needed, tensors without memory."""

from typing import Any

import pytest
import torch
from torch import Tensor

import torch_memops
from torch_memops import DeviceFacts, Plan

SCRATCH_LIMIT = 256 << 20
MOST_BLOCKS = 2**31 - 1
MULTIPROCESSORS = (1, 8, 66, 108, 132)
each_device = pytest.mark.parametrize(
    "device",
    [DeviceFacts(multiprocessors=n) for n in MULTIPROCESSORS],
    ids=lambda device: f"{device.multiprocessors} SMs",
)


def meta(*sizes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(sizes, dtype=dtype, device="meta")


def backward_plan(x: Tensor, weight: Tensor, out_length: int, device: DeviceFacts) -> Plan:
    grad = meta(x.shape[0], weight.shape[0], out_length, dtype=x.dtype)
    padding = [0, out_length + weight.shape[2] - 1 - x.shape[2]]
    mask = [True, True, True]
    return torch_memops.plan(
        "_conv1d_backward", grad, x, weight, 1, padding, 1, 1, mask, device=device
    )


def constant_plan(x: Tensor, taps: int, padding: Any = 0) -> Plan:
    return torch_memops.plan("conv1d_constant", x, [1.0] * taps, padding)


@each_device
def test_direct_takes_everything(device: DeviceFacts) -> None:
    calls: list[tuple[Tensor, Tensor, dict[str, Any]]] = [
        (meta(2, 3, 8), meta(4, 3, 3), {}),
        (meta(3, 8), meta(4, 3, 3), {}),
        (meta(2, 8, 3).mT, meta(3, 1, 4), {"groups": 3, "padding": (3, 0), "stride": 2}),
        (meta(2, 3, 0), meta(4, 3, 2), {"padding": 1}),
        (meta(1, 1, 2**33, dtype=torch.float16), meta(1, 1, 17, dtype=torch.float16), {}),
    ]
    for x, weight, options in calls:
        plan = torch_memops.plan("conv1d", x, weight, device=device, **options)
        assert plan.kernel == "conv1d_direct"
        assert plan.reason
        assert plan.facts["blocks"] <= MOST_BLOCKS
        assert plan.facts["scratch_bytes"] == 0


def test_index_width() -> None:
    for length, bits in [(2**31 - 1, 32), (2**31, 64)]:
        plan = torch_memops.plan("conv1d", meta(1, 1, length), meta(1, 1, 1))
        assert plan.facts["index_bits"] == bits
        plan = backward_plan(meta(1, 1, length), meta(1, 1, 1), length, DeviceFacts())
        assert plan.facts["index_bits"] == bits


@pytest.mark.parametrize("op", ["conv1d", "_conv1d_backward", "conv1d_constant"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precision(op: str, dtype: torch.dtype) -> None:
    x, weight = meta(2, 3, 8, dtype=dtype), meta(4, 3, 3, dtype=dtype)
    if op == "conv1d":
        plan = torch_memops.plan(op, x, weight)
    elif op == "conv1d_constant":
        plan = constant_plan(x, 3)
    else:
        plan = backward_plan(x, weight, 6, DeviceFacts())
    assert plan.facts["precision"] == ("float64" if dtype == torch.float64 else "float32")
    assert plan.facts["dtype"] == str(dtype).removeprefix("torch.")


def test_refused_as_the_op_refuses() -> None:
    with pytest.raises(RuntimeError, match="groups is 0"):
        torch_memops.plan("conv1d", meta(2, 3, 8), meta(4, 3, 3), groups=0)
    with pytest.raises(NotImplementedError, match="float16, bfloat16, float32 and float64"):
        torch_memops.plan(
            "conv1d", meta(2, 3, 8, dtype=torch.int32), meta(4, 3, 3, dtype=torch.int32)
        )
    with pytest.raises(RuntimeError, match="taps is empty"):
        constant_plan(meta(8), 0)


def test_empty_results_launch_nothing() -> None:
    assert torch_memops.plan("conv1d", meta(0, 3, 8), meta(4, 3, 3)).kernel == "none"
    assert constant_plan(meta(0, 8), 3).kernel == "none"
    x, weight, grad = meta(2, 3, 8), meta(4, 3, 3), meta(2, 4, 6)
    nothing = [False, False, False]
    plan = torch_memops.plan("_conv1d_backward", grad, x, weight, 1, [0, 0], 1, 1, nothing)
    assert plan.kernel == "none"


@each_device
@pytest.mark.parametrize("width", [1, 3, 17, 8000])
@pytest.mark.parametrize("channels", [1, 64, 4096])
@pytest.mark.parametrize("length", [1, 2047, 2048, 5000, 2**24])
def test_split_sums_cover_every_term(
    device: DeviceFacts, width: int, channels: int, length: int
) -> None:
    """Splits times segment reach all terms; scratch stays small whatever the problem."""
    facts = backward_plan(meta(2, 1, length), meta(channels, 1, width), length, device).facts
    terms = 2 * length
    for kind in ("weight", "bias"):
        splits, segment = facts[f"{kind}_splits"], facts[f"{kind}_segment"]
        assert 1 <= splits <= max(1, terms // 2048)
        assert (splits - 1) * segment < terms <= splits * segment
    assert facts["scratch_bytes"] <= 1 << 20


@each_device
def test_one_filter_over_a_long_signal_uses_the_whole_device(device: DeviceFacts) -> None:
    length = 2**24
    plan = backward_plan(meta(1, 1, length), meta(1, 1, 17), length - 16, device)
    assert 17 * plan.facts["weight_splits"] >= 8 * device.multiprocessors
    assert plan.facts["bias_splits"] >= 8 * device.multiprocessors


def test_many_weights_need_no_scratch() -> None:
    facts = backward_plan(meta(8, 512, 3000), meta(512, 512, 3), 3000, DeviceFacts()).facts
    assert facts["weight_splits"] == 1


def test_gradients_that_are_not_wanted_take_no_launch_scratch_or_bytes() -> None:
    grad, x, weight = meta(2, 4, 6), meta(2, 3, 8), meta(4, 3, 3)
    products = 2 * 2 * 4 * 6 * 3 * 3

    def facts(*wanted: bool) -> dict[str, Any]:
        call = ("_conv1d_backward", grad, x, weight, 1, [0, 0], 1, 1, list(wanted))
        return torch_memops.plan(*call).facts

    assert facts(True, False, False)["launches"] == 1
    assert facts(True, False, False)["bytes"] == 4 * (48 + 36 + 48)  # grad, weight, input's
    assert facts(True, False, False)["flops"] == products
    assert facts(False, True, False)["bytes"] == 4 * (48 + 48 + 36)  # grad, input, weight's
    assert facts(False, False, True)["bytes"] == 4 * (48 + 4)
    assert facts(False, False, True)["flops"] == 48
    assert facts(True, True, True)["launches"] == 3
    assert facts(True, True, True)["flops"] == 2 * products + 48

    long = meta(1, 1, 2**24)
    call = ("_conv1d_backward", long, long, meta(1, 1, 1), 1, [0, 0], 1, 1)
    split = torch_memops.plan(*call, [True, True, True]).facts
    assert split["launches"] == 5  # both sums in two steps
    alone = torch_memops.plan(*call, [True, False, False]).facts
    assert (alone["launches"], alone["scratch_bytes"]) == (1, 0)


def test_gradients_without_channels_launch_nothing() -> None:
    call = ("_conv1d_backward", meta(2, 0, 6), meta(2, 0, 8), meta(4, 0, 3), 1, [0, 0], 1, 1)
    assert torch_memops.plan(*call, [True, True, True]).kernel == "none"


@pytest.mark.parametrize(
    ("dtype", "taps", "size", "launches"),
    [
        (torch.float32, 1, 32, 1),
        (torch.float32, 32, 32, 1),
        (torch.float32, 33, 256, 1),
        (torch.bfloat16, 257, 2048, 1),
        (torch.float16, 2049, 8000, 1),
        (torch.float32, 8000, 8000, 1),
        (torch.float32, 8001, 8000, 2),
        (torch.float16, 16001, 8000, 3),
        (torch.float64, 256, 256, 1),
        (torch.float64, 4000, 4000, 1),
        (torch.float64, 4001, 4000, 2),
    ],
)
def test_size_classes_of_the_taps(dtype: torch.dtype, taps: int, size: int, launches: int) -> None:
    facts = constant_plan(meta(2, 20000, dtype=dtype), taps).facts
    assert facts["taps_class"] == size
    assert facts["launches"] == launches
    assert (facts["scratch_bytes"] > 0) == (dtype.itemsize == 2 and launches > 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("taps", [1, 17, 512, 513, 8000, 20000])
@pytest.mark.parametrize("rows", [1, 3, 1000, 2**20])
@pytest.mark.parametrize("length", [1, 2, 100, 1023, 1024, 1025, 2**20])
def test_tiles_cover_the_result_and_fit_shared_memory(
    dtype: torch.dtype, taps: int, rows: int, length: int
) -> None:
    facts = constant_plan(meta(rows, length, dtype=dtype), taps, (taps - 1, 0)).facts
    outputs, tile_rows = facts["tile_outputs"], facts["tile_rows"]
    tiles = -(-rows // tile_rows) * -(-length // outputs)
    assert (facts["panels"] - 1) * facts["blocks"] < tiles <= facts["panels"] * facts["blocks"]
    assert facts["blocks"] <= MOST_BLOCKS
    assert facts["tile_pitch"] == outputs + facts["taps_per_pass"] - 1
    assert tile_rows <= facts["threads"]
    assert tile_rows * outputs <= 4 * facts["threads"]
    accumulator = max(dtype.itemsize, 4)
    assert tile_rows * facts["tile_pitch"] * accumulator <= facts["shared_bytes"] < 48 << 10
    assert facts["scratch_bytes"] <= SCRATCH_LIMIT


@pytest.mark.parametrize(
    ("dimensions", "steps", "rows"), [(8, 1, 2**8), (9, 2, 2**8), (10, 4, 2**8)]
)
def test_leading_dimensions_that_do_not_merge_are_walked_launch_by_launch(
    dimensions: int, steps: int, rows: int
) -> None:
    x = meta(*[2, 3] * dimensions, 7)[(slice(None), 0) * dimensions]
    assert x.dim() == dimensions + 1
    facts = constant_plan(x, 3, 1).facts
    assert facts["steps"] == steps
    assert facts["launches"] == steps
    assert facts["blocks"] == -(-rows // facts["tile_rows"])
    assert facts["bytes"] == 4 * 2 * steps * rows * 7
    assert facts["flops"] == 2 * steps * rows * 7 * 3


def test_panels_bound_the_scratch() -> None:
    facts = constant_plan(meta(2**28, dtype=torch.bfloat16), 20000).facts
    assert facts["panels"] == 4
    assert facts["launches"] == 12
    assert facts["scratch_bytes"] == SCRATCH_LIMIT
