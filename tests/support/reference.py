"""What each op should give, written with PyTorch's own differentiable functions.

Called with float64 arguments they are the reference; called with the op's own arguments they are
the peer: what a user gets from PyTorch today.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Padding = int | tuple[int, int] | str


def pair(padding: Padding, width: int, dilation: int = 1) -> tuple[int, int]:
    """Padding as (left, right)."""
    if padding == "valid":
        return (0, 0)
    if padding == "same":
        total = dilation * (width - 1)
        return (total // 2, total - total // 2)
    assert not isinstance(padding, str)
    return (padding, padding) if isinstance(padding, int) else (padding[0], padding[1])


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: Padding = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """F.conv1d with a left and a right padding."""
    left, right = pair(padding, weight.shape[-1], dilation)
    if left == right:
        return F.conv1d(input, weight, bias, stride, left, dilation, groups)
    return F.conv1d(F.pad(input, (left, right)), weight, bias, stride, 0, dilation, groups)


def conv1d_constant(input: Tensor, taps: Sequence[float], padding: Padding = 0) -> Tensor:
    """One filter along the last dimension; taps and sums in float64 for f64 input, else float32."""
    wide = torch.float64 if input.dtype == torch.float64 else torch.float32
    weight = torch.tensor(taps, dtype=wide, device=input.device).view(1, 1, -1)
    rows = input.reshape(input.shape[:-1].numel(), 1, input.shape[-1]).to(wide)
    result = conv1d(rows, weight, None, 1, padding)
    return result.reshape(*input.shape[:-1], result.shape[-1]).to(input.dtype)


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    initial_state: Tensor | None = None,
    seq_idx: Tensor | None = None,
    silu: bool = False,
    final_state: bool = False,
) -> tuple[Tensor, Tensor]:
    """Depthwise causal convolution as a sum of shifted products."""
    batch, channels, length = x.shape
    width = weight.shape[1]
    before = x.new_zeros(batch, channels, width - 1) if initial_state is None else initial_state
    line = torch.cat([before, x], -1)
    y = x.new_zeros(batch, channels, length)
    for k in range(width):
        term = weight[:, k][None, :, None] * line[..., k : k + length]
        if seq_idx is not None and length:
            owner = torch.cat([seq_idx[:, :1].expand(-1, width - 1), seq_idx], -1)
            same = owner[:, k : k + length] == seq_idx
            term = torch.where(same[:, None], term, 0)
        y = y + term
    if bias is not None:
        y = y + bias[None, :, None]
    if silu:
        y = F.silu(y)
    state = line[..., length:].clone() if final_state else x.new_empty(0)
    return y, state


def causal_conv1d_peer(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    initial_state: Tensor | None = None,
    silu: bool = False,
) -> Tensor:
    """What a user writes today: a padded depthwise F.conv1d, then F.silu."""
    width, channels = weight.shape[1], x.shape[1]
    line = F.pad(x, (width - 1, 0)) if initial_state is None else torch.cat([initial_state, x], -1)
    y = F.conv1d(line, weight[:, None], bias, groups=channels)
    return F.silu(y) if silu else y


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    silu: bool = False,
    cache_seqlens: Tensor | None = None,
    conv_state_indices: Tensor | None = None,
) -> Tensor:
    """Decode step by step, element by element; writes conv_state."""
    steps = x if x.dim() == 3 else x[..., None]
    width, size = weight.shape[1], conv_state.shape[2]
    out = torch.empty_like(steps)
    for b in range(steps.shape[0]):
        row = b if conv_state_indices is None else int(conv_state_indices[b])
        for s in range(steps.shape[2]):
            new = steps[b, :, s]
            if cache_seqlens is None:
                line = torch.cat([conv_state[row], new[:, None]], -1)
                conv_state[row] = line[:, 1:]
                window = line[:, size + 1 - width :]
            else:
                at = int(cache_seqlens[b]) + s
                history = [
                    conv_state[row, :, (at - back) % size] for back in range(width - 1, 0, -1)
                ]
                window = torch.stack([*history, new], -1)
                conv_state[row, :, at % size] = new
            y = (window * weight).sum(-1)
            if bias is not None:
                y = y + bias
            out[b, :, s] = F.silu(y) if silu else y
    return out if x.dim() == 3 else out[..., 0]


def copy(src: Tensor) -> Tensor:
    """A contiguous clone."""
    return src.clone(memory_format=torch.contiguous_format)


def copy_(dst: Tensor, src: Tensor) -> Tensor:
    """Tensor.copy_."""
    return dst.copy_(src)


def transpose_last_two(values: Tensor) -> Tensor:
    """[..., N, F] to [..., F, N], contiguous; its own inverse."""
    return values.mT.clone(memory_format=torch.contiguous_format)


def gather_aos(aos: Tensor, index: Tensor) -> Tensor:
    """Rows of [N, *F] by an index of any shape."""
    flat = aos.index_select(0, index.reshape(-1))
    return flat.reshape(*index.shape, *aos.shape[1:])


def gather_soa(soa: Tensor, index: Tensor) -> Tensor:
    """Columns of [F, N] by an index of any shape."""
    return soa.index_select(1, index.reshape(-1)).reshape(soa.shape[0], *index.shape)


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """F.embedding."""
    return F.embedding(input, weight, padding_idx)
