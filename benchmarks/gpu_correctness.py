"""The case table of the tests on a GPU, without pytest: every case against the float64 oracle, and repeats bit by bit.

Knows what is right, nothing of speed. Without a GPU a few cases run interpreted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from gpu_timing import DEVICE, IS_GPU

from lorikeet_engine.ops.cuda import CudaOps
from lorikeet_engine.ops.reference import ReferenceOps
from tests.support.attention_cases import (
    ATTENTION_CASES,
    ATTENTION_TOLERANCE,
    AttentionCase,
    attend,
    attention_case,
    attention_data,
    rows_of,
)
from tests.support.carried_ops import CarriedOps
from tests.support.closeness import DTYPES, TOLERANCE, relative_error
from tests.support.lora_cases import PLACES, add_lora, lora_case, lora_data

N_REPEATS = 20 if IS_GPU else 2
SMOKE_ATTENTION = ("decode_ragged", "decode_and_prefill")
SMOKE_LORA = ("partial_targets", "all_flags_in_one_batch")
EXACT = ReferenceOps(exact=True)


@dataclass(frozen=True)
class Check:
    """`worst`: the largest error as a part of what is allowed; above 1, or not finite, is wrong.

    `n_cases` were reached in the time there was; `is_whole` says whether those were all.
    """

    name: str
    n_cases: int
    worst: float
    wrong: tuple[str, ...]
    is_whole: bool = True


def check_all(until: float) -> list[Check]:
    """All groups, each as far as it gets before `until` on the clock of `time.perf_counter`."""
    ops = CarriedOps(CudaOps(device=DEVICE, max_tokens=2048, max_rank=64), DEVICE)
    groups: dict[str, Iterator[tuple[str, float]]] = {
        "equal bits in repeats": repeat_errors(ops),
        "a decode row alone and in company": company_errors(ops),
        "norm, activation, rotary, ends": dense_errors(ops),
        "LoRA": lora_errors(ops),
        "attention": attention_errors(ops),
    }
    return [collect(name, errors, until) for name, errors in groups.items()]


def collect(name: str, errors: Iterator[tuple[str, float]], until: float = float("inf")) -> Check:
    found: list[tuple[str, float]] = []
    is_whole = True
    for case in errors:
        found.append(case)
        if time.perf_counter() > until:
            is_whole = next(errors, None) is None
            break
    wrong = tuple(case for case, error in found if not error <= 1)
    return Check(name, len(found), max(error for _, error in found), wrong, is_whole)


def attention_errors(ops: Any) -> Iterator[tuple[str, float]]:
    cases = ATTENTION_CASES if IS_GPU else [attention_case(name) for name in SMOKE_ATTENTION]
    for name, dtype in types():
        for case in cases:
            data = attention_data(case, dtype)
            error = relative_error(attend(ops, case, data), attend(EXACT, case, data))
            yield f"{case} {name}", error / ATTENTION_TOLERANCE[dtype]


def lora_errors(ops: Any) -> Iterator[tuple[str, float]]:
    places = PLACES if IS_GPU else [(lora_case(name), "qkv") for name in SMOKE_LORA]
    for name, dtype in types():
        for case, site in places:
            data = lora_data(case, site, dtype)
            expected = add_lora(ReferenceOps(), data, site, 0, data.out.double())
            error = relative_error(add_lora(ops, data, site, 0, data.out.clone()), expected)
            yield f"{case} {site} {name}", error / TOLERANCE[dtype]


def dense_errors(ops: Any) -> Iterator[tuple[str, float]]:
    for name, dtype in types():
        found, expected = dense_results(ops, dtype), dense_results(EXACT, dtype)
        for verb, result in found.items():
            yield f"{verb} {name}", relative_error(result, expected[verb]) / TOLERANCE[dtype]


def dense_results(backend: Any, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, residual, wide = (torch.randn(37, n, generator=generator).to(dtype) for n in (96, 96, 192))
    weight, table = x[0].clone(), torch.randn(50, 96, generator=generator).to(dtype)
    return {
        "norm": backend.rms_norm(x=x, weight=weight, eps=1e-5),
        "add and norm": torch.cat(backend.add_rms_norm(x=x, residual=residual, weight=weight, eps=1e-5)),
        "activation": backend.silu_mul(gate_up=wide),
        "gather": backend.gather_rows(table=table, rows=torch.arange(0, 50, 3)),
        "greedy": backend.greedy(logits=table)[0].double(),
        "rotary": rotated(backend, dtype),
    }


def rotated(backend: Any, dtype: torch.dtype) -> torch.Tensor:
    """Rotated queries, and the pages that the keys and values went to."""
    case = attention_case("decode_and_prefill")
    data = attention_data(case, dtype)
    k, v = (data.q[:, : case.kv_heads].clone() for _ in range(2))
    angles = torch.rand(80, case.width // 2, generator=torch.Generator().manual_seed(3)) * 6
    q = backend.rotary_write_kv(
        q=data.q,
        k=k,
        v=v,
        rotary=(angles.cos(), angles.sin()),
        batch=data.batch,
        k_cache=data.k_cache,
        v_cache=data.v_cache,
    )
    slots = (data.batch.slot_blocks, slice(None), data.batch.slot_offsets)
    return torch.cat([part.double().flatten() for part in (q, data.k_cache[slots], data.v_cache[slots])])


def repeat_errors(ops: Any) -> Iterator[tuple[str, float]]:
    case: AttentionCase = attention_case("decode_ragged")
    data = attention_data(case, torch.bfloat16)
    adapters = lora_data(lora_case("ragged"), "qkv", torch.bfloat16)
    first = attend(ops, case, data), add_lora(ops, adapters, "qkv", 0, adapters.out.clone())
    for repeat in range(N_REPEATS):
        again = attend(ops, case, data), add_lora(ops, adapters, "qkv", 0, adapters.out.clone())
        for name, one, other in zip(("decode", "LoRA"), first, again, strict=True):
            yield f"{name} {repeat}", 0.0 if torch.equal(one, other) else float("inf")


def company_errors(ops: Any) -> Iterator[tuple[str, float]]:
    case = attention_case("decode_split_edges" if IS_GPU else "decode_ragged")
    data = attention_data(case, torch.bfloat16)
    together = attend(ops, case, data)
    for row in range(len(case.rows)):
        batch, tokens = rows_of(data.batch, [row])
        data_alone = type(data)(data.q[tokens], data.k_cache, data.v_cache, batch)
        alone = attend(ops, case, data_alone)
        yield f"row {row}", 0.0 if torch.equal(alone[0], together[row]) else float("inf")


def types() -> list[tuple[str, torch.dtype]]:
    return list(DTYPES.items()) if IS_GPU else [("fp32", torch.float32)]
