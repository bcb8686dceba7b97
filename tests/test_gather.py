"""gather_aos, gather_soa and embedding: rows or columns by an index of any shape."""

import math

import pytest
import torch
import torch.nn.functional as F
from support import reference
from support.devices import FLOATS, allocatable_dtypes, name
from support.samples import EMBEDDING, GATHER_AOS, GATHER_SOA, Case, Op
from support.tensors import (
    GuardedView,
    Make,
    assert_same_bits,
    leave_nan_behind,
    random_bits,
    strides_for,
    to_bytes,
)
from torch import Tensor

import torch_memops

INDEX_DTYPES = (torch.int32, torch.int64)
every_index = pytest.mark.parametrize("index_dtype", INDEX_DTYPES, ids=name)
every_dtype = pytest.mark.parametrize("dtype", allocatable_dtypes(), ids=name)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATS, ids=name)
@pytest.mark.parametrize(
    ("op", "case"),
    [
        pytest.param(op, case, id=f"{op.name}-{case.name}")
        for op in (GATHER_AOS, GATHER_SOA, EMBEDDING)
        for case in op.cases
    ],
)
def test_samples(op: Op, case: Case, device: str, dtype: torch.dtype) -> None:
    args, options = case.make(Make(device, dtype, requires_grad=True))
    expected = op.reference(*args, **options)
    leave_nan_behind(device, expected.shape, dtype=dtype)
    out = op.call(*args, **options)
    assert_same_bits(out, expected)
    assert out.stride() == torch.empty(out.shape).stride()
    leaf = next(a for a in args if a.is_floating_point())
    grad = torch.ones_like(out)
    (ours,) = torch.autograd.grad(out, leaf, grad)
    (theirs,) = torch.autograd.grad(expected, leaf, grad)
    assert torch.equal(ours, theirs)


@every_index
def test_index_or_source_is_a_strided_view(device: str, index_dtype: torch.dtype) -> None:
    """cutorch#240, FBGEMM#5761, torch-spyre#3851, pytorch#63806: as with clones, both ways."""
    column = (torch.arange(12).view(4, 3) % 5)[:, 1].to(index_dtype).to(device)
    spaced = torch.zeros(8, dtype=index_dtype, device=device)[::2]
    spaced.copy_(column)
    table = (torch.arange(12, dtype=torch.int32).view(3, 4) % 5).to(device)
    indices = {
        "column": (torch.arange(12, dtype=index_dtype, device=device).view(4, 3) % 5)[:, 1],
        "spaced": spaced,
        "expanded": torch.tensor(3, dtype=index_dtype, device=device).expand(4, 2),
        "transposed": (torch.arange(6, dtype=index_dtype, device=device).view(2, 3) % 5).t(),
        "row": table[1],
    }
    for index in indices.values():
        for layout in ("contiguous", "transposed", "strided", "offset", "pitched"):
            aos = Make(device, requires_grad=True).tensor(5, 3, layout=layout)
            soa = Make(device, requires_grad=True).tensor(3, 5, layout=layout)
            for ours, theirs, source in (
                (torch_memops.gather_aos, reference.gather_aos, aos),
                (torch_memops.gather_soa, reference.gather_soa, soa),
            ):
                out = ours(source, index)
                expected = theirs(source, index.clone().long())
                assert_same_bits(out, expected)
                grad = Make(device, seed=4).tensor(*out.shape, layout=layout)
                torch.testing.assert_close(
                    torch.autograd.grad(out, source, grad),
                    torch.autograd.grad(expected, source, grad),
                )


@every_index
@pytest.mark.parametrize("dtype", FLOATS, ids=name)
def test_repeated_indices_add_up(device: str, dtype: torch.dtype, index_dtype: torch.dtype) -> None:
    """CUDA.jl#1019, Zygote.jl#821."""
    for index, rows, expected in (([0, 0], 1, [2]), ([1, 3, 1], 4, [0, 2, 0, 1])):
        where = torch.tensor(index, dtype=index_dtype, device=device)
        aos = torch.ones(rows, 3, dtype=dtype, device=device, requires_grad=True)
        torch_memops.gather_aos(aos, where).sum().backward()
        assert aos.grad is not None
        assert aos.grad.tolist() == [[e] * 3 for e in expected]
        soa = torch.ones(3, rows, dtype=dtype, device=device, requires_grad=True)
        torch_memops.gather_soa(soa, where).sum().backward()
        assert soa.grad is not None
        assert soa.grad.tolist() == [expected] * 3
        flat = torch.ones(rows, dtype=dtype, device=device, requires_grad=True)
        torch_memops.gather_aos(flat, where).sum().backward()
        assert flat.grad is not None
        assert flat.grad.tolist() == expected


