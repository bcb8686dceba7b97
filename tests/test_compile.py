"""torch.compile: full graphs, dynamic shapes, one compilation for all sizes, CUDA graph trees."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from support.compare import assert_equal_results, tensors
from support.samples import COPY, OPS, TAPS, Args, Op, differentiable, each_op
from support.tensors import Make, random_bits, to_bytes
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import torch_memops

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("fresh_compiler")]
SIZES = (6, 8, 11)  # none equals a fixed dimension of the samples, which would tie the two
BACKENDS = ("aot_eager", pytest.param("inductor", marks=pytest.mark.slow))


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("op", each_op(OPS))
def test_full_graph(op: Op, dynamic: bool, device: str) -> None:
    """The whole op in one graph, between other operations, values as in eager mode."""

    def program(*args: Any, **kwargs: Any) -> list[Tensor]:
        scaled = [a * 2 if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
        return [r + 1 for r in op.functional(*scaled, **kwargs)]

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for seed in (1, 2):
        args, kwargs = op.sized(Make(device, seed=seed), 6)
        assert_equal_results(compiled(*args, **kwargs), program(*args, **kwargs))


@pytest.mark.parametrize("op", each_op(differentiable(OPS)))
def test_full_graph_with_gradients(op: Op, device: str) -> None:
    """Forward and backward compiled, with a transpose and a sine behind the op."""

    def program(*args: Any, **kwargs: Any) -> Tensor:
        result = op.functional(*args, **kwargs)[0]
        return (result.mT.sin() if result.dim() > 1 else result.sin()).sum()

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    assert_equal_gradients([op], program, compiled, Make(device, requires_grad=True), 6)


def assert_equal_gradients(
    ops: Sequence[Op], eager: Callable[..., Any], compiled: Callable[..., Any], make: Make, n: int
) -> None:
    """Value and gradients of two functions of the same leaves; None counts as zeros."""
    found = []
    args = [op.sized(make, n) for op in ops]
    leaves = [t for t in tensors(args) if t.requires_grad]
    for function in (eager, compiled):
        value = function(*args[0][0], **args[0][1]) if len(ops) == 1 else function(args)
        grads = torch.autograd.grad(value, leaves, allow_unused=True)
        found.append(
            [
                value,
                *(
                    torch.zeros_like(t) if g is None else g
                    for t, g in zip(leaves, grads, strict=True)
                ),
            ]
        )
    for mine, other in zip(*found, strict=True):
        torch.testing.assert_close(mine, other)


INDUCTOR_MODES = (
    pytest.param({"dynamic": False}, id="static"),
    pytest.param({"dynamic": True}, id="dynamic"),
    pytest.param({"mode": "reduce-overhead"}, id="reduce-overhead", marks=pytest.mark.cuda),
)


@pytest.mark.slow
@pytest.mark.parametrize("mode", INDUCTOR_MODES)
def test_inductor_with_every_op(mode: dict[str, Any], device: str) -> None:
    """One graph that holds all ops between pointwise kernels; several runs, changed contents."""
    if "mode" in mode and device == "cpu":
        pytest.skip("CUDA graphs need a CUDA device")

    def program(calls: list[Args]) -> list[Tensor]:
        results: list[Tensor] = []
        for op, (args, kwargs) in zip(OPS, calls, strict=True):
            scaled = [a * 2 if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
            results.extend(r + 1 for r in op.functional(*scaled, **kwargs))
        return results

    compiled = torch.compile(program, fullgraph=True, **mode)
    for seed, n in enumerate((6, 6, 6, *((8,) if mode.get("dynamic") else ()))):
        calls = [op.sized(Make(device, seed=seed), n) for op in OPS]
        torch.compiler.cudagraph_mark_step_begin()
        ours = [r.clone(memory_format=torch.preserve_format) for r in compiled(calls)]
        assert_equal_results(ours, program(calls))


@pytest.mark.slow
@pytest.mark.parametrize("mode", INDUCTOR_MODES)
def test_inductor_with_every_op_and_gradients(mode: dict[str, Any], device: str) -> None:
    """pytorch#157363: forward and backward of all ops in one graph, on the captured stream too."""
    if "mode" in mode and device == "cpu":
        pytest.skip("CUDA graphs need a CUDA device")
    ops = differentiable(OPS)

    def program(calls: list[Args]) -> Tensor:
        sums = [
            op.functional(*args, **kwargs)[0].sin().sum()
            for op, (args, kwargs) in zip(ops, calls, strict=True)
        ]
        return torch.stack(sums).sum()

    compiled = torch.compile(program, fullgraph=True, **mode)
    for seed, n in enumerate((6, 6, 6, *((8,) if mode.get("dynamic") else ()))):
        torch.compiler.cudagraph_mark_step_begin()
        make = Make(device, requires_grad=True, seed=seed)
        assert_equal_gradients(ops, program, compiled, make, n)


