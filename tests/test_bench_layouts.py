"""The sweep of generated layouts: ids describe them, they cover what they should, and are right."""

from __future__ import annotations

import math
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from benchmarks import cases, layouts, report, runner, sweep
from benchmarks.floors import Copier
from benchmarks.layouts import Layout
from benchmarks.measure import Bench, Options
from benchmarks.results import Results, judge
from benchmarks.workload import Case, Check, Data, Problem, Workload, eager, first

CASES = cases.of_suite("layouts")
LAYOUTS = {case.id: Layout.parse(case.id) for case in CASES}
WITH_GOAL = [LAYOUTS[case.id] for case in CASES if "vs_copy" in case.goal]
COMPILED = [LAYOUTS[case.id] for case in CASES if "vs_compile" in case.goal]
KINDS = ("plain", "offset", "pitch", "into", "step")
SMALL = 2**10  # elements
CPU = torch.device("cpu")
DIGEST = 0xC9B3BE94  # of all ids


# --- the generator ---


def test_ids_are_the_same_on_every_machine() -> None:
    ids = [case.id for case in CASES]
    layouts.generated.cache_clear()
    assert ids == [case.id for case in layouts.generated()]
    assert zlib.crc32("\n".join(ids).encode()) == DIGEST


def test_ids_are_unique_and_say_everything() -> None:
    assert len(CASES) == len(LAYOUTS) == layouts.LAYOUTS + layouts.STEPPED
    for case in CASES:
        assert LAYOUTS[case.id].id == case.id
        assert LAYOUTS[case.id].bytes == case.bytes == cases.build(case).bytes


def test_every_width_rank_variant_and_size_occurs() -> None:
    assert len(WITH_GOAL) >= 200
    assert Counter(x.itemsize for x in WITH_GOAL) == dict.fromkeys((1, 2, 4, 8, 16), 48)
    assert Counter(len(x.shape) for x in WITH_GOAL).keys() == set(range(2, 7))
    assert {x.dtype for x in WITH_GOAL} == {"u8", "bf16", "f32", "f64", "i64", "c128"}
    variants = {(x.itemsize, x.kind) for x in WITH_GOAL}
    assert variants == {(width, kind) for width in (1, 2, 4, 8, 16) for kind in KINDS[:4]}
    assert {x.kind for x in LAYOUTS.values()} == set(KINDS)
    assert all(2**20 <= x.result_bytes <= 2**28 for x in LAYOUTS.values())
    octaves = Counter(min(27, int(math.log2(x.result_bytes))) for x in WITH_GOAL)
    assert octaves.keys() == set(range(20, 28))
    assert min(octaves.values()) >= 20  # even in the logarithm: 30 each


def test_every_form_occurs() -> None:
    """Tiny, odd and power-of-two sizes, one long dimension, many small matrices, odd pitches."""

    def count(condition: Callable[[Layout], bool]) -> int:
        return sum(condition(x) for x in WITH_GOAL)

    assert count(lambda x: x.shape[-1] <= 7) >= 20
    assert count(lambda x: x.result[-1] <= 7) >= 20
    assert count(lambda x: all(size % 2 for size in x.shape)) >= 20
    assert count(lambda x: all(size.bit_count() == 1 for size in x.shape)) >= 20
    assert count(lambda x: sorted(x.shape)[-1] >= 1000 * sorted(x.shape)[-2]) >= 10
    assert count(lambda x: max(x.shape[-2:]) <= 32 and x.order[-1] == len(x.shape) - 2) >= 20
    assert all(x.order != tuple(sorted(x.order)) for x in WITH_GOAL)
    assert all((x.shape[-1] + x.extra) % 2 for x in WITH_GOAL if x.kind == "pitch")
    assert all((x.result[-1] + x.extra) % 2 for x in WITH_GOAL if x.kind == "into")
    assert {x.extra for x in WITH_GOAL if x.kind == "offset"} == {1, 3}


def test_forty_are_compared_with_torch_compile() -> None:
    assert len(COMPILED) == 40
    assert Counter(x.itemsize for x in COMPILED) == dict.fromkeys((1, 2, 4, 8, 16), 8)
    assert Counter(len(x.shape) for x in COMPILED) == dict.fromkeys(range(2, 7), 8)
    assert {x.kind for x in COMPILED} == set(KINDS[:4])
    sizes = sorted(x.result_bytes for x in COMPILED)
    assert sizes[10] < 2**23 < 2**25 < sizes[30]
    for case in CASES:
        work = cases.build(case, SMALL).make(CPU)
        names = [peer.name for peer in work.peers]
        assert names == ["eager", "compile"] if "vs_compile" in case.goal else ["eager"]


# --- a layout ---


@pytest.mark.parametrize(
    "case_id",
    [
        "layouts/f32/8x8",  # no order
        "layouts/f32/8x8/012",
        "layouts/f32/8x8/00",
        "layouts/f31/8x8/10",
        "layouts/f32/8x8/10/plain",
        "layouts/f32/8x8/10/pitch0",
        "copy/f32/8x8/10",
    ],
)
def test_other_ids_are_refused(case_id: str) -> None:
    with pytest.raises(ValueError, match=r"does not order|not a layout"):
        Layout.parse(case_id)


