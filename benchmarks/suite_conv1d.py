"""Cases of the suite conv1d: one filter, depthwise and causal, dense, decoding, and gradients."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

import torch_memops as memops

from . import conv1d_forms as forms
from .workload import (
    DTYPES,
    Case,
    Check,
    Data,
    Function,
    Output,
    Peer,
    Problem,
    Settings,
    Workload,
    compiled,
    compiled_gradients,
    eager,
    eager_gradients,
    every,
    first,
    gradients,
    parse_size,
    parse_sizes,
    shrink,
)

SAMPLED_POSITIONS = 4096  # of one channel
SAMPLED_COLUMNS = 32  # of every channel of every batch
SAMPLED_CHANNELS = 16  # of a weight's gradient
LONG_FILTER = 128  # from here on FFTs are a peer
FFT_BLOCKS = (4096, 8192)
CAUSAL_CONV1D_WIDTH = 4  # the widest filter of the package causal-conv1d


@dataclass(frozen=True)
class Filter:
    """The last part of an id: '512xK3', 'K17-stride2', 'K4-silu'."""

    taps: int
    outputs: int = 1
    stride: int = 1
    dilation: int = 1
    silu: bool = False


def _filter(text: str) -> Filter:
    match = re.fullmatch(r"(?:(\d+)x)?K(\d+)(?:-stride(\d+)|-dilation(\d+)|-(silu))?", text)
    if match is None:
        raise ValueError(f"not a filter: {text!r}")
    outputs, taps, stride, dilation, silu = match.groups()
    return Filter(int(taps), int(outputs or 1), int(stride or 1), int(dilation or 1), bool(silu))


def _single_peak(dtype: torch.dtype) -> str:
    return "f64" if dtype == torch.float64 else "f32"


# --- one channel, one filter ---


def constant(case: Case, limit: int | None) -> Problem:
    """conv1d/constant/<dtype>/<n>/K<taps>"""
    _, _, name, size, shape = case.parts
    dtype, taps = DTYPES[name], _filter(shape).taps
    [n] = shrink([parse_size(size)], limit)
    length = n - taps + 1

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        x = data.normal(n, dtype=dtype)
        w = data.normal(taps) / math.sqrt(taps)
        values: list[float] = w.tolist()
        plain = (x[None, None], w.to(dtype)[None, None])
        positions = every(SAMPLED_POSITIONS, length, device)
        peers = [
            eager("eager", F.conv1d, *plain),
            compiled("compile shift-add", forms.shifted_sum_constant, x, values),
            forms.cudnn_benchmark(lambda: F.conv1d(*plain)),
        ]
        if taps >= LONG_FILTER:
            peers += _fft_peers(x, w)
        return Workload(
            ours=lambda: memops.conv1d_constant(x, values),
            peers=peers,
            check=Check(
                lambda out: [first(out).reshape(1, 1, -1)[..., positions]],
                lambda: [forms.conv_at(x[None, None], w[None, None], positions)],
                f"{len(positions):,} of {length:,} elements",
            ),
        )

    return Problem((n + length) * dtype.itemsize, 2 * taps * length, make, _single_peak(dtype))


def _fft_peers(x: Tensor, w: Tensor) -> list[Peer]:
    def blocks(block: int) -> Peer:
        spectrum = torch.fft.rfft(w, n=block).conj().resolve_conj()

        def call() -> Output:
            return forms.overlap_save(x, spectrum, len(w), block)

        return Peer(f"torch.fft overlap-save {block}", "fft", lambda _: call)

    def prepare(_: object) -> Callable[[], Output]:
        from torchaudio.functional import fftconvolve

        turned = w.flip(0)
        return lambda: fftconvolve(x, turned, mode="valid")

    package = Peer("torchaudio fftconvolve", "torchaudio", prepare, package="torchaudio")
    return [*(blocks(block) for block in FFT_BLOCKS), package]


def single(case: Case, limit: int | None) -> Problem:
    """conv1d/single/<dtype>/<n>/K<taps>[-stride<s> or -dilation<d>]"""
    _, _, name, size, shape = case.parts
    dtype, f = DTYPES[name], _filter(shape)
    [n] = shrink([parse_size(size)], limit)
    length = (n - f.dilation * (f.taps - 1) - 1) // f.stride + 1

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        x, w = data.normal(1, 1, n, dtype=dtype), data.normal(1, 1, f.taps, dtype=dtype)
        positions = every(SAMPLED_POSITIONS, length, device)

        def theirs(x: Tensor, w: Tensor) -> Tensor:
            return F.conv1d(x, w, stride=f.stride, dilation=f.dilation)

        def shifted(x: Tensor, w: Tensor) -> Tensor:
            return forms.shifted_sum(x, w[0], stride=f.stride, dilation=f.dilation)

        return Workload(
            ours=lambda: memops.conv1d(x, w, stride=f.stride, dilation=f.dilation),
            peers=[
                eager("eager", theirs, x, w),
                compiled("compile shift-add", shifted, x, w),
                forms.cudnn_benchmark(lambda: theirs(x, w)),
            ],
            check=Check(
                lambda out: [first(out)[..., positions]],
                lambda: [forms.conv_at(x, w, positions, stride=f.stride, dilation=f.dilation)],
                f"{len(positions):,} of {length:,} elements",
            ),
        )

    moved = (n + length) * dtype.itemsize
    return Problem(moved, 2 * f.taps * length, make, _single_peak(dtype))


def single_backward(case: Case, limit: int | None) -> Problem:
    """conv1d/backward/<dtype>/<n>/K<taps>: gradients of input and weight"""
    _, _, name, size, shape = case.parts
    dtype, taps = DTYPES[name], _filter(shape).taps
    [n] = shrink([parse_size(size)], limit)
    length = n - taps + 1

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        x, w = data.normal(1, 1, n, dtype=dtype), data.normal(1, 1, taps, dtype=dtype)
        grad = data.normal(1, 1, length, dtype=dtype)

        def explicit(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
            return forms.shifted_gradients(g, x, w[0], 0, 0, with_bias=False)

        return Workload(
            ours=gradients(memops.conv1d, [x, w], grad),
            peers=[
                eager_gradients("eager", F.conv1d, [x, w], grad),
                compiled_gradients(
                    "compile shift-add", lambda x, w: forms.shifted_sum(x, w[0]), [x, w], grad
                ),
                compiled("compile shift-add gradients", explicit, grad, x, w),
            ],
            check=_gradient_check(x, w, grad, 0, SAMPLED_POSITIONS),
        )

    moved = (2 * n + length + 2 * taps) * dtype.itemsize
    return Problem(moved, 4 * taps * length, make, _single_peak(dtype))


def _gradient_check(
    x: Tensor, w: Tensor, grad: Tensor, padding: int, columns: int, depthwise: bool = True
) -> Check:
    """Gradients of x [B, C, L], w [O, C/groups, K] and, where there is a third, the bias [O]."""
    positions = every(columns, x.shape[-1], x.device)
    channels = every(SAMPLED_CHANNELS, w.shape[0], x.device)
    taps, groups = w.shape[-1], x.shape[1] if depthwise else 1

    def sample(out: Output) -> list[Tensor]:
        gx, gw, *bias = out
        return [gx[..., positions], gw.reshape(w.shape)[channels], *bias]

    def reference() -> list[Tensor]:
        return [
            forms.input_gradient_at(grad, w, positions, padding=padding, groups=groups),
            forms.weight_gradient_at(grad, x, channels, taps, padding=padding, depthwise=depthwise),
        ]

    covers = f"{len(positions):,} columns of the input's, {len(channels):,} rows of the weight's"
    return Check(sample, reference, covers)


def _with_bias(check: Check, grad: Tensor) -> Check:
    def reference() -> list[Tensor]:
        return [*check.reference(), grad.double().sum((0, 2))]

    return Check(check.sample, reference, f"{check.covers}, all of the bias's")


# --- depthwise, causal ---


def _depthwise(case: Case, limit: int | None) -> tuple[torch.dtype, list[int], Filter]:
    _, _, name, sizes, shape = case.parts
    return DTYPES[name], shrink(parse_sizes(sizes), limit), _filter(shape)


def depthwise(case: Case, limit: int | None) -> Problem:
    """conv1d/depthwise/<dtype>/<BxCxL>/K<taps>[-silu]: causal; with silu, also a bias"""
    dtype, (batch, channels, length), f = _depthwise(case, limit)
    count = batch * channels * length

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        x = data.normal(batch, channels, length, dtype=dtype)
        w = data.normal(channels, f.taps, dtype=dtype)
        bias = data.normal(channels, dtype=dtype) if f.silu else None
        positions = every(SAMPLED_COLUMNS, length, device)

        def theirs(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
            wide = F.conv1d(x, w[:, None], bias, padding=f.taps - 1, groups=channels)
            return F.silu(wide[..., :length]) if f.silu else wide[..., :length]

        def shifted(x: Tensor, w: Tensor, bias: Tensor | None) -> Tensor:
            return forms.shifted_sum(x, w, bias, padding=(f.taps - 1, 0), silu=f.silu)

        def reference() -> list[Tensor]:
            out = forms.conv_at(
                x, w[:, None], positions, bias=bias, padding=f.taps - 1, groups=channels
            )
            return [F.silu(out) if f.silu else out]

        peers = [
            eager("eager", theirs, x, w, bias),
            compiled("compile shift-add", shifted, x, w, bias),
        ]
        if f.taps <= CAUSAL_CONV1D_WIDTH:
            peers.append(_package("causal_conv1d_fn", (x, w, bias), f.silu))
        return Workload(
            ours=lambda: memops.causal_conv1d(x, w, bias, silu=f.silu)[0],
            peers=peers,
            check=Check(
                lambda out: [first(out)[..., positions]],
                reference,
                f"{len(positions):,} of {length:,} columns",
            ),
        )

    return Problem(2 * count * dtype.itemsize, 2 * f.taps * count, make, _single_peak(dtype))


def _package(function: str, args: Sequence[Tensor | None], silu: bool) -> Peer:
    """The package causal-conv1d, where it is installed."""

    def prepare(_: object) -> Callable[[], Output]:
        import causal_conv1d

        call: Function = getattr(causal_conv1d, function)
        return lambda: call(*args, activation="silu" if silu else None)

    return Peer("causal-conv1d", "causal-conv1d", prepare, package="causal_conv1d")


def depthwise_backward(case: Case, limit: int | None) -> Problem:
    """conv1d/depthwise-backward/<dtype>/<BxCxL>/K<taps>: conv1d, padding K - 1 on both sides"""

    def ours(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        sides, channels = w.shape[1] - 1, w.shape[0]
        return memops.conv1d(x, w[:, None], bias, padding=sides, groups=channels)

    return _depthwise_gradients(case, limit, ours, both_sides=True)


def causal_backward(case: Case, limit: int | None) -> Problem:
    """conv1d/causal-backward/<dtype>/<BxCxL>/K<taps>: causal_conv1d"""

    def ours(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
        return memops.causal_conv1d(x, w, bias)[0]

    return _depthwise_gradients(case, limit, ours, both_sides=False)


def _depthwise_gradients(
    case: Case, limit: int | None, ours: Callable[..., Tensor], both_sides: bool
) -> Problem:
    dtype, (batch, channels, length), f = _depthwise(case, limit)
    left, right = f.taps - 1, (f.taps - 1) * both_sides
    steps = length + right

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        x = data.normal(batch, channels, length, dtype=dtype)
        w = data.normal(channels, f.taps, dtype=dtype)
        bias = data.normal(channels, dtype=dtype)
        grad = data.normal(batch, channels, steps, dtype=dtype)

        def theirs(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
            return F.conv1d(x, w[:, None], bias, padding=left, groups=channels)[..., :steps]

        def shifted(x: Tensor, w: Tensor, bias: Tensor) -> Tensor:
            return forms.shifted_sum(x, w, bias, padding=(left, right))

        def explicit(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
            return forms.shifted_gradients(g, x, w, left, right, with_bias=True)

        return Workload(
            ours=gradients(ours, [x, w, bias], grad),
            peers=[
                eager_gradients("eager", theirs, [x, w, bias], grad),
                compiled_gradients("compile shift-add", shifted, [x, w, bias], grad),
                compiled("compile shift-add gradients", explicit, grad, x, w),
            ],
            check=_with_bias(_gradient_check(x, w[:, None], grad, left, SAMPLED_COLUMNS), grad),
        )

    moved = batch * channels * (2 * length + steps) + 2 * channels * f.taps
    flops = 4 * f.taps * batch * channels * steps
    return Problem(moved * dtype.itemsize, flops, make, _single_peak(dtype))


def update(case: Case, limit: int | None) -> Problem:
    """conv1d/update/<dtype>/<BxC>/K<taps>[-silu]: one step of decoding; with silu, also a bias"""
    dtype, (batch, channels), f = _depthwise(case, limit)

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        x = data.normal(batch, channels, dtype=dtype)
        w = data.normal(channels, f.taps, dtype=dtype)
        bias = data.normal(channels, dtype=dtype) if f.silu else None
        state = data.normal(batch, channels, f.taps - 1, dtype=dtype)
        window = torch.cat([state, x[..., None]], -1)
        mine = state.clone()

        def reference() -> list[Tensor]:
            out = (window.double() * w.double()).sum(-1)
            out = out if bias is None else out + bias.double()
            return [F.silu(out) if f.silu else out, window[..., 1:].double()]

        def ours() -> Output:
            return memops.causal_conv1d_update(x, mine, w, bias, silu=f.silu), mine

        return Workload(
            ours=ours,
            peers=[
                eager("eager", forms.update_step, state.clone(), x, w, bias, f.silu),
                compiled("compile", forms.update_step, state.clone(), x, w, bias, f.silu),
                _package("causal_conv1d_update", (x, state.clone(), w, bias), f.silu),
            ],
            check=Check(list, reference, "the whole result and the state"),
        )

    count = batch * channels
    moved = 2 * f.taps * count * dtype.itemsize
    return Problem(moved, 2 * f.taps * count, make, _single_peak(dtype))


# --- dense ---


@dataclass(frozen=True)
class Dense:
    """x [B, C, L] with w [O, C, K], padded to the same length (odd K)."""

    batch: int
    channels: int
    length: int
    outputs: int
    taps: int
    dtype: torch.dtype
    peak: str
    settings: Settings

    @property
    def padding(self) -> int:
        return self.taps // 2

    @property
    def products(self) -> int:
        return self.batch * self.length * self.outputs * self.channels * self.taps

    def inputs(self, data: Data) -> tuple[Tensor, Tensor]:
        x = data.normal(self.batch, self.channels, self.length, dtype=self.dtype)
        w = data.normal(self.outputs, self.channels, self.taps, dtype=self.dtype)
        return x, w / math.sqrt(self.channels * self.taps)

    def elements(self, inputs: int, weights: int, results: int) -> int:
        return (
            inputs * self.batch * self.channels * self.length
            + weights * self.outputs * self.channels * self.taps
            + results * self.batch * self.outputs * self.length
        )


def _dense(case: Case, limit: int | None) -> Dense:
    """conv1d/dense[-backward]/<dtype>[/tf32 or highest]/<BxCxL>/<O>xK<taps>"""
    _, _, name, *precision, sizes, shape = case.parts
    f = _filter(shape)
    batch, channels, length = shrink(parse_sizes(sizes), limit)
    [outputs] = shrink([f.outputs], limit and max(limit // 64, 1))
    tf32 = precision == ["tf32"]
    return Dense(
        batch,
        channels,
        length,
        outputs,
        f.taps,
        DTYPES[name],
        "tf32" if tf32 else name,
        Settings(conv_tf32=precision != ["highest"]),
    )


def dense(case: Case, limit: int | None) -> Problem:
    d = _dense(case, limit)

    def make(device: torch.device) -> Workload:
        x, w = d.inputs(Data(case, device))
        positions = every(SAMPLED_COLUMNS, d.length, device)

        def theirs(x: Tensor, w: Tensor) -> Tensor:
            return F.conv1d(x, w, padding=d.padding)

        return Workload(
            ours=lambda: memops.conv1d(x, w, padding=d.padding),
            peers=[
                eager("eager", theirs, x, w),
                compiled("compile im2col + matmul", forms.im2col_matmul, x, w, d.padding),
                forms.cudnn_benchmark(lambda: theirs(x, w)),
            ],
            check=Check(
                lambda out: [first(out)[..., positions]],
                lambda: [forms.conv_at(x, w, positions, padding=d.padding)],
                f"{len(positions):,} of {d.length:,} columns",
            ),
        )

    moved = d.elements(inputs=1, weights=1, results=1) * d.dtype.itemsize
    return Problem(moved, 2 * d.products, make, d.peak, d.settings)


def dense_backward(case: Case, limit: int | None) -> Problem:
    d = _dense(case, limit)

    def make(device: torch.device) -> Workload:
        data = Data(case, device)
        x, w = d.inputs(data)
        grad = data.normal(d.batch, d.outputs, d.length, dtype=d.dtype)

        def theirs(x: Tensor, w: Tensor) -> Tensor:
            return F.conv1d(x, w, padding=d.padding)

        def columns(x: Tensor, w: Tensor) -> Tensor:
            return forms.im2col_matmul(x, w, d.padding)

        return Workload(
            ours=gradients(lambda x, w: memops.conv1d(x, w, padding=d.padding), [x, w], grad),
            peers=[
                eager_gradients("eager", theirs, [x, w], grad),
                compiled_gradients("compile im2col + matmul", columns, [x, w], grad),
                forms.cudnn_benchmark(gradients(theirs, [x, w], grad)),
            ],
            check=_gradient_check(x, w, grad, d.padding, SAMPLED_COLUMNS, depthwise=False),
        )

    moved = d.elements(inputs=2, weights=2, results=1) * d.dtype.itemsize
    return Problem(moved, 4 * d.products, make, d.peak, d.settings)
