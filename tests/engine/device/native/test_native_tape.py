"""A step's ops gathered on a tape: the same numbers as one by one, and memory that is used again."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lorikeet_engine.ops.native.ops import NativeCpuOps
from lorikeet_engine.ops.native.scratch import ALIGNMENT, Allocator, Scratch
from tests.support.device import Driven, open_runner, plan_of, random_ids
from tests.support.ops_cases import NATIVE_LIBRARY
from tests.support.tiny_models import VOCAB

SMALL = Scratch(1 << 20)


class OneByOne(NativeCpuOps):
    """Every op at once, as it is called."""

    def run(self, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        return compute()

    def record(self, compute: Callable[[], torch.Tensor]) -> None:  # type: ignore[override]
        del compute


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gathered_ops_give_what_they_give_one_by_one_to_the_last_bit(
    model_dir: Callable[[str], Path], dtype: str
) -> None:
    """Prompts and decodes of changing numbers of rows, so that recordings take turns on the scratch."""
    runners = [
        open_runner(model_dir("qwen3"), dtype=dtype, ops=ops(NATIVE_LIBRARY)) for ops in (NativeCpuOps, OneByOne)
    ]
    driven = [
        [
            Driven(str(i), random_ids(4 + 9 * i, vocab=VOCAB, seed=i), tuple(range(1 + 9 * i, 10 + 9 * i)))
            for i in range(5)
        ]
        for _ in runners
    ]
    for step in range(12):
        rows = [i for i in range(5) if (step + i) % 3 or step == 0]
        found = [
            runner.logits(plan_of([requests[i].row() for i in rows])).clone()
            for runner, requests in zip(runners, driven, strict=True)
        ]
        assert torch.equal(*found)
        for requests in driven:
            for i in rows:
                requests[i].generated.append(step)


@given(st.data())
def test_pieces_never_overlap_are_aligned_and_come_back(data: st.DataObject) -> None:
    allocator = Allocator(SMALL)
    alive: dict[int, torch.Tensor] = {}
    for number in range(data.draw(st.integers(1, 30))):
        frees: bool = data.draw(st.booleans())
        if alive and frees:
            del alive[data.draw(st.sampled_from(sorted(alive)))]
        shape: tuple[int, int] = data.draw(st.tuples(st.integers(0, 40), st.integers(1, 40)))
        dtype: torch.dtype = data.draw(st.sampled_from([torch.bfloat16, torch.float32, torch.bool]))
        tensor = allocator.empty(shape, dtype)
        assert tuple(tensor.shape) == shape
        alive[number] = tensor.view(-1) if tensor.numel() else tensor  # a view keeps the piece
        del tensor
        spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in alive.values() if t.numel())
        assert all(begin % ALIGNMENT == 0 for begin, _ in spans)
        assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))
    alive.clear()
    whole = allocator.empty((1 << 20,), torch.bool)
    assert whole.nbytes == 1 << 20


def test_a_step_that_does_not_fit_is_refused() -> None:
    with pytest.raises(MemoryError, match="reserved for its activations"):
        Allocator(SMALL).empty(((1 << 20) + 1,), torch.bool)


def test_prompts_of_any_length_need_no_more_than_the_longest() -> None:
    """What is used of the region is memory that the memory table counts: a layer's activations of the longest step."""
    scratch = Scratch(1 << 26)
    scratch.memory[:] = 7
    for n_tokens in (*range(8, 512, 56), 512, 100, 512):
        allocator = Allocator(scratch)
        total = allocator.empty((n_tokens, 576), torch.bfloat16)
        for _ in range(3):
            normed = allocator.empty((n_tokens, 576), torch.bfloat16)
            fused = allocator.empty((n_tokens, 3072), torch.bfloat16)
            total = allocator.empty((n_tokens, 576), torch.bfloat16)
            for tensor in (normed, fused, total):
                tensor.zero_()
            del normed, fused
    used = int((scratch.memory != 7).nonzero()[0].max()) + 1
    assert used <= 1.5 * 512 * (576 * 3 + 3072) * 2
