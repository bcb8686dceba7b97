"""The benchmark suite: every case can be built and is right, and the runner keeps its promises."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from benchmarks import cases, environment, report, runner, timing
from benchmarks.measure import Bench, Options
from benchmarks.results import RESULTS, Move, Results, ResultsError, compare, judge
from benchmarks.timing import CudaClock, summarize
from benchmarks.workload import (
    PEER_GROUPS,
    Case,
    Check,
    Problem,
    Workload,
    eager,
    first,
    parse_sizes,
    shrink,
)

IDS = [case.id for case in cases.load_cases()]
CASES = {case.id: case for case in cases.load_cases()}
SMALL = 2**11  # elements of a case's largest tensor
TOLERANCE = {"bf16": 1e-2, "f16": 2e-3, "f32": 2e-6, "f64": 1e-13}
# the keys of a row that every reader may rely on
ROW_KEYS = {
    "id", "ms", "spread", "peers", "warm_ms", "cpu_us", "copy_ms", "read_ms", "bytes", "flops",
    "error", "peer_error",
}  # fmt: skip
ENVIRONMENT_KEYS = {"gpu", "driver", "torch", "cuda", "commit", "date"}


def uncompiled(function: Callable[..., Any], **_: Any) -> Callable[..., Any]:
    """Stands for torch.compile where only the peer's arithmetic is in question."""
    return function


def bench(*args: str) -> Result:
    return CliRunner().invoke(runner.bench, list(args))


# --- the cases ---


def test_ids_are_unique_and_every_suite_has_cases() -> None:
    assert len(IDS) == len(set(IDS))
    assert {cases.suite_of(case_id) for case_id in IDS} == set(cases.SUITES)
    assert sum(len(cases.of_suite(suite)) for suite in cases.SUITES) == len(IDS)


@pytest.mark.parametrize("op", ["matmul", "linear", "copy", "copy_", "aos_to_soa", "soa_to_aos", "gather_aos", "gather_soa", "embedding", "conv1d", "conv1d_constant", "causal_conv1d", "causal_conv1d_update"])  # fmt: skip
def test_every_op_has_a_case_for_its_cpu_time(op: str) -> None:
    assert any(case_id.startswith(f"{op}/overhead/") for case_id in IDS)


@pytest.mark.parametrize("case_id", IDS)
def test_full_size_moves_and_computes_what_the_row_says(case_id: str) -> None:
    case = CASES[case_id]
    problem = cases.build(case)
    assert (problem.bytes, problem.flops) == (case.bytes, case.flops)


def test_only_rows_with_published_figures_have_goals() -> None:
    for case in cases.load_cases():
        assert bool(case.goal) == bool(case.published_h200), case.id
        assert set(case.goal) <= {"vs_peer", "vs_copy", "vs_read"}
        for name in ("copy", "read"):
            if f"vs_{name}" in case.goal:
                assert f"{name}_ms" in case.published_h200, case.id


@pytest.mark.parametrize("case_id", IDS)
def test_case_agrees_with_its_reference(case_id: str) -> None:
    """Ours and every installed peer, at a reduced size, on the CPU."""
    case = CASES[case_id]
    problem = cases.build(case, SMALL)
    with problem.settings.applied():
        work = problem.make(torch.device("cpu"))
        expected = work.check.reference()
        assert all(part.numel() > 0 and part.isfinite().all() for part in expected)
        out = work.ours()
        errors = {"ours": work.check.error(out, expected)}
        for peer in work.peers:
            assert peer.group in PEER_GROUPS
            if peer.installed:
                errors[peer.name] = work.check.error(peer.prepare(uncompiled)(), expected)
    names = {"torch.float16": "f16", "torch.bfloat16": "bf16", "torch.float64": "f64"}
    bound = 0.0 if work.check.exact else TOLERANCE[names.get(str(first(out).dtype), "f32")]
    assert max(errors.values()) <= bound, errors


@pytest.mark.parametrize("case_id", IDS)
def test_published_peers_have_the_names_of_ours(case_id: str) -> None:
    work = cases.build(CASES[case_id], SMALL).make(torch.device("cpu"))
    names = [peer.name for peer in work.peers]
    assert len(names) == len(set(names))
    assert set(CASES[case_id].published_h200.get("peers", {})) <= set(names)


def test_inputs_depend_on_the_id_alone() -> None:
    problem = cases.build(CASES["copy/transpose/f32/8192x8192"], SMALL)
    one, other = (first(problem.make(torch.device("cpu")).ours()) for _ in range(2))
    assert torch.equal(one, other)
    assert one.std() > 0.9


