"""The public functions: thin, documented fronts of torch.ops.memops.*.

All work in eager mode, under torch.compile, torch.export, torch.func and autocast, and are
differentiable to any order unless stated. Wrong dtypes, devices, shapes and sizes raise the
exception type that PyTorch raises (RuntimeError unless stated), before anything is launched or
written.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import SupportsIndex

import torch
from torch import Tensor

from torch_memops import _loader

_ops = torch.ops.memops


def cuda_available() -> bool:
    """Whether the library holds CUDA kernels and PyTorch sees a GPU."""
    return _loader.build_info().get("cuda") is not None and torch.cuda.is_available()


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product with :func:`torch.matmul`'s semantics.

    Args:
        a, b: 1-D to N-D of one dtype; the batch dimensions broadcast and are never materialised.
            Any strides: transposed and strided views are read in place.

    float16 and bfloat16 accumulate in float32. On CUDA float16, bfloat16, float32 and float64 are
    supported (NotImplementedError otherwise), on the CPU what ATen supports.
    """
    return _ops.matmul.default(a, b)


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias`` with :func:`torch.nn.functional.linear`'s semantics.

    Args:
        input: [*, in_features].
        weight: [out_features, in_features] or [in_features].
        bias: broadcastable to the result; added before the result is rounded.
    """
    return _ops.linear.default(input, weight, bias)


def _single(op: str, name: str, value: int | Sequence[int]) -> int:
    """An int, or a sequence that holds one, as torch.nn.functional takes them."""
    if not isinstance(value, Sequence):
        return value
    if len(value) != 1:
        raise RuntimeError(f"{op}: {name} is {value}; one number is accepted")
    return value[0]


def _both_sides(
    op: str, padding: int | Sequence[int] | str, kernel: int, dilation: int, stride: int
) -> list[int]:
    """(left, right) from an int, a pair, "same" or "valid"."""
    if isinstance(padding, str):
        if padding == "valid":
            return [0, 0]
        if padding != "same":
            raise RuntimeError(f"{op}: padding is {padding!r}; 'same' and 'valid' are accepted")
        if stride != 1:
            raise RuntimeError(f"{op}: padding='same' is not supported with stride {stride}")
        total = dilation * (kernel - 1)
        return [total // 2, total - total // 2]
    if isinstance(padding, list | tuple):
        return [padding[0], padding[0]] if len(padding) == 1 else list(padding)
    if not isinstance(padding, SupportsIndex):
        raise TypeError(
            f"{op}: padding is {padding!r}; an int, (left, right), 'same' or 'valid' is accepted"
        )
    number = operator.index(padding)
    return [number, number]


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] | str = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """One-dimensional convolution (correlation) with :func:`torch.nn.functional.conv1d`'s semantics.

    Args:
        input: [B, C, L] or [C, L].
        weight: [C_out, C / groups, K].
        bias: [C_out].
        stride, dilation, groups: positive; groups divides C and C_out.
        padding: zeros on both sides, or (left, right), so that causal filters need no padded copy,
            or "same" (stride 1) or "valid".

    Returns:
        [B, C_out, (L + left + right - dilation * (K - 1) - 1) // stride + 1].
    """
    step, spread = _single("conv1d", "stride", stride), _single("conv1d", "dilation", dilation)
    kernel = weight.shape[-1] if isinstance(padding, str) and weight.dim() else 1
    sides = _both_sides("conv1d", padding, kernel, spread, step)
    return _ops.conv1d.default(input, weight, bias, step, sides, spread, groups)


def conv1d_constant(
    input: Tensor, taps: Sequence[float], padding: int | Sequence[int] | str = 0
) -> Tensor:
    """One filter over the last dimension: correlation, ``y[i] = sum_k taps[k] x[i + k - left]``.

    Args:
        input: [..., L], float16, bfloat16, float32 or float64.
        taps: K host numbers. They travel as arguments of the launch and sit in the GPU's constant
            bank, so streams and threads cannot see each other's; a captured graph keeps the values
            of its capture. Under torch.compile they are constants: a new filter recompiles.
        padding: as in :func:`conv1d`.

    Returns:
        [..., L + left + right - K + 1]. Sums are in float32 (float64 for float64 input).
    """
    sides = _both_sides("conv1d_constant", padding, len(taps), 1, 1)
    return _ops.conv1d_constant.default(input, taps, sides)


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    initial_state: Tensor | None = None,
    seq_idx: Tensor | None = None,
    silu: bool = False,
    final_state: bool = False,
) -> tuple[Tensor, Tensor]:
    """Depthwise causal convolution: ``y[t] = bias + sum_k weight[k] x[t - (K - 1) + k]``.

    Args:
        x: [B, C, L], channels-first or channels-last strides; the result has the same layout.
        weight: [C, K], any K >= 1.
        bias: [C].
        initial_state: [B, C, K - 1], what came before x, newest last; zeros where absent.
            Gradients flow through it.
        seq_idx: int32 [B, L]; taps reach only positions of the same sequence. Positions before x
            belong to the sequence of x's first position where initial_state is given.
        silu: apply SiLU to the result.
        final_state: also return the state after x.

    Returns:
        y [B, C, L], and the state [B, C, K - 1], or an empty tensor of shape (0,).
    """
    return _ops.causal_conv1d.default(x, weight, bias, initial_state, seq_idx, silu, final_state)


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    silu: bool = False,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """One or a few steps of :func:`causal_conv1d` while decoding. No gradients.

    Args:
        x: [B, C] or [B, C, S].
        conv_state: [N, C, W] with W >= K - 1, newest last, updated in place.
        weight: [C, K]. bias: [C].
        silu: apply SiLU to the result.
        cache_seqlens: int32 [B]; makes conv_state a ring whose next entry is at
            cache_seqlens % W.
        conv_state_indices: int32 [B]; the rows of conv_state (N = B and in order where absent).

    Returns:
        A tensor of x's shape.
    """
    return _ops.causal_conv1d_update.default(
        x, conv_state, weight, bias, silu, cache_seqlens, conv_state_indices
    )


def copy(src: Tensor) -> Tensor:
    """A new contiguous tensor with the elements of any strided view, bit for bit.

    Contiguous means contiguous in every dimension, those of size 1 too. Every dtype; lazy conjugate
    and negative bits are resolved.
    """
    return _ops.copy.default(src)


def copy_(dst: Tensor, src: Tensor) -> Tensor:
    """Writes src into dst and returns dst, as :meth:`torch.Tensor.copy_` does.

    Args:
        dst: any strided view; a location that it holds twice, or an overlap with src that PyTorch
            refuses, is refused with nothing written. Any other overlap is copied as if src were
            cloned first.
        src: broadcastable to dst; another dtype is converted; another device goes PyTorch's way.
    """
    return _ops.copy_.default(dst, src)


def aos_to_soa(aos: Tensor) -> Tensor:
    """Array of structures [..., N, F] to structure of arrays [..., F, N], contiguous."""
    return _ops.aos_to_soa.default(aos)


def soa_to_aos(soa: Tensor) -> Tensor:
    """Structure of arrays [..., F, N] to array of structures [..., N, F], contiguous."""
    return _ops.soa_to_aos.default(soa)


def gather_aos(aos: Tensor, index: Tensor) -> Tensor:
    """Rows of a table: ``aos[index]``.

    Args:
        aos: [N, *F], every dtype.
        index: [*M], int32 or int64, 0 <= index < N. Out of range raises IndexError on the CPU and a
            device-side assertion on CUDA; nothing is read there.

    Returns:
        [*M, *F]. The gradient sums repeated rows in float32 for 16-bit types.
    """
    return _ops.gather_aos.default(aos, index)


def gather_soa(soa: Tensor, index: Tensor) -> Tensor:
    """The same elements of every field: ``soa[:, index]``.

    Args:
        soa: [F, N], every dtype.
        index: [*M], as in :func:`gather_aos`.

    Returns:
        [F, *M].
    """
    return _ops.gather_soa.default(soa, index)


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of ``weight``, as :func:`torch.nn.functional.embedding` gives them.

    Args:
        input: [*M], int32 or int64.
        weight: [N, D].
        padding_idx: a row that gets no gradient; counts from the end where negative.

    Returns:
        [*M, D].
    """
    if weight.dim() != 2:
        raise RuntimeError(f"embedding: weight has {weight.dim()} dimensions; [N, D] is accepted")
    if padding_idx is None:
        return _ops.gather_aos.default(weight, input)
    rows = weight.shape[0]
    if not -rows <= padding_idx < rows:
        raise RuntimeError(
            f"embedding: padding_idx is {padding_idx}; -{rows} to {rows - 1} is accepted"
        )
    return _ops._gather_aos.default(weight, input, padding_idx % rows)
