"""The tables of a plan: sizing steps, concurrency by context, reads by batch, the two ledgers of adapters."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lorikeet_adapters.modules import MODULES
from lorikeet_engine.config import GIB, MIB
from lorikeet_engine.cost import (
    SUGGESTED_LOAD,
    StepShape,
    adapter_bytes,
    balanced_batch,
    reads_per_token,
    suggested_max_num_seqs,
    theoretical_concurrency,
)
from lorikeet_engine.sizing.capacity import arena_bytes, bound_of
from lorikeet_engine.sizing.memory_budget import GPU_MAX_SEQS
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.planning.learning.pace import Pace
from lorikeet_platform.planning.prediction import Load
from lorikeet_platform.planning.schemas import (
    ConcurrencyCell,
    ConcurrencyTable,
    CurvePoint,
    LoraLedgers,
    RecommendedKnob,
    SizingStep,
)
from lorikeet_platform.planning.subject import Subject

CONTEXTS = (1024, 4096, 32_768, 131_072)
CONCURRENCIES = (1, 8, 32)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
SETTING = "LORIKEET_ENGINE__"
WORTH_DOUBLING = 1.1  # in tokens a second, of a batch twice as large
SMALL_SHARE = 0.1  # of the KV pool: giving up that much for adapters is advised without asking


def concurrency_of(subject: Subject, context: int) -> float:
    return theoretical_concurrency(subject.n_blocks, subject.config.block_size, context)


def seats_of(subject: Subject, context: int) -> int:
    """`max_num_seqs` as set, or as suggested for requests of `context` tokens."""
    if subject.config.max_num_seqs:
        return subject.config.max_num_seqs
    return suggested_seats(subject, context)


def suggested_seats(subject: Subject, context: int) -> int:
    return advised_seats(subject, context)[0]


def advised_seats(subject: Subject, context: int) -> tuple[int, str]:
    """A share of the theoretical concurrency, or the cap that is lower; and in words which of them it is."""
    config, concurrency = subject.config, concurrency_of(subject, context)
    bounds = [
        (
            suggested_max_num_seqs(concurrency),
            f"{percent(SUGGESTED_LOAD)} of the {concurrency:,.1f} that fit, since running closer to the limit preempts",
        ),
        (
            config.max_num_batched_tokens - config.block_size,
            f"max_num_batched_tokens {config.max_num_batched_tokens:,} has a token for each of them in one step, and a "
            f"block of {config.block_size} for prompts; {concurrency:,.1f} fit the KV pool",
        ),
    ]
    if config.device == "cuda":
        bounds.append((GPU_MAX_SEQS, f"the most that is advised on a GPU; {concurrency:,.1f} fit the KV pool"))
    return min(bounds, key=lambda bound: bound[0])


def request_bytes(subject: Subject, n_tokens: int) -> int:
    return subject.request_blocks(n_tokens) * subject.block_bytes


def sizing_steps(subject: Subject, load: Load, pace: Pace) -> list[SizingStep]:
    """In their order: each needs the one before it."""
    context, config = load.context, subject.config
    one, pool = request_bytes(subject, context), subject.n_blocks * subject.block_bytes
    concurrency, (seats, why) = concurrency_of(subject, context), advised_seats(subject, context)
    chunk = StepShape()
    chunk.add_prefill(config.max_num_batched_tokens, 0, samples=True)
    wait = "every running request waits for a step full of prompt"
    if pace.holds(chunk):
        wait += f", about {milliseconds(pace.step_seconds(chunk))}"
    return [
        SizingStep(
            title="KV per request",
            text=f"{context:,} tokens at {subject.cost.kv_bytes_per_token / 1024:g} KiB, in blocks of "
            f"{config.block_size}",
            value=size(one),
        ),
        SizingStep(
            title="Theoretical concurrency",
            text=f"{size(pool)} of KV pool ÷ {size(one)}",
            value=f"{concurrency:,.1f} requests",
        ),
        SizingStep(
            title="max_num_seqs",
            text=why,
            value=f"{seats:,}",
        ),
        SizingStep(
            title="max_num_batched_tokens",
            text=f"{wait}; try other values with `lorikeet bench sweep`",
            value=f"{config.max_num_batched_tokens:,} to start with",
        ),
    ]


def concurrency_table(subject: Subject, load: Load) -> ConcurrencyTable:
    contexts = sorted({*(n for n in CONTEXTS if n <= subject.spec.max_positions), load.context})
    concurrencies = sorted({*CONCURRENCIES, *([load.concurrency] if load.concurrency else [])})
    cells = [
        [
            ConcurrencyCell(
                bytes=n * request_bytes(subject, context), fits=n * subject.request_blocks(context) <= subject.n_blocks
            )
            for n in concurrencies
        ]
        for context in contexts
    ]
    return ConcurrencyTable(contexts=contexts, concurrencies=concurrencies, cells=cells)


def batch_curve(subject: Subject, load: Load, pace: Pace) -> list[CurvePoint]:
    """Decoding at the end of an answer, by batch; only batches that were measured where the pace is."""
    context_bytes = load.context * subject.cost.kv_bytes_per_token
    batches = sorted({*BATCHES, *([load.concurrency] if load.concurrency else [])})
    points = []
    for batch in batches:
        shape = StepShape(n_decode=batch, decode_context=batch * load.context, n_sampled=batch)
        if not pace.holds(shape):
            continue
        itl_s = pace.step_seconds(shape)
        points.append(
            CurvePoint(
                batch=batch,
                read_bytes_per_token=reads_per_token(subject.cost.weights_bytes, batch, context_bytes),
                itl_s=itl_s,
                output_tokens_per_s=batch / itl_s,
                fits=batch * subject.request_blocks(load.context) <= subject.n_blocks,
            )
        )
    return points


def balanced(subject: Subject, load: Load) -> float:
    return balanced_batch(subject.cost.weights_bytes, load.context * subject.cost.kv_bytes_per_token)


def modules_of(targets: Sequence[str]) -> tuple[str, ...]:
    """A layer's linears by PEFT's names; raises PlatformError(invalid_value) for one that is not there."""
    known = {module.rpartition(".")[2]: module for module in MODULES}
    for target in targets:
        if target not in known:
            raise PlatformError(
                "invalid_value", f"{target[:40]!r} is no module; there are {', '.join(known)}.", "adapters.modules"
            )
    return tuple(module for name, module in known.items() if name in targets)


def lora_ledgers(subject: Subject, load: Load) -> LoraLedgers:
    modules = modules_of(load.targets)
    one = adapter_bytes(subject.spec, load.rank, itemsize=subject.itemsize, modules=modules)
    in_arena = arena_bytes(subject.spec, load.rank, modules=modules, itemsize=subject.itemsize)
    resident = min(load.n_adapters, subject.config.adapter_pool_bytes // in_arena)
    if resident == 0:
        raise PlatformError(
            "invalid_value",
            f"adapter_pool_bytes: {size(subject.config.adapter_pool_bytes)} hold no adapter of rank {load.rank}; one "
            f"takes {in_arena:,} bytes ({size(in_arena)}).",
            "knobs.adapter_pool_bytes",
        )
    return LoraLedgers(
        adapter_bytes=one,
        all_bytes=load.n_adapters * one,
        private_kv_bytes=load.n_adapters * request_bytes(subject, load.context),
        bound_by=bound_of(concurrency_of(subject, load.context), adapters=load.n_adapters, resident=resident),
        resident=resident,
    )


def recommended_knobs(subject: Subject, load: Load, lora: LoraLedgers | None) -> list[RecommendedKnob]:
    config, context = subject.config, load.context
    seats, why = advised_seats(subject, context)
    arena = _larger_arena(subject, load, lora)
    knobs = [
        _knob("max_num_seqs", seats, why),
        _knob("max_num_batched_tokens", config.max_num_batched_tokens, "a start for a load test"),
        _pool(subject, load, 0 if arena is None else arena.value - config.adapter_pool_bytes),
    ]
    if subject.is_stretched:
        knobs.append(_knob("max_model_len", subject.max_model_len, "the automatic length does not suit this workload"))
    return knobs if arena is None else [*knobs, arena]


def _larger_arena(subject: Subject, load: Load, lora: LoraLedgers | None) -> RecommendedKnob | None:
    """Room for all adapters, where memory is left for it or little KV is given up."""
    if lora is None or lora.resident >= load.n_adapters:
        return None
    modules = modules_of(load.targets)
    needed = load.n_adapters * arena_bytes(subject.spec, load.rank, modules=modules, itemsize=subject.itemsize)
    more = needed - subject.config.adapter_pool_bytes - dict(subject.memory).get("left", 0)
    if more > SMALL_SHARE * subject.n_blocks * subject.block_bytes:
        return None
    cost = (
        "memory that is left" if more <= 0 else f"the KV of {more / request_bytes(subject, load.context):,.1f} requests"
    )
    return _knob("adapter_pool_bytes", needed, f"holds all {load.n_adapters:,} adapters, for {cost}")


def _pool(subject: Subject, load: Load, arena_takes: float) -> RecommendedKnob:
    """As it is; where the load wants more and a host has memory left, what seats all of it, or all that is left."""
    pool, seats = (subject.n_blocks + 1) * subject.block_bytes, suggested_seats(subject, load.context)
    left = int(dict(subject.memory).get("left", 0) - arena_takes) // subject.block_bytes * subject.block_bytes
    if subject.config.device == "cpu" and left > 0 and load.concurrency > seats:
        wanted = math.ceil(load.concurrency / SUGGESTED_LOAD) * request_bytes(subject, load.context)
        if wanted + subject.block_bytes <= pool + left:
            return _knob("kv_cache_bytes", wanted + subject.block_bytes, f"seats all {load.concurrency:,} requests")
        return _knob("kv_cache_bytes", pool + left, f"{size(left)} more: all memory that is left")
    return _knob("kv_cache_bytes", pool, f"as planned with: {concurrency_of(subject, load.context):,.1f} such requests")


def _knob(name: str, value: int | float, why: str) -> RecommendedKnob:
    return RecommendedKnob(name=name, setting=f"{SETTING}{name.upper()}={value}", value=value, why=why)


def saturating_batch(curve: Sequence[CurvePoint]) -> CurvePoint | None:
    """The smallest batch whose double brings hardly more tokens a second; None where the curve does not get there."""
    by_batch = {point.batch: point for point in curve}
    for point in curve:
        double = by_batch.get(2 * point.batch)
        if double and double.output_tokens_per_s < WORTH_DOUBLING * point.output_tokens_per_s:
            return point
    return None


def size(n_bytes: float) -> str:
    if n_bytes == 0:
        return "0"
    for unit, name in ((GIB, "GiB"), (MIB, "MiB")):
        if n_bytes >= unit:
            return f"{n_bytes / unit:,.2f} {name}"
    return f"{n_bytes / 1024:,.1f} KiB"


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:,.1f} ms" if seconds < 1 else f"{seconds:,.2f} s"


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"
