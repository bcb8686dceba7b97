"""matmul: shapes, layouts, edge sizes and numerics."""

import math

import pytest
import torch
from support.accuracy import assert_within_bound, norm_error
from support.devices import FLOATS, fp32_precision, name
from support.samples import MATMUL, Case
from support.tensors import Make, assert_same_bits, lay_out, leave_nan_behind
from torch import Tensor

import torch_memops

float_dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=name)


def check(a: Tensor, b: Tensor) -> Tensor:
    """matmul(a, b) against float64, every element; the result is returned."""
    out = torch_memops.matmul(a, b)
    wide_a, wide_b = a.detach().double().cpu(), b.detach().double().cpu()
    assert out.dtype == a.dtype
    assert out.device == a.device
    assert out.is_contiguous()
    magnitude = wide_a.abs() @ wide_b.abs()
    assert_within_bound(out, wide_a @ wide_b, magnitude, a.shape[-1], "matmul")
    return out


@pytest.mark.sanitize
@float_dtypes
@pytest.mark.parametrize("case", MATMUL.cases, ids=lambda case: case.name)
def test_samples(case: Case, device: str, dtype: torch.dtype) -> None:
    args, _ = case.make(Make(device, dtype))
    check(*args)


@pytest.mark.sanitize
@float_dtypes
def test_empty_sum_is_zero(device: str, dtype: torch.dtype) -> None:
    """pytorch#31421: K = 0 gives zeros, never what the memory held before."""
    a = torch.ones(3, 2, 0, dtype=dtype, device=device, requires_grad=True)
    b = torch.ones(3, 0, 3, dtype=dtype, device=device, requires_grad=True)
    for _ in range(100):
        leave_nan_behind(device, (3, 2, 3), dtype=dtype)
        out = torch_memops.matmul(a, b)
        assert torch.equal(out, torch.zeros(3, 2, 3, dtype=dtype, device=device))
    out.sum().backward()
    assert a.grad is not None
    assert b.grad is not None
    assert a.grad.shape == (3, 2, 0)
    assert b.grad.shape == (3, 0, 3)
    leave_nan_behind(device, (2, 3), dtype=dtype)
    assert torch.equal(torch_memops.matmul(a[0], b[0]), out[0])
    assert torch.equal(torch_memops.matmul(a[0, 0], b[0, :, 0]), out[0, 0, 0])


@pytest.mark.parametrize(
    ("left", "right"),
    [((0, 3), (3, 2)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 4)), ((2, 0, 3), (2, 3, 4)), ((0,), (0,))],
)
def test_empty_results(device: str, left: tuple[int, ...], right: tuple[int, ...]) -> None:
    make = Make(device, requires_grad=True)
    a, b = make.tensor(*left), make.tensor(*right)
    out = torch_memops.matmul(a, b)
    expected = torch.matmul(a, b)
    assert out.shape == expected.shape
    ours = torch.autograd.grad(out.sum(), (a, b))
    theirs = torch.autograd.grad(expected.sum(), (a, b))
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.equal(mine, other)


def test_0d_arguments_are_refused(device: str) -> None:
    """pytorch#119161."""
    scalar, vector = torch.tensor(1.0, device=device), torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match=r"matmul.*at least 1D.*0D"):
        torch_memops.matmul(scalar, vector)
    with pytest.raises(RuntimeError, match=r"matmul.*at least 1D.*0D"):
        torch_memops.matmul(vector, scalar)


@pytest.mark.sanitize
@float_dtypes
@pytest.mark.parametrize("expanded", ["left", "right", "both"])
def test_expanded_batches(device: str, dtype: torch.dtype, expanded: str) -> None:
    """candle#3744: a batch stride of 0 is not read as if packed."""
    make = Make(device, dtype)
    left, right = make.tensor(6, 4, 5), make.tensor(6, 5, 3)
    if expanded in ("left", "both"):
        left = left[:1].expand(6, 4, 5)
    if expanded in ("right", "both"):
        right = right[:1].expand(6, 5, 3)
    out = check(left, right)
    for i in range(6):
        assert_same_bits(out[i], torch_memops.matmul(left[i].clone(), right[i].clone()))


@float_dtypes
def test_broadcast_and_overlapping_operands(device: str, dtype: torch.dtype) -> None:
    """pytorch#154128, pytorch#52111, candle#3253."""
    make = Make(device, dtype)
    check(make.tensor(8, 4, 1, 5), make.tensor(4, 5, 5))
    line = make.tensor(64)
    a, b = line.as_strided((4, 6, 7), (1, 1, 1)), line.as_strided((4, 7, 1), (1, 1, 1), 3)
    assert_same_bits(check(a, b), torch_memops.matmul(a.clone(), b.clone()))


