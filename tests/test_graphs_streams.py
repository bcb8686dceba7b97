"""Streams, CUDA graphs, threads and repeatability. CUDA only."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from support.cores import CORES
from support.devices import HALVES, run_programs
from support.samples import OPS, Op, differentiable, each_op
from support.tensors import Make, assert_same_bits
from torch import Tensor
from torch.utils import _pytree as pytree

import torch_memops

pytestmark = pytest.mark.cuda

DELAY_CYCLES = 40_000_000  # about 20 ms
every_op = pytest.mark.parametrize("op", each_op(OPS))
every_differentiable = pytest.mark.parametrize("op", each_op(differentiable(OPS)))
SIZE = 37


def tensors(value: Any) -> list[Tensor]:
    """All tensors of a nest."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def refill(into: Any, source: Any) -> None:
    """Write new contents into the same tensors."""
    with torch.no_grad():
        for old, new in zip(tensors(into), tensors(source), strict=True):
            old.copy_(new)


def assert_same_results(op: Op, actual: Tensor, expected: Tensor) -> None:
    """Bit for bit; sums that atomics may add up in any order to a few roundoffs."""
    if op.name.endswith("_backward"):
        torch.testing.assert_close(actual, expected)
    else:
        assert_same_bits(actual, expected)


@every_op
def test_delayed_producer_on_another_stream(op: Op) -> None:
    """pytorch#157363: an op on the wrong stream reads its input before it is there."""
    args, kwargs = op.sized(Make("cuda", seed=2), SIZE)
    expected = op.functional(*args, **kwargs)
    late_args, late_kwargs = op.sized(Make("cuda", seed=1), SIZE)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(DELAY_CYCLES)
        refill((late_args, late_kwargs), (args, kwargs))
        results = op.functional(*late_args, **late_kwargs)
    stream.synchronize()
    for mine, other in zip(results, expected, strict=True):
        assert_same_bits(mine, other)


@every_differentiable
def test_backward_on_another_stream(op: Op) -> None:
    """Backward runs on the stream of its forward, after a delayed incoming gradient."""
    args, kwargs = op.sized(Make("cuda", requires_grad=True), SIZE)
    leaves = [t for t in tensors((args, kwargs)) if t.requires_grad]
    result = op.functional(*args, **kwargs)[0]
    good = torch.randn_like(result)
    expected = torch.autograd.grad(result, leaves, good, allow_unused=True)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        late = torch.full_like(result, torch.nan)
        result = op.functional(*args, **kwargs)[0]
        torch.cuda._sleep(DELAY_CYCLES)
        late.copy_(good)
        grads = torch.autograd.grad(result, leaves, late, allow_unused=True)
    stream.synchronize()
    for mine, other in zip(grads, expected, strict=True):
        if mine is not None and other is not None:
            torch.testing.assert_close(mine, other)


@pytest.mark.parametrize("op", each_op((*OPS, *CORES)))
def test_capture_and_replay_with_changed_contents(op: Op) -> None:
    """A captured op reads what its inputs hold at the replay."""
    # Atomic additions of a gradient have no fixed order; the deterministic ones are captured too.
    torch.use_deterministic_algorithms(op.name.endswith("_backward"))
    args, kwargs = op.sized(Make("cuda"), SIZE)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = op.functional(*args, **kwargs)
    for seed in (1, 2, 3):
        fresh = op.sized(Make("cuda", seed=seed), SIZE)
        refill((args, kwargs), fresh)
        for result in results:
            result.fill_(torch.nan if result.is_floating_point() else -1)
        graph.replay()
        expected = op.functional(*fresh[0], **fresh[1])
        for mine, other in zip(results, expected, strict=True):
            assert_same_results(op, mine, other)


@every_differentiable
def test_capture_of_forward_and_backward(op: Op) -> None:
    args, kwargs = op.sized(Make("cuda", requires_grad=True), SIZE)
    leaves = [t for t in tensors((args, kwargs)) if t.requires_grad]

    def step() -> list[Tensor]:
        result = op.functional(*args, **kwargs)[0]
        grads = torch.autograd.grad(result.square().sum(), leaves, allow_unused=True)
        return [g for g in grads if g is not None]

    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())  # which still makes the inputs
    with torch.cuda.stream(warm):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for seed in (5, 6):
        refill((args, kwargs), op.sized(Make("cuda", seed=seed), SIZE))
        graph.replay()
        for mine, other in zip(captured, step(), strict=True):
            torch.testing.assert_close(mine, other)


