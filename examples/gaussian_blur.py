"""A Gaussian blur of images as two passes of one-dimensional filters.

The filter's taps are arguments of the launch: on a GPU they sit in the constant bank. Both passes
run along rows, where neighbours in the image are neighbours in memory; between them `copy` turns
the images.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

import torch_memops


def gaussian(sigma: float) -> list[float]:
    """Taps from -3 sigma to 3 sigma that sum to 1."""
    radius = math.ceil(3 * sigma)
    weights = [math.exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)]
    return [w / sum(weights) for w in weights]


def blur(images: Tensor, sigma: float) -> Tensor:
    """Blurs [..., H, W]; outside the images is zero."""
    taps = gaussian(sigma)
    rows = torch_memops.conv1d_constant(images, taps, padding="same")
    turned = torch_memops.copy(rows.mT)
    columns = torch_memops.conv1d_constant(turned, taps, padding="same")
    return torch_memops.copy(columns.mT)


def main() -> None:
    device = "cuda" if torch_memops.cuda_available() else "cpu"
    images = torch.zeros(2, 3, 120, 160, device=device)
    images[..., 40:80, 50:110] = 1.0  # a white rectangle
    sigma = 5.0
    blurred = blur(images, sigma)

    taps = torch.tensor(gaussian(sigma), dtype=torch.float64, device=device)
    planes = images.view(-1, 1, 120, 160).double()
    expected = F.conv2d(planes, taps.outer(taps)[None, None], padding="same").view_as(images)
    difference = (blurred - expected).abs().max().item()
    edge = blurred[0, 0, 60, 40:60].tolist()
    print("across the rectangle's left edge: " + " ".join(f"{v:.2f}" for v in edge))
    print(f"largest difference from a two-dimensional convolution: {difference:.1e}")
    if not difference < 1e-5:
        raise SystemExit("the blur is wrong")


if __name__ == "__main__":
    main()
