"""Samples of the cores: the small ops under the composite fronts, backward ops among them."""

from typing import Any

import torch
from torch import Tensor

from support import reference
from support.samples import TAPS, Case, Op, call


def _core(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        return getattr(torch.ops.memops, name).default(*args, **kwargs)

    return function


def _copy_into(dst: Tensor, src: Tensor) -> None:
    dst.copy_(src)


def _addmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.addmm(bias, a, b)


def _conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: int,
    padding: tuple[int, int],
    dilation: int,
    groups: int,
) -> Tensor:
    return reference.conv1d(input, weight, bias, stride, padding, dilation, groups)


def _conv1d_backward(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: int,
    padding: tuple[int, int],
    dilation: int,
    groups: int,
    mask: list[bool],
) -> tuple[Tensor, ...]:
    with torch.enable_grad():
        x, w = input.detach().requires_grad_(), weight.detach().requires_grad_()
        b = torch.zeros_like(weight[:, 0, 0]).detach().requires_grad_()
        y = reference.conv1d(x, w, b, stride, padding, dilation, groups)
        grads = torch.autograd.grad(y, (x, w, b), grad)
    return tuple(g if wanted else grad.new_empty(0) for g, wanted in zip(grads, mask, strict=True))


def _conv1d_constant(input: Tensor, padding: tuple[int, int], taps: list[float]) -> Tensor:
    return reference.conv1d_constant(input, taps, padding)


def _causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    initial_state: Tensor | None,
    seq_idx: Tensor | None,
    silu: int,
    final_state: int,
) -> tuple[Tensor, Tensor]:
    return reference.causal_conv1d(
        x, weight, bias, initial_state, seq_idx, bool(silu), bool(final_state)
    )


def _causal_conv1d_backward(
    grad: Tensor,
    grad_final_state: Tensor | None,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    initial_state: Tensor | None,
    seq_idx: Tensor | None,
    silu: int,
    mask: list[bool],
) -> tuple[Tensor, ...]:
    leaves: list[Any] = [
        None if t is None else t.detach().requires_grad_() for t in (x, weight, bias, initial_state)
    ]
    wanted = [leaf for leaf, on in zip(leaves, mask, strict=True) if on]
    final = grad_final_state is not None
    with torch.enable_grad():
        y, state = _causal_conv1d(
            leaves[0], leaves[1], leaves[2], leaves[3], seq_idx, silu, int(final)
        )
        outputs = (y, state) if final else (y,)
        incoming: Any = (grad, grad_final_state) if final else (grad,)
        found = iter(torch.autograd.grad(outputs, wanted, incoming))
    return tuple(next(found) if on else grad.new_empty(0) for on in mask)


def _gather_aos(aos: Tensor, index: Tensor, padding_index: int) -> Tensor:
    return reference.gather_aos(aos, index)


def _gather_aos_backward(grad: Tensor, index: Tensor, rows: int, padding_index: int) -> Tensor:
    fields = grad.shape[index.dim() :]
    flat = index.reshape(-1).long()
    keep = flat != padding_index
    out = grad.new_zeros(rows, *fields)
    return out.index_add_(0, flat[keep], grad.reshape(flat.numel(), *fields)[keep])


def _gather_soa_backward(grad: Tensor, index: Tensor, columns: int) -> Tensor:
    flat = index.reshape(-1).long()
    out = grad.new_zeros(grad.shape[0], columns)
    return out.index_add_(1, flat, grad.reshape(grad.shape[0], flat.numel()))


