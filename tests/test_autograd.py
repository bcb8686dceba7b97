"""Gradients of every op: numerically, twice, forward mode, and under torch.func."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_ad
from support.cores import CORES
from support.samples import (
    CONV1D_CONSTANT,
    COPY,
    COPY_,
    GATHER_AOS,
    GATHER_SOA,
    MATMUL,
    OPS,
    Case,
    Op,
    differentiable,
    each_case,
    each_op,
)
from support.tensors import Make
from torch import Tensor

import torch_memops

pytestmark = pytest.mark.core

DIFFERENTIABLE = differentiable(OPS)
CORES_DIFFERENTIABLE = differentiable(CORES)

Function = Callable[..., tuple[Tensor, ...]]


def split(
    op: Op, case: Case, make: Make, *, expected: bool = False
) -> tuple[Function, list[Tensor]]:
    """The case as a function of its floating tensors alone, and those tensors."""
    args, kwargs = case.make(make)
    names = [*range(len(args)), *kwargs]
    values: list[Any] = [*args, *kwargs.values()]
    places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.is_floating_point()]

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        filled = list(values)
        for place, tensor in zip(places, tensors, strict=True):
            filled[place] = tensor
        positional = tuple(filled[: len(args)])
        named = dict(zip(names[len(args) :], filled[len(args) :], strict=True))
        run = op.expected if expected else op.functional
        # Empty results (no final state, masked gradients) carry no gradient.
        return tuple(r for r in run(*positional, **named) if r.dim() != 1 or r.numel())

    return function, [values[i] for i in places]


@pytest.mark.parametrize(
    ("op", "case"), each_case((*DIFFERENTIABLE, *CORES_DIFFERENTIABLE), gradcheck_only=True)
)
def test_gradcheck(op: Op, case: Case, device: str) -> None:
    function, inputs = split(op, case, Make(device, torch.float64, requires_grad=True))
    assert torch.autograd.gradcheck(function, inputs, nondet_tol=1e-12)


@pytest.mark.parametrize(("op", "case"), each_case(DIFFERENTIABLE, gradcheck_only=True))
def test_gradcheck_forward_mode_and_batched(op: Op, case: Case, device: str) -> None:
    function, inputs = split(op, case, Make(device, torch.float64, requires_grad=True))
    assert torch.autograd.gradcheck(
        function,
        inputs,
        check_forward_ad=True,
        check_backward_ad=False,
        check_batched_grad=False,
        check_undefined_grad=False,
        nondet_tol=1e-12,
    )
    assert torch.autograd.gradcheck(
        function, inputs, check_batched_grad=True, fast_mode=True, nondet_tol=1e-12
    )


@pytest.mark.parametrize(
    ("op", "case"), each_case((*DIFFERENTIABLE, *CORES_DIFFERENTIABLE), gradcheck_only=True)
)
def test_gradgradcheck(op: Op, case: Case, device: str) -> None:
    function, inputs = split(op, case, Make(device, torch.float64, requires_grad=True))
    assert torch.autograd.gradgradcheck(function, inputs, nondet_tol=1e-12)


@pytest.mark.parametrize("op", each_op(DIFFERENTIABLE))
def test_gradgradcheck_forward_over_reverse(op: Op, device: str) -> None:
    """What is overwritten is left out: PyTorch's own copy_ fails this check for it."""
    function, inputs = split(op, op.cases[0], Make(device, torch.float64, requires_grad=True))
    inputs = [t.detach() if i in op.mutates else t for i, t in enumerate(inputs)]
    assert torch.autograd.gradgradcheck(
        function,
        inputs,
        check_fwd_over_rev=True,
        check_rev_over_rev=False,
        check_undefined_grad=False,
        nondet_tol=1e-12,
    )


def incoming(results: tuple[Tensor, ...], kind: str) -> list[Tensor]:
    """Incoming gradients: expanded (as from sum()), transposed, strided or offset in memory."""
    make = Make(results[0].device.type, torch.float64, seed=9)
    if kind == "expanded":
        return [make.tensor().expand(r.shape) for r in results]
    layouts = {"transposed": 2, "strided": 1, "offset": 1, "reversed": 1}
    return [
        make.tensor(*r.shape, layout=kind if r.dim() >= layouts[kind] else "contiguous")
        for r in results
    ]