def test_settings_are_restored() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    settings = cases.build(CASES["matmul/f32/tf32/512"]).settings
    with settings.applied():
        assert torch.get_float32_matmul_precision() == "high"
    settings = cases.build(CASES["gather/aos/backward-deterministic/f32/4"]).settings
    with settings.applied():
        assert torch.are_deterministic_algorithms_enabled()
    assert not torch.are_deterministic_algorithms_enabled()
    assert before == (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32)


def test_unknown_id_has_no_builder() -> None:
    with pytest.raises(KeyError, match="no builder"):
        cases.build(Case("sort/f32/2^20", "x"))


@pytest.mark.parametrize(
    ("sizes", "limit", "expected"),
    [([4096, 4096], 2**12, [64, 64]), ([4095], 100, [63]), ([3, 1], 2, [1, 1]), ([7], None, [7])],
)
def test_shrink_halves_the_largest_and_keeps_odd_sizes_odd(
    sizes: list[int], limit: int | None, expected: list[int]
) -> None:
    assert shrink(sizes, limit) == expected


def test_sizes_are_read_as_written() -> None:
    assert parse_sizes("2^26+1x4") == [2**26 + 1, 4]
    with pytest.raises(ValueError, match="not a size"):
        parse_sizes("4k")


# --- timing ---


def test_summary_is_median_and_interquartile_range() -> None:
    summary = summarize([5.0, 1.0, 3.0, 2.0, 4.0])
    assert summary.median == 3.0
    assert summary.spread == pytest.approx(2.0 / 3.0)
    assert summarize([2.0]).spread == 0.0
    with pytest.raises(ValueError, match="no samples"):
        summarize([])


class FakeEvent:
    """Stands for torch.cuda.Event: reads the host clock."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, other: FakeEvent) -> float:
        return (other.at - self.at) * 1e3


@pytest.fixture
def cuda_clock(monkeypatch: pytest.MonkeyPatch) -> CudaClock:
    """The GPU's clock on the CPU, with a flush of 4 MB."""
    monkeypatch.setattr(timing, "FLUSH_BYTES", 2**22)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return CudaClock(torch.device("cpu"))