def test_sums_of_many_halves_are_not_rounded_at_each_step(device: str) -> None:
    """4,096 gradients of 1 onto one row: a running f16 sum would stop at 2,048."""
    index = torch.zeros(4096, dtype=torch.int64, device=device)
    for dtype in (torch.float16, torch.bfloat16):
        aos = torch.ones(2, 5, dtype=dtype, device=device, requires_grad=True)
        torch_memops.gather_aos(aos, index).sum(dtype=torch.float32).backward()
        assert aos.grad is not None
        assert aos.grad[0].tolist() == [4096] * 5
        assert aos.grad[1].tolist() == [0] * 5
        soa = torch.ones(5, 2, dtype=dtype, device=device, requires_grad=True)
        torch_memops.gather_soa(soa, index).sum(dtype=torch.float32).backward()
        assert soa.grad is not None
        assert soa.grad[:, 0].tolist() == [4096] * 5


def test_gradient_with_strides_of_zero(device: str) -> None:
    """k2#444: sum() sends an expanded gradient."""
    aos = torch.ones(5, 2, device=device, requires_grad=True)
    torch_memops.gather_aos(aos, torch.tensor([1, 1, 3], device=device)).sum().backward()
    assert aos.grad is not None
    assert aos.grad.tolist() == [[0, 0], [2, 2], [0, 0], [1, 1], [0, 0]]


def test_empty_source_is_not_read() -> None:
    """pytorch#70675, torch-xpu-ops#3445: on the CPU an error; CUDA is in test_index_assert.py."""
    with pytest.raises((IndexError, RuntimeError), match="gather_aos"):
        torch_memops.gather_aos(torch.empty(0, 4), torch.tensor([0, 1]))
    with pytest.raises((IndexError, RuntimeError), match="gather_soa"):
        torch_memops.gather_soa(torch.empty(4, 0), torch.tensor([0, 1]))
    with pytest.raises(IndexError, match="gather_aos"):
        torch_memops.gather_aos(torch.empty(3, 0), torch.tensor([0, 7]))
    with pytest.raises(IndexError, match="gather_soa"):
        torch_memops.gather_soa(torch.empty(0, 3), torch.tensor([0, 7]))


@every_index
@pytest.mark.parametrize("bad", [-1, -5, 5, 2**31 - 1, -(2**31)])
def test_index_out_of_range_on_the_cpu(bad: int, index_dtype: torch.dtype) -> None:
    """pytorch3d#1339, pytorch#140791: -1 is no padding, and nothing wraps round."""
    index = torch.tensor([0, bad, 1], dtype=index_dtype)
    with pytest.raises(IndexError, match=rf"(?s)gather_aos.*{bad}"):
        torch_memops.gather_aos(torch.ones(5, 3), index)
    with pytest.raises(IndexError, match=rf"(?s)gather_soa.*{bad}"):
        torch_memops.gather_soa(torch.ones(3, 5), index)
    with pytest.raises(IndexError, match=rf"(?s){bad}"):
        torch_memops.embedding(index, torch.ones(5, 3))


def test_int64_index_is_not_cut_to_32_bits() -> None:
    """2**32 would read row 0."""
    index = torch.tensor([2**32])
    with pytest.raises(IndexError, match="gather_aos"):
        torch_memops.gather_aos(torch.ones(5, 3), index)
    with pytest.raises(IndexError, match="gather_soa"):
        torch_memops.gather_soa(torch.ones(3, 5), index)


@every_index
def test_empty_and_0d_indices(device: str, index_dtype: torch.dtype) -> None:
    """candle#2673, csarofeen/pytorch#2513."""
    none = torch.empty(0, dtype=index_dtype, device=device)
    one = torch.tensor(1, dtype=index_dtype, device=device)
    for shape, index, expected in (
        ((3, 3, 3), none, (0, 3, 3)),
        ((0, 4), none, (0, 4)),
        ((3, 3, 3), one, (3, 3)),
        ((3,), one, ()),
    ):
        source = torch.ones(shape, device=device, requires_grad=True)
        out = torch_memops.gather_aos(source, index)
        assert out.shape == expected
        (grad,) = torch.autograd.grad(out.sum(), source)
        counts = torch.zeros(shape, device=device)
        if index.dim() == 0:
            counts[1] = 1
        assert torch.equal(grad, counts)
    soa = torch.ones(4, 0, device=device, requires_grad=True)
    out = torch_memops.gather_soa(soa, none)
    assert out.shape == (4, 0)
    assert torch.autograd.grad(out.sum(), soa)[0].shape == (4, 0)
    assert torch_memops.gather_soa(torch.ones(4, 3, device=device), one).shape == (4,)


