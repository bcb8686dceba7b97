"""aos_to_soa and soa_to_aos: the last two dimensions change places in memory."""

import pytest
import torch
from support.devices import FLOATS, allocatable_dtypes, name
from support.samples import AOS_TO_SOA, SOA_TO_AOS, Case, Op
from support.tensors import (
    GuardedView,
    Make,
    assert_same_bits,
    leave_nan_behind,
    random_bits,
    strides_for,
    to_bytes,
)

import torch_memops


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", FLOATS, ids=name)
@pytest.mark.parametrize("case", AOS_TO_SOA.cases, ids=lambda case: case.name)
@pytest.mark.parametrize("op", [AOS_TO_SOA, SOA_TO_AOS], ids=lambda op: op.name)
def test_samples(op: Op, case: Case, device: str, dtype: torch.dtype) -> None:
    (values,), _ = case.make(Make(device, dtype))
    leave_nan_behind(device, values.mT.shape, dtype=dtype)
    out = op.call(values)
    assert_same_bits(out, values.mT)
    assert out.stride() == torch.empty(out.shape).stride()


def test_image_to_planes(device: str) -> None:
    """vision#676, stn.pytorch#7: HWC to CHW moves the values, it is no view."""
    image = torch.arange(105, dtype=torch.uint8, device=device).view(5, 7, 3)
    planes = torch_memops.aos_to_soa(image.view(35, 3))
    assert planes.shape == (3, 35)
    assert planes.is_contiguous()
    assert planes[1, :4].tolist() == [1, 4, 7, 10]
    assert torch.equal(torch_memops.soa_to_aos(planes).view(5, 7, 3), image)
    planes.zero_()
    assert image[0, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 257])
@pytest.mark.parametrize("fields", [1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 59])
def test_round_trip(device: str, fields: int, count: int) -> None:
    for dtype in (torch.uint8, torch.float16, torch.float32, torch.float64, torch.complex128):
        values = random_bits((2, count, fields), dtype).to(device)
        soa = torch_memops.aos_to_soa(values)
        assert soa.shape == (2, fields, count)
        assert_same_bits(soa, values.mT)
        assert_same_bits(torch_memops.soa_to_aos(soa), values)


@pytest.mark.parametrize("dtype", allocatable_dtypes(), ids=name)
@pytest.mark.parametrize("layout", ["contiguous", "transposed", "strided", "offset"])
def test_every_dtype_by_its_width(device: str, layout: str, dtype: torch.dtype) -> None:
    """pytorch#169656, pytorch#180855."""
    values = random_bits((2, 35, 5), dtype)
    src = GuardedView(values, *strides_for((2, 35, 5), layout), device=device)
    swapped = to_bytes(values).transpose(1, 2)
    for op in (torch_memops.aos_to_soa, torch_memops.soa_to_aos):
        out = op(src.view)
        assert out.dtype == dtype
        assert torch.equal(to_bytes(out), swapped)
    src.assert_untouched()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 0, 5), (0, 4, 5)])
def test_empty(device: str, shape: tuple[int, ...]) -> None:
    values = torch.empty(shape, device=device, requires_grad=True)
    for op in (torch_memops.aos_to_soa, torch_memops.soa_to_aos):
        out = op(values)
        assert out.shape == values.mT.shape
        (grad,) = torch.autograd.grad(out.sum(), values)
        assert grad.shape == values.shape


def test_expanded_and_conjugate(device: str) -> None:
    z = Make(device, torch.complex64).tensor(4, 3)
    assert torch.equal(torch_memops.aos_to_soa(z.conj()), z.conj().t().resolve_conj())
    assert torch.equal(torch_memops.soa_to_aos(z[:1].expand(4, 3)), z[:1].expand(4, 3).t())