def test_gpu_rounds_are_interleaved_and_flushed(
    cuda_clock: CudaClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    flush = cuda_clock.flush

    def logged(reads: int = 1) -> None:
        log.append("flush")
        flush(reads)

    monkeypatch.setattr(cuda_clock, "flush", logged)

    def call(name: str, seconds: float) -> Callable[[], torch.Tensor]:
        def run() -> torch.Tensor:
            log.append(name)
            time.sleep(seconds)
            return torch.empty(0)

        return run

    calls = {"a": call("a", 0.002), "b": call("b", 0.02)}
    estimates = {name: cuda_clock.estimate(c) for name, c in calls.items()}
    log.clear()
    samples = cuda_clock.rounds(calls, estimates, seconds=0.0)
    assert log == ["flush", "a", "flush", "b", "flush", "b", "flush", "a", "flush", "a", "flush", "b"]  # fmt: skip
    assert [len(values) for values in samples.values()] == [timing.LEAST_ROUNDS] * 2
    assert 1.9 < summarize(samples["a"]).median < summarize(samples["b"]).median
    assert cuda_clock.warm(calls["a"], estimates["a"]) > 1.9
    assert summarize(cuda_clock.host(calls, estimates, rounds=3)["b"]).median > 19e3


def test_flush_reads_and_never_writes(cuda_clock: CudaClock) -> None:
    version = cuda_clock._buffer._version
    cuda_clock.flush(3)
    assert cuda_clock._buffer._version == version
    assert float(cuda_clock._sum) == cuda_clock._buffer.numel()


PROBES = """
import functools, operator, torch
from benchmarks.probes import read_call, rows_call
def xor(t):
    words = t.contiguous().view(torch.int32).flatten().tolist()
    return functools.reduce(operator.xor, words)
weights = torch.randn(30, 333)
assert xor(read_call(weights.t())()) == xor(weights)
index = torch.randint(0, 50, (150,))
for table in (torch.randn(50, 3), torch.randn(50, 16), torch.randn(50, 300).bfloat16()):
    assert xor(rows_call(table, index)()) == xor(table[index])
table = torch.randn(4, 50)
assert xor(rows_call(table, index, 4)()) == xor(table[:, index])
"""


def test_reading_kernels_read_everything_once() -> None:
    """Triton's interpreter: the exclusive or of all words read is that of the words named."""
    pytest.importorskip("triton", reason="this PyTorch comes without Triton")
    run = subprocess.run(
        [sys.executable, "-c", PROBES],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr


# --- goals and comparisons ---


def row(case_id: str = "x", ms: float = 1.0, **more: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": case_id, "ms": ms, "spread": 0.02, "peers": {"eager": 2.0}, "warm_ms": ms,
        "cpu_us": 9.0, "copy_ms": 0.5, "read_ms": None, "probe_ms": None, "bytes": 4096,
        "flops": None, "rounds": 5, "floor_ms": 0.5, "error": 0.0, "peer_error": 0.0,
        "ratios": {"vs_peer": [2.0, 0.02], "vs_copy": [0.5, 0.02]},
    }  # fmt: skip
    return base | more


def results(*rows: dict[str, Any], gpu: str | None = "NVIDIA H200") -> Results:
    about = {"gpu": gpu, "driver": "580", "torch": "2.11.0", "cuda": "13.0", "commit": "abc1234"}
    return Results({**about, "date": "2026-01-01"}, list(rows), [])


@pytest.mark.parametrize(
    ("median", "spread", "ran", "verdict"),
    [
        (1.10, 0.02, ["eager", "compile"], True),
        (1.03, 0.02, ["eager", "compile"], False),
        (1.04, 0.04, ["eager", "compile"], True),  # within the spread
        (1.10, 0.02, ["eager"], None),  # the fastest published peer did not run
        (0.90, 0.02, ["eager"], False),  # already slower than a slow one
    ],
)
def test_goal_is_judged_within_the_spread_and_against_the_fastest_peer(
    median: float, spread: float, ran: list[str], verdict: bool | None
) -> None:
    published = {"peers": {"eager": 2.0, "compile": 1.0}}
    case = Case("x", "", goal={"vs_peer": 1.05, "vs_read": 0.9}, published_h200=published)
    measured = row(peers=dict.fromkeys(ran, 1.0), ratios={"vs_peer": [median, spread]})
    assert judge(case, measured) == {"vs_peer": verdict, "vs_read": None}


def test_comparison_names_what_moved_beyond_the_spread() -> None:
    old = results(row("same"), row("slower"), row("faster"), row("machine"), row("gone"))
    new = results(
        row("same", 1.019),
        row("slower", 1.2),
        row("faster", 0.8),
        row("machine", 1.2, copy_ms=0.6),
        row("new"),
        {"id": "failed", "failed": "RuntimeError: no"},
    )
    names = ["same", "slower", "faster", "machine", "gone", "new", "failed"]
    moves = compare(old, new, names)
    assert {move.id: move.verdict for move in moves} == {name: name for name in names}
    assert [m.id for m in compare(old, new, ["slower"])] == ["slower"]


def test_a_cpu_run_is_not_compared_with_a_gpus() -> None:
    assert compare(results(row()), results(row(), gpu=None), ["x"]) == [Move("x", "other device")]
    assert compare(results(row(), gpu=None), results(row(), gpu=None), ["x"])[0].verdict == "same"


def test_comparison_uses_a_common_peer_where_nothing_was_copied() -> None:
    old, new = row(copy_ms=None), row(ms=1.5, copy_ms=None, peers={"eager": 3.0})
    assert compare(results(old), results(new), ["x"]) == [
        Move("x", "machine", 1.0, 1.5, 1.5, 1.0, 0.02)
    ]


def test_a_file_that_is_no_results_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text("[]")
    with pytest.raises(ResultsError, match=r"old\.json is not a results file"):
        Results.read(path)


# --- measuring ---


def problem(ours: Callable[[], torch.Tensor], theirs: Callable[..., torch.Tensor]) -> Problem:
    check = Check(lambda out: [first(out)], lambda: [torch.ones(4)], "the whole result")
    return Problem(32, None, lambda device: Workload(ours, [eager("eager", theirs)], check))


def measured(ours: Callable[[], torch.Tensor], theirs: Callable[..., torch.Tensor]) -> Any:
    options = Options(seconds=0.0, peers=frozenset({"eager"}))
    return Bench.on(torch.device("cpu")).measure(Case("x", ""), problem(ours, theirs), options)


def test_wrong_result_is_not_timed() -> None:
    out = measured(lambda: torch.zeros(4), lambda: torch.ones(4))
    assert set(out) == {"id", "failed"}
    assert out["failed"].startswith("WrongResult: error 1.0 on the whole result")
    out = measured(lambda: torch.full((4,), math.nan), lambda: torch.ones(4))
    assert out["failed"].startswith("WrongResult: error nan")
    assert "shapes" in measured(lambda: torch.ones(5), lambda: torch.ones(4))["failed"]


def test_failing_peer_is_left_out_with_its_reason() -> None:
    def broken() -> torch.Tensor:
        raise NotImplementedError("no kernel\nfor this")

    out = measured(lambda: torch.ones(4), broken)
    assert out["peers"] == {}
    assert out["peer_error"] is None
    assert out["peers_left_out"] == {"eager": "NotImplementedError: no kernel"}
    assert out["ms"] > 0
    assert "vs_peer" not in out["ratios"]


def test_peer_that_computes_something_else_is_left_out() -> None:
    small = problem(lambda: torch.ones(4), lambda: torch.ones(4))
    work = small.make(torch.device("cpu"))
    work.peers.append(eager("other", lambda: torch.zeros(4)))
    options = Options(seconds=0.0, peers=frozenset({"eager"}))
    other = Problem(32, None, lambda device: work)
    out = Bench.on(torch.device("cpu")).measure(Case("x", ""), other, options)
    assert list(out["peers"]) == ["eager"]
    assert out["peers_left_out"]["other"].startswith("WrongResult")


def test_failing_case_is_a_row_that_says_why() -> None:
    def broken() -> torch.Tensor:
        raise RuntimeError("cannot")

    assert measured(broken, lambda: torch.ones(4)) == {"id": "x", "failed": "RuntimeError: cannot"}


@pytest.mark.slow
def test_compiled_peers_compile() -> None:
    """Forward and derived backward through torch.compile itself."""
    for case_id in ("conv1d/constant/f32/2^26/K3", "conv1d/backward/f32/2^24/K17"):
        small = cases.build(CASES[case_id], SMALL)
        options = Options(seconds=0.0, peers=frozenset({"eager", "compile"}))
        out = Bench.on(torch.device("cpu")).measure(CASES[case_id], small, options)
        assert "failed" not in out, out
        assert "compile shift-add" in out["peers"], out.get("peers_left_out")


# --- the command ---


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["sort"], "unknown: sort; known: copy, gather, conv1d, matmul"),
        (["copy", "--filter", "matmul"], "no case of copy matches 'matmul'"),
        (["--filter", "("], "not a regular expression"),
        (["--peers", "eager,xla"], "unknown: xla; known: eager"),
        (["--out", "both.json", "--list", "--device", "tpu"], "'tpu' is not one of"),
        (["copy", "gather", "--out", "both.json"], "takes a folder"),
    ],
)
def test_bad_arguments_are_named(args: list[str], words: str) -> None:
    result = bench(*args)
    assert result.exit_code == 2
    assert words in re.sub(r"\s+", " ", result.output)


