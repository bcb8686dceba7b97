"""A photograph through every op: layouts, a separable blur, gathers, products, convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.ndimage
import torch
import torch.nn.functional as F
from torch import Tensor

import torch_memops
from torch_memops.demo.measure import Case, Comparison, Results

SIGMA = 4.0
TRUNCATE = 3.0
PATCH = 8
# ITU-R BT.601: from R'G'B' to luma and the two colour differences.
YCBCR = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
DTYPE_NAMES = {
    torch.float32: "f32", torch.bfloat16: "bf16", torch.uint8: "u8", torch.int64: "i64",
}  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """[H, W, 3] in 0 to 1, and what it shows."""

    title: str
    pixels: Tensor


def load_photograph(mosaic: int, crop: tuple[int, int] | None) -> Tensor:
    """scikit-learn's "china.jpg" as uint8 [H, W, 3]; `mosaic` mirrored copies along each side."""
    from sklearn.datasets import load_sample_image

    photo = torch.from_numpy(load_sample_image("china.jpg").copy())
    if crop is not None:
        photo = photo[: crop[0], : crop[1]]
    row = torch.cat([photo if i % 2 == 0 else photo.flip(1) for i in range(mosaic)], dim=1)
    return torch.cat([row if i % 2 == 0 else row.flip(0) for i in range(mosaic)], dim=0)


def gaussian(sigma: float, truncate: float) -> list[float]:
    """The taps of scipy.ndimage.gaussian_filter with the same arguments."""
    radius = int(truncate * sigma + 0.5)
    weights = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)]
    return [w / sum(weights) for w in weights]


def describe(*tensors: Tensor) -> str:
    return ", ".join(f"{DTYPE_NAMES[t.dtype]} {list(t.shape)}" for t in tensors)


