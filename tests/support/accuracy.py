"""Error against float64, and the bounds it is held to."""

import math

import torch
from torch import Tensor

ROUNDOFF = {
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
    torch.float32: 2.0**-24,
    torch.float64: 2.0**-53,
}
SMALLEST = {
    torch.float16: 2.0**-24,
    torch.bfloat16: 2.0**-133,
    torch.float32: 2.0**-149,
    torch.float64: 0.0,
}


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The type that sums are kept in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def growth(terms: int, *, repeated: bool = False) -> float:
    """c(K): how many roundoffs of the accumulator a sum of K products may be wrong by.

    K + 1 is the worst case of any order of summation, which `repeated` equal terms come near;
    8 + 2 sqrt(K) what roundings that do not conspire reach. The same for every implementation.
    """
    worst = terms + 1.0
    return worst if repeated else min(worst, 8.0 + 2.0 * math.sqrt(terms))


def elementwise_bound(
    reference: Tensor, magnitude: Tensor, factor: float, dtype: torch.dtype
) -> Tensor:
    """Allowed |out - reference|: the sum's error, c(K) u (|A||B|), and the result's rounding."""
    total = factor * ROUNDOFF[accumulator(dtype)] * magnitude
    return total + 1.01 * ROUNDOFF[dtype] * reference.abs() + SMALLEST[dtype]


def assert_within_bound(
    actual: Tensor,
    reference: Tensor,
    magnitude: Tensor,
    terms: int,
    what: str = "result",
    *,
    repeated: bool = False,
) -> None:
    """Every element of `actual` lies within the bound; NaN anywhere fails."""
    assert actual.shape == reference.shape, f"{what}: {actual.shape} != {reference.shape}"
    if actual.numel() == 0:
        return
    error = (actual.detach().double().cpu() - reference).abs()
    factor = growth(terms, repeated=repeated)
    bound = elementwise_bound(reference, magnitude, factor, actual.dtype)
    excess = (error - bound).nan_to_num(nan=math.inf, posinf=math.inf)
    worst = int(excess.argmax())
    assert float(excess.max()) <= 0, (
        f"{what}: error {float(error.flatten()[worst]):.3e} at flat index {worst} "
        f"above the bound {float(bound.flatten()[worst]):.3e}"
    )


def norm_error(actual: Tensor, reference: Tensor) -> float:
    """norm(out - ref64) / norm(ref64)."""
    if reference.numel() == 0:
        return 0.0
    difference = torch.linalg.vector_norm(actual.detach().double().cpu() - reference)
    return float(difference / torch.linalg.vector_norm(reference))


def assert_no_less_accurate(
    actual: Tensor, peer: Tensor, reference: Tensor, what: str, terms: int = 256
) -> None:
    """The norm-wise error is at most 1.05 x the peer's on the same data (exact where it is exact).

    f64 results have no better reference, which may be the peer's own sum: both may differ from it
    by what rounding a sum of `terms` products does, the root of their number in roundoffs.
    """
    ours, theirs = norm_error(actual, reference), norm_error(peer, reference)
    wide = actual.dtype == torch.float64
    slack = max(16.0, math.sqrt(terms)) * ROUNDOFF[torch.float64] if wide else 0.0
    assert ours <= 1.05 * theirs + slack, f"{what}: error {ours:.4e}, PyTorch's {theirs:.4e}"
