"""Sizes at which 32-bit offsets, 32-bit sizes and grid dimensions wrap. CUDA only."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import torch_memops

pytestmark = [pytest.mark.cuda, pytest.mark.timeout(120)]

BOUNDARY = 2**31
SIDES = pytest.mark.parametrize("count", [BOUNDARY - 1, BOUNDARY, BOUNDARY + 17])


@pytest.fixture(autouse=True)
def _empty_memory() -> Iterator[None]:
    """Each of these takes a good part of the GPU."""
    torch.cuda.empty_cache()
    yield
    torch.cuda.empty_cache()


def needs(gigabytes: float) -> None:
    """Skip where the GPU is too small."""
    free, _ = torch.cuda.mem_get_info()
    if free < gigabytes * 2**30:
        pytest.skip(f"needs {gigabytes} GiB of free GPU memory")


def bytes_like(count: int, period: int = 251) -> Tensor:
    """count bytes that repeat with a prime period, so that a wrapped offset shows."""
    row = torch.arange(period, device="cuda", dtype=torch.uint8)
    return row.repeat(-(-count // period))[:count]


@SIDES
def test_copy(count: int) -> None:
    """flashinfer#3391: exactly 2**31 elements, and both sides of it."""
    needs(12)
    src = bytes_like(count + 3)
    for view in (src[:count], src[3:]):
        out = torch_memops.copy(view)
        assert torch.equal(out, view)
        out.zero_()
        torch_memops.copy_(out, view)
        assert torch.equal(out, view)
        del out


def test_casts_beyond_the_boundary() -> None:
    """More elements than 31 bits count, and few elements that lie far apart."""
    needs(24)
    rows, columns = 46_349, 46_351
    src = bytes_like(rows * columns)
    out = torch.zeros(len(src), dtype=torch.int16, device="cuda")
    torch_memops.copy_(out, src)
    assert (out == src).all()
    del out
    turned = torch.zeros(columns, rows, dtype=torch.bfloat16, device="cuda")
    torch_memops.copy_(turned, src.view(rows, columns).t())
    assert (turned.t() == src.view(rows, columns)).all()
    del turned, src
    line = bytes_like(5 * 2**31)
    view = line.as_strided((5, 7, 11), (2**31, 13, 1), 3)
    out = torch_memops.copy_(torch.zeros(5, 7, 11, device="cuda"), view)
    assert (out == view).all()
    torch_memops.copy_(view, torch.full((5, 7, 11), 9.75, device="cuda"))
    assert (view == 9).all()


def test_transpose_beyond_the_boundary() -> None:
    needs(16)
    rows, columns = 46_349, 46_351  # their product is just above 2**31
    src = bytes_like(rows * columns).view(rows, columns)
    out = torch_memops.copy(src.t())
    assert torch.equal(out, src.t())
    del out
    assert torch.equal(torch_memops.aos_to_soa(src), src.t())


def test_strides_beyond_the_boundary() -> None:
    """sglang#29602, vllm#40905: few elements, but index times stride passes 2**31."""
    needs(24)
    line = bytes_like(5 * 2**31)
    view = line.as_strided((5, 7, 11), (2**31, 13, 1), 3)
    expected = view.clone()
    assert torch.equal(torch_memops.copy(view), expected)
    torch_memops.copy_(view, expected + 1)
    assert torch.equal(view, expected + 1)
    assert torch.equal(torch_memops.aos_to_soa(view), (expected + 1).mT)
    index = torch.tensor([4, 0, 3, 4], device="cuda")
    assert torch.equal(torch_memops.gather_aos(view, index), (expected + 1)[index])
    wide = line.as_strided((5, 6), (1, 2**31 - 1))
    columns = torch.tensor([4, 0, 3], device="cuda")
    assert torch.equal(torch_memops.gather_soa(wide[:, :5], columns), wide[:, :5][:, columns])


def test_strided_arithmetic_beyond_the_boundary() -> None:
    """Operands whose rows lie 2**31 elements apart."""
    needs(40)
    line = torch.zeros(4 * 2**31 + 64, device="cuda", dtype=torch.float16)
    values = torch.randn(5, 16, device="cuda").half()
    apart = line.as_strided((5, 16), (2**31 + 8, 1))[:4]
    apart.copy_(values[:4])
    b = torch.randn(16, 9, device="cuda").half()
    weight, w = torch.randn(1, 1, 3, device="cuda").half(), torch.randn(4, 4, device="cuda").half()
    for program in (
        lambda t: torch_memops.matmul(t, b),
        lambda t: torch_memops.matmul(b.t(), t.t()),
        lambda t: torch_memops.linear(b.t(), t),
        lambda t: torch_memops.conv1d(t.unsqueeze(1), weight),
        lambda t: torch_memops.conv1d_constant(t, [1.0, 2.0, 3.0]),
        lambda t: torch_memops.causal_conv1d(t.unsqueeze(0), w)[0],
    ):
        torch.testing.assert_close(program(apart), program(apart.clone()))