@pytest.mark.parametrize(
    ("variant", "stride", "offset"),
    [
        ("", (1, 35, 5), 0),
        ("/offset3", (1, 35, 5), 3),
        ("/pitch4", (1, 63, 9), 0),
        ("/into2", (1, 35, 5), 0),
        ("/step2", (2, 70, 10), 0),
    ],
)
def test_source_lies_in_memory_as_the_id_says(
    variant: str, stride: tuple[int, ...], offset: int
) -> None:
    case = Case(f"layouts/bf16/6x7x5/201{variant}", "")
    source = Layout.parse(case.id).source(Data(case, CPU))
    assert source.shape == (5, 6, 7)
    assert (source.stride(), source.storage_offset()) == (stride, offset)
    assert source.unique().numel() > 20
    same = Layout.parse(case.id).source(Data(case, CPU))
    assert torch.equal(source, same)


def test_destination_is_a_slice_of_longer_rows() -> None:
    target = Layout.parse("layouts/f64/6x7x5/201/into4").target(CPU)
    assert target.shape == (5, 6, 7)
    assert target.stride() == (66, 11, 1)


@pytest.mark.parametrize("case_id", ["layouts/u8/9x7x41x2/0321/pitch3", "layouts/f32/67x11x5/021/pitch6", "layouts/c128/5x9x3/120/pitch2", "layouts/bf16/3x33x301/102/pitch70", "layouts/u8/5x2/10/pitch1"])  # fmt: skip
def test_bytes_count_every_sector_once(case_id: str) -> None:
    this = Layout.parse(case_id)
    source = this.source(Data(Case(case_id, ""), CPU))
    places = torch.arange(source.untyped_storage().nbytes() // this.itemsize)
    used = places.as_strided(source.size(), source.stride()).flatten() * this.itemsize
    sectors = torch.cat([used // 32, (used + this.itemsize - 1) // 32]).unique()
    assert this.bytes == 32 * len(sectors) + this.result_bytes


def test_bytes_of_the_other_variants() -> None:
    assert Layout.parse("layouts/f32/6x7x5/201").bytes == 2 * 4 * 210
    assert Layout.parse("layouts/f32/6x7x5/201/offset1").bytes == 2 * 4 * 210
    assert Layout.parse("layouts/f32/6x7x5/201/step2").bytes == 3 * 4 * 210
    # 30 rows of 7 elements in 8: 30 sectors, written in part and so read too
    rows = Layout.parse("layouts/f32/6x7x5/201/into1")
    assert rows.bytes == 4 * 210 + 2 * 32 * 30
    # 4 rows of 16 elements in 20, which begin at 0, 80, 160 and 240: the second and fourth fill one
    # sector each and touch two more, the others fill two
    rows = Layout.parse("layouts/f32/2x2x16/102/into4")
    assert rows.bytes == 4 * 64 + 32 * (2 + 2 * 2 + 1 + 2 + 2 * 2 + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_layouts_agree_with_their_reference(kind: str) -> None:
    """Ours and the peers, those of torch.compile without it, at reduced sizes on the CPU."""
    chosen = [case for case in CASES if LAYOUTS[case.id].kind == kind]
    assert chosen
    for case in chosen:
        work = cases.build(case, SMALL).make(CPU)
        expected = work.check.reference()
        calls = [work.ours, *(peer.prepare(lambda f, **_: f) for peer in work.peers)]
        assert [work.check.error(call(), expected) for call in calls] == [0.0] * len(calls), case.id
        assert len({part.data_ptr() for part in work.check.sample(work.ours())}) == len(expected)


# --- measuring ---


def test_small_layouts_are_copied_several_times_a_sample() -> None:
    repeats = {case.id: cases.build(case).repeats for case in CASES}
    for case_id, layout in LAYOUTS.items():
        assert repeats[case_id] == 16 or repeats[case_id] * layout.bytes >= 2**26
        assert (repeats[case_id] == 1) == (layout.bytes >= 2**26)


def test_times_are_those_of_one_repeat() -> None:
    def slow() -> torch.Tensor:
        time.sleep(0.008)
        return torch.ones(4)

    check = Check(lambda out: [first(out)], lambda: [torch.ones(4)], "all")
    work = Workload(slow, [eager("eager", slow)], check)
    problem = Problem(32, None, lambda device: work, repeats=8)
    case = Case("x", "", goal={"vs_eager": 0.5, "vs_compile": 0.95})
    options = Options(seconds=0.0, peers=frozenset({"eager"}))
    row = Bench.on(CPU).measure(case, problem, options)
    assert row["repeats"] == 8
    for ms in (row["ms"], row["warm_ms"], row["peers"]["eager"], row["cpu_us"] / 1e3):
        assert 1.0 <= ms < 3.0
    assert row["ratios"]["vs_eager"] == row["ratios"]["vs_peer"]
    assert judge(case, row) == {"vs_eager": True, "vs_compile": None}


def test_plain_copies_repeat_on_other_memory() -> None:
    copier = Copier(CPU)
    parts = copier.call(2 * 700, repeats=3)()
    assert isinstance(parts, tuple)
    starts = [part.data_ptr() for part in parts]
    assert [part.numel() for part in parts] == [700] * 3
    assert [start - starts[0] for start in starts] == [0, 1024, 2048]


# --- the command and its summary ---


def run(*args: str) -> Any:
    return CliRunner().invoke(runner.bench, list(args))


def test_the_sweep_runs_when_named_only() -> None:
    assert "layouts/" not in run("--list").output
    assert run("layouts", "--list").output.split() == [case.id for case in CASES]


def test_an_id_can_be_run_again(tmp_path: Path) -> None:
    case_id = next(case.id for case in CASES if LAYOUTS[case.id].kind == "pitch")
    result = run("layouts", "--device", "cpu", "--quick", "--filter", f"^{case_id}$", "--out", str(tmp_path))  # fmt: skip
    assert result.exit_code == 0, result.output
    found = Results.read(tmp_path / "layouts-partial.json")
    assert [row["id"] for row in found.cases] == [case_id]
    assert found.cases[0]["ratios"].keys() == {"vs_copy", "vs_eager", "vs_peer"}


def measured(case: Case, share: float, ratio: float, compile_ratio: float | None = None) -> Any:
    """A row whose copy takes 1 ms."""
    ms = 1 / share
    peers = {"eager": ratio * ms}
    ratios = {"vs_copy": [share, 0.02], "vs_eager": [ratio, 0.02]}
    if compile_ratio is not None:
        peers["compile"], ratios["vs_compile"] = compile_ratio * ms, [compile_ratio, 0.02]
    ratios["vs_peer"] = [min(ratio, compile_ratio or ratio), 0.02]
    return {
        "id": case.id, "ms": ms, "spread": 0.02, "peers": peers, "warm_ms": ms, "cpu_us": 9.0,
        "copy_ms": 1.0, "read_ms": None, "probe_ms": None, "bytes": case.bytes, "flops": None,
        "rounds": 100, "floor_ms": 1.0, "ratios": ratios, "error": 0.0, "peer_error": 0.0,
    }  # fmt: skip


@pytest.fixture
def found() -> Results:
    about = {"gpu": "NVIDIA H200", "driver": "580", "torch": "2.11.0", "cuda": "13.0"}
    rows = [
        measured(CASES[0], 0.9, 2.0, 0.90),
        measured(CASES[1], 0.745, 0.8),
        measured(CASES[2], 0.6, 3.0),
        measured(CASES[6], 0.95, 0.995, 0.96),
        measured(CASES[-1], 0.5, 1.1),
        {"id": CASES[3].id, "failed": "E: x"},
    ]
    return Results({**about, "commit": "abc1234", "date": "2026-01-01"}, rows, [])


def test_summary_names_the_worst(found: Results) -> None:
    whole, share, against_eager, against_compile = sweep.summary(found, CASES)
    assert whole == f"5 of {len(CASES)} layouts measured, 1 failed"
    assert share == (
        f"share of copy rate: 4 cases, median 0.82, worst 0.60 ({CASES[2].id}), "
        "2 below 75 %, 1 of them beyond the spread"
    )
    assert against_eager == (
        f"eager / ours: 5 cases, median 1.10, worst 0.80 ({CASES[1].id}), "
        "2 lose to eager, 1 of them beyond the spread"
    )
    assert against_compile == (
        f"compile / ours: 2 cases, median 0.93, worst 0.90 ({CASES[0].id}), "
        "1 lose more than 5 %, 1 of them beyond the spread"
    )
    assert sweep.summary(Results(found.environment, found.cases[1:2], []), CASES)[3] == (
        "compile / ours: not measured"
    )


def test_report_plots_the_sweep(found: Results, tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"{report.BEGIN}\n{report.END}\n")
    root = tmp_path / "results"
    found.write(root / "h200" / "layouts.json")
    assert {path.name for path in report.update(readme, root)} == {"layouts.svg", "README.md"}
    assert "| layouts | 5 of 6 | 8 | 3 | 0 |" in readme.read_text()
    page = (root / "h200" / "README.md").read_text()
    assert f"| `{CASES[0].id}` |" in page
    assert f"- {CASES[3].id}: E: x" in page
    plot = root / "h200" / "layouts.svg"
    drawn = plot.read_bytes()
    assert b"size of the result" in drawn
    report.update(readme, root)
    assert plot.read_bytes() == drawn


# --- on a GPU ---


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
def test_smallest_layout_of_each_variant_on_the_gpu(kind: str) -> None:
    chosen = [case for case in CASES if LAYOUTS[case.id].kind == kind]
    case = min(chosen, key=lambda case: LAYOUTS[case.id].result_bytes)
    options = Options(seconds=0.05, peers=frozenset({"eager"}))
    row = Bench.on(torch.device("cuda")).measure(case, cases.build(case), options)
    assert "failed" not in row, row
    assert min(row["ms"], row["copy_ms"], row["peers"]["eager"]) > 0
