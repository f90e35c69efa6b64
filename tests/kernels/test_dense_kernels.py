"""What the dense Triton kernels promise beyond the port: rows of any width, torch's roundings, whole blocks."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from lorikeet_engine.ops.cpu import CpuOps
from lorikeet_engine.ops.triton.activation import silu_mul
from lorikeet_engine.ops.triton.block_copy import gather_blocks, page_pointers, scatter_blocks
from lorikeet_engine.ops.triton.norm import add_rms_norm, rms_norm
from lorikeet_engine.ops.triton.sampling import gather_rows, greedy

TORCH = CpuOps()
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def randn(*shape: int, dtype: torch.dtype, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def is_rounded_alike(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """In half precision nearly all bits: a point of rounding more or less would change every third value.

    Sums in another order and another library's exp may flip a rounding now and then.
    """
    if found.dtype == torch.float32:
        return bool(torch.allclose(found, expected, rtol=1e-6, atol=1e-6))
    return float((found != expected).float().mean()) <= 0.01


@DTYPES
@pytest.mark.parametrize("shape", [(3, 33), (7, 5), (5, 9, 80), (1, 577)])
def test_a_norm_rounds_where_torch_does(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x, weight = randn(*shape, dtype=dtype), randn(shape[-1], dtype=dtype, seed=2)
    found, expected = rms_norm(x=x, weight=weight, eps=1e-5), TORCH.rms_norm(x=x, weight=weight, eps=1e-5)
    assert is_rounded_alike(found, expected)


@DTYPES
def test_a_sum_is_rounded_before_it_is_normed(dtype: torch.dtype) -> None:
    x, residual, weight = (randn(6, 33, dtype=dtype, seed=n) for n in range(3))
    found, total = add_rms_norm(x=x, residual=residual, weight=weight[0], eps=1e-5)
    expected, expected_total = TORCH.add_rms_norm(x=x, residual=residual, weight=weight[0], eps=1e-5)
    assert torch.equal(total, expected_total)
    assert is_rounded_alike(found, expected)


@DTYPES
def test_a_gate_rounds_where_torch_does(dtype: torch.dtype) -> None:
    gate_up = randn(4, 2 * 1030, dtype=dtype) * 4
    gate, up = gate_up.chunk(2, dim=-1)
    found, expected = silu_mul(gate_up=gate_up), F.silu(gate) * up
    assert is_rounded_alike(found, expected)


def test_no_rows_are_no_work() -> None:
    empty = torch.empty(0, 32)
    assert rms_norm(x=empty, weight=torch.ones(32), eps=1e-5).shape == (0, 32)
    assert silu_mul(gate_up=empty).shape == (0, 16)
    assert gather_rows(table=torch.ones(3, 32), rows=torch.empty(0, dtype=torch.int64)).shape == (0, 32)
    assert greedy(logits=empty)[0].shape == (0,)


def test_rows_that_do_not_lie_side_by_side_are_refused() -> None:
    with pytest.raises(ValueError, match="a norm needs rows"):
        rms_norm(x=torch.ones(32, 4).T, weight=torch.ones(32), eps=1e-5)
    with pytest.raises(ValueError, match="residual must be contiguous"):
        add_rms_norm(x=torch.ones(4, 32), residual=torch.ones(4, 64)[:, :32], weight=torch.ones(32), eps=1e-5)


@DTYPES
def test_the_likeliest_of_logits_in_any_type_is_found(dtype: torch.dtype) -> None:
    logits = randn(3, 9000, dtype=dtype)
    logits[1, [4000, 8999]] = 9.0
    tokens, finite = greedy(logits=logits)
    assert tokens.tolist() == logits.max(dim=-1).indices.tolist()
    assert bool(finite.all())


@DTYPES
def test_blocks_move_through_a_slab_and_nothing_else_changes(dtype: torch.dtype) -> None:
    pages = [randn(6, 3, 8, 80, dtype=dtype, seed=n) for n in range(4)]
    pages[2][5] = float("nan")
    before = [tensor.clone() for tensor in pages]
    pointers, sources, targets = page_pointers(pages), torch.tensor([5, 1, 2]), torch.tensor([1, 2, 4])
    slab = torch.full((3, 4, 3 * 8 * 80), float("nan")).to(dtype)
    gather_blocks(pointers=pointers, blocks=sources, slab=slab)
    scatter_blocks(slab=slab, blocks=targets, pointers=pointers)
    for tensor, old in zip(pages, before, strict=True):
        expected = old.clone()
        expected[targets] = old[sources]
        assert torch.equal(tensor.nan_to_num(9), expected.nan_to_num(9))


def test_a_slab_of_another_size_is_refused() -> None:
    pages = [torch.zeros(4, 1, 16, 16) for _ in range(2)]
    pointers, blocks = page_pointers(pages), torch.tensor([1, 2])
    with pytest.raises(ValueError, match="does not hold 2 blocks of 2 tensors"):
        gather_blocks(pointers=pointers, blocks=blocks, slab=torch.zeros(3, 2, 256))
    with pytest.raises(ValueError, match="whole words"):
        gather_blocks(pointers=pointers, blocks=blocks, slab=torch.zeros(2, 2, 3, dtype=torch.float16))
    with pytest.raises(ValueError, match="alike and contiguous"):
        page_pointers([pages[0], pages[1][..., :8]])
