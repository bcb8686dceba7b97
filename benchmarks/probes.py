"""Kernels that only read: all of a tensor, or the rows that an index names.

They are Triton's, which comes with CUDA builds of PyTorch; they belong to the
benchmark, not to the library.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .workload import Call

WORDS_PER_BLOCK = 8192  # 32 KB in flight a block of 128 threads
ROW_WORDS_PER_BLOCK = 4096
LONGEST_CHUNK = 256


@triton.jit
def _read_words(words, marks, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(words + offsets, mask=offsets < count, other=0)
    tl.store(marks + block, tl.xor_sum(values, 0))


@triton.jit
def _read_rows(  # type: ignore[no-untyped-def]
    table, index, marks, count, plane, WORDS: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr
):
    block = tl.program_id(0)
    rows = block * ROWS + tl.arange(0, ROWS)
    inside = rows < count
    starts = tl.load(index + rows, mask=inside, other=0) * WORDS
    starts += tl.program_id(1).to(tl.int64) * plane
    total = tl.zeros([ROWS, CHUNK], tl.int32)
    for first in range(0, WORDS, CHUNK):
        columns = first + tl.arange(0, CHUNK)
        mask = inside[:, None] & (columns < WORDS)[None, :]
        total ^= tl.load(table + starts[:, None] + columns[None, :], mask=mask, other=0)
    tl.store(
        marks + tl.program_id(1) * tl.num_programs(0) + block, tl.xor_sum(tl.xor_sum(total, 1), 0)
    )


def _words(tensor: Tensor) -> Tensor:
    """The memory of a dense tensor as int32, whatever its strides."""
    flat = tensor.as_strided((tensor.numel(),), (1,))
    return flat.view(torch.int32)


def read_call(weights: Tensor) -> Call:
    """A kernel that reads every word of `weights` once and writes one word a block."""
    words = _words(weights)
    blocks = triton.cdiv(words.numel(), WORDS_PER_BLOCK)
    marks = words.new_empty(blocks)

    def read() -> Tensor:
        _read_words[(blocks,)](words, marks, words.numel(), BLOCK=WORDS_PER_BLOCK)
        return marks

    return read


def rows_call(table: Tensor, index: Tensor, planes: int = 1) -> Call:
    """A kernel that reads the indexed rows of `table` and the index, and writes one word a block.

    `planes` > 1: `table` is [planes, N], and its planes are read one after the other.
    """
    words = _words(table)
    per_row = 1 if planes > 1 else words.numel() // table.shape[0]
    chunk = min(triton.next_power_of_2(per_row), LONGEST_CHUNK)
    rows = ROW_WORDS_PER_BLOCK // chunk
    blocks = triton.cdiv(index.numel(), rows)
    marks = words.new_empty(planes * blocks)
    plane = words.numel() // planes

    def read() -> Tensor:
        _read_rows[(blocks, planes)](
            words, index, marks, index.numel(), plane, WORDS=per_row, ROWS=rows, CHUNK=chunk
        )
        return marks

    return read
