"""causal_conv1d and causal_conv1d_update: the state, packed sequences, layouts, decoding."""

import time
from typing import Any

import pytest
import torch
from support import reference
from support.accuracy import ROUNDOFF, assert_no_less_accurate, assert_within_bound
from support.devices import FLOATS, HALVES, name
from support.samples import CAUSAL_CONV1D, CAUSAL_CONV1D_UPDATE, Case
from support.tensors import Make, assert_same_bits
from torch import Tensor

import torch_memops

float_dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=name)


def wide(value: Any) -> Any:
    """Tensors of floating type as f64 on the CPU; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    host = value.detach().cpu()
    return host.to(torch.float64, copy=True) if host.is_floating_point() else host


def check(*args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """causal_conv1d against float64, every element; the result is returned."""
    y, state = torch_memops.causal_conv1d(*args, **options)
    x, weight = args[0], args[1]
    assert isinstance(x, Tensor)
    assert isinstance(weight, Tensor)
    wide_args = [wide(a) for a in args]
    wide_options = {key: wide(value) for key, value in options.items()}
    expected, expected_state = reference.causal_conv1d(*wide_args, **wide_options)
    sizes: list[Any] = [a.abs() if isinstance(a, Tensor) else a for a in wide_args]
    plain = {k: v for k, v in wide_options.items() if k not in ("silu", "final_state")}
    if isinstance(plain.get("initial_state"), Tensor):
        plain["initial_state"] = plain["initial_state"].abs()
    magnitude, _ = reference.causal_conv1d(*sizes, **plain)
    if options.get("silu"):
        # |silu'| < 1.1, and exp() and the division add a few roundoffs of the result.
        magnitude = 1.1 * magnitude + 8 * expected.abs()
    assert y.dtype == x.dtype
    if x.device.type == "cpu" and x.dtype in HALVES and x.numel():
        # A CPU without 16-bit arithmetic may round between the convolution and silu, as ATen does.
        peer_options = {k: v for k, v in options.items() if k in ("initial_state", "silu")}
        peer = (
            reference.causal_conv1d(*args, **options)[0]
            if "seq_idx" in options
            else reference.causal_conv1d_peer(*args, **peer_options)
        )
        assert_no_less_accurate(y, peer, expected, "causal_conv1d")
    else:
        assert_within_bound(y, expected, magnitude, weight.shape[1] + 1, "causal_conv1d")
    if options.get("final_state"):
        assert torch.equal(state.double().cpu(), expected_state)
    else:
        assert state.shape == (0,)
    return y, state


def small(device: str, length: int) -> dict[str, Any]:
    """One channel, K = 4: taps 1, 10, 100, 1000, state 2, 3, 4, inputs 5, 6, 7 ..."""
    x = torch.arange(5.0, 5.0 + length, device=device).view(1, 1, length)
    weight = torch.tensor([[1.0, 10.0, 100.0, 1000.0]], device=device)
    state = torch.tensor([[[2.0, 3.0, 4.0]]], device=device)
    return {"x": x, "weight": weight, "initial_state": state}


@pytest.mark.sanitize
@float_dtypes
@pytest.mark.parametrize("case", CAUSAL_CONV1D.cases, ids=lambda case: case.name)
def test_samples(case: Case, device: str, dtype: torch.dtype) -> None:
    args, options = case.make(Make(device, dtype))
    y, _ = check(*args, **options)
    assert y.stride() == torch.empty_like(args[0]).stride()


@pytest.mark.parametrize(
    ("length", "y", "state"),
    [
        (0, [], [2, 3, 4]),
        (1, [5432], [3, 4, 5]),
        (2, [5432, 6543], [4, 5, 6]),
        (3, [5432, 6543, 7654], [5, 6, 7]),
    ],
)
def test_input_shorter_than_the_window(
    device: str, length: int, y: list[float], state: list[float]
) -> None:
    """vllm-ascend#8561, fla#546: the new state mixes old and new."""
    out, final = torch_memops.causal_conv1d(**small(device, length), final_state=True)
    assert out.flatten().tolist() == y
    assert out.shape == (1, 1, length)
    assert final.tolist() == [[state]]


