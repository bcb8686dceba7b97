"""Meta kernels: shapes, dtypes and strides are the real ones, without data and without a GPU."""

from collections.abc import Callable

import pytest
import torch
from support.compare import tensors
from support.cores import CORES
from support.samples import (
    AOS_TO_SOA,
    CAUSAL_CONV1D,
    CAUSAL_CONV1D_UPDATE,
    CONV1D,
    CONV1D_CONSTANT,
    COPY,
    GATHER_AOS,
    GATHER_SOA,
    LINEAR,
    MATMUL,
    OPS,
    SOA_TO_AOS,
    TAPS,
    Args,
    Case,
    Op,
    call,
    each_case,
)
from support.tensors import LAYOUTS, Make
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("fresh_compiler")]
ALL = (*OPS, *CORES)


@pytest.mark.parametrize(("op", "case"), each_case(ALL))
def test_meta_has_the_real_strides(op: Op, case: Case, device: str) -> None:
    """flash-attention#818: shapes, dtypes and strides of every sample, on the meta device."""
    args, kwargs = case.make(Make(device))
    on_meta = pytree.tree_map_only(Tensor, meta, (args, kwargs))
    real = tensors(op.functional(*args, **kwargs))
    traced = tensors(op.functional(*on_meta[0], **on_meta[1]))
    assert len(real) == len(traced)
    for mine, other in zip(traced, real, strict=True):
        assert mine.shape == other.shape
        assert mine.dtype == other.dtype
        assert mine.stride() == other.stride()


def meta(tensor: Tensor) -> Tensor:
    """The tensor on the meta device, strides kept."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


Build = Callable[..., Args]

PAIRS: dict[str, tuple[Op, Build]] = {
    "conv1d": (
        CONV1D,
        lambda m, a, b: call(
            m.tensor(2, 4, 9, layout=a), m.tensor(6, 4, 3, layout=b), padding=(1, 1)
        ),
    ),
    "conv1d-one-channel": (
        CONV1D,
        lambda m, a, b: call(
            m.tensor(3, 1, 9, layout=a), m.tensor(1, 1, 3, layout=b), padding=(1, 1)
        ),
    ),
    "causal_conv1d": (
        CAUSAL_CONV1D,
        lambda m, a, b: call(
            m.tensor(2, 4, 9, layout=a), m.tensor(4, 3, layout=b), silu=True, final_state=True
        ),
    ),
    "causal_conv1d_update": (
        CAUSAL_CONV1D_UPDATE,
        lambda m, a, b: call(
            m.tensor(2, 4, 3, layout=a), m.tensor(2, 4, 5, layout=b), m.tensor(4, 3)
        ),
    ),
    "matmul": (
        MATMUL,
        lambda m, a, b: call(m.tensor(2, 4, 5, layout=a), m.tensor(2, 5, 3, layout=b)),
    ),
    "linear": (
        LINEAR,
        lambda m, a, b: call(m.tensor(2, 4, 5, layout=a), m.tensor(3, 5, layout=b), m.tensor(3)),
    ),
    "gather_aos": (
        GATHER_AOS,
        lambda m, a, b: call(m.tensor(5, 4, layout=a), m.index(5, 2, 3, layout=b)),
    ),
    "gather_soa": (
        GATHER_SOA,
        lambda m, a, b: call(m.tensor(4, 5, layout=a), m.index(5, 2, 3, layout=b)),
    ),
}
SINGLES: dict[str, tuple[Op, Build]] = {
    "conv1d_constant": (CONV1D_CONSTANT, lambda m, a: call(m.tensor(2, 3, 7, layout=a), TAPS)),
    **{
        f"{op.name}-{shape}": (op, build)
        for op in (COPY, AOS_TO_SOA, SOA_TO_AOS)
        for shape, build in (
            ("2d", lambda m, a: call(m.tensor(3, 4, layout=a))),
            ("size-1", lambda m, a: call(m.tensor(2, 1, 5, layout=a))),
        )
    },
}
BOTH = sorted(
    {(a, "contiguous") for a in LAYOUTS}
    | {("contiguous", b) for b in LAYOUTS}
    | {(a, a) for a in LAYOUTS}
)
GRID = [
    *(
        pytest.param(op, build, layouts, id=f"{name}-{'-'.join(layouts)}")
        for name, (op, build) in PAIRS.items()
        for layouts in BOTH
    ),
    *(
        pytest.param(op, build, (layout,), id=f"{name}-{layout}")
        for name, (op, build) in SINGLES.items()
        for layout in LAYOUTS
    ),
]


@pytest.mark.parametrize(("op", "build", "layouts"), GRID)
def test_strides_over_the_layout_grid(
    op: Op, build: Build, layouts: tuple[str, ...], device: str
) -> None:
    """pytorch#128626: eager, fake and meta agree, forward and backward."""
    grad = op.differentiable
    args, kwargs = build(Make(device, requires_grad=grad), *layouts)
    with FakeTensorMode(allow_non_fake_inputs=False) as mode:
        fake_args, fake_kwargs = pytree.tree_map_only(Tensor, mode.from_tensor, (args, kwargs))
        fake = tensors(op.functional(*fake_args, **fake_kwargs))
    real = tensors(op.functional(*args, **kwargs))
    for mine, other in zip(fake, real, strict=True):
        assert (mine.shape, mine.stride(), mine.dtype) == (other.shape, other.stride(), other.dtype)
    if not grad:
        return
    leaves = [t for t in tensors((args, kwargs)) if t.requires_grad]
    incoming = torch.randn_like(real[0])
    grads = torch.autograd.grad(real[0], leaves, incoming, allow_unused=True)
    compiled = torch.compile(op.functional, backend="aot_eager", fullgraph=True)
    traced = compiled(*args, **kwargs)[0]
    traced_grads = torch.autograd.grad(traced, leaves, incoming, allow_unused=True)
    assert traced.stride() == real[0].stride()
    for mine, other in zip(traced_grads, grads, strict=True):
        assert (mine is None) == (other is None)
        if mine is not None and other is not None:
            assert mine.stride() == other.stride()


@pytest.mark.parametrize(("op", "case"), each_case(ALL))
def test_fake_cuda_tensors_on_any_machine(op: Op, case: Case) -> None:
    """The Meta kernels for device "cuda" without a GPU."""
    args, kwargs = case.make(Make("cpu"))
    real = tensors(op.functional(*args, **kwargs))
    with FakeTensorMode() as mode:

        def to_fake(tensor: Tensor) -> Tensor:
            strides = tensor.stride()
            return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device="cuda")

        fake_args, fake_kwargs = pytree.tree_map_only(Tensor, to_fake, (args, kwargs))
        fake = tensors(op.functional(*fake_args, **fake_kwargs))
        assert mode is not None
    for mine, other in zip(fake, real, strict=True):
        assert mine.device.type == "cuda"
        assert (mine.shape, mine.stride(), mine.dtype) == (other.shape, other.stride(), other.dtype)