FIRST_CALLS = {
    "copy": "m.copy(x.t())",
    "copy_": "m.copy_(torch.empty_like(x), x)",
    "aos_to_soa": "m.aos_to_soa(x)",
    "gather_aos": "m.gather_aos(x, index)",
    "gather_soa": "m.gather_soa(x, index)",
    "matmul": "m.matmul(x, x)",
    "matmul-half": "m.matmul(x.half(), x.half())",
    "linear": "m.linear(x, x, x[0])",
    "conv1d": "m.conv1d(x[None], x[:, :, None])",
    "conv1d_constant": "m.conv1d_constant(x, [1.0, 2.0, 3.0])",
    "conv1d_constant-long": "m.conv1d_constant(x, [0.5] * 8200, 8200)",
    "causal_conv1d": "m.causal_conv1d(x[None], x[:, :4])[0]",
    "causal_conv1d_update": "m.causal_conv1d_update(x[:2], state, x[:, :4])",
}

FIRST_CALL_PROGRAM = """
import torch, torch_memops as m
torch.manual_seed(0)
x = torch.randn(64, 64, device="cuda")
index = torch.arange(63, -1, -1, device="cuda")
state = torch.zeros(2, 64, 3, device="cuda")
before = state.clone()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = {call}
x.normal_()
graph.replay()
captured = out.clone()
state.copy_(before)
expected = {call}
torch.cuda.synchronize()
assert torch.equal(captured, expected), (captured - expected).abs().max()
print("captured as called")
"""


@pytest.fixture(scope="module")
def first_calls() -> dict[str, str]:
    """What each program printed; all of them run beside each other."""
    programs = {
        name: FIRST_CALL_PROGRAM.format(call=expression) for name, expression in FIRST_CALLS.items()
    }
    return run_programs(programs)


@pytest.mark.parametrize("name", FIRST_CALLS)
def test_first_call_inside_a_capture(name: str, first_calls: dict[str, str]) -> None:
    """Lazy loading, attributes and the driver's entry point are no obstacle to a capture."""
    assert "captured as called" in first_calls[name], first_calls[name]