def test_final_state_is_a_copy(device: str) -> None:
    args = small(device, 0)
    _, final = torch_memops.causal_conv1d(**args, final_state=True)
    final.zero_()
    assert args["initial_state"].tolist() == [[[2, 3, 4]]]


def test_width_one(device: str) -> None:
    """vllm-gaudi#1484, lm-engine#502: a state of length 0 stays of length 0."""
    x = torch.tensor([[[1.0, 2.0]]], device=device)
    weight = torch.tensor([[2.0]], device=device)
    state = torch.empty(1, 1, 0, device=device)
    y, final = torch_memops.causal_conv1d(x, weight, initial_state=state, final_state=True)
    assert y.tolist() == [[[2, 4]]]
    assert final.shape == (1, 1, 0)
    step = torch_memops.causal_conv1d_update(x[..., 0], state, weight)
    assert step.tolist() == [[2]]


def test_weight_gradient_keeps_the_state(device: str) -> None:
    """fla#568: also where the state itself needs no gradient."""
    args = small(device, 1)
    args["weight"].requires_grad_()
    y, _ = torch_memops.causal_conv1d(**args)
    y.sum().backward()
    assert args["weight"].grad is not None
    assert args["weight"].grad.tolist() == [[2, 3, 4, 5]]


@pytest.mark.parametrize("kind", ["expanded", "channels-last"])
def test_gradients_do_not_depend_on_the_strides_of_the_incoming_one(device: str, kind: str) -> None:
    """fla#1138."""
    make = Make(device, requires_grad=True)
    leaves = (make.tensor(2, 3, 6), make.tensor(3, 4), make.tensor(3), make.tensor(2, 3, 3))
    y, _ = torch_memops.causal_conv1d(*leaves)
    if kind == "expanded":
        grad = torch.ones((), device=device).expand(2, 3, 6)
    else:
        grad = Make(device, seed=2).tensor(2, 3, 6, layout="transposed")
    ours = torch.autograd.grad(y, leaves, grad, retain_graph=True)
    packed = torch.autograd.grad(y, leaves, grad.contiguous())
    for mine, other in zip(ours, packed, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-6)


def test_state_gradients_flow_through_both_results(device: str) -> None:
    """A short input: the final state hands its gradient on to the initial state and to x."""
    make = Make(device, torch.float64, requires_grad=True)
    x, weight, state = make.tensor(2, 3, 2), make.tensor(3, 4), make.tensor(2, 3, 3)
    results = torch_memops.causal_conv1d(x, weight, initial_state=state, final_state=True)
    expected = reference.causal_conv1d(x, weight, initial_state=state, final_state=True)
    grads = [Make(device, torch.float64, seed=3).tensor(*r.shape) for r in results]
    ours = torch.autograd.grad(results, (x, weight, state), grads)
    theirs = torch.autograd.grad(expected, (x, weight, state), grads)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_only_the_state_has_a_gradient(device: str) -> None:
    """y is not used: its incoming gradient is undefined."""
    make = Make(device, torch.float64, requires_grad=True)
    x, weight, state = make.tensor(1, 2, 2), make.tensor(2, 4), make.tensor(1, 2, 3)
    _, final = torch_memops.causal_conv1d(x, weight, initial_state=state, final_state=True)
    ours = torch.autograd.grad(final.sum(), (x, weight, state), allow_unused=True)
    for mine, expected in zip(
        ours, (torch.ones_like(x), torch.zeros_like(weight), torch.ones_like(state)), strict=True
    ):
        if mine is None:
            assert not expected.any()
            continue
        if mine.shape == state.shape:
            expected = torch.tensor([0.0, 0.0, 1.0], device=device).double().expand_as(state)
        torch.testing.assert_close(mine, expected, check_stride=False)


