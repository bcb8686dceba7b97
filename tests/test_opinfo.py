"""PyTorch's own samples for the functions that the ops stand in for: results and gradients."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

import torch_memops

pytestmark = pytest.mark.core

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _one(value: Any) -> int:
    """An int from the int or tuple of one that F.conv1d takes."""
    return value[0] if isinstance(value, tuple | list) else value


def _conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    sides = padding if isinstance(padding, str) else _one(padding)
    return torch_memops.conv1d(input, weight, bias, _one(stride), sides, _one(dilation), groups)


def _index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    if input.dim() == 0:
        return torch_memops.gather_aos(input.reshape(1), index.reshape(1)).reshape(())
    if input.dim() == 2 and dim in (1, -1):
        return torch_memops.gather_soa(input, index)
    moved = torch_memops.gather_aos(input.movedim(dim, 0), index.reshape(-1))
    return moved.movedim(0, dim)


def _embedding(weight: Tensor, index: Tensor, padding_idx: int | None = None, **_: Any) -> Tensor:
    return torch_memops.embedding(index, weight, padding_idx)


def _copy(input: Tensor, **_: Any) -> Tensor:
    return torch_memops.copy(input)


@dataclass(frozen=True)
class Stand:
    """How one of PyTorch's functions is called through us.

    arithmetic: the four floating types on CUDA; otherwise every dtype of the samples.
    """

    call: Callable[..., Tensor]
    arithmetic: bool


STANDS = {
    "matmul": Stand(torch_memops.matmul, True),
    "mm": Stand(torch_memops.matmul, True),
    "bmm": Stand(torch_memops.matmul, True),
    "mv": Stand(torch_memops.matmul, True),
    "nn.functional.linear": Stand(torch_memops.linear, True),
    "nn.functional.conv1d": Stand(_conv1d, True),
    "nn.functional.embedding": Stand(_embedding, False),
    "index_select": Stand(_index_select, False),
    "clone": Stand(_copy, False),
    "contiguous": Stand(_copy, False),
}

INFOS = [
    pytest.param(info, id=f"{info.name}{info.variant_test_name and '-' + info.variant_test_name}")
    for info in op_db
    if info.name in STANDS
]


def left_out(sample: SampleInput) -> bool:
    """Embedding's options that change the table or the kind of gradient are not ours."""
    options = sample.kwargs
    return bool(
        options.get("max_norm") is not None
        or options.get("scale_grad_by_freq")
        or options.get("sparse")
    )


def samples(info: OpInfo, device: str, dtype: torch.dtype, grad: bool) -> list[SampleInput]:
    """PyTorch's samples, without those that are no business of ours."""
    found = [s for s in info.sample_inputs(device, dtype, requires_grad=grad) if not left_out(s)]
    assert found
    return found


def dtypes(info: OpInfo, device: str) -> list[torch.dtype]:
    """The dtypes to test on the device."""
    supported = sorted(info.supported_dtypes(device), key=str)
    if STANDS[info.name].arithmetic and device == "cuda":
        return [d for d in supported if d in FLOATS]
    return supported


def magnitude(info: OpInfo, sample: SampleInput) -> Tensor | None:
    """The sums of the products' absolute values: roundoffs are relative to it, not to the result."""

    def absolute(value: Any) -> Any:
        real = isinstance(value, Tensor) and value.dtype in FLOATS
        return value.abs() if real else value

    if not STANDS[info.name].arithmetic or sample.input.dtype not in FLOATS:
        return None
    values = {name: absolute(value) for name, value in sample.kwargs.items()}
    return info.op(absolute(sample.input), *map(absolute, sample.args), **values)


def assert_same_values(
    actual: Tensor | None, expected: Tensor | None, what: str, sums: Tensor | None = None
) -> None:
    """Equal up to a few roundoffs of the largest element or sum; exact for integers and layouts."""
    if actual is None or expected is None:
        assert actual is expected, what
        return
    inexact = expected.dtype.is_floating_point or expected.dtype.is_complex
    unit = torch.finfo(expected.dtype).eps if inexact else 0.0
    largest = expected.detach() if sums is None else sums
    scale = float(largest.abs().max()) if inexact and expected.numel() else 0.0
    torch.testing.assert_close(
        actual, expected, rtol=4 * unit, atol=4 * unit * scale, msg=lambda m: f"{what}\n{m}"
    )


def test_every_function_has_samples() -> None:
    assert {info.name for info in op_db} >= set(STANDS)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", INFOS)
def test_results(info: OpInfo, device: str) -> None:
    """Same values, shapes and dtypes for every sample of every dtype."""
    for dtype in dtypes(info, device):
        for sample in samples(info, device, dtype, grad=False):
            expected = info.op(sample.input, *sample.args, **sample.kwargs)
            out = STANDS[info.name].call(sample.input, *sample.args, **sample.kwargs)
            assert out.dtype == expected.dtype
            assert_same_values(out, expected, f"{dtype} {sample}", magnitude(info, sample))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", INFOS)
def test_gradients(info: OpInfo, device: str) -> None:
    """Same gradients for every sample of every floating dtype."""
    for dtype in dtypes(info, device):
        if dtype not in FLOATS:
            continue
        for sample in samples(info, device, dtype, grad=True):
            values = [sample.input, *sample.args, *sample.kwargs.values()]
            leaves = [v for v in values if isinstance(v, Tensor) and v.requires_grad]
            expected = info.op(sample.input, *sample.args, **sample.kwargs)
            out = STANDS[info.name].call(sample.input, *sample.args, **sample.kwargs)
            if not expected.requires_grad:
                assert not out.requires_grad
                continue
            grad = torch.randn(expected.shape, dtype=torch.float64).to(device, dtype)
            ours = torch.autograd.grad(out, leaves, grad, allow_unused=True)
            theirs = torch.autograd.grad(expected, leaves, grad, allow_unused=True)
            for mine, other in zip(ours, theirs, strict=True):
                assert_same_values(mine, other, f"{dtype} {sample}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", INFOS)
def test_errors(info: OpInfo, device: str) -> None:
    """What PyTorch's own tests list as an error raises the same type here."""
    if info.error_inputs_func is None:
        assert info.name in (
            "matmul",
            "mm",
            "bmm",
            "mv",
            "clone",
            "contiguous",
            "nn.functional.linear",
        )
        return
    for wrong in info.error_inputs(device):
        sample = wrong.sample_input
        if "out" in sample.kwargs or left_out(sample):
            continue
        with pytest.raises(wrong.error_type):
            info.op(sample.input, *sample.args, **sample.kwargs)
        with pytest.raises(wrong.error_type) as caught:
            STANDS[info.name].call(sample.input, *sample.args, **sample.kwargs)
        assert re.search(r"conv1d|embedding|gather|index", str(caught.value)), str(caught.value)


def test_embedding_of_a_0d_index(device: str) -> None:
    weight = torch.randn(4, 3, device=device)
    index = torch.tensor(2, device=device)
    assert torch.equal(torch_memops.embedding(index, weight), F.embedding(index, weight))
