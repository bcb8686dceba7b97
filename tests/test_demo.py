"""`memops demo`: it runs, covers every op, writes a page that needs no network, and fails aloud."""

import dataclasses
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import scipy.ndimage
import torch
from click.testing import CliRunner, Result
from torch import Tensor

import torch_memops
from memops_cli import main
from torch_memops.demo import command, measure, photograph, report, training

OPS = {
    "copy_", "aos_to_soa", "conv1d_constant", "copy (transpose)", "soa_to_aos", "gather_aos",
    "gather_soa", "embedding", "matmul", "linear", "conv1d", "causal_conv1d",
    "causal_conv1d_update",
}  # fmt: skip
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The pictures are small, and the tests run beside others on the same cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run_demo(out: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["demo", "--quick", "--out", str(out), *options])


def check_report(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    sources = re.findall(r'\b(?:src|href)="([^"]*)"', page)
    assert len(sources) >= 10
    assert all(source.startswith("data:image/png;base64,iVBOR") for source in sources)
    text = re.sub(r'"data:[^"]*"', "", page)
    assert "http" not in text
    assert "@import" not in text
    for op in OPS:
        assert f'<td class="op">{op}</td>' in text


@pytest.mark.slow
def test_quick_run(tmp_path: Path) -> None:
    result = run_demo(tmp_path / "new" / "folder", "--device", "cpu")
    assert result.exit_code == 0, result.output
    for op in OPS:
        assert re.search(rf"│ {re.escape(op)} +│", result.output), op
    for words in ("scipy.ndimage", "GB/s", "GFLOP/s", "Training: test accuracy", "A GPU is needed"):
        assert words in result.output
    check_report(tmp_path / "new" / "folder" / "report.html")


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.parametrize("options", [("--quick",), ()], ids=["quick", "full"])
def test_on_a_gpu(options: tuple[str, ...], tmp_path: Path) -> None:
    result = CliRunner().invoke(
        main, ["demo", "--out", str(tmp_path), "--device", "cuda", *options]
    )
    assert result.exit_code == 0, result.output
    assert torch.cuda.get_device_name(0) in result.output
    assert "bf16" in result.output
    check_report(tmp_path / "report.html")


@pytest.mark.slow
def test_every_mismatch_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch_memops.aos_to_soa

    def one_wrong_element(aos: Tensor) -> Tensor:
        soa = right(aos)
        soa[2, -1] += 1e-3
        return soa

    def missing(*args: Any, **kwargs: object) -> Tensor:
        raise NotImplementedError("conv1d_constant: nowhere to be found\nsecond line")

    def slightly_off(a: Tensor, b: Tensor) -> Tensor:
        return torch.matmul(a, b) * (1 + 1e-3)

    def linear_of_zero(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return torch.nn.functional.linear(input * 0, weight, bias)

    monkeypatch.setattr(torch_memops, "aos_to_soa", one_wrong_element)
    monkeypatch.setattr(torch_memops, "conv1d_constant", missing)
    monkeypatch.setattr(torch_memops, "matmul", slightly_off)
    monkeypatch.setattr(torch_memops, "linear", linear_of_zero)
    result = run_demo(tmp_path, "--device", "cpu")
    assert result.exit_code == 1, result.output
    text = " ".join(result.output.split())
    for words in (
        "aos_to_soa (f32 [19200, 3]) against PyTorch: error",
        "against PyTorch: NotImplementedError: conv1d_constant: nowhere to be found",
        "against scipy.ndimage: conv1d_constant failed before",
        "matmul (f32 [19200, 3], f32 [3, 3]) against PyTorch: error",
        "linear (f32 [300, 192], f32 [256, 192]) against PyTorch: error",
        "training: accuracy",
    ):
        assert words in text
    assert "second line" not in text
    assert "Every result agrees" not in text
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'class="verdict failed"' in page
    assert "nowhere to be found" in page


def test_layers_that_raise_fail_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(torch_memops.nn.Linear, "forward", refuse)
    monkeypatch.setattr(photograph.Photograph, "parts", lambda self: iter(()))
    result = run_demo(tmp_path, "--device", "cpu")
    assert result.exit_code == 1, result.output
    assert "training with torch_memops.nn: RuntimeError: no such kernel" in result.output


def test_device_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_memops, "cuda_available", lambda: False)
    result = run_demo(tmp_path, "--device", "cuda")
    assert result.exit_code == 2
    assert "memops doctor" in result.output


def test_output_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    result = run_demo(tmp_path / "file")
    assert result.exit_code == 2
    assert "is a file" in result.output


@pytest.mark.parametrize(("sigma", "truncate"), [(4.0, 3.0), (1.0, 4.0), (0.7, 2.5)])
def test_gaussian_taps_are_scipys(sigma: float, truncate: float) -> None:
    taps = photograph.gaussian(sigma, truncate)
    impulse = torch.zeros(2 * len(taps) + 1, dtype=torch.float64)
    impulse[len(taps)] = 1
    response = scipy.ndimage.gaussian_filter1d(impulse.numpy(), sigma, truncate=truncate)
    nonzero = torch.from_numpy(response).count_nonzero()
    assert nonzero == len(taps)
    half = len(taps) // 2
    middle = torch.from_numpy(response)[len(taps) - half : len(taps) + half + 1]
    torch.testing.assert_close(torch.tensor(taps, dtype=torch.float64), middle)


def test_photograph_and_mosaic() -> None:
    photo = photograph.load_photograph(1, None)
    assert photo.shape == (427, 640, 3)
    assert photo.dtype == torch.uint8
    mosaic = photograph.load_photograph(3, (20, 30))
    assert mosaic.shape == (60, 90, 3)
    assert torch.equal(mosaic[:20, :30], photo[:20, :30])
    assert torch.equal(mosaic[20:40, 30:60], photo[:20, :30].flip(0, 1))


def test_relative_error() -> None:
    a = torch.tensor([3.0, 4.0])
    assert measure.relative_error(a, a) == 0
    assert measure.relative_error(a, torch.zeros(2)) == math.inf
    assert measure.relative_error(a + torch.tensor([0.0, 5.0]), a) == pytest.approx(1)
    assert math.isnan(measure.relative_error(torch.tensor([math.nan, 4.0]), a))


@pytest.mark.parametrize(
    ("result", "terms", "words"),
    [
        (torch.ones(3), 0, None),
        (torch.ones(3) * (1 + 2**-23), 0, "error"),
        (torch.ones(3) * (1 + 2**-23), 1, None),
        (torch.ones(3) * 1.001, 100, "error"),
        (torch.tensor([1.0, 1.0, math.nan]), 100, "error nan"),
        (torch.tensor([1.0, 1.0, math.inf]), 100, "error"),
        (torch.ones(4), 0, "[4]"),
        (torch.ones(3, dtype=torch.float64), 0, "torch.float64"),
        ((torch.ones(3), torch.ones(3)), 0, "2 results"),
    ],
)
def test_judge(result: measure.Results, terms: int, words: str | None) -> None:
    _, _, failure = measure.judge(result, torch.ones(3), terms)
    if words is None:
        assert failure is None
    else:
        assert words in (failure or "")


def test_floor() -> None:
    floor = measure.Floor(copy_rate=1e9, matmul_rate={torch.float32: 1e12})
    assert floor.limit_ms(2_000_000, 0, torch.float32) == (2.0, False)
    assert floor.limit_ms(2_000_000, 10**10, torch.float32) == (10.0, True)


def test_rates_have_units() -> None:
    assert report.with_prefix(4.2e12, "B/s") == "4.20 TB/s"
    assert report.with_prefix(1.5e9, "FLOP/s") == "1.50 GFLOP/s"
    assert report.with_prefix(2e7, "B/s") == "0.02 GB/s"


def test_precision_switches_are_restored() -> None:
    def read() -> list[str]:
        backends = torch.backends
        return [backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision]  # type: ignore[attr-defined]

    before = read()
    with command.full_precision():
        assert read() == ["ieee", "ieee"]
        assert torch.backends.cudnn.allow_tf32 is False
    assert read() == before


def test_training_is_repeatable_and_compared() -> None:
    seen: list[float] = []
    first = training.train(torch.nn, CPU, 1, seen.append)
    second = training.train(torch_memops.nn, CPU, 1, seen.append)
    assert seen == first.losses + second.losses
    assert training.disagreement(second, first) is None
    worse = dataclasses.replace(first, accuracy=first.accuracy - 0.2)
    assert "accuracy" in (training.disagreement(worse, first) or "")
    other = dataclasses.replace(first, losses=[first.losses[0] * 1.1])
    assert "first epoch" in (training.disagreement(other, first) or "")
    broken = dataclasses.replace(first, losses=[math.nan])
    assert "first epoch" in (training.disagreement(broken, first) or "")