@pytest.mark.parametrize("op", each_op(OPS))
def test_three_sizes_compile_once(op: Op, device: str) -> None:
    """A Meta kernel that reads a size as a number would compile once a size.

    The first call may reach the backend twice: Dynamo starts again when it meets floats (taps).
    """
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(op.functional, backend=counter, fullgraph=True, dynamic=True)
    counts = []
    for n in SIZES:
        args, kwargs = op.sized(Make(device), n)
        expected = op.functional(*args, **kwargs)
        assert_equal_results(compiled(*args, **kwargs), expected)
        counts.append(counter.frame_count)
    assert len(set(counts)) == 1


@pytest.mark.parametrize("op", each_op(differentiable(OPS)))
def test_three_sizes_compile_once_with_gradients(op: Op, device: str) -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(op.functional, backend=counter, fullgraph=True, dynamic=True)
    counts = []
    for n in SIZES:
        found = []
        for function in (op.functional, compiled):
            args, kwargs = op.sized(Make(device, requires_grad=True), n)
            leaves = [t for t in tensors((args, kwargs)) if t.requires_grad]
            result = function(*args, **kwargs)[0]
            found.append(torch.autograd.grad(result.sum(), leaves, allow_unused=True))
        for mine, other in zip(*found, strict=True):
            present = [t for t in (mine, other) if t is not None]
            if len(present) == 2:
                torch.testing.assert_close(mine, other)
            else:
                assert not any(t.any() for t in present)
        counts.append(counter.frame_count)
    assert len(set(counts)) == 1


@pytest.mark.parametrize("op", each_op(OPS))
def test_marked_dimensions_stay_dynamic(op: Op, device: str) -> None:
    """mark_dynamic raises where a kernel specialises the dimension."""
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(op.functional, backend=counter, fullgraph=True)
    counts = []
    for n in SIZES[:2]:
        args, kwargs = op.sized(Make(device), n)
        for small, large in zip(
            tensors((args, kwargs)), tensors(op.sized(Make(device), n + 1)), strict=True
        ):
            for d in range(small.dim()):
                if small.shape[d] != large.shape[d]:
                    torch._dynamo.mark_dynamic(small, d)
        compiled(*args, **kwargs)
        counts.append(counter.frame_count)
    assert len(set(counts)) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_copy_into_inside_a_graph(backend: str, device: str) -> None:
    """flashinfer#403: the write is seen by what follows; its result, a slice, a transposed view."""

    def statement(d: Tensor, s: Tensor) -> Tensor:
        d = d + 0
        torch_memops.copy_(d, s)
        return d * 2

    def used(d: Tensor, s: Tensor) -> Tensor:
        return torch_memops.copy_(d + 0, s) * 2

    def into_slice(d: Tensor, s: Tensor) -> Tensor:
        d = d + 0
        torch_memops.copy_(d[1:, ::2], s[1:, ::2])
        return d * 2

    def into_transposed(d: Tensor, s: Tensor) -> Tensor:
        d = d + 0
        torch_memops.copy_(d.t(), s.t())
        return d.sin()

    def argument(d: Tensor, s: Tensor) -> Tensor:
        torch_memops.copy_(d[2:4], s[:2])
        return d.sum()

    make = Make(device)
    for program in (statement, used, into_slice, into_transposed, argument):
        d, s = make.tensor(5, 6), make.tensor(5, 6)
        other = d.clone()
        torch._dynamo.reset()
        compiled = torch.compile(program, backend=backend, fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(d, s), program(other, s))
            assert torch.equal(d, other)


