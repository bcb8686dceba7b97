"""Other forms of the 1-D convolution: float64 samples of it, sums of shifted products, FFT blocks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .workload import Call, Output, Peer

# --- references: float64, at chosen positions or output channels only ---


def conv_at(
    x: Tensor,
    w: Tensor,
    positions: Tensor,
    *,
    bias: Tensor | None = None,
    stride: int = 1,
    dilation: int = 1,
    padding: int = 0,
    groups: int = 1,
) -> Tensor:
    """Output positions [P] of the convolution of x [B, C, L] with w [O, C/groups, K]: f64 [B, O, P]."""
    batch, _, length = x.shape
    outputs, per_group, taps = w.shape
    source = positions[:, None] * stride - padding
    source = source + torch.arange(taps, device=x.device) * dilation  # [P, K]
    inside = (source >= 0) & (source < length)
    window = x[:, :, source.clamp(0, length - 1)].double() * inside
    window = window.reshape(batch, groups, per_group, *source.shape)
    weight = w.double().reshape(groups, outputs // groups, per_group, taps)
    out = torch.einsum("bgcpk,gock->bgop", window, weight).reshape(batch, outputs, -1)
    return out if bias is None else out + bias.double()[:, None]


def input_gradient_at(
    grad: Tensor, w: Tensor, positions: Tensor, *, padding: int, groups: int
) -> Tensor:
    """Positions [P] of the gradient of the input, stride 1: f64 [B, C, P]."""
    outputs, per_group, taps = w.shape
    turned = w.reshape(groups, outputs // groups, per_group, taps).transpose(1, 2).flip(-1)
    turned = turned.reshape(groups * per_group, outputs // groups, taps)
    return conv_at(grad, turned, positions, padding=taps - 1 - padding, groups=groups)


def weight_gradient_at(
    grad: Tensor, x: Tensor, channels: Tensor, taps: int, *, padding: int, depthwise: bool
) -> Tensor:
    """Output channels [S] of the gradient of the weight, stride 1: f64 [S, C/groups, K]."""
    wanted = grad[:, channels].double()
    source = x[:, channels] if depthwise else x
    length = grad.shape[-1]
    right = length + taps - 1 - padding - x.shape[-1]
    padded = F.pad(source.double(), (padding, right))
    columns = []
    for k in range(taps):
        shifted = padded[..., k : k + length]
        if depthwise:
            columns.append((wanted * shifted).sum((0, 2))[:, None])
        else:
            columns.append(torch.einsum("bol,bcl->oc", wanted, shifted))
    return torch.stack(columns, -1)


# --- peers ---


def accumulation(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype.itemsize == 2 else dtype


def shifted_sum(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    padding: tuple[int, int] = (0, 0),
    stride: int = 1,
    dilation: int = 1,
    silu: bool = False,
) -> Tensor:
    """Depthwise convolution of x [B, C, L] with w [C, K] as a sum of shifted products."""
    taps = w.shape[1]
    padded = F.pad(x, padding)
    length = (padded.shape[-1] - dilation * (taps - 1) - 1) // stride + 1
    kind = accumulation(x.dtype)
    total: Tensor | None = None
    for k in range(taps):
        start = k * dilation
        part = padded[..., start : start + (length - 1) * stride + 1 : stride].to(kind)
        term = w[:, k, None].to(kind) * part
        total = term if total is None else total + term
    assert total is not None
    if bias is not None:
        total = total + bias[:, None].to(kind)
    return (F.silu(total) if silu else total).to(x.dtype)


def shifted_sum_constant(x: Tensor, taps: list[float]) -> Tensor:
    """Convolution of x [L] with constant taps as a sum of shifted products."""
    length = x.shape[0] - len(taps) + 1
    kind = accumulation(x.dtype)
    total = taps[0] * x[:length].to(kind)
    for k in range(1, len(taps)):
        total = total + taps[k] * x[k : k + length].to(kind)
    return total.to(x.dtype)


def shifted_gradients(
    grad: Tensor, x: Tensor, w: Tensor, left: int, right: int, with_bias: bool
) -> tuple[Tensor, ...]:
    """Gradients of x [B, C, L], w [C, K] and the bias of `shifted_sum`, as sums of shifted products."""
    taps, length = w.shape[1], x.shape[-1]
    kind = accumulation(x.dtype)
    wide = grad.to(kind)
    padded = F.pad(x, (left, right)).to(kind)
    steps = grad.shape[-1]
    weight = torch.stack([(wide * padded[..., k : k + steps]).sum((0, 2)) for k in range(taps)], -1)
    spread = F.pad(wide, (taps - 1 - left, taps - 1 - right))
    parts = [
        w[:, k, None].to(kind) * spread[..., taps - 1 - k : taps - 1 - k + length]
        for k in range(taps)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    out = (total.to(x.dtype), weight.to(w.dtype))
    return (*out, wide.sum((0, 2)).to(w.dtype)) if with_bias else out


def overlap_save(x: Tensor, spectrum: Tensor, taps: int, block: int) -> Tensor:
    """Correlation of x [L] with a filter given by its conjugate spectrum, in FFTs of `block`."""
    length = x.shape[0] - taps + 1
    step = block - taps + 1
    blocks = -(-length // step)
    padded = F.pad(x, (0, blocks * step + taps - 1 - x.shape[0]))
    spectra = torch.fft.rfft(padded.unfold(0, block, step))
    out = torch.fft.irfft(spectra * spectrum, n=block)
    return out[:, :step].reshape(-1)[:length]


def im2col_matmul(x: Tensor, w: Tensor, padding: int) -> Tensor:
    """Dense convolution of x [B, C, L] with w [O, C, K] as one matrix product."""
    outputs, channels, taps = w.shape
    columns = F.pad(x, (padding, padding)).unfold(-1, taps, 1)  # [B, C, L, K]
    columns = columns.permute(0, 1, 3, 2).reshape(x.shape[0], channels * taps, -1)
    return w.reshape(outputs, -1) @ columns


def cudnn_benchmark(call: Call) -> Peer:
    """`call` with cuDNN's own search for its best algorithm switched on."""

    def searched() -> Output:
        before = torch.backends.cudnn.benchmark
        torch.backends.cudnn.benchmark = True
        try:
            return call()
        finally:
            torch.backends.cudnn.benchmark = before

    return Peer("eager, cudnn.benchmark", "cudnn-benchmark", lambda _: searched)


def update_step(state: Tensor, x: Tensor, w: Tensor, bias: Tensor | None, silu: bool) -> Output:
    """One step of decoding with PyTorch's ops: state [B, C, K-1] is shifted in place."""
    kind = accumulation(x.dtype)
    window = torch.cat([state, x[..., None]], -1)
    state.copy_(window[..., 1:])
    out = (window.to(kind) * w.to(kind)).sum(-1)
    if bias is not None:
        out = out + bias.to(kind)
    return (F.silu(out) if silu else out).to(x.dtype), state
