"""Bad arguments, one row a mistake: the exception type and the words, on CPU, CUDA and Meta.

A message names the op and the argument, says what was given and what is accepted, and is the same
on every device; nothing is launched or written.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.devices import DEVICES
from support.mistakes import MISTAKES, Mistake, On
from torch import Tensor

import torch_memops as m

pytestmark = pytest.mark.core

DEVICES_AND_META = (*DEVICES, pytest.param("meta", id="meta"))


def message(mistake: Mistake, device: str) -> str:
    """The first line of what the mistake raises on the device."""
    on = On(device)
    with pytest.raises(mistake.error) as caught:
        mistake.call(on)
    assert not isinstance(caught.value, AssertionError)
    return str(caught.value).splitlines()[0]


@pytest.mark.parametrize("device", DEVICES_AND_META)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake(mistake: Mistake, device: str) -> None:
    text = message(mistake, device)
    assert re.search(mistake.words, text), text
    if mistake.words:
        assert text == message(mistake, "cpu")
    if device == "cuda":
        torch.cuda.synchronize()  # nothing was launched that fails later


TOO_LARGE: dict[str, Callable[[On], Any]] = {
    "copy": lambda on: m.copy(on.wide(2**50)),
    "aos_to_soa": lambda on: m.aos_to_soa(on.wide(2**25, 2**25)),
    "matmul": lambda on: m.matmul(on.wide(2**25, 2), on.wide(2, 2**25)),
    "linear": lambda on: m.linear(on.wide(2**25, 2), on.wide(2**25, 2)),
    "gather_aos": lambda on: m.gather_aos(on.wide(3, 2**25), on.index(0).expand(2**25)),
    "gather_soa": lambda on: m.gather_soa(on.wide(2**25, 3), on.index(0).expand(2**25)),
    "conv1d": lambda on: m.conv1d(on.wide(2**25, 1, 2**25), on.ones(1, 1, 1)),
    "conv1d_constant": lambda on: m.conv1d_constant(on.ones(3), [1.0], padding=2**49),
    "causal_conv1d": lambda on: m.causal_conv1d(on.wide(2**25, 3, 2**25), on.ones(3, 4)),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_result_that_fits_no_memory(name: str, device: str) -> None:
    """A petabyte: RuntimeError (torch.OutOfMemoryError on CUDA), and the process lives on."""
    expected = torch.OutOfMemoryError if device == "cuda" else RuntimeError
    with pytest.raises(expected, match=r"(?i)memory|alloc"):
        TOO_LARGE[name](On(device))
    result = TOO_LARGE[name](On("meta"))
    first = result[0] if isinstance(result, tuple) else result
    assert first.numel() >= 2**50
    assert m.copy(torch.ones(2, device=device)).sum() == 2


UNSUPPORTED: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "matmul": lambda t, u: m.matmul(t, t.mT),
    "linear": lambda t, u: m.linear(t, t),
    "conv1d": lambda t, u: m.conv1d(t[None], u),
    "causal_conv1d": lambda t, u: m.causal_conv1d(t[None], t[:, :2]),
}


@pytest.mark.cuda
@pytest.mark.parametrize(
    "dtype",
    [torch.int64, torch.int8, torch.bool, torch.complex64, torch.float8_e4m3fn],
    ids=lambda dtype: str(dtype)[6:],
)
@pytest.mark.parametrize("name", UNSUPPORTED)
def test_dtype_that_cuda_lacks(name: str, dtype: torch.dtype) -> None:
    """NotImplementedError that names what is supported."""
    t = torch.zeros(3, 4, device="cuda").to(dtype)
    u = torch.zeros(2, 3, 2, device="cuda").to(dtype)
    words = rf"(?s){name}.*float16.*bfloat16.*float32.*float64"
    with pytest.raises(NotImplementedError, match=words):
        UNSUPPORTED[name](t, u)


Unary = Callable[[Tensor], Any]
IN_EACH_PLACE: dict[str, Unary] = {
    "matmul": lambda t: m.matmul(t, torch.ones(3, 3, device=t.device)),
    "matmul-right": lambda t: m.matmul(torch.ones(3, 3, device=t.device), t),
    "linear": lambda t: m.linear(t, torch.ones(3, 3, device=t.device)),
    "linear-weight": lambda t: m.linear(torch.ones(3, 3, device=t.device), t),
    "conv1d": lambda t: m.conv1d(t, torch.ones(3, 3, 1, device=t.device)),
    "conv1d_constant": lambda t: m.conv1d_constant(t, [1.0]),
    "copy": m.copy,
    "copy_": lambda t: m.copy_(torch.ones(3, 3, device=t.device), t),
    "copy_-dst": lambda t: m.copy_(t, torch.ones(3, 3, device=t.device)),
    "aos_to_soa": m.aos_to_soa,
    "soa_to_aos": m.soa_to_aos,
    "gather_aos": lambda t: m.gather_aos(t, torch.tensor([0], device=t.device)),
    "gather_soa": lambda t: m.gather_soa(t, torch.tensor([0], device=t.device)),
}

KINDS: dict[str, Unary] = {
    "coo": lambda t: t.to_sparse(),
    "csr": lambda t: t.to_sparse_csr(),
    "csc": lambda t: t.to_sparse_csc(),
    "nested": lambda t: torch.nested.nested_tensor([t, t[:2]]),
    "mkldnn": lambda t: t.to_mkldnn(),
    "quantized": lambda t: torch.quantize_per_tensor(t, 0.1, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", IN_EACH_PLACE)
def test_tensors_that_are_not_strided(place: str, kind: str, device: str) -> None:
    """pytorch#145604, pytorch#18347: an error that names the op, never a crash."""
    if kind == "mkldnn" and device == "cuda":
        pytest.skip("mkldnn tensors live on the CPU")
    tensor = KINDS[kind](torch.eye(3, device=device))
    with pytest.raises((RuntimeError, NotImplementedError)) as caught:
        IN_EACH_PLACE[place](tensor)
    assert place.split("-")[0].rstrip("_") in str(caught.value)


