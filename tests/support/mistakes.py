"""Bad arguments, one row a mistake: the call, the exception type and the words of its message."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import torch_memops as m


class On:
    """Makes the arguments of a row on one device."""

    def __init__(self, device: str) -> None:
        self.device = device

    def ones(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.ones(shape, dtype=dtype, device=self.device)

    def index(self, *values: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.tensor(values, dtype=dtype, device=self.device)

    def wide(self, *shape: int) -> Tensor:
        """A tensor of any size in four bytes."""
        return self.ones(1).expand(shape)


@dataclass(frozen=True)
class Mistake:
    """A wrong call, what it raises, and a pattern that its message matches."""

    name: str
    call: Callable[[On], Any]
    words: str
    error: type[Exception] = RuntimeError


f64, f16, i64 = torch.float64, torch.float16, torch.int64


def _conv1d_with(name: str, value: int) -> Callable[[On], Any]:
    options: dict[str, Any] = {name: value}
    return lambda on: m.conv1d(on.ones(2, 3, 5), on.ones(4, 3, 4), **options)


def _gather_with(name: str, dtype: torch.dtype) -> Callable[[On], Any]:
    return lambda on: getattr(m, name)(on.ones(3, 3), on.index(0, 1, dtype=dtype))


MISTAKES = (
    # matmul, linear
    Mistake(
        "matmul-shapes", lambda on: m.matmul(on.ones(2, 3), on.ones(4, 5)), r"matmul.*2.*3.*4.*5"
    ),
    Mistake("matmul-vectors", lambda on: m.matmul(on.ones(3), on.ones(4)), r"matmul.*3.*4"),
    Mistake("matmul-vector", lambda on: m.matmul(on.ones(2, 3), on.ones(4)), r"matmul.*2.*3.*4"),
    Mistake(
        "matmul-batches",
        lambda on: m.matmul(on.ones(2, 5, 7), on.ones(3, 7, 4)),
        r"matmul.*2.*3",
    ),
    Mistake("matmul-0d", lambda on: m.matmul(on.ones(), on.ones(3)), r"matmul.*at least 1D.*0D"),
    Mistake(
        "matmul-dtypes",
        lambda on: m.matmul(on.ones(2, 3), on.ones(3, 4, dtype=f64)),
        r"(?i)matmul.*(float.*double|double.*float)",
    ),
    Mistake(
        "linear-shapes", lambda on: m.linear(on.ones(2, 3), on.ones(4, 5)), r"linear.*2.*3.*4.*5"
    ),
    Mistake(
        "linear-bias",
        lambda on: m.linear(on.ones(2, 3), on.ones(4, 3), on.ones(5)),
        r"linear.*bias.*5",
    ),
    Mistake(
        "linear-bias-3d",
        lambda on: m.linear(on.ones(2, 3), on.ones(4, 3), on.ones(1, 2, 4)),
        r"linear.*bias",
    ),
    Mistake(
        "linear-weight-3d",
        lambda on: m.linear(on.ones(2, 3), on.ones(2, 4, 3)),
        r"linear.*weight.*3",
    ),
    Mistake("linear-0d", lambda on: m.linear(on.ones(), on.ones(1, 1)), r"linear.*at least 1D.*0D"),
    Mistake(
        "linear-dtypes",
        lambda on: m.linear(on.ones(2, 3), on.ones(4, 3, dtype=f64)),
        r"(?i)linear.*(float.*double|double.*float)",
    ),
    Mistake(
        "linear-bias-dtype",
        lambda on: m.linear(on.ones(2, 3), on.ones(4, 3), on.ones(4, dtype=f64)),
        r"(?i)linear.*bias.*(float.*double|double.*float)|linear.*bias",
    ),
    # conv1d
    *(
        Mistake(
            f"conv1d-groups-{groups}",
            _conv1d_with("groups", groups),
            rf"conv1d.*groups.*{groups}",
        )
        for groups in (0, -1, -(2**63))
    ),
    *(
        Mistake(
            f"conv1d-{name}-{value}",
            _conv1d_with(name, value),
            rf"conv1d.*{name}.*{value}",
        )
        for name, value in (
            ("stride", 0),
            ("stride", -1),
            ("stride", -(2**63)),
            ("dilation", 0),
            ("dilation", -1),
            ("padding", -1),
        )
    ),
    *(
        Mistake(
            f"conv1d-overflow-{name}-{value}",
            _conv1d_with(name, value),
            r"conv1d",
        )
        for name, value in (
            ("dilation", 2**62),
            ("dilation", 2**63 - 1),
            ("padding", 2**62),
            ("padding", 2**63 - 1),
        )
    ),
    Mistake(
        "conv1d-bias",
        lambda on: m.conv1d(on.ones(2, 3, 5), on.ones(4, 3, 2), on.ones(3)),
        r"conv1d.*bias.*3",
    ),
    Mistake(
        "conv1d-bias-2d",
        lambda on: m.conv1d(on.ones(2, 3, 5), on.ones(4, 3, 2), on.ones(1, 4)),
        r"conv1d.*bias.*2 dim",
    ),
    Mistake(
        "conv1d-groups-do-not-divide",
        lambda on: m.conv1d(on.ones(2, 4, 5), on.ones(3, 2, 2), groups=2),
        r"conv1d.*(groups.*3|3.*groups)",
    ),
    Mistake(
        "conv1d-width-0",
        lambda on: m.conv1d(on.ones(2, 3, 5), on.ones(4, 3, 0)),
        r"conv1d.*weight",
    ),
    Mistake(
        "conv1d-no-outputs",
        lambda on: m.conv1d(on.ones(2, 3, 5), on.ones(0, 3, 2)),
        r"conv1d.*weight",
    ),
    Mistake(
        "conv1d-weight-wider-than-input",
        lambda on: m.conv1d(on.ones(2, 3, 5), on.ones(4, 3, 9)),
        r"conv1d.*(5.*9|9.*5)",
    ),
    Mistake(
        "conv1d-channels",
        lambda on: m.conv1d(on.ones(2, 3, 5), on.ones(4, 2, 2)),
        r"conv1d.*(3.*2|2.*3)",
    ),
    Mistake(
        "conv1d-input-1d",
        lambda on: m.conv1d(on.ones(5), on.ones(4, 3, 2)),
        r"conv1d.*input.*1 dim",
    ),
    Mistake(
        "conv1d-input-4d",
        lambda on: m.conv1d(on.ones(2, 3, 5, 7), on.ones(4, 3, 2)),
        r"conv1d.*input.*4 dim",
    ),
    Mistake(
        "conv1d-weight-2d",
        lambda on: m.conv1d(on.ones(2, 3, 5), on.ones(4, 3)),
        r"conv1d.*weight.*2 dim",
    ),
    Mistake(
        "conv1d-dtypes",
        lambda on: m.conv1d(on.ones(2, 3, 5), on.ones(4, 3, 2, dtype=f64)),
        r"(?i)conv1d.*(float.*double|double.*float)",
    ),
    Mistake(
        "conv1d-bias-dtype",
        lambda on: m.conv1d(on.ones(2, 3, 5, dtype=f64), on.ones(4, 3, 2, dtype=f64), on.ones(4)),
        r"(?i)conv1d.*(float.*double|double.*float)",
    ),
    Mistake(
        "conv1d-same-with-stride",
        lambda on: m.conv1d(on.ones(2, 3, 5), on.ones(4, 3, 2), padding="same", stride=2),
        r"conv1d.*same.*stride",
    ),
    Mistake(
        "conv1d-three-paddings",
        lambda on: torch.ops.memops.conv1d(on.ones(2, 3, 5), on.ones(4, 3, 2), None, 1, [1, 1, 1]),
        r"conv1d.*padding.*3",
    ),
    # conv1d_constant
    Mistake(
        "conv1d_constant-no-taps",
        lambda on: m.conv1d_constant(on.ones(5), []),
        r"conv1d_constant.*taps",
    ),
    Mistake(
        "conv1d_constant-0d",
        lambda on: m.conv1d_constant(on.ones(), [1.0]),
        r"conv1d_constant.*input",
    ),
    Mistake(
        "conv1d_constant-wider-than-input",
        lambda on: m.conv1d_constant(on.ones(3), [1.0] * 6, 1),
        r"conv1d_constant.*(6.*5|5.*6|6.*3|3.*6)",
    ),
    Mistake(
        "conv1d_constant-padding",
        lambda on: m.conv1d_constant(on.ones(5), [1.0], -1),
        r"conv1d_constant.*padding.*-1",
    ),
    Mistake(
        "conv1d_constant-padding-overflow",
        lambda on: m.conv1d_constant(on.ones(5), [1.0, 2.0], 2**62),
        r"conv1d_constant",
    ),
    Mistake(
        "conv1d_constant-three-paddings",
        lambda on: torch.ops.memops.conv1d_constant(on.ones(5), [1.0], [1, 1, 1]),
        r"conv1d_constant.*padding.*3",
    ),
    Mistake(
        "conv1d_constant-integers",
        lambda on: m.conv1d_constant(on.ones(5, dtype=i64), [1.0]),
        r"(?i)conv1d_constant.*input.*(int64|long)",
        NotImplementedError,
    ),
    # causal_conv1d
    Mistake(
        "causal_conv1d-x-2d",
        lambda on: m.causal_conv1d(on.ones(3, 5), on.ones(3, 4)),
        r"causal_conv1d.*x.*2 dim",
    ),
    Mistake(
        "causal_conv1d-weight-1d",
        lambda on: m.causal_conv1d(on.ones(2, 3, 5), on.ones(3)),
        r"causal_conv1d.*weight.*1 dim",
    ),
    Mistake(
        "causal_conv1d-channels",
        lambda on: m.causal_conv1d(on.ones(2, 3, 5), on.ones(4, 4)),
        r"causal_conv1d.*weight.*4",
    ),
    Mistake(
        "causal_conv1d-width-0",
        lambda on: m.causal_conv1d(on.ones(2, 3, 5), on.ones(3, 0)),
        r"causal_conv1d.*weight.*0",
    ),
    Mistake(
        "causal_conv1d-bias",
        lambda on: m.causal_conv1d(on.ones(2, 3, 5), on.ones(3, 4), on.ones(2)),
        r"causal_conv1d.*bias.*2",
    ),
    Mistake(
        "causal_conv1d-state",
        lambda on: m.causal_conv1d(on.ones(2, 3, 5), on.ones(3, 4), initial_state=on.ones(2, 3, 4)),
        r"causal_conv1d.*initial_state.*2, 3, 4",
    ),
    Mistake(
        "causal_conv1d-seq-idx-dtype",
        lambda on: m.causal_conv1d(
            on.ones(2, 3, 5), on.ones(3, 4), seq_idx=on.ones(2, 5, dtype=i64)
        ),
        r"(?i)causal_conv1d.*seq_idx.*int",
    ),
    Mistake(
        "causal_conv1d-seq-idx-shape",
        lambda on: m.causal_conv1d(
            on.ones(2, 3, 5), on.ones(3, 4), seq_idx=on.ones(2, 4, dtype=torch.int32)
        ),
        r"causal_conv1d.*seq_idx.*2, 4",
    ),
    Mistake(
        "causal_conv1d-dtypes",
        lambda on: m.causal_conv1d(on.ones(2, 3, 5), on.ones(3, 4, dtype=f64)),
        r"(?i)causal_conv1d.*(float.*double|double.*float)",
    ),
    # causal_conv1d_update
    Mistake(
        "update-state-short",
        lambda on: m.causal_conv1d_update(on.ones(2, 3), on.ones(2, 3, 2), on.ones(3, 4)),
        r"causal_conv1d_update.*conv_state.*2",
    ),
    Mistake(
        "update-state-rows",
        lambda on: m.causal_conv1d_update(on.ones(2, 3), on.ones(5, 3, 3), on.ones(3, 4)),
        r"causal_conv1d_update.*conv_state.*5",
    ),
    Mistake(
        "update-state-channels",
        lambda on: m.causal_conv1d_update(on.ones(2, 3), on.ones(2, 4, 3), on.ones(3, 4)),
        r"causal_conv1d_update.*conv_state.*4",
    ),
    Mistake(
        "update-state-dtype",
        lambda on: m.causal_conv1d_update(
            on.ones(2, 3), on.ones(2, 3, 3, dtype=f64), on.ones(3, 4)
        ),
        r"(?i)causal_conv1d_update.*conv_state.*(float|double)",
    ),
    Mistake(
        "update-state-repeats-itself",
        lambda on: m.causal_conv1d_update(
            on.ones(2, 3), on.ones(1, 3, 3).expand(2, 3, 3), on.ones(3, 4)
        ),
        r"causal_conv1d_update.*conv_state.*more than once",
    ),
    Mistake(
        "update-x-1d",
        lambda on: m.causal_conv1d_update(on.ones(3), on.ones(1, 3, 3), on.ones(3, 4)),
        r"causal_conv1d_update.*x.*1 dim",
    ),
    Mistake(
        "update-seqlens-dtype",
        lambda on: m.causal_conv1d_update(
            on.ones(2, 3), on.ones(2, 3, 3), on.ones(3, 4), cache_seqlens=on.index(1, 2)
        ),
        r"(?i)causal_conv1d_update.*cache_seqlens.*int",
    ),
    Mistake(
        "update-seqlens-shape",
        lambda on: m.causal_conv1d_update(
            on.ones(2, 3),
            on.ones(2, 3, 3),
            on.ones(3, 4),
            cache_seqlens=on.index(1, dtype=torch.int32),
        ),
        r"causal_conv1d_update.*cache_seqlens.*1",
    ),
    Mistake(
        "update-indices-dtype",
        lambda on: m.causal_conv1d_update(
            on.ones(2, 3), on.ones(2, 3, 3), on.ones(3, 4), conv_state_indices=on.index(1, 0)
        ),
        r"(?i)causal_conv1d_update.*conv_state_indices.*int",
    ),
    Mistake(
        "update-indices-shape",
        lambda on: m.causal_conv1d_update(
            on.ones(2, 3),
            on.ones(2, 3, 3),
            on.ones(3, 4),
            conv_state_indices=on.index(1, 0, 1, dtype=torch.int32),
        ),
        r"causal_conv1d_update.*conv_state_indices.*3",
    ),
    # copy_, layouts
    Mistake("copy_-shapes", lambda on: m.copy_(on.ones(3), on.ones(4)), r"copy_.*4.*3"),
    Mistake("copy_-more-dimensions", lambda on: m.copy_(on.ones(3), on.ones(1, 3)), r"copy_.*1, 3"),
    Mistake(
        "copy_-destination-repeats-itself",
        lambda on: m.copy_(on.ones(1).expand(10), on.ones(10)),
        r"copy_.*dst.*more than once",
    ),
    Mistake("aos_to_soa-1d", lambda on: m.aos_to_soa(on.ones(3)), r"aos_to_soa.*aos.*1"),
    Mistake("soa_to_aos-0d", lambda on: m.soa_to_aos(on.ones()), r"soa_to_aos.*soa.*0"),
    # gathers
    Mistake(
        "gather_aos-0d", lambda on: m.gather_aos(on.ones(), on.index(0)), r"gather_aos.*aos.*0"
    ),
    Mistake(
        "gather_soa-1d", lambda on: m.gather_soa(on.ones(3), on.index(0)), r"gather_soa.*soa.*1"
    ),
    Mistake(
        "gather_soa-3d",
        lambda on: m.gather_soa(on.ones(2, 3, 4), on.index(0)),
        r"gather_soa.*soa.*3",
    ),
    *(
        Mistake(
            f"{name}-index-{str(dtype)[6:]}",
            _gather_with(name, dtype),
            rf"{name}.*index.*int32.*int64",
        )
        for name in ("gather_aos", "gather_soa")
        for dtype in (torch.uint8, torch.bool, torch.int16, torch.float32)
    ),
    Mistake(
        "embedding-index-float",
        lambda on: m.embedding(on.ones(2), on.ones(3, 2)),
        r"index.*int32.*int64",
    ),
    Mistake(
        "embedding-1d", lambda on: m.embedding(on.index(0), on.ones(3)), r"embedding.*weight.*1"
    ),
    Mistake(
        "embedding-padding",
        lambda on: m.embedding(on.index(0), on.ones(3, 2), 3),
        r"embedding.*padding_idx.*3",
    ),
    # sizes whose product does not fit in 64 bits
    Mistake(
        "matmul-result-too-large",
        lambda on: m.matmul(on.wide(2**32, 2), on.wide(2, 2**32)),
        r"",
    ),
    Mistake(
        "gather_aos-result-too-large",
        lambda on: m.gather_aos(on.wide(3, 2**33), on.index(0).expand(2**33)),
        r"",
    ),
    Mistake("copy-result-too-large", lambda on: m.copy(on.wide(2**31, 2**31)), r""),
)
