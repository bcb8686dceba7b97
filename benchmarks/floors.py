"""What this device can do at best: a plain copy's rate, and that of matrix products."""

from __future__ import annotations

import torch
from torch import Tensor

from .timing import Clock
from .workload import DTYPES, Call, Settings

# dtype of the factors and size of the product that stands for a unit's rate
PRODUCTS = {
    "f16": ("f16", 8192),
    "bf16": ("bf16", 8192),
    "tf32": ("f32", 8192),
    "f32": ("f32", 4096),
    "f64": ("f64", 4096),
}


class Copier:
    """Plain copies that each move as many bytes as a case: half read, half written.

    `Tensor.copy_` between contiguous uint8 tensors is cudaMemcpyAsync, device to device; on the
    CPU it is a memcpy. It is never an op of this library.
    """

    ALIGNMENT = 512  # bytes; as PyTorch's allocator

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._source = self._target = torch.empty(0, dtype=torch.uint8, device=device)

    def call(self, moved: int, repeats: int = 1) -> Call:
        """`repeats` copies of `moved` bytes, each between memory of its own."""
        half = (moved + 1) // 2
        room = -(-half // self.ALIGNMENT) * self.ALIGNMENT
        if room * repeats > self._source.numel():
            size = (room * repeats,)
            self._source = torch.randint(256, size, dtype=torch.uint8, device=self._device)
            self._target = torch.empty_like(self._source)
        pairs = [
            (self._target[start : start + half], self._source[start : start + half])
            for start in range(0, room * repeats, room)
        ]

        def copy() -> tuple[Tensor, ...]:
            return tuple(target.copy_(source) for target, source in pairs)

        return copy


class Peaks:
    """Rates of matrix products on this device in TFLOP/s, each measured once: torch.mm, 3 calls.

    cuBLAS sets this peak, so a share above 1 is possible; full f32 above all.
    """

    CPU_SIZE = 512

    def __init__(self, device: torch.device, clock: Clock) -> None:
        self._device, self._clock = device, clock
        self.tflops: dict[str, float] = {}

    def rate(self, name: str) -> float:
        if name not in self.tflops:
            self.tflops[name] = self._measure(name)
        return self.tflops[name]

    def _measure(self, name: str) -> float:
        dtype, size = PRODUCTS[name]
        if self._device.type == "cpu":
            size = self.CPU_SIZE
        a, b = (torch.randn(size, size, device=self._device, dtype=DTYPES[dtype]) for _ in range(2))
        with Settings(matmul_precision="high" if name == "tf32" else "highest").applied():
            calls = {"product": lambda: torch.mm(a, b)}
            estimates = {"product": self._clock.estimate(calls["product"])}
            samples = self._clock.rounds(calls, estimates, seconds=0.0)["product"]
        return 2 * size**3 / min(samples) / 1e9
