"""What every plan tells: its bytes as the benchmark cases count them, its operations where it computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import torch_memops as tm
from benchmarks.cases import load_cases

CASES = {case.id: case for case in load_cases()}


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def indices(count: int) -> Tensor:
    return meta(count, dtype=torch.int64)


BF16, F16 = torch.bfloat16, torch.float16
COUNTED: dict[str, tuple[Any, ...]] = {
    "copy/contiguous/f32/2^26": ("copy", meta(2**26)),
    "copy/transpose/f32/8192x8192": ("copy", meta(8192, 8192).t()),
    "copy/cast/f32-bf16/2^26": ("copy_", meta(2**26, dtype=BF16), meta(2**26)),
    "gather/aos/f32/4/random": ("gather_aos", meta(2**25, 4), indices(2**24)),
    "gather/aos/bf16/1024/random": ("gather_aos", meta(2**18, 1024, dtype=BF16), indices(2**17)),
    "gather/soa/f32/4/random": ("gather_soa", meta(4, 2**25), indices(2**24)),
    "gather/aos/backward/bf16/1024": (
        *("_gather_aos_backward", meta(2**17, 1024, dtype=BF16), indices(2**17)),
        *(2**18, -1),
    ),
    "conv1d/constant/f32/2^26/K17": ("conv1d_constant", meta(2**26), [1.0] * 17),
    "conv1d/constant/bf16/2^27/K17": ("conv1d_constant", meta(2**27, dtype=BF16), [1.0] * 17),
    "conv1d/dense/f16/8x512x3000/512xK3": (
        *("conv1d", meta(8, 512, 3000, dtype=F16), meta(512, 512, 3, dtype=F16)),
        *(None, 1, 1),
    ),
    "conv1d/backward/f32/2^24/K17": (
        *("_conv1d_backward", meta(1, 1, 2**24 - 16), meta(1, 1, 2**24), meta(1, 1, 17)),
        *(1, [0, 0], 1, 1, [True, True, False]),
    ),
    "matmul/bf16/nn/4096": ("matmul", meta(4096, 4096, dtype=BF16), meta(4096, 4096, dtype=BF16)),
}


@pytest.mark.parametrize("case_id", COUNTED)
def test_plans_count_what_the_benchmark_cases_count(case_id: str) -> None:
    op, *arguments = COUNTED[case_id]
    facts = tm.plan(op, *arguments).facts
    assert facts["bytes"] == CASES[case_id].bytes
    if CASES[case_id].flops is not None:
        assert facts["flops"] == CASES[case_id].flops


X, WEIGHT = meta(2, 3, 8), meta(3, 1, 4)
MOVING: list[tuple[Any, ...]] = [
    ("copy", meta(8, 3).t()),
    ("aos_to_soa", meta(8, 3)),
    ("soa_to_aos", meta(3, 8)),
    ("gather_aos", meta(5, 3), indices(4)),
    ("gather_soa", meta(3, 5), indices(4)),
    ("embedding", indices(4), meta(5, 3)),
]
COMPUTING: list[tuple[Any, ...]] = [
    ("matmul", meta(2, 3), meta(3, 4)),
    ("linear", meta(2, 3), meta(4, 3), meta(4)),
    ("conv1d", X, WEIGHT, None, 1, 0, 1, 3),
    ("conv1d_constant", X, [1.0, 2.0]),
    ("causal_conv1d", X, meta(3, 4)),
    ("causal_conv1d_update", meta(2, 3), meta(2, 3, 4), meta(3, 4)),
    ("_conv1d_backward", meta(2, 3, 5), X, WEIGHT, 1, [0, 0], 1, 3, [True, True, True]),
    ("_gather_aos_backward", meta(4, 3), indices(4), 5, -1),
    ("_gather_soa_backward", meta(3, 4), indices(4), 5),
]


@pytest.mark.parametrize("call", MOVING + COMPUTING, ids=lambda call: call[0])
def test_every_plan_tells_its_bytes_and_its_operations_where_it_computes(
    call: tuple[Any, ...],
) -> None:
    op, *arguments = call
    facts = tm.plan(op, *arguments).facts
    assert facts["bytes"] > 0
    assert ("flops" in facts) == any(call is other for other in COMPUTING)
    assert facts.get("flops", 1) > 0