def test_cuda_is_refused_where_there_is_none() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    result = bench("copy", "--device", "cuda")
    assert result.exit_code == 2
    assert "memops doctor" in result.output


def test_list_prints_the_ids_that_would_run() -> None:
    result = bench("matmul", "--list", "--filter", "^linear/")
    assert result.exit_code == 0
    listed = result.output.split()
    assert listed == [case_id for case_id in IDS if case_id.startswith("linear/")]


RUN = ("copy", "--device", "cpu", "--quick", "--filter", "^(copy/cast|copy_/overhead)")


def test_a_run_writes_the_documented_format_and_compares(tmp_path: Path) -> None:
    path = tmp_path / "copy.json"
    result = bench(*RUN, "--out", str(path), "--commit", "abc1234")
    assert result.exit_code == 0, result.output
    assert environment.CPU_NOTE in result.output
    content = json.loads(path.read_text())
    about = content["environment"]
    assert set(about) >= ENVIRONMENT_KEYS
    assert about["gpu"] is None
    assert about["note"] == environment.CPU_NOTE
    assert about["commit"] == "abc1234"
    assert content["left_out"] == []
    cast, overhead = content["cases"]
    assert set(cast) >= ROW_KEYS
    assert set(overhead) >= ROW_KEYS
    assert cast["peers"]["eager"] > 0
    assert cast["copy_ms"] > 0
    assert 0 < cast["error"] < 1e-2
    assert cast["peers_left_out"] == {"compile": "not asked for"}
    assert overhead["cpu_us"] == pytest.approx(1e3 * overhead["ms"])
    again = bench(*RUN, "--out", str(tmp_path), "--compare", str(path))
    assert again.exit_code == 0, again.output
    assert "moved beyond the spread" in again.output
    assert (tmp_path / "copy-partial.json").exists()