class Photograph:
    """The photograph on a device, and the cases made of it.

    `run` takes one case after the other: each works on what the one before it returned.
    """

    def __init__(self, photo: Tensor, device: torch.device, comparison: Comparison) -> None:
        self.bytes = photo.to(device)
        self.device = device
        self.comparison = comparison
        self.random = torch.Generator().manual_seed(0)
        self.pictures: list[Picture] = []
        self.height, self.width = photo.shape[:2]

    def parts(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """What `run` does, in order: a name for the progress bar, and the work."""
        yield "copy_: bytes to f32", self._convert
        yield "the blur", self._blur
        yield "the blur against scipy.ndimage", self._check_blur
        yield "gathers of shuffled pixels", self._gathers
        yield "the colour matrix", self._colours
        yield "a network's layers", self._layers
        yield "convolutions", self._convolutions
        yield "causal convolutions", self._causal

    def _tensor(self, result: Results) -> Tensor:
        assert isinstance(result, Tensor)
        return result

    def _randn(self, *sizes: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(*sizes, generator=self.random) * scale).to(self.device)

    def _show(self, title: str, pixels: Tensor) -> None:
        """Keeps at most one of the mosaic's tiles."""
        view = pixels.detach().view(self.height, self.width, 3)[:427, :640]
        self.pictures.append(Picture(title, view.float().clamp(0, 1).cpu()))

    def _move(self, op: str, ours: Callable[[], Tensor], reference: Callable[[], Tensor],
              *inputs: Tensor) -> Tensor:  # fmt: skip
        """A case that only moves data."""
        case = Case(op, describe(*inputs), ours, reference, inputs)
        return self._tensor(self.comparison.run(case))

    def _convert(self) -> None:
        source = self.bytes
        ours = torch.empty(source.shape, device=self.device)
        theirs = torch.empty_like(ours)
        floats = self._move(
            "copy_",
            lambda: torch_memops.copy_(ours, source),
            lambda: theirs.copy_(source),
            source,
        )
        self.image = floats / 255
        self.pixels = self.image.view(-1, 3)
        self._show("The photograph", self.pixels)

    def _blur(self) -> None:
        height, width, taps = self.height, self.width, gaussian(SIGMA, TRUNCATE)
        planes = self._move(
            "aos_to_soa",
            lambda: torch_memops.aos_to_soa(self.pixels),
            lambda: self.pixels.mT.contiguous(),
            self.pixels,
        ).view(3, height, width)
        self.planes = planes
        rows = self._filter(planes, taps)
        turned = self._transpose(rows)
        columns = self._filter(turned, taps)
        self.blurred = self._transpose(columns).view(3, -1)
        pixels = self._move(
            "soa_to_aos",
            lambda: torch_memops.soa_to_aos(self.blurred),
            lambda: self.blurred.mT.contiguous(),
            self.blurred,
        )
        self._show(f"Gaussian blur, sigma {SIGMA:g}, {len(taps)} taps each way", pixels)

    def _filter(self, planes: Tensor, taps: list[float]) -> Tensor:
        weight = torch.tensor(taps, device=self.device).view(1, 1, -1)

        def reference() -> Tensor:
            sequences = planes.view(-1, 1, planes.shape[-1])
            return F.conv1d(sequences, weight, padding=len(taps) // 2).view_as(planes)

        case = Case(
            "conv1d_constant",
            f"{describe(planes)}, {len(taps)} taps",
            lambda: torch_memops.conv1d_constant(planes, taps, padding="same"),
            reference,
            (planes,),
            terms=len(taps),
            flops=2 * len(taps) * planes.numel(),
        )
        return self._tensor(self.comparison.run(case))

    def _transpose(self, planes: Tensor) -> Tensor:
        view = planes.transpose(1, 2)
        return self._move(
            "copy (transpose)", lambda: torch_memops.copy(view), view.contiguous, view
        )

    def _check_blur(self) -> None:
        planes = self.planes.double().cpu().numpy()
        expected = np.stack(
            [
                scipy.ndimage.gaussian_filter(plane, SIGMA, mode="constant", truncate=TRUNCATE)
                for plane in planes
            ]
        )
        self.comparison.check(
            "conv1d_constant, both ways",
            describe(self.planes),
            "scipy.ndimage",
            self.blurred.cpu().view(3, self.height, self.width),
            torch.from_numpy(expected).float(),
            terms=2 * len(gaussian(SIGMA, TRUNCATE)),
            made_by="conv1d_constant",
        )

    def _gathers(self) -> None:
        pixels, planes = self.pixels, self.planes.view(3, -1)
        order = torch.randperm(pixels.shape[0], generator=self.random).to(self.device)
        shuffled = self._move(
            "gather_aos",
            lambda: torch_memops.gather_aos(pixels, order),
            lambda: pixels.index_select(0, order),
            pixels,
            order,
        )
        self._show("gather_aos: the pixels in a random order", shuffled)
        self._move(
            "gather_soa",
            lambda: torch_memops.gather_soa(planes, order),
            lambda: planes.index_select(1, order),
            planes,
            order,
        )
        palette = self._palette()
        levels = self.bytes.float().mean(dim=2).round().long()
        coloured = self._move(
            "embedding",
            lambda: torch_memops.embedding(levels, palette),
            lambda: F.embedding(levels, palette),
            levels,
            palette,
        )
        self._show("embedding: brightness looked up in a palette", coloured)

    def _palette(self) -> Tensor:
        """256 colours, [256, 3]."""
        import matplotlib

        colours = matplotlib.colormaps["inferno"](np.arange(256))[:, :3]
        return torch.from_numpy(colours.astype(np.float32)).to(self.device)

    def _colours(self) -> None:
        matrix = torch.tensor(YCBCR, device=self.device).t()
        differences = self._product(self.pixels, matrix)
        offset = torch.tensor([0.0, 0.5, 0.5], device=self.device)
        self._show("matmul: brightness and colour differences", differences + offset)

    def _product(self, a: Tensor, b: Tensor) -> Tensor:
        case = Case(
            "matmul",
            describe(a, b),
            lambda: torch_memops.matmul(a, b),
            lambda: torch.matmul(a, b),
            (a, b),
            terms=a.shape[-1],
            flops=2 * a.shape[0] * a.shape[1] * b.shape[1],
        )
        return self._tensor(self.comparison.run(case))

    def _layers(self) -> None:
        """Two layers over the photograph's 8x8 patches: linear with a bias, ReLU, matmul."""
        height, width = self.height // PATCH * PATCH, self.width // PATCH * PATCH
        patches = self.image[:height, :width].reshape(height // PATCH, PATCH, width // PATCH, -1)
        patches = patches.transpose(1, 2).reshape(-1, PATCH * PATCH * 3) - 0.5
        weight = self._randn(256, patches.shape[1], scale=patches.shape[1] ** -0.5)
        bias = self._randn(256, scale=0.1)
        weight2 = self._randn(256, 64, scale=256**-0.5)
        dtypes = [torch.float32] + [torch.bfloat16] * (self.device.type == "cuda")
        for dtype in dtypes:
            x, w, b, w2 = (t.to(dtype) for t in (patches, weight, bias, weight2))
            hidden = self._linear(x, w, b)
            self._product(F.relu(hidden), w2)

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        case = Case(
            "linear",
            describe(x, weight),
            lambda: torch_memops.linear(x, weight, bias),
            lambda: F.linear(x, weight, bias),
            (x, weight, bias),
            terms=x.shape[1] + 1,
            flops=2 * x.shape[0] * x.shape[1] * weight.shape[0],
        )
        return self._tensor(self.comparison.run(case))

    def _convolutions(self) -> None:
        """Each row of the photograph is a sequence of three channels."""
        rows = (self.planes - 0.5).transpose(0, 1)
        x = rows.contiguous()
        weight = self._randn(16, 3, 9, scale=27**-0.5)
        bias = self._randn(16, scale=0.1)
        case = Case(
            "conv1d",
            describe(x, weight),
            lambda: torch_memops.conv1d(x, weight, bias, padding="same"),
            lambda: F.conv1d(x, weight, bias, padding="same"),
            (x, weight, bias),
            terms=28,
            flops=2 * 27 * 16 * x.shape[0] * x.shape[2],
        )
        response = self._tensor(self.comparison.run(case))
        first = response[:, :3].permute(0, 2, 1)
        self._show("conv1d: three of 16 random filters along the rows", first.reshape(-1, 3) + 0.5)

    def _causal(self) -> None:
        """The rows again, as the pixels lie in memory: channels last."""
        x = self.image.transpose(1, 2)
        weight = torch.tensor([0.1, 0.2, 0.3, 0.4], device=self.device).expand(3, 4).contiguous()
        bias = torch.zeros(3, device=self.device)

        def reference() -> tuple[Tensor, ...]:
            padded = F.pad(x, (3, 0))
            out = F.silu(F.conv1d(padded, weight[:, None], bias, groups=3))
            return out, padded[..., -3:].contiguous()

        case = Case(
            "causal_conv1d",
            f"{describe(x)} channels last, K 4, SiLU",
            lambda: torch_memops.causal_conv1d(x, weight, bias, silu=True, final_state=True),
            reference,
            (x, weight, bias),
            terms=5,
            flops=2 * 4 * x.numel(),
        )
        result = self.comparison.run(case)
        assert isinstance(result, tuple)
        out, state = result
        self._show("causal_conv1d: each pixel from those before it", out.transpose(1, 2))
        self._decode(x[..., 0].contiguous(), state, weight, bias)

    def _decode(self, x: Tensor, state: Tensor, weight: Tensor, bias: Tensor) -> None:
        """One more pixel a row, from the state that the rows left."""
        ours, theirs = state.clone(), state.clone()

        def reference() -> tuple[Tensor, ...]:
            window = torch.cat([theirs, x[..., None]], dim=-1)
            theirs.copy_(window[..., 1:])
            return F.silu((window * weight).sum(-1) + bias), theirs

        case = Case(
            "causal_conv1d_update",
            f"{describe(x)}, K 4, SiLU",
            lambda: (
                torch_memops.causal_conv1d_update(x, ours, weight, bias, silu=True),
                ours,
            ),
            reference,
            (x, state, weight, bias),
            terms=5,
            flops=2 * 4 * x.numel(),
        )
        self.comparison.run(case)