@pytest.mark.cuda
def test_broadcast_operand_is_not_materialised() -> None:
    """pytorch#154128: a copy of b for each of 4,096 batches would take 10 GB."""
    a = torch.randn(4096, 64, 1, 100, device="cuda")
    b = torch.randn(64, 100, 100, device="cuda")
    torch_memops.matmul(a[:1], b)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = torch_memops.matmul(a, b)
    assert torch.cuda.max_memory_allocated() - before < 1e9
    rows = [0, 1, 2047, 4095]
    reference = a[rows].double() @ b.double()
    magnitude = a[rows].double().abs() @ b.double().abs()
    assert_within_bound(out[rows], reference.cpu(), magnitude.cpu(), 100)


@float_dtypes
def test_size_one_dimension_with_odd_stride(device: str, dtype: torch.dtype) -> None:
    """pytorch#186148, candle#1948: the stride of a dimension of size 1 means nothing."""
    make = Make(device, dtype)
    x, w = make.tensor(7, 1, 11), make.tensor(11, 3)
    odd = x.as_strided((7, 1, 11), (11, 1572865, 1))
    assert_same_bits(check(odd, w).view(7, 3), torch_memops.matmul(x.view(7, 11), w))
    packed = torch_memops.plan("matmul", x, w)
    assert torch_memops.plan("matmul", odd, w).kernel == packed.kernel
    row, wide = make.tensor(1, 2048), make.tensor(2048, 3)
    far = row.as_strided((1, 2048), (16385, 1))
    assert_same_bits(check(far, wide), torch_memops.matmul(row, wide))
    assert (
        torch_memops.plan("matmul", far, wide).kernel
        == torch_memops.plan("matmul", row, wide).kernel
    )


@pytest.mark.parametrize("rows", [1, 16, 128])
def test_split_sums_stay_in_float32(device: str, rows: int) -> None:
    """modular#7165: partial sums rounded to bf16 would lose the 0.125."""
    columns = 4096 if device == "cuda" else 64
    a = torch.zeros(rows, 4096, dtype=torch.bfloat16, device=device)
    a[:, 0], a[:, 1], a[:, 4095] = 256, 0.125, -256
    b = torch.ones(4096, columns, dtype=torch.bfloat16, device=device)
    assert torch.equal(torch_memops.matmul(a, b), torch.full_like(b[:rows], 0.125))


def test_half_sums_are_kept_in_float32(device: str) -> None:
    """cutlass#1188, ik_llama.cpp#1776: an f16 accumulator sticks at 2048 or overflows."""
    ones = torch.ones(1, 4096, dtype=torch.float16, device=device)
    assert torch_memops.matmul(ones, ones.t()).item() == 4096
    assert torch_memops.matmul(ones[0], ones[0]).item() == 4096
    large = torch.tensor([[6e4, 6e4, -6e4]], dtype=torch.float16, device=device)
    expected = torch.tensor(6e4, dtype=torch.float16)
    assert torch_memops.matmul(large, ones[:, :3].t()).cpu() == expected


@pytest.mark.cuda
def test_every_element_is_written() -> None:
    """rocm-libraries#9055: output memory holds NaN before the call."""
    m, n, k = 546, 9728, 2560
    a = torch.randn(k, m, device="cuda", dtype=torch.bfloat16).t()
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    leave_nan_behind("cuda", (m, n), dtype=torch.bfloat16)
    out = torch_memops.matmul(a, b)
    assert not out.isnan().any()
    wide_a, wide_b = a.double(), b.double()
    assert_within_bound(
        out, (wide_a @ wide_b).cpu(), (wide_a.abs() @ wide_b.abs()).cpu(), k, "matmul"
    )


ORDERS = {
    "nn": ("contiguous", "contiguous"),
    "nt": ("contiguous", "transposed"),
    "tn": ("transposed", "contiguous"),
    "tt": ("transposed", "transposed"),
}


@pytest.mark.parametrize("order", ORDERS)
@float_dtypes
@pytest.mark.parametrize("shape", [(100, 100, 100), (35, 79, 19), (3, 3, 3), (9, 9, 9), (1, 65, 1)])
def test_partial_tiles(
    device: str, shape: tuple[int, int, int], dtype: torch.dtype, order: str
) -> None:
    """Fuser#3963, CUDA_gemm#3, Optimizing-SGEMM-on-NVIDIA-Turing-GPUs#2."""
    m, k, n = shape
    make = Make(device, dtype)
    leave_nan_behind(device, (m, n), dtype=dtype)
    check(make.tensor(m, k, layout=ORDERS[order][0]), make.tensor(k, n, layout=ORDERS[order][1]))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("dtype", "m", "k", "n"),
    [
        (torch.bfloat16, 1752, 584, 4720),
        (torch.float32, 30000, 64, 64),
        (torch.float32, 8, 8192, 12288),
        (torch.float16, 257, 4095, 129),
        (torch.float64, 513, 127, 255),
    ],
    ids=lambda value: name(value) if isinstance(value, torch.dtype) else str(value),
)
@pytest.mark.cuda
def test_partial_tiles_large(dtype: torch.dtype, m: int, k: int, n: int, order: str) -> None:
    """Fuser#3963, cutlass#1412: a wrong last tile of a large problem, compared everywhere."""
    a = lay_out(torch.randn(m, k, device="cuda").to(dtype), ORDERS[order][0])
    b = lay_out(torch.randn(k, n, device="cuda").to(dtype), ORDERS[order][1])
    leave_nan_behind("cuda", (m, n), dtype=dtype)
    out = torch_memops.matmul(a, b)
    wide_a, wide_b = a.double(), b.double()
    assert_within_bound(out, (wide_a @ wide_b).cpu(), (wide_a.abs() @ wide_b.abs()).cpu(), k)