@pytest.mark.sanitize
@float_dtypes
@pytest.mark.parametrize("case", CAUSAL_CONV1D.cases, ids=lambda case: case.name)
def test_gradients(case: Case, device: str, dtype: torch.dtype) -> None:
    """Gradients of every floating argument against float64, for gradients of both results."""
    args, options = case.make(Make(device, dtype, requires_grad=True))
    leaves = [
        t for t in (*args, *options.values()) if isinstance(t, Tensor) and t.is_floating_point()
    ]
    wide_args = [_leaf(a) for a in args]
    wide_options = {key: _leaf(value) for key, value in options.items()}
    wide_leaves = [
        t
        for t in (*wide_args, *wide_options.values())
        if isinstance(t, Tensor) and t.is_floating_point()
    ]
    used = 2 if options.get("final_state") else 1
    results = torch_memops.causal_conv1d(*args, **options)[:used]
    expected = reference.causal_conv1d(*wide_args, **wide_options)[:used]
    grads = [Make(device, dtype, seed=2 + n).tensor(*r.shape) for n, r in enumerate(results)]
    ours = torch.autograd.grad(results, leaves, grads)
    theirs = torch.autograd.grad(expected, wide_leaves, [wide(g) for g in grads])
    for mine, other, leaf in zip(ours, theirs, leaves, strict=True):
        assert mine.dtype == dtype
        assert mine.shape == leaf.shape
        scale = float(other.abs().max()) if other.numel() else 0.0
        # On the CPU ATen's 16-bit chain rounds after each step.
        unit = (32 if device == "cpu" and dtype in HALVES else 8) * torch.finfo(dtype).eps
        torch.testing.assert_close(wide(mine), other, rtol=0, atol=unit * scale)


def _leaf(value: Any) -> Any:
    """A copy in f64 that wants a gradient; anything but a floating tensor as it is."""
    copied = wide(value)
    if isinstance(copied, Tensor) and copied.is_floating_point():
        return copied.requires_grad_()
    return copied


@float_dtypes
@pytest.mark.parametrize("length", [255, 256, 257, 1023, 1024, 1026, 2049])
def test_lengths_round_tile_edges(device: str, length: int, dtype: torch.dtype) -> None:
    """vllm#10895: tails that are no multiple of a vector."""
    make = Make(device, dtype)
    for layout in ("contiguous", "transposed"):
        x = make.tensor(1, 5, length, layout=layout)
        check(x, make.tensor(5, 4), make.tensor(5), final_state=True)


@float_dtypes
def test_no_leak_from_the_future(device: str, dtype: torch.dtype) -> None:
    """mamba#437, mamba#580."""
    make = Make(device, dtype)
    x, weight = make.tensor(2, 3, 20), make.tensor(3, 4)
    changed = x.clone()
    changed[..., 7:] = torch.inf
    y, _ = torch_memops.causal_conv1d(x, weight)
    other, _ = torch_memops.causal_conv1d(changed, weight)
    assert y.shape == (2, 3, 20)
    assert_same_bits(y[..., :7], other[..., :7])


@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("width", [2, 3, 4, 9])
def test_chunks_and_steps_equal_the_whole(device: str, width: int, silu: bool) -> None:
    """fla#494: 37 inputs at once, as 1 + 2 + 3 + 31, and one by one; f64."""
    make = Make(device, torch.float64)
    x, weight, bias = make.tensor(2, 3, 37), make.tensor(3, width), make.tensor(3)
    whole, last = torch_memops.causal_conv1d(x, weight, bias, silu=silu, final_state=True)
    assert torch.equal(last, x[..., 37 - (width - 1) :])
    state = torch.zeros(2, 3, width - 1, dtype=torch.float64, device=device)
    pieces = []
    for chunk in x.split([1, 2, 3, 31], -1):
        y, state = torch_memops.causal_conv1d(
            chunk, weight, bias, state, silu=silu, final_state=True
        )
        pieces.append(y)
    torch.testing.assert_close(torch.cat(pieces, -1), whole, rtol=0, atol=1e-12)
    assert torch.equal(state, last)
    decode = torch.zeros_like(state)
    steps = [
        torch_memops.causal_conv1d_update(x[..., t], decode, weight, bias, silu) for t in range(37)
    ]
    torch.testing.assert_close(torch.stack(steps, -1), whole, rtol=0, atol=1e-12)
    assert torch.equal(decode, last)


