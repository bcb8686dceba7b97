"""PyTorch operators in C++ and CUDA: matrix products, 1-D convolutions, copies and gathers, each
with a plan that says what runs.

The functions here are a documented front to torch.ops.memops.*.
"""

from torch_memops import _loader
from torch_memops._loader import library_paths

_loader.load()

from torch_memops import nn  # noqa: E402  the library must be loaded first
from torch_memops.ops import (  # noqa: E402
    aos_to_soa,
    causal_conv1d,
    causal_conv1d_update,
    conv1d,
    conv1d_constant,
    copy,
    copy_,
    cuda_available,
    embedding,
    gather_aos,
    gather_soa,
    linear,
    matmul,
    soa_to_aos,
)
from torch_memops.planning import DeviceFacts, Plan, plan  # noqa: E402

__all__ = [
    "DeviceFacts",
    "Plan",
    "aos_to_soa",
    "causal_conv1d",
    "causal_conv1d_update",
    "conv1d",
    "conv1d_constant",
    "copy",
    "copy_",
    "cuda_available",
    "embedding",
    "gather_aos",
    "gather_soa",
    "library_paths",
    "linear",
    "matmul",
    "nn",
    "plan",
    "soa_to_aos",
]