def test_gather_of_wide_rows_with_int32_index() -> None:
    """pytorch#188467: index times row width is above 2**31, forward and backward."""
    needs(24)
    rows, width = 2**15 + 1, 2**16
    source = torch.zeros(rows, width, device="cuda", dtype=torch.float16)
    source[0], source[-1] = 3, 7
    source.requires_grad_()
    index = torch.tensor([0, 2**15], device="cuda", dtype=torch.int32)
    out = torch_memops.gather_aos(source, index)
    assert out[0].eq(3).all()
    assert out[1].eq(7).all()
    (grad,) = torch.autograd.grad(out, source, torch.ones_like(out))
    assert grad[0].eq(1).all()
    assert grad[-1].eq(1).all()
    assert grad.sum(dtype=torch.float64).item() == 2 * width


def test_gather_with_results_beyond_the_boundary() -> None:
    """pytorch#164049, onnxruntime#28107: more than 2**31 elements come out."""
    needs(24)
    source = bytes_like(1000 * 256).view(1000, 256)
    index = torch.arange(2**23 + 5, device="cuda") % 1000
    out = torch_memops.gather_aos(source, index)
    assert out.numel() > BOUNDARY
    for start in (0, 2**22, 2**23 - 3):
        rows = slice(start, start + 8)
        assert torch.equal(out[rows], source[index[rows]])
    assert torch.equal(out.view(-1)[: 10**6], source[index[:3907]].view(-1)[: 10**6])
    del out
    soa = source[:256, :250].contiguous()
    out = torch_memops.gather_soa(soa, index % 250)
    assert torch.equal(out[:, -1000:], soa[:, index[-1000:] % 250])