@float_dtypes
def test_packed_sequences_equal_separate_ones(device: str, dtype: torch.dtype) -> None:
    make = Make(device, dtype)
    lengths = [1, 2, 5, 9]
    x, weight, bias = make.tensor(1, 3, sum(lengths)), make.tensor(3, 4), make.tensor(3)
    owner = torch.repeat_interleave(torch.arange(4), torch.tensor(lengths))
    seq_idx = owner.to(device, torch.int32)[None]
    packed, _ = check(x, weight, bias, seq_idx=seq_idx)
    for piece, part in zip(packed.split(lengths, -1), x.split(lengths, -1), strict=True):
        separate, _ = check(part, weight, bias)
        unit = 4 * ROUNDOFF[dtype]
        torch.testing.assert_close(piece, separate, rtol=unit, atol=16 * unit)


@float_dtypes
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "pitched", "strided"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 5, 33), (1, 67, 130), (3, 64, 129)])
def test_layouts(device: str, shape: tuple[int, int, int], layout: str, dtype: torch.dtype) -> None:
    """Channels-first and channels-last, with any pitch; the result has x's layout."""
    make = Make(device, dtype)
    x = make.tensor(*shape, layout=layout)
    y, _ = check(x, make.tensor(shape[1], 4), make.tensor(shape[1]), silu=True)
    if layout == "transposed" and min(shape[1:]) > 1:
        assert y.transpose(1, 2).is_contiguous()
    plain = torch_memops.causal_conv1d(x.contiguous(), make.tensor(shape[1], 4))[0]
    assert plain.is_contiguous()


def test_projection_chunk_as_input(device: str) -> None:
    """A chunk of a projection, channels-last with twice the pitch, as Mamba hands it over."""
    make = Make(device)
    both = make.tensor(2, 11, 128)
    x = both[..., 64:].transpose(1, 2)
    weight = make.tensor(64, 1, 4).squeeze(1)
    y, _ = check(x, weight, make.tensor(64), silu=True)
    assert y.transpose(1, 2).is_contiguous()


def test_mixed_activation_and_weight_types(device: str) -> None:
    """cudnn-frontend#799, fla#1264: bf16 activations, f32 weights."""
    make = Make(device)
    x = make.tensor(2, 3, 8).bfloat16()
    weight, bias = make.tensor(3, 4).requires_grad_(), make.tensor(3)
    with torch.autocast(device, dtype=torch.bfloat16):
        y, _ = torch_memops.causal_conv1d(x, weight, bias)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    try:
        y, _ = torch_memops.causal_conv1d(x, weight, bias)
    except RuntimeError as error:
        message = str(error).lower()
        assert "causal_conv1d" in message
        assert "bfloat16" in message
        assert "float" in message.replace("bfloat16", "")
    else:
        assert y.dtype == torch.bfloat16


@pytest.mark.cuda
@pytest.mark.parametrize("shape", [(2, 1024, 768), (1, 512, 512), (1, 512, 768), (1, 128, 768)])
def test_backward_of_model_sizes(shape: tuple[int, int, int]) -> None:
    """fla#955, fla#1156: wrong or endless at some (B, L, C)."""
    batch, length, channels = shape
    make = Make("cuda", torch.bfloat16, requires_grad=True)
    x, weight = make.tensor(batch, channels, length), make.tensor(channels, 4)
    y, _ = torch_memops.causal_conv1d(x, weight, silu=True)
    grad = torch.randn_like(y)
    torch.cuda.synchronize()
    start = time.perf_counter()
    dx, dw = torch.autograd.grad(y, (x, weight), grad)
    torch.cuda.synchronize()
    assert time.perf_counter() - start < 1
    x64, weight64 = (t.detach().double().requires_grad_() for t in (x, weight))
    y64, _ = reference.causal_conv1d(x64, weight64, silu=True)
    expected = torch.autograd.grad(y64, (x64, weight64), grad.double())
    # The forward pre-activation is recomputed from rounded inputs: errors are those of bf16 inputs.
    u = ROUNDOFF[torch.bfloat16]
    for mine, other in zip((dx, dw), expected, strict=True):
        error = torch.linalg.vector_norm(mine.double() - other)
        assert float(error / torch.linalg.vector_norm(other)) < u


