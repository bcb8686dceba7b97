"""The rows of cases.json, the generated cases, and the function that makes a problem of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from . import (
    layouts,
    suite_conv1d,
    suite_copy,
    suite_gather,
    suite_layouts,
    suite_matmul,
    suite_overhead,
)
from .workload import Case, Problem

CASES_FILE = Path(__file__).with_name("cases.json")

# first part of an id -> suite
SUITE_OF = {
    "copy": "copy",
    "copy_": "copy",
    "layout": "copy",
    "aos_to_soa": "copy",
    "soa_to_aos": "copy",
    "gather": "gather",
    "gather_aos": "gather",
    "gather_soa": "gather",
    "embedding": "gather",
    "conv1d": "conv1d",
    "conv1d_constant": "conv1d",
    "causal_conv1d": "conv1d",
    "causal_conv1d_update": "conv1d",
    "matmul": "matmul",
    "linear": "matmul",
    "layouts": "layouts",
}
SUITES = ("copy", "gather", "conv1d", "matmul")
SWEEPS = {"layouts": layouts.generated}  # of generated cases; they run when named

Builder = Callable[[Case, int | None], Problem]

# the longest beginning of an id that stands here decides
BUILDERS: dict[tuple[str, ...], Builder] = {
    ("copy", "contiguous"): suite_copy.contiguous,
    ("copy", "misaligned"): suite_copy.misaligned,
    ("copy", "cast"): suite_copy.cast,
    ("copy", "strided"): suite_copy.strided,
    ("copy", "transpose"): suite_copy.transpose,
    ("copy", "permute"): suite_copy.permute,
    ("layout", "aos_to_soa"): suite_copy.aos_to_soa,
    ("layout", "soa_to_aos"): suite_copy.soa_to_aos,
    ("gather", "aos"): suite_gather.aos,
    ("gather", "aos", "backward"): suite_gather.aos_backward,
    ("gather", "aos", "backward-deterministic"): suite_gather.aos_backward,
    ("gather", "soa"): suite_gather.soa,
    ("gather", "soa", "backward"): suite_gather.soa_backward,
    ("gather", "soa", "backward-deterministic"): suite_gather.soa_backward,
    ("conv1d", "constant"): suite_conv1d.constant,
    ("conv1d", "single"): suite_conv1d.single,
    ("conv1d", "backward"): suite_conv1d.single_backward,
    ("conv1d", "depthwise"): suite_conv1d.depthwise,
    ("conv1d", "depthwise-backward"): suite_conv1d.depthwise_backward,
    ("conv1d", "causal-backward"): suite_conv1d.causal_backward,
    ("conv1d", "update"): suite_conv1d.update,
    ("conv1d", "dense"): suite_conv1d.dense,
    ("conv1d", "dense-backward"): suite_conv1d.dense_backward,
    ("layouts",): suite_layouts.layout,
    ("matmul",): suite_matmul.matmul,
    ("matmul", "backward"): suite_matmul.matmul_backward,
    ("matmul", "bf16", "bmm"): suite_matmul.bmm,
    ("linear",): suite_matmul.linear,
    ("linear", "backward"): suite_matmul.linear_backward,
    **{(op, "overhead"): suite_overhead.small_call for op in suite_overhead.CALLS},
}


@cache
def load_cases() -> tuple[Case, ...]:
    """Every row of cases.json, in its order."""
    return tuple(Case(**row) for row in json.loads(CASES_FILE.read_text())["cases"])


def suite_of(case_id: str) -> str:
    """The suite a case belongs to."""
    return SUITE_OF[case_id.split("/")[0]]


def of_suite(suite: str) -> list[Case]:
    """The cases of one suite, or of one sweep."""
    if suite in SWEEPS:
        return list(SWEEPS[suite]())
    return [c for c in load_cases() if suite_of(c.id) == suite]


def build(case: Case, limit: int | None = None) -> Problem:
    """The problem a case names, nothing allocated yet.

    `limit`: roughly the most elements of its largest tensor (a matrix product: 16 times as many
    multiplications); None for the size that the id says. Raises KeyError for an unknown id.
    """
    parts = tuple(case.parts)
    for length in range(len(parts), 0, -1):
        builder = BUILDERS.get(parts[:length])
        if builder is not None:
            return builder(case, limit)
    raise KeyError(f"no builder for the case {case.id!r}")