@pytest.mark.parametrize("rows", [65_535, 65_536, 70_001])
def test_many_rows(rows: int) -> None:
    """causal-conv1d#32: a grid has at most 65,535 blocks in y and z."""
    x = torch.randn(rows, 1, 33, device="cuda")
    taps = [0.5, -1.0, 2.0]
    weight = torch.tensor(taps, device="cuda").view(1, 1, 3)
    expected = torch.nn.functional.conv1d(x.double(), weight.double()).float()
    torch.testing.assert_close(torch_memops.conv1d(x, weight), expected)
    torch.testing.assert_close(torch_memops.conv1d_constant(x, taps), expected)
    batched = x[:, :, :32].reshape(rows, 8, 4)
    assert torch.equal(torch_memops.aos_to_soa(batched), batched.mT)
    right = torch.randn(rows, 4, 3, device="cuda")
    torch.testing.assert_close(
        torch_memops.matmul(batched, right), (batched.double() @ right.double()).float()
    )
    y, _ = torch_memops.causal_conv1d(x, torch.ones(1, 3, device="cuda"))
    padded = torch.nn.functional.pad(x.double(), (2, 0))
    torch.testing.assert_close(y.double(), padded.unfold(-1, 3, 1).sum(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("channels", [65_535, 65_536, 70_001])
def test_many_channels(channels: int) -> None:
    """causal-conv1d#32: depthwise, both layouts, forward, backward and a decode step."""
    for last in (False, True):
        x = torch.randn(2, channels, 9, device="cuda")
        if last:
            x = x.transpose(1, 2).contiguous().transpose(1, 2)
        x.requires_grad_()
        weight = torch.randn(channels, 4, device="cuda", requires_grad=True)
        y, _ = torch_memops.causal_conv1d(x, weight)
        line = torch.nn.functional.pad(x, (3, 0))
        expected = torch.nn.functional.conv1d(
            line.double(), weight.double()[:, None], groups=channels
        )
        torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)
        grad = torch.randn_like(y)
        ours = torch.autograd.grad(y, (x, weight), grad)
        theirs = torch.autograd.grad(expected, (x, weight), grad.double())
        for mine, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
    state = torch.zeros(2, channels, 3, device="cuda")
    with torch.no_grad():
        step = torch_memops.causal_conv1d_update(x[..., 0], state, weight)
        torch.testing.assert_close(step, x[..., 0] * weight[:, 3])


@pytest.mark.parametrize("size", [65_535 * 16 + 1, 65_536 * 64 + 3])
def test_tall_and_wide_products(size: int) -> None:
    """More row tiles, or column tiles, than a grid has blocks in y."""
    tall = torch.randn(size, 5, device="cuda")
    b = torch.randn(5, 3, device="cuda")
    expected = (tall.double() @ b.double()).float()
    torch.testing.assert_close(torch_memops.matmul(tall, b), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        torch_memops.matmul(b.t(), tall.t()), expected.t(), rtol=1e-5, atol=1e-5
    )


def test_product_beyond_the_boundary() -> None:
    """A result of more than 2**31 elements, checked at its corners and its middle."""
    needs(24)
    m, n = 46_400, 46_400
    a = torch.randn(m, 8, device="cuda").half()
    b = torch.randn(8, n, device="cuda").half()
    out = torch_memops.matmul(a, b)
    assert out.numel() > BOUNDARY
    for i in (0, m // 2, m - 40):
        for j in (0, n // 2, n - 40):
            block = a[i : i + 40].double() @ b[:, j : j + 40].double()
            torch.testing.assert_close(
                out[i : i + 40, j : j + 40].double(), block, rtol=1e-3, atol=2e-3
            )


@SIDES
def test_long_filter_input(count: int) -> None:
    """pytorch#152816, pytorch#80020: one row of more than 2**31 samples."""
    needs(24)
    x = torch.zeros(count, device="cuda", dtype=torch.float16)
    marks = [0, 1, count // 2, BOUNDARY - 10, count - 2, count - 1]
    for position in marks:
        x[position] = 1
    out = torch_memops.conv1d_constant(x, [1.0, 2.0, 4.0], 1)
    assert out.shape == x.shape
    for position in marks:
        low, high = max(position - 4, 0), min(position + 5, count)
        window = x[max(low - 1, 0) : high + 1].float().cpu()
        padded = torch.nn.functional.pad(window, (int(low == 0), int(high == count)))
        expected = padded.unfold(0, 3, 1) @ torch.tensor([1.0, 2.0, 4.0])
        assert torch.equal(out[low:high].float().cpu(), expected[: high - low])
    assert out.sum(dtype=torch.float64).item() <= 7 * len(marks)


def test_convolution_beyond_the_boundary() -> None:
    """flash-fft-conv#27, pytorch#152816: B x C x L above 2**31, depthwise, checked at the end."""
    needs(40)
    batch, channels, length = 3, 1024, 2**20 // 3 * 2 + 5
    assert batch * channels * length > BOUNDARY
    x = torch.zeros(batch, channels, length, device="cuda", dtype=torch.float16)
    x[-1, -1, -8:] = torch.arange(1, 9, device="cuda", dtype=torch.float16)
    x[-1, 0, :4] = 1
    weight = torch.ones(channels, 1, 3, device="cuda", dtype=torch.float16)
    y = torch_memops.conv1d(x, weight, padding=1, groups=channels)
    assert y[-1, -1, -8:].tolist() == [3, 6, 9, 12, 15, 18, 21, 15]
    assert y[-1, 0, :5].tolist() == [2, 3, 3, 2, 1]
    assert y.count_nonzero().item() == 9 + 5
    del y
    out, _ = torch_memops.causal_conv1d(x, weight[:, 0])
    assert out[-1, -1, -8:].tolist() == [1, 3, 6, 9, 12, 15, 18, 21]


def test_scratch_stays_small() -> None:
    """Scratch of a call is at most 256 MB, backward too."""
    needs(24)
    limit = 256 * 2**20
    x = torch.randn(8, 256, 100_000, device="cuda", requires_grad=True)
    weight = torch.randn(256, 1, 4, device="cuda", requires_grad=True)
    a, b = (torch.randn(8192, 8192, device="cuda", requires_grad=True) for _ in range(2))
    source = torch.randn(10**6, 64, device="cuda", requires_grad=True)
    index = torch.randint(10**6, (4 * 10**6,), device="cuda")
    for program, leaves in (
        (lambda: torch_memops.conv1d(x, weight, groups=256), (x, weight)),
        (lambda: torch_memops.matmul(a, b), (a, b)),
        (lambda: torch_memops.gather_aos(source, index), (source,)),
    ):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        out = program()
        assert torch.cuda.max_memory_allocated() - before <= out.nbytes + limit
        grad = torch.ones_like(out)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        grads = torch.autograd.grad(out, leaves, grad)
        held = sum(g.nbytes for g in grads)
        assert torch.cuda.max_memory_allocated() - before <= held + limit
        del out, grad, grads
