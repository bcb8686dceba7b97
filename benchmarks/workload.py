"""What a benchmark case is made of: sizes, a workload on one device, its peers and its check."""

from __future__ import annotations

import importlib.util
import math
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

Output = Tensor | tuple[Tensor, ...]
Call = Callable[[], Output]
Function = Callable[..., Output]
Compiler = Callable[..., Function]

PEER_GROUPS = ("eager", "cudnn-benchmark", "fft", "causal-conv1d", "torchaudio", "compile")
DTYPES = {
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "u8": torch.uint8,
    "i64": torch.int64,
    "c128": torch.complex128,
}
SECTOR = 32  # bytes: the least that the memory system moves


@dataclass(frozen=True)
class Case:
    """One row of cases.json. `bytes` and `flops` are those of the full size."""

    id: str
    inputs: str
    bytes: int | None = None
    flops: int | None = None
    goal: dict[str, float] = field(default_factory=dict)
    published_h200: dict[str, Any] = field(default_factory=dict)
    headline: bool = False

    @property
    def parts(self) -> list[str]:
        return self.id.split("/")


@dataclass(frozen=True)
class Peer:
    """Somebody else's way to the same result.

    `prepare` receives `torch.compile` (or, in the tests, something that returns its argument) and
    returns the call to be timed. `group` is one of PEER_GROUPS; for a package it is its name.
    """

    name: str
    group: str
    prepare: Callable[[Compiler], Call]
    package: str | None = None

    @property
    def installed(self) -> bool:
        return self.package is None or importlib.util.find_spec(self.package) is not None


@dataclass(frozen=True)
class Check:
    """How a result is compared with its reference.

    `sample` takes the compared part out of a result, `reference` computes the same part (float64,
    or the expected values themselves where the op is exact), `covers` says how much that is.
    """

    sample: Callable[[Output], list[Tensor]]
    reference: Callable[[], list[Tensor]]
    covers: str
    exact: bool = False

    def error(self, output: Output, expected: Sequence[Tensor]) -> float:
        """Largest norm(out - ref) / norm(ref) over the parts; exact: the share of unequal elements."""
        parts = self.sample(output)
        if [p.shape for p in parts] != [e.shape for e in expected]:
            raise ValueError(
                f"result has shapes {[tuple(p.shape) for p in parts]}, "
                f"expected {[tuple(e.shape) for e in expected]}"
            )
        measure = _share_unequal if self.exact else _relative_norm
        errors = [measure(p, e) for p, e in zip(parts, expected, strict=True)]
        return math.nan if any(math.isnan(e) for e in errors) else max(errors)


@dataclass
class Workload:
    """A case on one device: inputs made, ready to be called.

    `weights`: what a kernel that only reads the weights has to read (few rows of input).
    `rows`: table and index whose random accesses bound the case; `planes` counts the table's rows
    that are indexed one by one (structure of arrays).
    """

    ours: Call
    peers: list[Peer]
    check: Check
    weights: Tensor | None = None
    rows: tuple[Tensor, Tensor] | None = None
    planes: int = 1


@dataclass(frozen=True)
class Settings:
    """PyTorch's global switches while a case is built, run and compared. Defaults: PyTorch's own."""

    matmul_precision: str = "highest"
    conv_tf32: bool = True
    deterministic: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        before = (
            torch.get_float32_matmul_precision(),
            torch.backends.cudnn.allow_tf32,
            torch.are_deterministic_algorithms_enabled(),
        )
        try:
            _switch(self.matmul_precision, self.conv_tf32, self.deterministic)
            yield
        finally:
            _switch(*before)


@dataclass(frozen=True)
class Problem:
    """A case at one size, before any memory is allocated.

    `peak` names the unit that computes it. `repeats`: how often a call, ours or a peer's, does the
    case, each time on other memory; `bytes` and `flops` are those of once.
    """

    bytes: int | None
    flops: int | None
    make: Callable[[torch.device], Workload]
    peak: str | None = None
    settings: Settings = Settings()
    overhead: bool = False
    repeats: int = 1


def first(out: Output) -> Tensor:
    """The result itself, or the first of several."""
    return out[0] if isinstance(out, tuple) else out