CORES = (
    Op(
        "_copy_into",
        _core("_copy_into"),
        "_copy_into",
        _copy_into,
        (
            Case("plain", lambda m: call(m.tensor(3, 4), m.tensor(3, 4))),
            Case("transposed", lambda m: call(m.tensor(3, 4, layout="transposed"), m.tensor(3, 4))),
            Case("broadcast", lambda m: call(m.tensor(2, 3, 4), m.tensor(4))),
        ),
        lambda m, n: call(m.tensor(n, n + 3), m.tensor(n, n + 3)),
        floating=False,
        differentiable=False,
        mutates=(0,),
    ),
    Op(
        "_mm",
        _core("_mm"),
        "_mm",
        torch.mm,
        (
            Case("plain", lambda m: call(m.tensor(5, 7), m.tensor(7, 3))),
            Case("transposed", lambda m: call(m.tensor(5, 7), m.tensor(7, 3, layout="transposed"))),
            Case("k0", lambda m: call(m.tensor(5, 0), m.tensor(0, 3)), gradcheck=False),
        ),
        lambda m, n: call(m.tensor(n, n + 3), m.tensor(n + 3, 5)),
    ),
    Op(
        "_bmm",
        _core("_bmm"),
        "_bmm",
        torch.matmul,
        (
            Case("plain", lambda m: call(m.tensor(2, 5, 7), m.tensor(2, 7, 3))),
            Case("4d", lambda m: call(m.tensor(2, 2, 3, 4), m.tensor(2, 2, 4, 3))),
            Case(
                "expanded",
                lambda m: call(m.tensor(1, 5, 7).expand(2, 5, 7), m.tensor(2, 7, 3)),
                gradcheck=False,
            ),
            Case(
                "reversed", lambda m: call(m.tensor(2, 5, 7, layout="reversed"), m.tensor(2, 7, 3))
            ),
        ),
        lambda m, n: call(m.tensor(2, n, n + 3), m.tensor(2, n + 3, 5)),
    ),
    Op(
        "_addmm",
        _core("_addmm"),
        "_addmm",
        _addmm,
        (
            Case("plain", lambda m: call(m.tensor(3), m.tensor(5, 7), m.tensor(7, 3))),
            Case(
                "transposed",
                lambda m: call(m.tensor(3), m.tensor(5, 7), m.tensor(7, 3, layout="transposed")),
            ),
        ),
        lambda m, n: call(m.tensor(5), m.tensor(n, n + 3), m.tensor(n + 3, 5)),
    ),
    Op(
        "_conv1d",
        _core("_conv1d"),
        "_conv1d",
        _conv1d,
        (
            Case(
                "plain",
                lambda m: call(m.tensor(2, 3, 8), m.tensor(4, 3, 3), m.tensor(4), 1, [1, 1], 1, 1),
            ),
            Case(
                "groups",
                lambda m: call(m.tensor(2, 4, 9), m.tensor(6, 2, 2), None, 2, [1, 0], 2, 2),
            ),
        ),
        lambda m, n: call(
            m.tensor(n, 3, 2 * n + 3), m.tensor(4, 3, 3), m.tensor(4), 1, [1, 1], 1, 1
        ),
    ),
    Op(
        "_conv1d_backward",
        _core("_conv1d_backward"),
        "_conv1d_backward",
        _conv1d_backward,
        (
            Case(
                "all",
                lambda m: call(
                    m.tensor(2, 3, 4),
                    m.tensor(2, 2, 4),
                    m.tensor(3, 2, 3),
                    1,
                    [1, 1],
                    1,
                    1,
                    [True, True, True],
                ),
            ),
            Case(
                "input-only",
                lambda m: call(
                    m.tensor(1, 4, 3),
                    m.tensor(1, 4, 6),
                    m.tensor(4, 2, 2),
                    2,
                    [1, 0],
                    1,
                    2,
                    [True, False, False],
                ),
            ),
            Case(
                "weight-only",
                lambda m: call(
                    m.tensor(2, 2, 4, layout="transposed"),
                    m.tensor(2, 2, 6),
                    m.tensor(2, 1, 3),
                    1,
                    [0, 0],
                    1,
                    2,
                    [False, True, False],
                ),
            ),
        ),
        lambda m, n: call(
            m.tensor(n, 4, 2 * n + 3),
            m.tensor(n, 3, 2 * n + 3),
            m.tensor(4, 3, 3),
            1,
            [1, 1],
            1,
            1,
            [True, True, True],
        ),
    ),
    Op(
        "_conv1d_constant",
        _core("_conv1d_constant"),
        "_conv1d_constant",
        _conv1d_constant,
        (
            Case("plain", lambda m: call(m.tensor(2, 8), [1, 1], TAPS)),
            Case("asymmetric", lambda m: call(m.tensor(2, 2, 8), [2, 0], TAPS)),
        ),
        lambda m, n: call(m.tensor(n, 2 * n + 3), [1, 1], TAPS),
    ),
    Op(
        "_causal_conv1d",
        _core("_causal_conv1d"),
        "_causal_conv1d",
        _causal_conv1d,
        (
            Case(
                "state",
                lambda m: call(
                    m.tensor(2, 3, 6), m.tensor(3, 4), m.tensor(3), m.tensor(2, 3, 3), None, 1, 1
                ),
            ),
            Case(
                "plain",
                lambda m: call(m.tensor(2, 3, 6), m.tensor(3, 4), None, None, None, 0, 0),
            ),
        ),
        lambda m, n: call(m.tensor(n, 3, 2 * n + 3), m.tensor(3, 4), m.tensor(3), None, None, 1, 0),
    ),
    Op(
        "_causal_conv1d_backward",
        _core("_causal_conv1d_backward"),
        "_causal_conv1d_backward",
        _causal_conv1d_backward,
        (
            Case(
                "state",
                lambda m: call(
                    m.tensor(2, 3, 6),
                    m.tensor(2, 3, 3),
                    m.tensor(2, 3, 6),
                    m.tensor(3, 4),
                    m.tensor(3),
                    m.tensor(2, 3, 3),
                    None,
                    1,
                    [True, True, True, True],
                ),
            ),
            Case(
                "weight-only",
                lambda m: call(
                    m.tensor(2, 3, 6, layout="transposed"),
                    None,
                    m.tensor(2, 3, 6),
                    m.tensor(3, 4),
                    None,
                    None,
                    None,
                    0,
                    [False, True, False, False],
                ),
            ),
        ),
        lambda m, n: call(
            m.tensor(n, 3, 2 * n + 3),
            None,
            m.tensor(n, 3, 2 * n + 3),
            m.tensor(3, 4),
            m.tensor(3),
            None,
            None,
            1,
            [True, True, True, False],
        ),
    ),
    Op(
        "_gather_aos",
        _core("_gather_aos"),
        "_gather_aos",
        _gather_aos,
        (
            Case("rows", lambda m: call(m.tensor(5, 3), m.index(5, 7), -1)),
            Case("padding", lambda m: call(m.tensor(3, 2), m.index(3, 2, 4), 1), gradcheck=False),
        ),
        lambda m, n: call(m.tensor(n, 3), m.index(n, 2 * n), -1),
        floating=False,
    ),
    Op(
        "_gather_aos_backward",
        _core("_gather_aos_backward"),
        "_gather_aos_backward",
        _gather_aos_backward,
        (
            Case("rows", lambda m: call(m.tensor(7, 3), m.index(5, 7), 5, -1)),
            Case("padding", lambda m: call(m.tensor(2, 4, 3), m.index(3, 2, 4), 3, 1)),
            Case(
                "grad-transposed",
                lambda m: call(m.tensor(7, 3, layout="transposed"), m.index(5, 7), 5, -1),
            ),
        ),
        lambda m, n: call(m.tensor(2 * n, 3), m.index(n, 2 * n), n, -1),
    ),
    Op(
        "_gather_soa_backward",
        _core("_gather_soa_backward"),
        "_gather_soa_backward",
        _gather_soa_backward,
        (
            Case("columns", lambda m: call(m.tensor(3, 7), m.index(5, 7), 5)),
            Case("index-2d", lambda m: call(m.tensor(3, 2, 4), m.index(5, 2, 4), 5)),
        ),
        lambda m, n: call(m.tensor(3, 2 * n), m.index(n, 2 * n), n),
    ),
)
