"""The plan of matmul and linear: what the kernel is given, on devices that are not there."""

import pytest
import torch
from torch import Tensor

import torch_memops
from torch_memops import DeviceFacts, Plan


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def sizes(plan: Plan) -> tuple[int, int, int, int]:
    """M, N, K and batch, as the kernel sees them."""
    return tuple(plan.facts[name] for name in ("M", "N", "K", "batch"))


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ((35, 79), (79, 19), (35, 19, 79, 1)),
        ((79,), (79,), (1, 1, 79, 1)),
        ((79,), (79, 19), (1, 19, 79, 1)),
        ((35, 79), (79,), (35, 1, 79, 1)),
        ((4, 5, 35, 79), (79, 19), (700, 19, 79, 1)),
        ((4, 5, 35, 79), (79,), (700, 1, 79, 1)),
        ((35, 79), (4, 5, 79, 19), (35, 19, 79, 20)),
        ((79,), (4, 79, 19), (1, 19, 79, 4)),
        ((4, 5, 35, 79), (5, 79, 19), (35, 19, 79, 20)),
        ((4, 1, 35, 79), (5, 79, 19), (35, 19, 79, 20)),
        ((35, 0), (0, 19), (35, 19, 0, 1)),
    ],
)
def test_fronts_bring_every_shape_to_matrices(
    left: tuple[int, ...], right: tuple[int, ...], expected: tuple[int, int, int, int]
) -> None:
    plan = torch_memops.plan("matmul", empty(*left), empty(*right))
    assert plan.kernel == "matmul_tiled"
    assert sizes(plan) == expected
    m, n, k, batch = expected
    assert plan.facts["flops"] == 2 * m * n * k * batch


@pytest.mark.parametrize("a_transposed", [False, True])
@pytest.mark.parametrize("b_transposed", [False, True])
def test_loads_run_along_the_smaller_stride(a_transposed: bool, b_transposed: bool) -> None:
    a = empty(79, 35).t() if a_transposed else empty(35, 79)
    b = empty(19, 79).t() if b_transposed else empty(79, 19)
    orientation = ("t" if a_transposed else "n") + ("t" if b_transposed else "n")
    assert torch_memops.plan("matmul", a, b).facts["orientation"] == orientation


def test_strides_of_size_one_dimensions_do_not_matter() -> None:
    """pytorch#186148, candle#1948."""
    x, w = torch.empty(7, 1, 11), torch.empty(11, 3)
    odd = x.as_strided((7, 1, 11), (11, 1572865, 1))
    assert torch_memops.plan("matmul", odd, w) == torch_memops.plan("matmul", x.view(7, 11), w)
    row, wide = torch.empty(1, 2048), torch.empty(2048, 3)
    far = row.as_strided((1, 2048), (16385, 1))
    assert torch_memops.plan("matmul", far, wide) == torch_memops.plan("matmul", row, wide)
    column = torch.empty(40, 1)
    wrong = column.as_strided((40, 1), (1, 77))
    other = torch.empty(1, 5)
    assert torch_memops.plan("matmul", wrong, other) == torch_memops.plan("matmul", column, other)


def test_what_a_batch_shares_is_counted_once() -> None:
    """pytorch#154128: neither expanded batches nor a broadcast bias take memory."""
    a, b = empty(4096, 64, 1, 100), empty(64, 100, 100)
    facts = torch_memops.plan("matmul", a, b).facts
    assert facts["bytes"] == 4 * (4096 * 64 * 100 + 64 * 100 * 100 + 4096 * 64 * 100)
    expanded = empty(1, 4, 5).expand(6, 4, 5)
    facts = torch_memops.plan("matmul", expanded, empty(6, 5, 3)).facts
    assert facts["bytes"] == 4 * (4 * 5 + 6 * 5 * 3 + 6 * 4 * 3)
    x, w, bias = empty(8, 4), empty(3, 4), empty(1).expand(3)
    facts = torch_memops.plan("linear", x, w, bias).facts
    assert facts["bytes"] == 4 * (8 * 4 + 3 * 4 + 1 + 8 * 3)


def test_input_that_does_not_fold_is_a_batch_that_shares_the_weight() -> None:
    x, w = empty(6, 4, 5).transpose(0, 1), empty(3, 5)
    assert sizes(torch_memops.plan("linear", x, w, empty(3))) == (6, 3, 5, 4)
    assert sizes(torch_memops.plan("matmul", x, w.t())) == (6, 3, 5, 4)
    assert sizes(torch_memops.plan("linear", x.contiguous(), w, empty(6, 3))) == (6, 3, 5, 4)
    assert sizes(torch_memops.plan("linear", x.contiguous(), w, empty(3))) == (24, 3, 5, 1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_bias_is_in_the_epilogue(dtype: torch.dtype) -> None:
    args = [empty(*shape, dtype=dtype) for shape in ((2, 3), (4, 3), (4,))]
    facts = torch_memops.plan("linear", *args).facts
    assert facts["bias"] == "in the epilogue"
    assert f"torch.{facts['element']}" == str(dtype)
    assert torch_memops.plan("linear", *args[:2]).facts["bias"] == "none"


@pytest.mark.parametrize("multiprocessors", [1, 8, 66, 108, 132])
def test_blocks_and_waves(multiprocessors: int) -> None:
    device = DeviceFacts(multiprocessors=multiprocessors)
    facts = torch_memops.plan("matmul", empty(3, 1000, 64), empty(3, 64, 33), device=device).facts
    assert facts["blocks"] == 3 * 63 * 3
    assert (facts["waves"] - 1) * multiprocessors * 5 < facts["blocks"]
    assert facts["waves"] * multiprocessors * 5 >= facts["blocks"]


def test_what_no_kernel_is_for() -> None:
    assert torch_memops.plan("matmul", empty(0, 3), empty(3, 2)).kernel == "none"
    with pytest.raises(RuntimeError, match=r"matmul.*\[2, 3\].*\[4, 2\]"):
        torch_memops.plan("matmul", empty(2, 3), empty(4, 2))


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64], ids=str)
def test_a_dtype_without_cuda_kernels_is_refused_as_by_the_call(dtype: torch.dtype) -> None:
    """A plan is one for a GPU, where the call raises too, also for tensors that are elsewhere."""
    square, row = empty(2, 2, dtype=dtype), empty(2, dtype=dtype)
    name = {torch.int32: "Int", torch.complex64: "ComplexFloat"}[dtype]
    for op, arguments in {
        "matmul": [square, square],
        "linear": [square, square, row],
        "_mm": [square, square],
        "_addmm": [row, square, square],
    }.items():
        with pytest.raises(NotImplementedError, match=f"is {name}; on CUDA float16, bfloat16"):
            torch_memops.plan(op, *arguments)


def test_sizes_beyond_any_memory_do_not_wrap() -> None:
    a, b = empty(1).expand(2**10, 2**45), empty(1).expand(2**45, 2**10)
    facts = torch_memops.plan("matmul", a, b).facts
    assert facts["flops"] == 2**63 - 1


def test_plans_of_the_cores() -> None:
    a, b, bias = empty(5, 7), empty(7, 3), empty(3)
    assert sizes(torch_memops.plan("_mm", a, b)) == (5, 3, 7, 1)
    assert sizes(torch_memops.plan("_addmm", bias, a, b)) == (5, 3, 7, 1)
    assert sizes(torch_memops.plan("_bmm", empty(2, 5, 7), empty(2, 7, 3))) == (5, 3, 7, 2)
    assert sizes(torch_memops.plan("_bmm", empty(2, 5, 7), b)) == (5, 3, 7, 2)