def test_rows_of_width_0(device: str) -> None:
    """pytorch#189668."""
    index = torch.tensor([0, 2], device=device)
    aos = torch.empty(3, 0, device=device, requires_grad=True)
    out = torch_memops.gather_aos(aos, index)
    assert out.shape == (2, 0)
    assert torch.autograd.grad(out.sum(), aos)[0].shape == (3, 0)
    soa = torch.empty(0, 3, device=device, requires_grad=True)
    out = torch_memops.gather_soa(soa, index)
    assert out.shape == (0, 2)
    assert torch.autograd.grad(out.sum(), soa)[0].shape == (0, 3)


@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.bool, torch.int8, torch.int16, torch.float32, torch.uint32],
    ids=name,
)
def test_index_of_another_dtype(device: str, dtype: torch.dtype) -> None:
    """pytorch#17346: never taken for a mask."""
    index = torch.zeros(2, dtype=dtype, device=device)
    for on in (device, "meta"):
        where = index.to(on)
        with pytest.raises(RuntimeError, match=r"(?s)gather_aos.*index.*int32.*int64"):
            torch_memops.gather_aos(torch.ones(3, 2, device=on), where)
        with pytest.raises(RuntimeError, match=r"(?s)gather_soa.*index.*int32.*int64"):
            torch_memops.gather_soa(torch.ones(2, 3, device=on), where)


@every_dtype
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "offset"])
def test_every_dtype_by_its_width(device: str, layout: str, dtype: torch.dtype) -> None:
    """pytorch#169656, pytorch#185330, pytorch#180855: byte-wide and odd dtypes among them."""
    rows, columns = random_bits((7, 5), dtype), random_bits((5, 7), dtype)
    index = torch.tensor([[6, 0, 3], [3, 3, 1]])
    aos = GuardedView(rows, *strides_for((7, 5), layout), device=device)
    soa = GuardedView(columns, *strides_for((5, 7), layout), device=device)
    for where in (index.to(device), index.to(device, torch.int32)):
        out = torch_memops.gather_aos(aos.view, where)
        assert out.dtype == dtype
        assert torch.equal(to_bytes(out), to_bytes(rows)[index])
        out = torch_memops.gather_soa(soa.view, where)
        assert out.dtype == dtype
        assert torch.equal(to_bytes(out), to_bytes(columns)[:, index])
    aos.assert_untouched()
    soa.assert_untouched()


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 31, 32, 33, 64, 129, 1000])
def test_row_widths(device: str, width: int) -> None:
    """Rows of any length and alignment, forward and backward."""
    index = Make(device).index(37, 101)
    for dtype in (torch.float32, torch.float16, torch.uint8):
        values = random_bits((38, width), dtype).to(device)[1:]
        assert_same_bits(torch_memops.gather_aos(values, index), values[index])
        columns = values.t().contiguous()
        assert_same_bits(torch_memops.gather_soa(columns, index), columns[:, index])
    leaf = Make(device, torch.float64, requires_grad=True).tensor(37, width)
    grad = Make(device, torch.float64, seed=2).tensor(101, width)
    ours = torch.autograd.grad(torch_memops.gather_aos(leaf, index), leaf, grad)
    theirs = torch.autograd.grad(leaf[index], leaf, grad)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("rows", [1, 33])
def test_fewer_rows_than_a_block_has_threads(device: str, rows: int) -> None:
    """OpenPCDet#947, Pointnet2_PyTorch#73."""
    index = torch.arange(1000, device=device) % rows
    aos = Make(device, requires_grad=True).tensor(rows, 3)
    out = torch_memops.gather_aos(aos, index)
    assert torch.equal(out, aos[index])
    (grad,) = torch.autograd.grad(out.sum(), aos)
    expected = torch.bincount(index, minlength=rows).float()[:, None].expand(rows, 3)
    assert torch.equal(grad, expected)


@pytest.mark.sanitize
@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("width", [1, 63, 64, 257])
def test_backward_of_many_repeats(device: str, width: int, deterministic: bool) -> None:
    """pytorch#187687: staged indices; small integers, so that every order of sums is exact."""
    make = Make(device)
    index = make.index(100, 4096)
    grad = (8 * make.tensor(4096, width)).round()
    torch.use_deterministic_algorithms(deterministic)
    rows = torch.ops.memops._gather_aos_backward(grad, index, 100, -1)
    columns = torch.ops.memops._gather_soa_backward(grad.t(), index, 100)
    torch.use_deterministic_algorithms(False)
    host = torch.zeros(100, width, dtype=torch.float64)
    expected = host.index_add_(0, index.cpu(), grad.double().cpu())
    assert torch.equal(rows.double().cpu(), expected)
    assert torch.equal(columns.double().cpu(), expected.t())


