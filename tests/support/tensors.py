"""Tensors with chosen contents, layouts and surroundings, and comparisons bit for bit."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

GUARD_BYTES = 64
POISON_BYTE = 0xFF  # repeated, it is NaN in every IEEE format and -1 in every integer


@dataclass
class Make:
    """Makes tensors of one device and dtype from one seed; the same values on every device."""

    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    requires_grad: bool = False
    seed: int = 1
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def tensor(self, *shape: int, layout: str = "contiguous") -> Tensor:
        """Normally distributed values (random bytes for other dtypes), in the named layout."""
        if self.dtype.is_floating_point or self.dtype.is_complex:
            wide = torch.complex128 if self.dtype.is_complex else torch.float64
            values = torch.randn(shape, generator=self.generator, dtype=wide).to(self.dtype)
        else:
            values = random_bits(shape, self.dtype, self.generator)
        made = lay_out(values.to(self.device), layout)
        return made.requires_grad_() if self.requires_grad else made

    def index(
        self, high: int, *shape: int, dtype: torch.dtype = torch.int64, layout: str = "contiguous"
    ) -> Tensor:
        """Indices in [0, high)."""
        values = torch.randint(high, shape, generator=self.generator, dtype=dtype)
        return lay_out(values.to(self.device), layout)


def random_bits(
    shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator | None = None
) -> Tensor:
    """A CPU tensor of any dtype whose bytes are random (0 or 1 for bool)."""
    width = dtype.itemsize
    high = 2 if dtype == torch.bool else 256
    count = math.prod(shape)
    data = torch.randint(high, (count * width,), generator=generator, dtype=torch.uint8)
    return data.view(dtype).view(tuple(shape))


LAYOUTS = ("contiguous", "transposed", "reversed", "offset", "strided", "pitched")


def strides_in_order(
    shape: Sequence[int], order: Sequence[int], unit: int = 1, pitch: int = 0
) -> tuple[int, ...]:
    """Strides of a tensor whose dimensions lie in memory in this order, outermost first: elements
    `unit` apart, rows `pitch` elements longer than the innermost dimension."""
    strides, reach = [0] * len(shape), 0
    for place, axis in enumerate(reversed(order)):
        strides[axis] = unit if place == 0 else reach
        run = unit * shape[axis] + pitch if place == 0 else reach * shape[axis]
        reach = max(run, 1)
    return tuple(strides)


def strides_for(shape: Sequence[int], layout: str) -> tuple[tuple[int, ...], int]:
    """Strides and storage offset, in elements, of a layout.

    contiguous; transposed: the last two dimensions swapped in memory; reversed: all of them;
    offset: one element into its storage; strided: every second element; pitched: rows longer
    than the last dimension; expanded: the last dimension's first element repeated (stride 0).
    """
    order = list(range(len(shape)))
    unit, pitch, offset = 1, 0, 0
    if layout == "transposed":
        order[-2:] = order[-2:][::-1]
    elif layout == "reversed":
        order = order[::-1]
    elif layout == "offset":
        offset = 1
    elif layout == "strided":
        unit = 2
    elif layout == "pitched":
        pitch, offset = 3, 1
    elif layout == "expanded":
        unit = 0
    elif layout != "contiguous":
        raise ValueError(f"unknown layout {layout!r}")
    return strides_in_order(shape, order, unit, pitch), offset


def poison(tensor: Tensor) -> None:
    """Fill the whole storage, the gaps of the tensor too."""
    storage = tensor.untyped_storage()
    torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).fill_(POISON_BYTE)


def lay_out(values: Tensor, layout: str) -> Tensor:
    """The same values in another memory layout (see strides_for), with poison in its gaps."""
    strides, offset = strides_for(values.shape, layout)
    if offset == 0 and layout != "expanded":  # no view of a larger tensor where none is needed
        made = torch.empty_strided(values.shape, strides, dtype=values.dtype, device=values.device)
        poison(made)
        return made.copy_(values)
    extent = sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True)) + 1
    storage = values.new_empty(max(extent, 0) + offset)
    poison(storage)
    made = storage.as_strided(values.shape, strides, offset)
    if layout == "expanded":
        made[..., :1] = values[..., :1]
        return made
    return made.copy_(values)


class GuardedView:
    """A strided view with guard bytes round its storage and poison in every gap.

    values: contiguous CPU tensor; strides and offset in elements; the view lies on `device`.
    """

    def __init__(
        self, values: Tensor, strides: Sequence[int], offset: int = 0, device: str = "cpu"
    ) -> None:
        width = values.dtype.itemsize
        reach = sum((size - 1) * stride for size, stride in zip(values.shape, strides, strict=True))
        extent = 0 if values.numel() == 0 else reach + 1
        lead = -(-GUARD_BYTES // width)
        count = lead + offset + extent + lead
        self.storage = torch.full((count * width,), POISON_BYTE, dtype=torch.uint8, device=device)
        whole = self.storage.view(values.dtype)
        self.view = whole.as_strided(values.shape, tuple(strides), lead + offset)
        positions = torch.arange(count).as_strided(values.shape, tuple(strides), lead + offset)
        self._positions = positions.reshape(-1)
        if values.numel():
            host = torch.full((count, width), POISON_BYTE, dtype=torch.uint8)
            host[self._positions] = to_bytes(values).reshape(-1, width)
            self.storage.copy_(host.reshape(-1))
        self._before = self.storage.clone()

    def assert_untouched(self) -> None:
        """The storage is what it was: nothing was written, inside or outside the view."""
        assert torch.equal(self.storage, self._before)

    def assert_only_view_written(self) -> None:
        """No byte outside the view's elements has changed."""
        width = self.view.dtype.itemsize
        changed = (self.storage.cpu() != self._before.cpu()).view(-1, width).any(1)
        changed[self._positions] = False
        assert not changed.any(), f"bytes written outside at elements {changed.nonzero().tolist()}"


def to_bytes(values: Tensor) -> Tensor:
    """The elements' bytes as uint8 on the CPU, shape [*values.shape, itemsize]."""
    width = values.dtype.itemsize
    if values.numel() == 0:
        return torch.empty(*values.shape, width, dtype=torch.uint8)
    values = values.detach().resolve_conj().resolve_neg()
    reach = sum((n - 1) * s for n, s in zip(values.shape, values.stride(), strict=True)) + 1
    run = values.as_strided((reach,), (1,)).view(torch.uint8).view(reach, width).cpu()
    strides = [s * width for s in values.stride()]
    return run.as_strided((*values.shape, width), (*strides, 1)).contiguous()


def from_bytes(data: Tensor, dtype: torch.dtype, device: str = "cpu") -> Tensor:
    """The inverse of to_bytes: uint8 [*shape, itemsize] to a contiguous tensor."""
    return data.contiguous().view(-1).to(device).view(dtype).view(data.shape[:-1])


def assert_same_bits(actual: Tensor, expected: Tensor) -> None:
    """Same dtype, shape and bytes; NaN payloads and signed zeros count."""
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert torch.equal(to_bytes(actual), to_bytes(expected))


def leave_nan_behind(device: str, *shapes: Sequence[int], dtype: torch.dtype) -> None:
    """Free NaN-filled blocks of these sizes, so that the allocator's next ones hold NaN."""
    blocks = [torch.full(tuple(shape), math.nan, dtype=dtype, device=device) for shape in shapes]
    del blocks
