"""Kernels read a step's integers out of one buffer, where each kind begins at some word.

Triton compiles anew for a pointer that is a multiple of 16 bytes and for one that is not; so a kernel that does not
say that it does not care is compiled while requests wait, at the first step whose words lie otherwise.
"""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

from lorikeet_engine.ops.triton import (
    attention_decode,
    attention_prefill,
    block_copy,
    kv_write,
    lora,
    sampling,
)

WORDS = {"code", "contexts", "block_tables", "positions", "slot_blocks", "slot_offsets", "tiles", "blocks", "rows"}
READERS = [attention_decode, attention_prefill, block_copy, kv_write, lora, sampling]


@pytest.mark.parametrize("module", READERS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_wherever_a_steps_words_lie_the_same_kernel_reads_them(module: ModuleType) -> None:
    n_found = 0
    for name, kernel in vars(module).items():
        if name.endswith("_kernel"):
            words = WORDS & set(inspect.signature(kernel.fn).parameters)
            n_found += len(words)
            assert words <= set(kernel.kwargs["do_not_specialize_on_alignment"] or ()), name
    assert n_found