@pytest.mark.parametrize("kind", ["expanded", "transposed", "strided", "offset", "reversed"])
@pytest.mark.parametrize(("op", "case"), each_case(DIFFERENTIABLE))
def test_layout_of_the_incoming_gradient(op: Op, case: Case, device: str, kind: str) -> None:
    """flash-attention#355, flash-attention#325: first and second derivative, any layout."""
    ours, inputs = split(op, case, Make(device, torch.float64, requires_grad=True))
    theirs, _ = split(op, case, Make(device, torch.float64, requires_grad=True), expected=True)
    found = []
    for function in (ours, theirs):
        results = function(*inputs)
        first = torch.autograd.grad(
            results, inputs, incoming(results, kind), create_graph=True, allow_unused=True
        )
        second = [
            None
            if g is None or not g.requires_grad
            else torch.autograd.grad(
                g, inputs, torch.ones_like(g), retain_graph=True, allow_unused=True
            )
            for g in first
        ]
        found.append((first, second))
    for mine, other in zip(found[0][0], found[1][0], strict=True):
        torch.testing.assert_close(mine, other)
    for mine_row, other_row in zip(found[0][1], found[1][1], strict=True):
        for mine, other in zip(mine_row or (), other_row or (), strict=False):
            if mine is not None and other is not None:
                torch.testing.assert_close(mine, other)
            else:
                present = mine if mine is not None else other
                assert present is None or not present.any()


@pytest.mark.parametrize(("op", "case"), each_case(DIFFERENTIABLE, gradcheck_only=True))
def test_undefined_incoming_gradient(op: Op, case: Case, device: str) -> None:
    """An undefined gradient is zeros or None, never a crash."""
    function, inputs = split(op, case, Make(device, torch.float64, requires_grad=True))
    results = function(*inputs)
    undefined = torch._C._functions.UndefinedGrad()
    passed: list[Any] = [undefined(r) for r in results]
    grads = torch.autograd.grad(
        passed, inputs, [torch.ones_like(r) for r in results], allow_unused=True
    )
    for grad in grads:
        assert grad is None or not grad.any()


@pytest.mark.parametrize("op", each_op(DIFFERENTIABLE))
def test_forward_mode(op: Op, device: str) -> None:
    """pytorch-finufft#110, tensor4all-rs#155: the right tangent, never zeros in silence."""
    function, inputs = split(op, op.cases[0], Make(device, torch.float64))
    reference, _ = split(op, op.cases[0], Make(device, torch.float64), expected=True)
    tangents = [
        Make(device, torch.float64, seed=5 + i).tensor(*t.shape) for i, t in enumerate(inputs)
    ]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(p, t) for p, t in zip(inputs, tangents, strict=True)]
        for mine, other in zip(function(*duals), reference(*duals), strict=True):
            ours, theirs = forward_ad.unpack_dual(mine), forward_ad.unpack_dual(other)
            torch.testing.assert_close(ours.primal, theirs.primal)
            torch.testing.assert_close(ours.tangent, theirs.tangent)
    ours_pair: Any = torch.func.jvp(function, tuple(inputs), tuple(tangents))
    theirs_pair: Any = torch.func.jvp(reference, tuple(inputs), tuple(tangents))
    torch.testing.assert_close(ours_pair, theirs_pair)
    expected = theirs_pair[1]
    directions = tuple(torch.stack([t, 2 * t, -t]) for t in tangents)
    batched = torch.func.vmap(lambda *t: torch.func.jvp(function, tuple(inputs), t)[1])(*directions)
    for mine, other in zip(batched, expected, strict=True):
        torch.testing.assert_close(mine, torch.stack([other, 2 * other, -other]))


def total(function: Function) -> Callable[..., Tensor]:
    """A scalar that depends on every element, and not linearly."""
    return lambda *tensors: sum(
        ((r * r).sum() + r.sum() for r in function(*tensors)), 0 * tensors[0].sum()
    )