@pytest.mark.sanitize
@float_dtypes
@pytest.mark.parametrize("case", CAUSAL_CONV1D_UPDATE.cases, ids=lambda case: case.name)
def test_update_samples(case: Case, device: str, dtype: torch.dtype) -> None:
    args, options = case.make(Make(device, dtype))
    x, state, weight, *bias = args
    wide_args = [wide(a) for a in args]
    wide_options = {key: wide(value) for key, value in options.items()}
    expected = reference.causal_conv1d_update(*wide_args, **wide_options)
    y = torch_memops.causal_conv1d_update(x, state, weight, *bias, **options)
    torch.testing.assert_close(
        y.double().cpu(),
        expected,
        rtol=8 * ROUNDOFF[dtype],
        atol=64 * ROUNDOFF[dtype if dtype == torch.float64 else torch.float32],
    )
    assert torch.equal(state.double().cpu(), wide_args[1])


def test_update_writes_the_state_and_says_so(device: str) -> None:
    """causal-conv1d#42: the mutation is in the schema, and a second call sees the new state."""
    args = small(device, 1)
    schema = torch.ops.memops.causal_conv1d_update.default._schema
    written = [
        a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write
    ]
    assert written == ["conv_state"]
    state = args["initial_state"]
    first = torch_memops.causal_conv1d_update(args["x"][..., 0], state, args["weight"])
    assert first.item() == 5432
    assert state.tolist() == [[[3, 4, 5]]]
    second = torch_memops.causal_conv1d_update(args["x"][..., 0], state, args["weight"])
    assert second.item() == 5543
    assert state.tolist() == [[[4, 5, 5]]]


def test_update_leaves_other_rows_alone(device: str) -> None:
    make = Make(device)
    x, state, weight = make.tensor(2, 3), make.tensor(6, 3, 3), make.tensor(3, 4)
    before = state.clone()
    rows = torch.tensor([4, 1], dtype=torch.int32, device=device)
    torch_memops.causal_conv1d_update(x, state, weight, conv_state_indices=rows)
    assert torch.equal(state[[0, 2, 3, 5]], before[[0, 2, 3, 5]])
    assert not torch.equal(state[[4, 1]], before[[4, 1]])


def test_update_bumps_the_version(device: str) -> None:
    """A state that backward needs later is not overwritten without a word."""
    make = Make(device)
    state = make.tensor(2, 3, 3)
    scale = make.tensor(2, 3, 3).requires_grad_()
    y = scale * state
    version = state._version
    torch_memops.causal_conv1d_update(make.tensor(2, 3), state, make.tensor(3, 4))
    assert state._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_update_has_no_gradient(device: str) -> None:
    """pytorch-finufft#110: an error that names the op, never zero gradients or tangents."""
    make = Make(device)
    x, state, weight = make.tensor(2, 3), make.tensor(2, 3, 3), make.tensor(3, 4)
    with pytest.raises(RuntimeError, match=r"causal_conv1d_update.*x.*gradient"):
        torch_memops.causal_conv1d_update(x.clone().requires_grad_(), state.clone(), weight)
    with pytest.raises(RuntimeError, match=r"causal_conv1d_update.*weight.*gradient"):
        torch_memops.causal_conv1d_update(x, state.clone(), weight.clone().requires_grad_())
    with pytest.raises(RuntimeError, match="causal_conv1d_update"):
        torch.func.jvp(
            lambda t: torch_memops.causal_conv1d_update(t, state.clone(), weight), (x,), (x,)
        )
    with torch.no_grad():
        leaf = weight.clone().requires_grad_()
        assert not torch_memops.causal_conv1d_update(x, state, leaf).requires_grad


def test_ring_wraps_many_times(device: str) -> None:
    """A ring longer than the window, 23 steps, some two at a time, equals the plain form."""
    make = Make(device, torch.float64)
    x, weight = make.tensor(2, 3, 23), make.tensor(3, 4)
    expected, _ = torch_memops.causal_conv1d(x, weight)
    ring = torch.zeros(2, 3, 5, dtype=torch.float64, device=device)
    seen, pieces = 0, []
    for chunk in x.split([1, 2, 1, 3, 1, 2, 5, 1, 7], -1):
        lengths = torch.full((2,), seen, dtype=torch.int32, device=device)
        pieces.append(torch_memops.causal_conv1d_update(chunk, ring, weight, cache_seqlens=lengths))
        seen += chunk.shape[-1]
    torch.testing.assert_close(torch.cat(pieces, -1), expected, rtol=0, atol=1e-12)