@float_dtypes
def test_identity_is_exact(device: str, dtype: torch.dtype) -> None:
    """Where one product is not zero the sum has no rounding: A @ I is A, bit for bit."""
    a = Make(device, dtype).tensor(37, 37)
    assert torch.equal(torch_memops.matmul(a, torch.eye(37, dtype=dtype, device=device)), a)


@float_dtypes
def test_special_values(device: str, dtype: torch.dtype) -> None:
    """inf, NaN, signed zeros, subnormals and extremes come out as IEEE arithmetic gives them."""
    inf, nan, top = math.inf, math.nan, torch.finfo(dtype).max
    tiny = torch.finfo(dtype).smallest_normal / 4
    a = torch.tensor(
        [[inf, 1, 0], [inf, -inf, 0], [nan, 0, 0], [-0.0, -0.0, -0.0], [tiny, 0, 0], [top, 0, 0]],
        dtype=dtype,
        device=device,
    )
    b = torch.ones(3, 1, dtype=dtype, device=device)
    out = torch_memops.matmul(a, b).view(-1)
    expected = torch.tensor([inf, nan, nan, 0.0, tiny, top], dtype=dtype, device=device)
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)
    zero_times_inf = torch_memops.matmul(a[:1, :1], torch.zeros(1, 1, dtype=dtype, device=device))
    assert zero_times_inf.isnan().all()


def test_values_beyond_the_type_overflow(device: str) -> None:
    top = torch.full((2, 2), 6e4, dtype=torch.float16, device=device)
    assert torch.equal(torch_memops.matmul(top, top), torch.full_like(top, math.inf))


@pytest.mark.parametrize("conv", [None, "ieee"])
def test_new_and_old_tf32_switches_mixed(device: str, conv: str | None) -> None:
    """pytorch#179445: reading the older switch raises once a newer one is set."""
    make = Make(device)
    a, b = make.tensor(64, 65), make.tensor(65, 33)
    x, w = make.tensor(2, 8, 40), make.tensor(8, 8, 3)
    with fp32_precision(matmul="tf32", conv=conv):
        product = torch_memops.matmul(a, b)
        layer = torch_memops.linear(a, b.t().contiguous())
        convolved = torch_memops.conv1d(x, w)
    allowed = 2e-3  # TF32 keeps 11 bits
    reference = a.double().cpu() @ b.double().cpu()
    assert norm_error(product, reference) < allowed
    assert norm_error(layer, reference) < allowed
    wide = torch.nn.functional.conv1d(x.double().cpu(), w.double().cpu())
    assert norm_error(convolved, wide) < (allowed if conv is None else 1e-6)


def test_full_precision_is_the_default(device: str) -> None:
    """With TF32 off the error of f32 is that of f32."""
    make = Make(device)
    a, b = make.tensor(64, 257), make.tensor(257, 33)
    reference = a.double().cpu() @ b.double().cpu()
    assert norm_error(torch_memops.matmul(a, b), reference) < 1e-6


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.complex64, torch.bool], ids=name)
def test_other_dtypes(device: str, dtype: torch.dtype) -> None:
    """On the CPU whatever torch.matmul has; on CUDA the four floating types are named."""
    make = Make(device, dtype)
    a, b = make.tensor(3, 4), make.tensor(4, 2)
    if device == "cuda":
        with pytest.raises(NotImplementedError, match=r"matmul.*(?i:float16|half)"):
            torch_memops.matmul(a, b)
        return
    try:
        expected = torch.matmul(a, b)
    except (RuntimeError, NotImplementedError) as error:
        with pytest.raises(type(error)):
            torch_memops.matmul(a, b)
        return
    assert torch.equal(torch_memops.matmul(a, b), expected)


def test_gradients_of_only_what_needs_them(device: str) -> None:
    make = Make(device)
    a, b = make.tensor(4, 5), make.tensor(5, 3).requires_grad_()
    torch_memops.matmul(a, b).sum().backward()
    assert a.grad is None
    torch.testing.assert_close(b.grad, a.sum(0)[:, None].expand(5, 3))


def test_broadcast_gradients_are_summed(device: str) -> None:
    make = Make(device, torch.float64, requires_grad=True)
    a, b = make.tensor(2, 1, 3, 4), make.tensor(5, 4, 2)
    grad = Make(device, torch.float64, seed=2).tensor(2, 5, 3, 2)
    ours = torch.autograd.grad(torch_memops.matmul(a, b), (a, b), grad)
    theirs = torch.autograd.grad(torch.matmul(a, b), (a, b), grad)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)