@pytest.mark.parametrize("op", each_op(DIFFERENTIABLE))
def test_func_grad_and_hessian(op: Op, device: str) -> None:
    """functorch#207."""
    function, inputs = split(op, op.cases[0], Make(device, torch.float64))
    reference, _ = split(op, op.cases[0], Make(device, torch.float64), expected=True)
    every = tuple(range(len(inputs)))
    for transform in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian):
        ours = transform(total(function), argnums=every)(*inputs)
        theirs = transform(total(reference), argnums=every)(*inputs)
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("op", each_op(DIFFERENTIABLE))
def test_vmap_over_every_argument(op: Op, device: str) -> None:
    """functorch#545: batched without a loop over the samples, and equal to one."""
    function, inputs = split(op, op.cases[0], Make(device, torch.float64))
    batched = [
        Make(device, torch.float64, seed=7 + i).tensor(3, *t.shape) for i, t in enumerate(inputs)
    ]
    choices: list[tuple[int | None, ...]] = [tuple(0 for _ in inputs)]
    if op.name != "copy_":
        choices += [
            tuple(0 if i == j else None for j in range(len(inputs))) for i in range(len(inputs))
        ]
    for in_dims in choices:
        given = [b if d == 0 else t for b, t, d in zip(batched, inputs, in_dims, strict=True)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours = torch.func.vmap(function, in_dims=in_dims)(*given)
        for n in range(3):
            row = [g[n] if d == 0 else g for g, d in zip(given, in_dims, strict=True)]
            for mine, other in zip(ours, function(*row), strict=True):
                torch.testing.assert_close(mine[n], other)


@pytest.mark.parametrize("op", each_op(DIFFERENTIABLE))
def test_vmap_of_grad(op: Op, device: str) -> None:
    """Gradients sample by sample."""
    function, inputs = split(op, op.cases[0], Make(device, torch.float64))
    reference, _ = split(op, op.cases[0], Make(device, torch.float64), expected=True)
    batched = [
        Make(device, torch.float64, seed=7 + i).tensor(3, *t.shape) for i, t in enumerate(inputs)
    ]
    every = tuple(range(len(inputs)))
    ours = torch.func.vmap(torch.func.grad(total(function), argnums=every))(*batched)
    theirs = torch.func.vmap(torch.func.grad(total(reference), argnums=every))(*batched)
    torch.testing.assert_close(ours, theirs)


def test_vmap_over_a_batched_index(device: str) -> None:
    make = Make(device)
    for op, source in ((GATHER_AOS, make.tensor(5, 3)), (GATHER_SOA, make.tensor(3, 5))):
        index = make.index(5, 4, 6)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ours = torch.func.vmap(op.call, in_dims=(None, 0))(source, index)
        expected = torch.stack([op.reference(source, row) for row in index])
        assert torch.equal(ours, expected)


def test_vmap_over_copy_into(device: str) -> None:
    """functorch#545, functorch#247."""
    make = Make(device)
    dst, src = make.tensor(3, 4), make.tensor(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.func.vmap(torch_memops.copy_)(dst, src)
    assert torch.equal(dst, src)
    with pytest.raises(RuntimeError, match="vmap"):
        torch.func.vmap(torch_memops.copy_, in_dims=(None, 0))(make.tensor(4), src)


@pytest.mark.parametrize("op", each_op(DIFFERENTIABLE))
def test_vmap_of_a_leaf_then_backward(op: Op, device: str) -> None:
    """vmap outside, autograd through it."""
    function, inputs = split(op, op.cases[0], Make(device, torch.float64))
    batched = [
        Make(device, torch.float64, seed=7 + i, requires_grad=True).tensor(3, *t.shape)
        for i, t in enumerate(inputs)
    ]
    ours = torch.func.vmap(function)(*batched)
    looped = [function(*[b[n] for b in batched]) for n in range(3)]
    for k, mine in enumerate(ours):
        expected = torch.stack([row[k] for row in looped])
        grad = torch.randn_like(expected)
        torch.testing.assert_close(
            torch.autograd.grad(mine, batched, grad, retain_graph=True, allow_unused=True),
            torch.autograd.grad(expected, batched, grad, retain_graph=True, allow_unused=True),
        )


@pytest.mark.parametrize("op", each_op((MATMUL, COPY, GATHER_AOS, CONV1D_CONSTANT)))
def test_inference_and_no_grad_modes(op: Op, device: str) -> None:
    function, inputs = split(op, op.cases[0], Make(device, requires_grad=True))
    expected = [r.detach() for r in function(*inputs)]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            for mine, other in zip(function(*inputs), expected, strict=True):
                assert not mine.requires_grad
                assert torch.equal(mine, other)


def test_copy_into_under_inference_mode(device: str) -> None:
    with torch.inference_mode():
        dst, src = torch.zeros(3, device=device), torch.ones(3, device=device)
        torch_memops.copy_(dst, src)
        assert torch.equal(dst, src)


@pytest.mark.parametrize("op", each_op(DIFFERENTIABLE))
def test_checkpointing(op: Op, device: str) -> None:
    """Recomputing the forward in backward gives the same gradients."""
    function, inputs = split(op, op.cases[0], Make(device, torch.float64, requires_grad=True))

    def scalar(*tensors: Tensor) -> Tensor:
        return total(function)(*tensors)

    plain = torch.autograd.grad(scalar(*inputs), inputs)
    recomputed = torch.utils.checkpoint.checkpoint(scalar, *inputs, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(recomputed, inputs), plain)


def test_copy_into_gradients_equal_tensor_copy(device: str) -> None:
    """The gradient of what was overwritten is zero there, src's is what arrives."""
    dst, src = (Make(device, torch.float64, True, s).tensor(3, 4) for s in (1, 2))
    (result,) = COPY_.functional(dst, src)
    grad = Make(device, torch.float64, seed=3).tensor(3, 4)
    for_dst, for_src = torch.autograd.grad(result, (dst, src), grad, allow_unused=True)
    assert for_dst is None or not for_dst.any()
    assert torch.equal(for_src, grad)