@pytest.mark.cuda
@pytest.mark.parametrize("width", [63, 64, 257])
def test_backward_many_times(width: int) -> None:
    """pytorch#187687: indices staged in shared memory are not overwritten while they are read."""
    index = Make("cuda").index(1000, 4096)
    source = torch.zeros(1000, width, device="cuda", requires_grad=True)
    grad = torch.randint(-8, 8, (4096, width), device="cuda").float()
    (expected,) = torch.autograd.grad(source[index], source, grad)
    out = torch_memops.gather_aos(source, index)
    for _ in range(1000):
        (ours,) = torch.autograd.grad(out, source, grad, retain_graph=True)
        assert torch.equal(ours, expected)  # small integers: exact in any order


@pytest.mark.cuda
def test_memory_of_the_index() -> None:
    """FRNN#6: the index is not expanded to the row's width, forward or backward."""
    count = 10**7
    source = torch.randn(1000, 3, device="cuda", requires_grad=True)
    index = torch.randint(1000, (count,), device="cuda")
    out_bytes = count * 3 * 4
    for gather, leaf in (
        (torch_memops.gather_aos, source),
        (torch_memops.gather_soa, torch.randn(3, 1000, device="cuda", requires_grad=True)),
    ):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = gather(leaf, index)
        assert torch.cuda.max_memory_allocated() - before < 1.05 * out_bytes
        grad = torch.ones_like(out)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        torch.autograd.grad(out, leaf, grad)
        assert torch.cuda.max_memory_allocated() - before < 0.05 * out_bytes
        del out, grad


def test_padding_index_gets_no_gradient(device: str) -> None:
    weight = Make(device, requires_grad=True).tensor(4, 3)
    index = torch.tensor([0, 1, 1, 3], device=device)
    for padding in (1, -3, None):
        out = torch_memops.embedding(index, weight, padding)
        expected = F.embedding(index, weight, padding)
        assert torch.equal(out, expected)
        (ours,) = torch.autograd.grad(out.sum(), weight)
        (theirs,) = torch.autograd.grad(expected.sum(), weight)
        assert torch.equal(ours, theirs)


def test_padding_index_out_of_range(device: str) -> None:
    weight, index = torch.ones(4, 3, device=device), torch.tensor([0], device=device)
    for padding in (4, -5):
        with pytest.raises((AssertionError, IndexError, RuntimeError, ValueError)) as caught:
            torch_memops.embedding(index, weight, padding)
        assert "padding" in str(caught.value).lower()


def test_nan_rows_that_are_not_asked_for_do_not_leak(device: str) -> None:
    values = torch.full((4, 3), math.nan, device=device)
    values[2] = 1
    index = torch.tensor([2, 2], device=device)
    assert torch.equal(torch_memops.gather_aos(values, index), torch.ones(2, 3, device=device))


def test_conjugate_and_negative_bits_are_resolved(device: str) -> None:
    z = Make(device, torch.complex64).tensor(5, 3)
    index = torch.tensor([4, 0, 4], device=device)
    for view in (z.conj(), torch._neg_view(z)):
        rows = torch_memops.gather_aos(view, index)
        assert not rows.is_conj()
        assert not rows.is_neg()
        assert torch.equal(rows, view[index])
        assert torch.equal(torch_memops.gather_soa(view.t(), index), view.t()[:, index])


def test_source_without_dimensions(device: str) -> None:
    index = torch.tensor([0], device=device)
    with pytest.raises(RuntimeError, match=r"gather_aos.*aos"):
        torch_memops.gather_aos(torch.tensor(1.0, device=device), index)
    for source in (torch.ones(3, device=device), torch.ones(2, 2, 2, device=device)):
        with pytest.raises(RuntimeError, match=r"gather_soa.*soa"):
            torch_memops.gather_soa(source, index)


def gradients_need_no_source(op: Op) -> Tensor:
    """Backward works after the source was freed or changed: only its size is kept."""
    (source, index), _ = op.cases[0].make(Make(requires_grad=True))
    leaf = source.clone()
    out = op.call(leaf, index)
    with torch.no_grad():
        leaf.zero_()
    return torch.autograd.grad(out.sum(), source)[0]


@pytest.mark.parametrize("op", [GATHER_AOS, GATHER_SOA], ids=lambda op: op.name)
def test_source_may_change_before_backward(op: Op) -> None:
    assert gradients_need_no_source(op).sum() > 0