@pytest.mark.parametrize("backend", BACKENDS)
def test_update_inside_a_graph(backend: str, device: str) -> None:
    """A decode loop under torch.compile changes the same state that eager mode does."""
    make = Make(device)
    weight, bias = make.tensor(3, 4), make.tensor(3)
    states = [torch.zeros(2, 3, 4, device=device) for _ in range(2)]

    def step(x: Tensor, state: Tensor) -> Tensor:
        return torch_memops.causal_conv1d_update(x * 2, state, weight, bias, silu=True) + 1

    compiled = torch.compile(step, backend=backend, fullgraph=True)
    for _ in range(4):
        x = make.tensor(2, 3)
        torch.testing.assert_close(compiled(x, states[0]), step(x, states[1]))
        torch.testing.assert_close(states[0], states[1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_views_inside_a_graph(backend: str, device: str) -> None:
    """pytorch#179422: an op that reads raw pointers gets views of a computed buffer."""

    def program(x: Tensor) -> list[Tensor]:
        y = (x + 1).view(4, 6)
        return [
            torch_memops.copy(y[:, :4]),
            torch_memops.copy(y.t()),
            torch_memops.copy(y.split(3, 1)[1]),
            torch_memops.copy(y.view(24)[1:]),
            torch_memops.aos_to_soa(y[:, 2:]),
            torch_memops.matmul(y[:, :4], y.t()[:4]),
            torch_memops.gather_aos(y.t(), torch.arange(3, device=x.device)),
            torch_memops.conv1d_constant(y[:, 1:], TAPS),
            torch_memops.conv1d(y[None, :, 1:], y[:2, :4].view(2, 4, 1)),
        ]

    x = Make(device).tensor(24)
    compiled = torch.compile(program, backend=backend, fullgraph=True)
    assert_equal_results(compiled(x), program(x))


@pytest.mark.parametrize("dynamic", [None, True])
def test_taps_that_change_between_calls(dynamic: bool | None, device: str) -> None:
    """pytorch#149406, pytorch#197889, pytorch#194976: never a filter from an earlier call."""

    def program(x: Tensor, s: float) -> Tensor:
        return torch_memops.conv1d_constant(x * s, [s, 1.0, s + 0.5], (1, 1))

    x = Make(device).tensor(2, 9)
    compiled = torch.compile(program, backend="aot_eager", dynamic=dynamic)
    for s in (1.0, 1.5, 2.0, 2.5, 3.0, 1.0):
        torch.testing.assert_close(compiled(x, s), program(x, s))


def test_many_filters_recompile_and_stay_right(device: str) -> None:
    """A new filter recompiles: 14 of them need a higher limit; the default one raises, loudly."""

    def program(x: Tensor, taps: list[float]) -> Tensor:
        return torch_memops.conv1d_constant(x, taps, (1, 1))

    x = Make(device).tensor(2, 9)
    filters = [[0.5 * n, 1.0, n + 0.25] for n in range(14)]
    with torch._dynamo.config.patch(recompile_limit=32):
        compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
        for taps in filters:
            torch.testing.assert_close(compiled(x, taps), program(x, taps))
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    for taps in filters:
        try:
            result = compiled(x, taps)
        except torch._dynamo.exc.FailOnRecompileLimitHit:
            break
        torch.testing.assert_close(result, program(x, taps))


OLD_DYNAMO = tuple(map(int, torch.__version__.split(".")[:2])) < (2, 14)
UNUSUAL = (
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex32",
    pytest.param(
        "bits8",
        marks=pytest.mark.xfail(OLD_DYNAMO, reason="Dynamo of PyTorch 2.11 knows no bits8"),
    ),
    "float4_e2m1fn_x2",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)


@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_dtypes_inside_a_graph(name: str, device: str) -> None:
    """pytorch#169656, pytorch#185330: copies, gathers and layouts, compiled."""
    dtype = getattr(torch, name)

    def program(x: Tensor, index: Tensor) -> list[Tensor]:
        return [
            torch_memops.copy(x),
            torch_memops.aos_to_soa(x),
            torch_memops.gather_aos(x, index),
            torch_memops.gather_soa(x, index),
        ]

    x = random_bits((5, 6), dtype).to(device)
    index = torch.tensor([4, 0, 2], device=device)
    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    for mine, other in zip(compiled(x, index), program(x, index), strict=True):
        assert mine.dtype == dtype
        assert torch.equal(to_bytes(mine), to_bytes(other))


@pytest.mark.parametrize("backend", BACKENDS)
def test_gather_by_a_data_dependent_index(backend: str, device: str) -> None:
    """The index of mask.nonzero() has a size that no one knows while tracing."""

    def program(x: Tensor, mask: Tensor) -> Tensor:
        return torch_memops.gather_aos(x, mask.nonzero().squeeze(1)).sum(0)

    make = Make(device)
    compiled = torch.compile(program, backend=backend, fullgraph=True, dynamic=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for _ in range(2):
            x = make.tensor(9, 4)
            mask = x[:, 0] > 0
            torch.testing.assert_close(compiled(x, mask), program(x, mask))


def test_graph_keeps_our_ops(device: str) -> None:
    """The autograd kernel hands over to ATen only under torch.func, not while tracing."""
    seen: list[str] = []

    def spy(module: torch.fx.GraphModule, _: list[Any]) -> Any:
        seen.extend(str(node.target) for node in module.graph.nodes)
        return make_boxed_func(module.forward)

    backend = torch._dynamo.backends.common.aot_autograd(fw_compiler=spy, bw_compiler=spy)
    make = Make(device, requires_grad=True)
    a, b = make.tensor(4, 5), make.tensor(5, 6)
    torch.compile(torch_memops.matmul, backend=backend, fullgraph=True)(a, b).sum().backward()
    assert sum(target.startswith("memops._mm") for target in seen) == 3
    assert not any(target.startswith("aten.mm") for target in seen)


@pytest.mark.slow
@pytest.mark.cuda
def test_reduce_overhead_copies_into_an_argument() -> None:
    """A static input that is written in place, inside CUDA graph trees."""
    d, s = torch.zeros(64, 65, device="cuda"), torch.randn(65, 64, device="cuda")

    def program(d: Tensor, s: Tensor) -> Tensor:
        torch_memops.copy_(d, s.t())
        return d * 2

    compiled = torch.compile(program, mode="reduce-overhead", fullgraph=True)
    for _ in range(4):
        s.normal_()
        torch.compiler.cudagraph_mark_step_begin()
        assert torch.equal(compiled(d, s), s.t() * 2)
        assert torch.equal(d, s.t())


def test_compiled_module_trains(device: str) -> None:
    """A few steps of gradient descent: compiled and eager give the same weights."""
    make = Make(device)
    x, target = make.tensor(8, 2, 16), make.tensor(8, 4, 14)
    start = make.tensor(4, 2, 3)
    finished = []
    for wrap in (lambda f: f, lambda f: torch.compile(f, backend="aot_eager", fullgraph=True)):
        weight = start.clone().requires_grad_()
        convolve = wrap(torch_memops.conv1d)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            (convolve(x, weight) - target).square().mean().backward()
            optimizer.step()
        finished.append(weight.detach())
    torch.testing.assert_close(*finished)


def test_copy_of_a_leaf_is_no_alias(device: str) -> None:
    """Functionalisation must not take the fresh result for its source."""

    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = COPY.call(x)
        y.add_(1)
        return x + 0, y

    x = Make(device).tensor(3, 4)
    ours = torch.compile(program, backend="aot_eager", fullgraph=True)(x)
    assert_equal_results(ours, program(x))