TWO_PLACES: dict[str, Callable[[On, On], Any]] = {
    "matmul": lambda a, b: m.matmul(a.ones(2, 3), b.ones(3, 4)),
    "linear": lambda a, b: m.linear(a.ones(2, 3), b.ones(4, 3)),
    "linear-bias": lambda a, b: m.linear(a.ones(2, 3), a.ones(4, 3), b.ones(4)),
    "conv1d": lambda a, b: m.conv1d(a.ones(2, 3, 5), b.ones(4, 3, 2)),
    "conv1d-bias": lambda a, b: m.conv1d(a.ones(2, 3, 5), a.ones(4, 3, 2), b.ones(4)),
    "causal_conv1d": lambda a, b: m.causal_conv1d(a.ones(2, 3, 5), b.ones(3, 4)),
    "causal_conv1d-state": lambda a, b: m.causal_conv1d(
        a.ones(2, 3, 5), a.ones(3, 4), initial_state=b.ones(2, 3, 3)
    ),
    "causal_conv1d_update": lambda a, b: m.causal_conv1d_update(
        a.ones(2, 3), b.ones(2, 3, 3), a.ones(3, 4)
    ),
    "gather_aos": lambda a, b: m.gather_aos(a.ones(3, 2), b.index(0)),
    "gather_soa": lambda a, b: m.gather_soa(a.ones(2, 3), b.index(0)),
}


@pytest.mark.parametrize("name", TWO_PLACES)
def test_meta_beside_a_real_tensor(name: str, device: str) -> None:
    for first, second in ((device, "meta"), ("meta", device)):
        with pytest.raises(
            RuntimeError,
            match=rf"(?s){name.split('-')[0]}.*{first}.*{second}|{name.split('-')[0]}.*{second}.*{first}",
        ):
            TWO_PLACES[name](On(first), On(second))


@pytest.mark.cuda
@pytest.mark.parametrize("name", TWO_PLACES)
def test_two_devices(name: str) -> None:
    for first, second in (("cpu", "cuda"), ("cuda", "cpu")):
        with pytest.raises(RuntimeError, match=rf"(?s){name.split('-')[0]}.*(cpu.*cuda|cuda.*cpu)"):
            TWO_PLACES[name](On(first), On(second))


def test_nothing_is_written_before_the_check(device: str) -> None:
    state = torch.zeros(2, 3, 3, device=device)
    with pytest.raises(RuntimeError, match="causal_conv1d_update"):
        m.causal_conv1d_update(
            torch.ones(2, 3, device=device), state, torch.ones(3, 4, device=device), torch.ones(2)
        )
    assert not state.any()


def test_index_of_the_state_out_of_range_on_the_cpu() -> None:
    state = torch.zeros(2, 3, 3)
    for bad in (2, -1):
        rows = torch.tensor([0, bad], dtype=torch.int32)
        with pytest.raises(IndexError, match=rf"causal_conv1d_update.*{bad}"):
            m.causal_conv1d_update(
                torch.ones(2, 3), state, torch.ones(3, 4), conv_state_indices=rows
            )
    assert not state.any()


class Logged(torch.Tensor):
    """A subclass as users write them: it keeps its type through PyTorch's functions."""


@pytest.mark.parametrize("place", [p for p in IN_EACH_PLACE if p != "copy_-dst" and p != "copy_"])
def test_subclasses_dispatch(place: str, device: str) -> None:
    """Tensor subclasses are not refused."""
    plain = torch.eye(3, device=device)
    out = IN_EACH_PLACE[place](plain.as_subclass(Logged))
    assert torch.equal(torch.Tensor(out.as_subclass(torch.Tensor)), IN_EACH_PLACE[place](plain))
