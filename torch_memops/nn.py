"""torch.nn's layers over this package's ops: same parameters, same state_dict, same results.

Each class only computes differently from the torch.nn class it extends, so that checkpoints,
isinstance checks, hooks and parametrizations work as they do there. Arguments of a tensor subclass
that overrides torch functions (quantized weights, for example) go to torch.nn's own forward.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import has_torch_function

import torch_memops

__all__ = ["Conv1d", "Embedding", "Linear"]

PLAIN = (Tensor, torch.nn.Parameter, type(None))


def _overrides_functions(*arguments: Tensor | None) -> bool:
    """Whether an argument's class overrides torch functions.

    `has_torch_function` alone would also be true wherever a TorchFunctionMode is active, as under
    torch.set_default_device.
    """
    return has_torch_function(arguments) and any(type(a) not in PLAIN for a in arguments)


class Linear(torch.nn.Linear):
    """torch.nn.Linear through `torch_memops.linear`: [*, in_features] -> [*, out_features]."""

    def forward(self, input: Tensor) -> Tensor:
        if _overrides_functions(input, self.weight, self.bias):
            return super().forward(input)
        return torch_memops.linear(input, self.weight, self.bias)


class Conv1d(torch.nn.Conv1d):
    """torch.nn.Conv1d through `torch_memops.conv1d`: [B, C_in, L] or [C_in, L] input.

    A padding mode other than "zeros" pads a copy of the input first, as torch.nn.Conv1d does.
    """

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if _overrides_functions(input, weight, bias):
            return super()._conv_forward(input, weight, bias)
        padding = self.padding if isinstance(self.padding, str) else self._one("padding")
        if self.padding_mode != "zeros":
            input = torch.nn.functional.pad(
                input, self._reversed_padding_repeated_twice, mode=self.padding_mode
            )
            padding = 0
        return torch_memops.conv1d(
            input, weight, bias, self.stride, padding, self.dilation, self.groups
        )

    def _one(self, name: str) -> int:
        """The number of a setting; torch.nn keeps what it is given, and refuses two when it runs."""
        values = getattr(self, name)
        if len(values) != 1:
            raise RuntimeError(f"conv1d: {name} is {values}; one number is accepted")
        return values[0]


class Embedding(torch.nn.Embedding):
    """torch.nn.Embedding through `torch_memops.embedding`: [*] -> [*, embedding_dim].

    `max_norm`, `scale_grad_by_freq` and `sparse` raise NotImplementedError.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refuse_unsupported()

    def _refuse_unsupported(self) -> None:
        given = {
            "max_norm": self.max_norm is not None,
            "scale_grad_by_freq": bool(self.scale_grad_by_freq),
            "sparse": bool(self.sparse),
        }
        for name, is_set in given.items():
            if is_set:
                raise NotImplementedError(
                    f"torch_memops.nn.Embedding has no {name}; use torch.nn.Embedding for it"
                )

    def forward(self, input: Tensor) -> Tensor:
        self._refuse_unsupported()
        if _overrides_functions(input, self.weight):
            return super().forward(input)
        return torch_memops.embedding(input, self.weight, self.padding_idx)
