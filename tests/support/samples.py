"""One table of sample calls: every public op and every core, with the layouts and edge sizes.

The property tests (opcheck, autograd, compilation, streams ...) run over this table, so an op that
is added here is tested for all of them.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

import torch_memops
from support import reference
from support.tensors import LAYOUTS, Make

Args = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Case:
    """A named call: `make` builds its arguments."""

    name: str
    make: Callable[[Make], Args]
    gradcheck: bool = True  # False: empty, or an argument whose elements share memory


@dataclass(frozen=True)
class Op:
    """An op with its samples.

    call: the public Python function, or the overload itself for a core; overload: name in
    torch.ops.memops; reference: PyTorch's own functions; sized: arguments whose dimensions grow
    with n, for dynamic shapes; floating: True where only floating dtypes are accepted.
    """

    name: str
    call: Callable[..., Any]
    overload_name: str
    reference: Callable[..., Any]
    cases: tuple[Case, ...]
    sized: Callable[[Make, int], Args]
    floating: bool = True
    differentiable: bool = True
    mutates: tuple[int, ...] = field(default=())

    @property
    def overload(self) -> torch._ops.OpOverload:
        """torch.ops.memops.<name>.default."""
        return getattr(torch.ops.memops, self.overload_name).default

    def functional(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """Call on clones of the arguments that are written; the results, then those clones."""
        return self._functional(self.call, args, kwargs)

    def expected(self, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        """The same with the reference in place of the op."""
        return self._functional(self.reference, args, kwargs)

    def _functional(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Tensor, ...]:
        fresh = list(args)
        for i in self.mutates:
            fresh[i] = fresh[i].clone()
        result = function(*fresh, **kwargs)
        results = tuple(result) if isinstance(result, tuple | list) else (result,)
        if result is not None and self.mutates and result is fresh[self.mutates[0]]:
            return results
        written = tuple(fresh[i] for i in self.mutates)
        return (*(r for r in results if r is not None), *written)


def call(*args: Any, **kwargs: Any) -> Args:
    """The arguments of a sample call, as they would be written."""
    return args, kwargs


def _matmul_sized(m: Make, n: int) -> Args:
    return call(m.tensor(2, n, n + 3), m.tensor(n + 3, 5))


MATMUL = Op(
    "matmul",
    torch_memops.matmul,
    "matmul",
    torch.matmul,
    (
        Case("2d-2d", lambda m: call(m.tensor(5, 7), m.tensor(7, 3))),
        Case("1d-1d", lambda m: call(m.tensor(5), m.tensor(5))),
        Case("2d-1d", lambda m: call(m.tensor(4, 5), m.tensor(5))),
        Case("1d-2d", lambda m: call(m.tensor(5), m.tensor(5, 3))),
        Case("3d-1d", lambda m: call(m.tensor(2, 3, 4), m.tensor(4))),
        Case("1d-3d", lambda m: call(m.tensor(4), m.tensor(2, 4, 3))),
        Case("3d-3d", lambda m: call(m.tensor(2, 3, 4), m.tensor(2, 4, 3))),
        Case("3d-2d", lambda m: call(m.tensor(2, 3, 4), m.tensor(4, 3))),
        Case("2d-3d", lambda m: call(m.tensor(3, 4), m.tensor(2, 4, 3))),
        Case("broadcast", lambda m: call(m.tensor(2, 1, 3, 4), m.tensor(3, 4, 2))),
        Case(
            "transposed",
            lambda m: call(
                m.tensor(5, 4, layout="transposed"), m.tensor(4, 3, layout="transposed")
            ),
        ),
        Case(
            "offset-strided",
            lambda m: call(m.tensor(3, 4, layout="offset"), m.tensor(4, 3, layout="strided")),
        ),
        Case("reversed", lambda m: call(m.tensor(2, 3, 4, layout="reversed"), m.tensor(2, 4, 3))),
        Case(
            "expanded",
            lambda m: call(m.tensor(3, 4, layout="expanded"), m.tensor(1, 4, 3).expand(2, 4, 3)),
            gradcheck=False,
        ),
        Case("k0", lambda m: call(m.tensor(3, 0), m.tensor(0, 2)), gradcheck=False),
        Case("m0", lambda m: call(m.tensor(0, 4), m.tensor(4, 2)), gradcheck=False),
        Case("batch0", lambda m: call(m.tensor(0, 3, 4), m.tensor(4, 2)), gradcheck=False),
        Case("odd-tile", lambda m: call(m.tensor(17, 33), m.tensor(33, 19)), gradcheck=False),
    ),
    _matmul_sized,
)

LINEAR = Op(
    "linear",
    torch_memops.linear,
    "linear",
    torch.nn.functional.linear,
    (
        Case("2d", lambda m: call(m.tensor(3, 4), m.tensor(5, 4), m.tensor(5))),
        Case("no-bias", lambda m: call(m.tensor(3, 4), m.tensor(5, 4))),
        Case("3d", lambda m: call(m.tensor(2, 3, 4), m.tensor(5, 4), m.tensor(5))),
        Case("1d", lambda m: call(m.tensor(4), m.tensor(5, 4), m.tensor(5))),
        Case(
            "transposed",
            lambda m: call(m.tensor(3, 4), m.tensor(5, 4, layout="transposed"), m.tensor(5)),
        ),
        Case("in0", lambda m: call(m.tensor(2, 0), m.tensor(3, 0), m.tensor(3)), gradcheck=False),
        Case(
            "batch0", lambda m: call(m.tensor(0, 4), m.tensor(3, 4), m.tensor(3)), gradcheck=False
        ),
        Case("odd-tile", lambda m: call(m.tensor(17, 33), m.tensor(19, 33), m.tensor(19)), False),
    ),
    lambda m, n: call(m.tensor(n, n + 3), m.tensor(5, n + 3), m.tensor(5)),
)

CONV1D = Op(
    "conv1d",
    torch_memops.conv1d,
    "conv1d",
    reference.conv1d,
    (
        Case("plain", lambda m: call(m.tensor(2, 2, 6), m.tensor(3, 2, 3), m.tensor(3))),
        Case("no-bias", lambda m: call(m.tensor(2, 3, 6), m.tensor(4, 3, 2))),
        Case("unbatched", lambda m: call(m.tensor(3, 6), m.tensor(4, 3, 3), m.tensor(4))),
        Case(
            "stride-padding-dilation",
            lambda m: call(
                m.tensor(2, 2, 9),
                m.tensor(3, 2, 2),
                m.tensor(3),
                stride=2,
                padding=(1, 1),
                dilation=2,
            ),
        ),
        Case("groups", lambda m: call(m.tensor(2, 4, 5), m.tensor(4, 2, 3), m.tensor(4), groups=2)),
        Case(
            "depthwise",
            lambda m: call(
                m.tensor(2, 3, 8), m.tensor(3, 1, 3), m.tensor(3), padding=(1, 1), groups=3
            ),
        ),
        Case("one-channel", lambda m: call(m.tensor(2, 1, 11), m.tensor(1, 1, 5), padding=(2, 2))),
        Case("asymmetric", lambda m: call(m.tensor(2, 2, 6), m.tensor(3, 2, 3), padding=(2, 0))),
        Case("width1", lambda m: call(m.tensor(2, 3, 5), m.tensor(4, 3, 1))),
        Case(
            "channels-last",
            lambda m: call(
                m.tensor(2, 3, 5, layout="transposed"), m.tensor(2, 3, 3), padding=(1, 1)
            ),
        ),
        Case(
            "weight-transposed",
            lambda m: call(m.tensor(2, 3, 5), m.tensor(4, 3, 3, layout="reversed")),
        ),
        Case("batch0", lambda m: call(m.tensor(0, 3, 5), m.tensor(4, 3, 2)), gradcheck=False),
    ),
    lambda m, n: call(m.tensor(n, 3, 2 * n + 3), m.tensor(4, 3, 3), m.tensor(4), padding=(1, 1)),
)

TAPS = [0.25, -1.5, 0.5]

CONV1D_CONSTANT = Op(
    "conv1d_constant",
    torch_memops.conv1d_constant,
    "conv1d_constant",
    reference.conv1d_constant,
    (
        Case("2d", lambda m: call(m.tensor(2, 8), TAPS, padding=(1, 1))),
        Case("1d", lambda m: call(m.tensor(9), TAPS)),
        Case("3d", lambda m: call(m.tensor(2, 2, 6), TAPS, padding=(2, 0))),
        Case("one-tap", lambda m: call(m.tensor(5), [2.0])),
        Case("even", lambda m: call(m.tensor(2, 6), [1.0, 10.0], padding=(0, 1))),
        Case("strided", lambda m: call(m.tensor(2, 7, layout="strided"), TAPS, padding=(1, 1))),
        Case(
            "transposed", lambda m: call(m.tensor(4, 7, layout="transposed"), TAPS, padding=(1, 1))
        ),
        Case("batch0", lambda m: call(m.tensor(0, 8), TAPS), gradcheck=False),
        Case(
            "40-taps",
            lambda m: call(m.tensor(2, 50), [1.0 / (k + 1) for k in range(40)], padding=(20, 20)),
            gradcheck=False,
        ),
    ),
    lambda m, n: call(m.tensor(n, 2 * n + 3), TAPS, padding=(1, 1)),
)


def _causal(
    m: Make, batch: int, channels: int, length: int, width: int, layout: str = "contiguous"
) -> tuple[Tensor, Tensor]:
    return m.tensor(batch, channels, length, layout=layout), m.tensor(channels, width)


def _sequences(m: Make, batch: int, length: int) -> Tensor:
    steps = torch.arange(length, dtype=torch.int32) // 3
    return steps.expand(batch, length).contiguous().to(m.device)


CAUSAL_CONV1D = Op(
    "causal_conv1d",
    torch_memops.causal_conv1d,
    "causal_conv1d",
    reference.causal_conv1d,
    (
        Case("plain", lambda m: call(*_causal(m, 2, 3, 7, 4), m.tensor(3))),
        Case("silu", lambda m: call(*_causal(m, 2, 3, 6, 4), m.tensor(3), silu=True)),
        Case(
            "state",
            lambda m: call(
                *_causal(m, 2, 3, 6, 4),
                m.tensor(3),
                initial_state=m.tensor(2, 3, 3),
                final_state=True,
            ),
        ),
        Case(
            "short",
            lambda m: call(
                *_causal(m, 2, 3, 2, 4), initial_state=m.tensor(2, 3, 3), final_state=True
            ),
        ),
        Case("channels-last", lambda m: call(*_causal(m, 2, 3, 7, 4, "transposed"), silu=True)),
        Case("seq-idx", lambda m: call(*_causal(m, 2, 3, 8, 4), seq_idx=_sequences(m, 2, 8))),
        Case("width1", lambda m: call(*_causal(m, 2, 3, 5, 1), m.tensor(3))),
        Case("wide", lambda m: call(*_causal(m, 1, 2, 12, 9), final_state=True)),
        Case("batch0", lambda m: call(*_causal(m, 0, 3, 5, 4), m.tensor(3)), gradcheck=False),
    ),
    lambda m, n: call(*_causal(m, n, 3, 2 * n + 3, 4), m.tensor(3), silu=True),
)


def _detached(args: Args) -> Args:
    positional, named = args
    return (
        tuple(a.detach() if isinstance(a, Tensor) else a for a in positional),
        {k: a.detach() if isinstance(a, Tensor) else a for k, a in named.items()},
    )


def _indices(m: Make, *values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32, device=m.device)


CAUSAL_CONV1D_UPDATE = Op(
    "causal_conv1d_update",
    torch_memops.causal_conv1d_update,
    "causal_conv1d_update",
    reference.causal_conv1d_update,
    (
        Case(
            "one-step",
            lambda m: _detached(
                call(m.tensor(2, 3), m.tensor(2, 3, 3), m.tensor(3, 4), m.tensor(3), silu=True)
            ),
        ),
        Case(
            "steps",
            lambda m: _detached(call(m.tensor(2, 3, 5), m.tensor(2, 3, 3), m.tensor(3, 4))),
        ),
        Case(
            "longer-state",
            lambda m: _detached(
                call(m.tensor(2, 3, 2), m.tensor(2, 3, 6), m.tensor(3, 4), m.tensor(3))
            ),
        ),
        Case(
            "ring",
            lambda m: _detached(
                call(
                    m.tensor(2, 3, 2),
                    m.tensor(2, 3, 5),
                    m.tensor(3, 4),
                    cache_seqlens=_indices(m, 4, 7),
                )
            ),
        ),
        Case(
            "indices",
            lambda m: _detached(
                call(
                    m.tensor(2, 3),
                    m.tensor(5, 3, 3),
                    m.tensor(3, 4),
                    conv_state_indices=_indices(m, 4, 1),
                )
            ),
        ),
        Case(
            "state-transposed",
            lambda m: _detached(
                call(m.tensor(2, 3), m.tensor(2, 3, 4, layout="transposed"), m.tensor(3, 4))
            ),
        ),
    ),
    lambda m, n: _detached(call(m.tensor(n, 3, n), m.tensor(n, 3, 3), m.tensor(3, 4))),
    differentiable=False,
    mutates=(1,),
)


def _in_layout(layout: str) -> Callable[[Make], Args]:
    return lambda m: call(m.tensor(3, 4, 5, layout=layout))


def _into_layout(layout: str) -> Callable[[Make], Args]:
    return lambda m: call(m.tensor(3, 4, layout=layout), m.tensor(3, 4))


COPY = Op(
    "copy",
    torch_memops.copy,
    "copy",
    reference.copy,
    (
        *(Case(layout, _in_layout(layout)) for layout in LAYOUTS),
        Case("expanded", lambda m: call(m.tensor(3, 4, layout="expanded")), gradcheck=False),
        Case("0d", lambda m: call(m.tensor())),
        Case("empty", lambda m: call(m.tensor(2, 0, 3)), gradcheck=False),
        Case("odd-tile", lambda m: call(m.tensor(67, 35, layout="transposed")), gradcheck=False),
    ),
    lambda m, n: call(m.tensor(n, n + 3, layout="transposed")),
    floating=False,
)

COPY_ = Op(
    "copy_",
    torch_memops.copy_,
    "copy_",
    reference.copy_,
    (
        *(Case(layout, _into_layout(layout)) for layout in LAYOUTS),
        Case("broadcast", lambda m: call(m.tensor(2, 3, 4), m.tensor(3, 1))),
        Case("0d", lambda m: call(m.tensor(2, 3), m.tensor())),
        Case("empty", lambda m: call(m.tensor(2, 0), m.tensor(2, 0)), gradcheck=False),
    ),
    lambda m, n: call(m.tensor(n, n + 3), m.tensor(n, n + 3, layout="transposed")),
    floating=False,
    mutates=(0,),
)


def _transpose_cases() -> tuple[Case, ...]:
    return (
        Case("2d", lambda m: call(m.tensor(7, 3))),
        Case("3d", lambda m: call(m.tensor(2, 5, 4))),
        Case("transposed", lambda m: call(m.tensor(7, 3, layout="transposed"))),
        Case("one-field", lambda m: call(m.tensor(5, 1))),
        Case("strided", lambda m: call(m.tensor(3, 4, layout="strided"))),
        Case("empty", lambda m: call(m.tensor(0, 3)), gradcheck=False),
        Case("odd-tile", lambda m: call(m.tensor(67, 33)), gradcheck=False),
    )


AOS_TO_SOA = Op(
    "aos_to_soa",
    torch_memops.aos_to_soa,
    "aos_to_soa",
    reference.transpose_last_two,
    _transpose_cases(),
    lambda m, n: call(m.tensor(n, n + 3, 3)),
    floating=False,
)
SOA_TO_AOS = Op(
    "soa_to_aos",
    torch_memops.soa_to_aos,
    "soa_to_aos",
    reference.transpose_last_two,
    _transpose_cases(),
    lambda m, n: call(m.tensor(n, 3, n + 3)),
    floating=False,
)

GATHER_AOS = Op(
    "gather_aos",
    torch_memops.gather_aos,
    "gather_aos",
    reference.gather_aos,
    (
        Case("rows", lambda m: call(m.tensor(5, 3), m.index(5, 7))),
        Case("fields-2d", lambda m: call(m.tensor(5, 2, 2), m.index(5, 4, dtype=torch.int32))),
        Case("scalars", lambda m: call(m.tensor(6), m.index(6, 2, 3))),
        Case("index-0d", lambda m: call(m.tensor(4, 3), m.index(4))),
        Case("index-strided", lambda m: call(m.tensor(4, 3), m.index(4, 3, 2, layout="strided"))),
        Case("transposed", lambda m: call(m.tensor(5, 3, layout="transposed"), m.index(5, 6))),
        Case("index-empty", lambda m: call(m.tensor(4, 3), m.index(4, 0)), gradcheck=False),
        Case("width-0", lambda m: call(m.tensor(3, 0), m.index(3, 2)), gradcheck=False),
    ),
    lambda m, n: call(m.tensor(n, n + 3), m.index(n, 2 * n)),
    floating=False,
)
GATHER_SOA = Op(
    "gather_soa",
    torch_memops.gather_soa,
    "gather_soa",
    reference.gather_soa,
    (
        Case("columns", lambda m: call(m.tensor(3, 5), m.index(5, 7))),
        Case("index-2d", lambda m: call(m.tensor(3, 5), m.index(5, 2, 4, dtype=torch.int32))),
        Case("index-0d", lambda m: call(m.tensor(3, 4), m.index(4))),
        Case("transposed", lambda m: call(m.tensor(3, 5, layout="transposed"), m.index(5, 6))),
        Case("strided", lambda m: call(m.tensor(3, 5, layout="strided"), m.index(5, 6))),
        Case("index-empty", lambda m: call(m.tensor(3, 4), m.index(4, 0)), gradcheck=False),
        Case("field-0", lambda m: call(m.tensor(0, 4), m.index(4, 2)), gradcheck=False),
    ),
    lambda m, n: call(m.tensor(3, n), m.index(n, 2 * n)),
    floating=False,
)
EMBEDDING = Op(
    "embedding",
    torch_memops.embedding,
    "_gather_aos",
    reference.embedding,
    (
        Case("plain", lambda m: call(m.index(5, 2, 3), m.tensor(5, 4))),
        Case("padding", lambda m: call(m.index(3, 9), m.tensor(3, 4), padding_idx=1), False),
        Case(
            "padding-negative", lambda m: call(m.index(3, 9), m.tensor(3, 4), padding_idx=-1), False
        ),
    ),
    lambda m, n: call(m.index(n, n + 3), m.tensor(n, 4), padding_idx=1),
)

OPS = (
    MATMUL,
    LINEAR,
    CONV1D,
    CONV1D_CONSTANT,
    CAUSAL_CONV1D,
    CAUSAL_CONV1D_UPDATE,
    COPY,
    COPY_,
    AOS_TO_SOA,
    SOA_TO_AOS,
    GATHER_AOS,
    GATHER_SOA,
    EMBEDDING,
)


def each_op(ops: Iterable[Op] = OPS) -> list[Any]:
    """pytest parameters: one an op."""
    return [pytest.param(op, id=op.name) for op in ops]


def each_case(ops: Iterable[Op] = OPS, *, gradcheck_only: bool = False) -> list[Any]:
    """pytest parameters (op, case): every sample of every op."""
    return [
        pytest.param(op, case, id=f"{op.name}-{case.name}")
        for op in ops
        for case in op.cases
        if case.gradcheck or not gradcheck_only
    ]


def differentiable(ops: Iterable[Op] = OPS) -> tuple[Op, ...]:
    """The ops that have gradients."""
    return tuple(op for op in ops if op.differentiable)