def _switch(matmul_precision: str, conv_tf32: bool, deterministic: bool) -> None:
    torch.set_float32_matmul_precision(matmul_precision)
    torch.backends.cudnn.allow_tf32 = conv_tf32
    torch.use_deterministic_algorithms(deterministic)


def _relative_norm(out: Tensor, reference: Tensor) -> float:
    reference = reference.double()
    difference = torch.linalg.vector_norm(out.double() - reference)
    return float(difference / torch.linalg.vector_norm(reference))


def _share_unequal(out: Tensor, expected: Tensor) -> float:
    if torch.equal(out, expected):
        return 0.0
    return float((out != expected).double().mean())


# --- peers ---


def eager(name: str, function: Function, *args: Any) -> Peer:
    return Peer(name, "eager", lambda _: partial(function, *args))


def compiled(name: str, function: Function, *args: Any, **options: Any) -> Peer:
    """`function(*args)` under torch.compile(dynamic=False, **options)."""

    def prepare(compiler: Compiler) -> Call:
        return partial(compiler(function, dynamic=False, **options), *args)

    return Peer(name, "compile", prepare)


def gradients(function: Function, inputs: Sequence[Tensor], grad: Tensor) -> Call:
    """The backward pass alone: one forward now, one torch.autograd.grad a call."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    out = first(function(*leaves))
    return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)


def eager_gradients(name: str, function: Function, inputs: Sequence[Tensor], grad: Tensor) -> Peer:
    return Peer(name, "eager", lambda _: gradients(function, inputs, grad))


def compiled_gradients(
    name: str, function: Function, inputs: Sequence[Tensor], grad: Tensor
) -> Peer:
    """The backward pass that torch.compile derives from `function`."""

    def prepare(compiler: Compiler) -> Call:
        import torch._functorch.config as functorch_config

        # A retained graph may not donate its buffers.
        with functorch_config.patch(donated_buffer=False):
            call = gradients(compiler(function, dynamic=False), inputs, grad)
            call()
        return call

    return Peer(name, "compile", prepare)


# --- sizes ---


def parse_size(text: str) -> int:
    """'4095', '2^26', '2^26+1' -> int."""
    match = re.fullmatch(r"(\d+)(?:\^(\d+))?(?:\+(\d+))?", text)
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    base, power, extra = match.groups()
    return int(base) ** int(power or 1) + int(extra or 0)


def parse_sizes(text: str) -> list[int]:
    """'2^25x4' -> [33554432, 4]."""
    return [parse_size(part) for part in text.split("x")]


def shrink(sizes: Sequence[int], limit: int | None) -> list[int]:
    """Halves the largest size until the product is at most `limit`; odd sizes stay odd."""
    sizes = list(sizes)
    while limit is not None and math.prod(sizes) > limit and max(sizes) > 1:
        i = max(range(len(sizes)), key=sizes.__getitem__)
        sizes[i] = (sizes[i] // 2) | (sizes[i] & 1)
    return sizes


# --- data ---


class Data:
    """Random tensors from a seed that depends on the case's id alone."""

    def __init__(self, case: Case, device: torch.device) -> None:
        self.device = device
        self.generator = torch.Generator(device).manual_seed(zlib.crc32(case.id.encode()))

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Standard normal values; integers: uniform over all but the largest, uint8 over all 256."""
        if not dtype.is_floating_point and not dtype.is_complex:
            least, largest = torch.iinfo(dtype).min, torch.iinfo(dtype).max
            return torch.randint(
                least,
                256 if dtype == torch.uint8 else largest,
                shape,
                dtype=dtype,
                device=self.device,
                generator=self.generator,
            )
        return torch.randn(shape, dtype=dtype, device=self.device, generator=self.generator)

    def index(self, high: int, count: int) -> Tensor:
        """`count` int64 values below `high`."""
        return torch.randint(high, (count,), device=self.device, generator=self.generator)


def every(count: int, total: int, device: torch.device) -> Tensor:
    """`count` positions spread evenly over range(total), both ends included; all if fewer."""
    if count >= total:
        return torch.arange(total, device=device)
    positions = torch.linspace(0, total - 1, count, dtype=torch.float64, device=device)
    return positions.round().long()
