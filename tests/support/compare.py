"""Comparisons of nested results."""

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


def tensors(value: Any) -> list[Tensor]:
    """All tensors of a nest of results."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def assert_equal_results(ours: Any, expected: Any) -> None:
    """Values, dtypes and strides."""
    for mine, other in zip(tensors(ours), tensors(expected), strict=True):
        torch.testing.assert_close(mine, other)
        assert mine.stride() == other.stride()