@every_op
def test_nothing_synchronises(op: Op) -> None:
    args, kwargs = op.sized(Make("cuda"), SIZE)
    op.functional(*args, **kwargs)
    torch.cuda.set_sync_debug_mode("error")
    try:
        stream = torch.cuda.current_stream()
        torch.cuda._sleep(DELAY_CYCLES)
        op.functional(*args, **kwargs)
        assert not stream.query(), "the call waited for the device"
    finally:
        torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run work(n) in `count` threads, each on a stream of its own; re-raise what fails."""
    failed: list[BaseException] = []

    def run(n: int) -> None:
        try:
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.default_stream())
            with torch.cuda.stream(stream):
                work(n)
            stream.synchronize()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@every_op
def test_eight_threads_on_eight_streams(op: Op) -> None:
    """The same bits as one thread."""
    calls = [op.sized(Make("cuda", seed=n), 129) for n in range(8)]
    expected = [op.functional(*args, **kwargs) for args, kwargs in calls]

    def work(n: int) -> None:
        args, kwargs = calls[n]
        for _ in range(20):
            for mine, other in zip(op.functional(*args, **kwargs), expected[n], strict=True):
                assert_same_bits(mine, other)

    in_threads(8, work)


def test_two_filters_on_two_streams() -> None:
    """One symbol shared by two launches would mix them; both kernels run at the same time."""
    x = torch.randn(64, 100_003, device="cuda")
    filters = [[float(n + k) for k in range(9)] for n in range(2)]
    expected = [torch_memops.conv1d_constant(x, taps, 4) for taps in filters]
    streams = [torch.cuda.Stream() for _ in filters]
    torch.cuda.synchronize()
    results: list[list[Tensor]] = [[], []]
    for _ in range(10):
        for n, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                results[n].append(torch_memops.conv1d_constant(x, filters[n], 4))
    torch.cuda.synchronize()
    for n in range(2):
        for result in results[n]:
            assert torch.equal(result, expected[n])


def test_graphs_of_two_filters_take_turns() -> None:
    """fak#10716: each graph keeps its own taps, whichever ran last."""
    x = torch.randn(4, 1000, device="cuda")
    filters = [[1.0, 2.0, 3.0], [-1.0] * 5]
    graphs, results = [], []
    for taps in filters:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results.append(torch_memops.conv1d_constant(x, taps, len(taps) // 2))
        graphs.append(graph)
    for turn in (0, 1, 0, 0, 1, 1, 0):
        x.normal_()
        graphs[turn].replay()
        taps = filters[turn]
        expected = torch_memops.conv1d_constant(x, taps, len(taps) // 2)
        assert torch.equal(results[turn], expected)


@every_op
def test_forward_is_bitwise_repeatable(op: Op) -> None:
    """flash-attention#2244: 30 runs with other work beside them."""
    args, kwargs = op.sized(Make("cuda"), 257)
    expected = op.functional(*args, **kwargs)
    noise = torch.cuda.Stream()
    a = torch.randn(512, 512, device="cuda")
    for _ in range(30):
        with torch.cuda.stream(noise):
            a @ a
        for mine, other in zip(op.functional(*args, **kwargs), expected, strict=True):
            assert_same_bits(mine, other)


@every_differentiable
@pytest.mark.parametrize("dtype", [torch.float32, *HALVES], ids=str)
def test_deterministic_backward_is_bitwise_repeatable(op: Op, dtype: torch.dtype) -> None:
    """torch.use_deterministic_algorithms(True): every gradient the same in 30 runs."""
    args, kwargs = op.sized(Make("cuda", dtype, requires_grad=True), 129)
    leaves = [t for t in tensors((args, kwargs)) if t.requires_grad]
    torch.use_deterministic_algorithms(True)
    result = op.functional(*args, **kwargs)[0]
    grad = torch.randn_like(result)
    expected = torch.autograd.grad(result, leaves, grad, retain_graph=True, allow_unused=True)
    for _ in range(30):
        grads = torch.autograd.grad(result, leaves, grad, retain_graph=True, allow_unused=True)
        for mine, other in zip(grads, expected, strict=True):
            if mine is not None and other is not None:
                assert_same_bits(mine, other)
    torch.use_deterministic_algorithms(False)
    relaxed = torch.autograd.grad(result, leaves, grad, allow_unused=True)
    for mine, other in zip(relaxed, expected, strict=True):
        if mine is not None and other is not None:
            torch.testing.assert_close(mine, other)


def test_deterministic_gather_gradient_of_few_rows() -> None:
    """All indices on three rows: the sums of atomics would differ from run to run."""
    index = torch.randint(3, (100_000,), device="cuda")
    source = torch.zeros(3, 5, device="cuda", requires_grad=True)
    columns = torch.zeros(5, 3, device="cuda", requires_grad=True)
    grad = torch.randn(100_000, 5, device="cuda")
    torch.use_deterministic_algorithms(True)
    for gather, leaf, incoming in (
        (torch_memops.gather_aos, source, grad),
        (torch_memops.gather_soa, columns, grad.t()),
    ):
        out = gather(leaf, index)
        (expected,) = torch.autograd.grad(out, leaf, incoming, retain_graph=True)
        for _ in range(30):
            (again,) = torch.autograd.grad(out, leaf, incoming, retain_graph=True)
            assert_same_bits(again, expected)


def test_temporaries_outlive_the_kernel() -> None:
    """fused-ssim#44, pyg-lib#572: NHWC-permuted views, the allocator churned in between."""
    image = torch.randn(2, 17, 19, 8, device="cuda")
    nhwc = image.permute(0, 3, 1, 2)
    weight = torch.randn(8, 1, 3, device="cuda").transpose(0, 2).contiguous().transpose(0, 2)
    index = torch.tensor([1, 0, 1], device="cuda")
    programs: dict[str, Callable[[Tensor], Tensor]] = {
        "copy": torch_memops.copy,
        "copy_": lambda t: torch_memops.copy_(torch.empty_like(t), t),
        "aos_to_soa": torch_memops.aos_to_soa,
        "soa_to_aos": torch_memops.soa_to_aos,
        "matmul": lambda t: torch_memops.matmul(t, t.mT),
        "linear": lambda t: torch_memops.linear(t, t[0, 0]),
        "gather_aos": lambda t: torch_memops.gather_aos(t, index),
        "conv1d_constant": lambda t: torch_memops.conv1d_constant(t, [1.0, 2.0, 3.0]),
        "conv1d": lambda t: torch_memops.conv1d(t[:, :, 0], weight, groups=8),
        "causal_conv1d": lambda t: torch_memops.causal_conv1d(t[:, :, 0], weight[:, 0])[0],
        "gather_soa": lambda t: torch_memops.gather_soa(t[0, :, 0], index),
    }
    for name, program in programs.items():
        expected = program(nhwc.contiguous()).clone()
        for n in range(100):
            out = program(nhwc)
            torch.full((4096 + n,), torch.nan, device="cuda")
            torch.testing.assert_close(out, expected, msg=f"{name}: the view's result differs")
