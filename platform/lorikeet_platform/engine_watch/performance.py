"""How both machines of an engine did in a window: the one that computes prompts and the one that decodes.

Every formula is `lorikeet_engine.cost`'s, over differences of the engine's own counters. Steps of different kinds are
never averaged with each other; MFU / MBU = intensity / ridge holds for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import merge
from itertools import pairwise
from typing import Final, get_args

from lorikeet_engine.cost import StepShape, StepWork, blocks_for, intensity, mbu, mfu, ridge
from lorikeet_engine.stats import EngineDesign, StepSample
from lorikeet_engine.step_time import StepTimeModel
from lorikeet_platform.engine_watch.latency import latencies, spread_of
from lorikeet_platform.engine_watch.schemas import Kind, Moment, Performance, Phase
from lorikeet_platform.engine_watch.window import Reading, Window, work_between

FITTED_STEPS: Final = 200  # of each sort; the model forgets what is older


def performance(window: Window, design: EngineDesign) -> Performance:
    device, work, wasted = design.device, window.work, window.costs.wasted_flops
    needed = StepWork(flops=max(0, work.flops - int(wasted)))
    n_tokens = tokens_of(work, design)
    return Performance(
        window_s=window.seconds,
        phases=[_phase(window, design, kind) for kind in get_args(Kind) if window.steps_of(kind)],
        ridge=ridge(device),
        peak_flops=device.peak_flops,
        peak_bandwidth=device.peak_bandwidth,
        device=device.name,
        latency=latencies(window),
        tokens_per_step=n_tokens / window.n_steps if window.n_steps else 0.0,
        read_bytes_per_token=_read_bytes_per_token(window, design),
        interference=interference(window, design),
        kv_peak_bytes=window.after.kv_peak_bytes,
        mfu=mfu(needed, window.seconds, device),
        hfu=mfu(work, window.seconds, device),
        timeline=[_moment(before, after, design) for before, after in pairwise(window.readings)],
    )


def tokens_of(work: StepWork, design: EngineDesign) -> int:
    """Tokens that were computed: each writes its keys and values once."""
    return round(work.write_bytes / design.cost.kv_bytes_per_token)


def interference(window: Window, design: EngineDesign) -> float | None:
    """How many times as long prompts took as they would have taken alone; None when the window shows too little.

    Alone is a model's word: fitted to the window's steps, for a prompt of the mean length in chunks of the budget.
    """
    spread, prompts = spread_of(window, "prefill"), [step for step in window.steps if step.n_prefill]
    if not spread.count or not prompts or not window.prompt_tokens:
        return None
    n_tokens = window.prompt_tokens / spread.count
    chunks = blocks_for(max(1, round(n_tokens)), int(design.knobs["max_num_batched_tokens"]))
    pairs_a_token = sum(step.prefill_pairs for step in prompts) / sum(step.n_prefill for step in prompts)
    fixed_s, token_s, pair_s, _, _ = fitted_model(window, design).coefficients
    alone_s = chunks * fixed_s + n_tokens * (token_s + pairs_a_token * pair_s)
    return spread.mean_s / alone_s if alone_s > 0 else None


def fitted_model(window: Window, design: EngineDesign) -> StepTimeModel:
    """The step-time model after some of the window's steps, as many with prompts as without."""
    model = StepTimeModel(design.cost, design.device)
    with_prompts = [step for step in window.steps if step.n_prefill]
    others = [step for step in window.steps if not step.n_prefill]
    for step in merge(_some(with_prompts), _some(others), key=lambda step: step.end_s):
        model.observe(shape_of(step), step.seconds)
    return model


def _some(steps: Sequence[StepSample]) -> Sequence[StepSample]:
    """Spread over all of them."""
    return steps[:: -(-len(steps) // FITTED_STEPS) or 1]


def shape_of(step: StepSample) -> StepShape:
    return StepShape(
        n_decode=step.n_decode,
        decode_context=step.decode_context,
        n_prefill=step.n_prefill,
        prefill_pairs=step.prefill_pairs,
        prefill_context=step.prefill_context,
        n_sampled=step.n_sampled,
        lora_bytes=step.lora_bytes,
        lora_flops=step.lora_flops,
    )


def _phase(window: Window, design: EngineDesign, kind: Kind) -> Phase:
    work, seconds, device = window.work_of(kind), window.step_seconds_of(kind), design.device
    is_timed = seconds > 0
    return Phase(
        kind=kind,
        steps=window.steps_of(kind),
        seconds=seconds,
        share=seconds / window.seconds,
        tokens=tokens_of(work, design),
        flops_per_s=work.flops / seconds if is_timed else 0.0,
        read_bytes_per_s=work.read_bytes / seconds if is_timed else 0.0,
        mfu=mfu(work, seconds, device) if is_timed else 0.0,
        mbu=mbu(work, seconds, device) if is_timed else 0.0,
        intensity=intensity(work) if work.read_bytes else 0.0,
    )


def _read_bytes_per_token(window: Window, design: EngineDesign) -> float | None:
    work = window.work_of("decode")
    n_tokens = tokens_of(work, design)
    return work.read_bytes / n_tokens if n_tokens else None


def _moment(before: Reading, after: Reading, design: EngineDesign) -> Moment:
    old, new = before.stats, after.stats
    seconds = new.uptime_s - old.uptime_s
    work = sum((work_between(old, new, kind) for kind in new.work_by_kind), StepWork())
    is_timed = seconds > 0
    kv = new.kv
    return Moment(
        at=int(after.at),
        tokens_per_s=(new.generated_tokens_total - old.generated_tokens_total) / seconds if is_timed else 0.0,
        mfu=mfu(work, seconds, design.device) if is_timed else 0.0,
        mbu=mbu(work, seconds, design.device) if is_timed else 0.0,
        kv_used_share=(kv.used + kv.reserved + kv.in_flight) / kv.capacity if kv.capacity else 0.0,
        running=new.running,
        waiting=new.waiting,
    )
