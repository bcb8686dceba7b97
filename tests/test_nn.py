"""torch_memops.nn against torch.nn: parameters, results, gradients, and what is refused."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import torch_memops.nn

pytestmark = pytest.mark.core

Build = Callable[[Any], nn.Module]

CONV_OPTIONS: list[dict[str, Any]] = [
    {},
    {"bias": False},
    {"stride": 2, "padding": 3, "dilation": 2},
    {"groups": 2},
    {"padding": "same"},
    {"padding": "same", "dilation": 3},
    {"padding": "valid"},
    {"padding": 3, "padding_mode": "circular"},
    {"padding": 2, "padding_mode": "reflect", "stride": 2},
    {"padding": "same", "padding_mode": "replicate"},
]


def conv_id(options: dict[str, Any]) -> str:
    return "-".join(f"{key}={value}" for key, value in options.items()) or "plain"


def pair(build: Build, device: str) -> tuple[nn.Module, nn.Module]:
    """Our layer and torch.nn's, with the same parameters."""
    theirs = build(nn).to(device)
    ours = build(torch_memops.nn).to(device)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def check_same(ours: nn.Module, theirs: nn.Module, *inputs: Tensor) -> None:
    """Results and all gradients agree."""
    results = []
    for module in (ours, theirs):
        leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
        out = module(*leaves)
        weights = torch.linspace(-1, 1, out.numel(), device=out.device, dtype=out.dtype)
        (out * weights.view_as(out)).sum().backward()
        grads = [x.grad for x in leaves] + [p.grad for p in module.parameters()]
        results.append([out, *[g for g in grads if g is not None]])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(12,), (5, 12), (2, 3, 12), (0, 12)], ids=str)
def test_linear(shape: tuple[int, ...], bias: bool, device: str) -> None:
    ours, theirs = pair(lambda m: m.Linear(12, 7, bias=bias), device)
    check_same(ours, theirs, torch.randn(shape, device=device))


@pytest.mark.parametrize("options", CONV_OPTIONS, ids=conv_id)
@pytest.mark.parametrize("kernel", [4, 5])
def test_conv1d(kernel: int, options: dict[str, Any], device: str) -> None:
    ours, theirs = pair(lambda m: m.Conv1d(4, 6, kernel, **options), device)
    check_same(ours, theirs, torch.randn(2, 4, 19, device=device))
    check_same(ours, theirs, torch.randn(4, 19, device=device))


@pytest.mark.parametrize("padding_idx", [None, 0, -1])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_embedding(dtype: torch.dtype, padding_idx: int | None, device: str) -> None:
    ours, theirs = pair(lambda m: m.Embedding(9, 5, padding_idx=padding_idx), device)
    index = torch.tensor([[0, 8, 3], [3, 3, 0]], dtype=dtype, device=device)
    check_same(ours, theirs, index)


@pytest.mark.parametrize(
    "option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}], ids=str
)
def test_embedding_refuses(option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(NotImplementedError, match=rf"no {name}; use torch\.nn\.Embedding"):
        torch_memops.nn.Embedding(4, 2, **option)
    layer = torch_memops.nn.Embedding(4, 2)
    setattr(layer, name, option[name])
    with pytest.raises(NotImplementedError, match=name):
        layer(torch.tensor([0]))


def test_embedding_from_pretrained() -> None:
    table = torch.randn(4, 3)
    layer = torch_memops.nn.Embedding.from_pretrained(table)
    assert type(layer) is torch_memops.nn.Embedding
    assert torch.equal(layer(torch.tensor([2, 0])), table[[2, 0]])


LAYERS: dict[str, tuple[Build, Callable[[], Tensor], str]] = {
    "linear": (lambda m: m.Linear(8, 8), lambda: torch.randn(4, 8), "memops::linear"),
    "conv1d": (lambda m: m.Conv1d(8, 8, 3), lambda: torch.randn(4, 8, 9), "memops::conv1d"),
    "embedding": (
        lambda m: m.Embedding(8, 4, padding_idx=1),
        lambda: torch.tensor([1, 2]),
        "memops::_gather_aos",
    ),
}
every_layer = pytest.mark.parametrize(("build", "make", "op"), LAYERS.values(), ids=list(LAYERS))


def ops_called(module: Callable[[Tensor], Tensor], x: Tensor) -> set[str]:
    """The ops of this library that a call reaches, composite fronts included."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        module(x)
    return {event.name for event in profile.events() if event.name.startswith("memops::")}


@every_layer
def test_is_a_torch_layer(build: Build, make: Callable[[], Tensor], op: str) -> None:
    ours, theirs = pair(build, "cpu")
    assert isinstance(ours, type(theirs))
    assert vars(ours).keys() == vars(theirs).keys()
    assert str(ours) == str(theirs)
    stored = io.BytesIO()
    torch.save(ours.state_dict(), stored)
    stored.seek(0)
    theirs.load_state_dict(torch.load(stored, weights_only=True))
    x = make()
    torch.testing.assert_close(copy.deepcopy(ours)(x), theirs(x))


@every_layer
def test_takes_our_op(build: Build, make: Callable[[], Tensor], op: str) -> None:
    assert op in ops_called(build(torch_memops.nn), make())


@every_layer
def test_takes_our_op_under_a_default_device(
    build: Build, make: Callable[[], Tensor], op: str
) -> None:
    with torch.device("cpu"):
        assert op in ops_called(build(torch_memops.nn), make())


class Counted(Tensor):
    """A subclass that sees the torch functions called on it, as quantized weights do."""

    seen: list[Any] = []  # noqa: RUF012  shared on purpose: the class has no instances of its own

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize(
    ("name", "function"),
    [("linear", F.linear), ("conv1d", F.conv1d), ("embedding", F.embedding)],
)
def test_defers_to_overriding_subclasses(name: str, function: Callable[..., Tensor]) -> None:
    build, make, _ = LAYERS[name]
    ours, theirs = pair(build, "cpu")
    x = make()
    expected = theirs(x)
    Counted.seen.clear()
    weight = ours.get_parameter("weight").detach()
    ours.weight = nn.Parameter(weight.as_subclass(Counted))
    out = ours(x)
    assert function in Counted.seen
    torch.testing.assert_close(out.as_subclass(Tensor), expected)


@pytest.mark.slow
def test_compiles_into_one_graph(device: str) -> None:
    def build(layers: Any) -> nn.Module:
        class Model(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.embed = layers.Embedding(11, 4)
                self.conv = layers.Conv1d(4, 6, 3, padding=2, padding_mode="circular")
                self.out = layers.Linear(6, 3)

            def forward(self, tokens: Tensor) -> Tensor:
                x = self.conv(self.embed(tokens).transpose(1, 2))
                return self.out(x.transpose(1, 2))

        return Model()

    ours, theirs = pair(build, device)
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager")
    for length in (8, 9, 13):
        tokens = torch.randint(11, (2, length), device=device)
        torch.testing.assert_close(compiled(tokens), theirs(tokens), rtol=1e-5, atol=1e-5)
    with torch.device(device):
        torch.testing.assert_close(compiled(tokens), theirs(tokens), rtol=1e-5, atol=1e-5)