def test_comparing_with_something_else_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("{}")
    result = bench(*RUN, "--compare", str(tmp_path / "old.json"))
    assert result.exit_code == 2
    assert "is not a results file" in result.output
    assert "holds no results" in bench(*RUN, "--compare", str(tmp_path)).output


def test_no_time_leaves_everything_out_and_says_so(tmp_path: Path) -> None:
    result = bench(*RUN, "--out", str(tmp_path), "--time-budget", "0")
    assert result.exit_code == 0
    assert "left out: copy/cast/f32-bf16/2^26, copy_/overhead/32x32" in result.output
    assert not list(tmp_path.iterdir())


def test_a_killed_run_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def measure(self: Bench, case: Case, problem: Problem, options: Options) -> dict[str, Any]:
        calls.append(case.id)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return row(case.id)

    monkeypatch.setattr(Bench, "measure", measure)
    assert bench(*RUN, "--out", str(tmp_path)).exit_code != 0
    [path] = tmp_path.iterdir()
    kept = Results.read(path)
    assert [r["id"] for r in kept.cases] == calls[:1]
    assert kept.left_out == calls[1:]


def test_a_failed_case_fails_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "measure", lambda self, case, *_: {"id": case.id, "failed": "E: x"})
    result = bench(*RUN, "--out", str(tmp_path))
    assert result.exit_code == 1
    assert "failed: copy/cast/f32-bf16/2^26: E: x" in result.output


# --- the report ---


@pytest.fixture
def readme(tmp_path: Path) -> Path:
    path = tmp_path / "README.md"
    path.write_text(f"# title\n\n{report.BEGIN}\nold\n{report.END}\nrest\n")
    return path


def test_report_says_that_there_are_no_results(readme: Path, tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    report.update(readme, tmp_path / "results")
    assert (
        readme.read_text() == f"# title\n\n{report.BEGIN}\n{report.NOTHING}\n{report.END}\nrest\n"
    )


def test_report_shows_results_and_names_missing_suites(readme: Path, tmp_path: Path) -> None:
    root = tmp_path / "results"
    headline = next(c.id for c in cases.of_suite("copy") if c.headline)
    found = results(row(headline), row("copy/strided/f32/2"), {"id": "y", "failed": "E: x"})
    found.write(root / "h200" / "copy.json")
    results(row(headline), gpu=None).write(root / "cpu" / "copy.json")
    written = report.update(readme, root)
    assert {path.name for path in written} == {"copy.svg", "README.md"}
    text = readme.read_text()
    assert text.startswith("# title")
    assert text.endswith("rest\n")
    assert "### NVIDIA H200" in text
    assert f"| `{headline}` | 1 |" in text
    assert "| gather | no results yet |" in text
    assert "strided" not in text
    assert "results/h200/README.md" in text
    page = (root / "h200" / "README.md").read_text()
    assert "copy/strided/f32/2" in page
    assert "- y: E: x" in page
    first_plot = (root / "h200" / "copy.svg").read_bytes()
    report.update(readme, root)
    assert readme.read_text() == text
    assert (root / "h200" / "copy.svg").read_bytes() == first_plot


def test_report_wants_its_markers(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("nothing here")
    with pytest.raises(report.MarkersMissing, match="benchmarks:begin"):
        report.update(path, tmp_path)
    assert path.read_text() == "nothing here"


def test_committed_results_are_what_the_readme_shows() -> None:
    found = report.collect(RESULTS)
    for suites in found.values():
        for suite, content in suites.items():
            assert {r["id"] for r in content.cases} <= {c.id for c in cases.of_suite(suite)}
            assert set(content.environment) >= ENVIRONMENT_KEYS
    block = report.readme_block(found, report.README.parent)
    assert f"{report.BEGIN}\n{block}\n{report.END}" in report.README.read_text()


# --- on a GPU ---


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("case_id", "floor"),
    [
        ("copy/contiguous/f32/2^20", "copy_ms"),
        ("matmul/bf16/nt/16x4096x4096", "read_ms"),
        ("gather/aos/bf16/64/random", "probe_ms"),
        ("matmul/overhead/64x64", None),
    ],
)
def test_case_on_the_gpu(case_id: str, floor: str | None) -> None:
    gpu = Bench.on(torch.device("cuda"))
    options = Options(seconds=0.05, peers=frozenset({"eager"}))
    out = gpu.measure(CASES[case_id], cases.build(CASES[case_id]), options)
    assert "failed" not in out, out
    assert out["ms"] > 0
    assert out["cpu_us"] > 0
    if floor is not None:
        assert out[floor] > 0, gpu.notes
        assert out["floor_ms"] > 0
