"""An engine of the embedded model's shape as it would describe itself, and steps as it would have made them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from lorikeet_engine.config import GIB, MIB, EngineConfig
from lorikeet_engine.cost import ModelCost, StepShape
from lorikeet_engine.design import describe
from lorikeet_engine.simulation.shipped import load_device, load_model
from lorikeet_engine.sizing.capacity import weights_in_memory
from lorikeet_engine.sizing.memory_budget import plan_memory
from lorikeet_engine.stats import EngineDesign, StepSample

FIXED, ROW, TOKEN, PAIR, CONTEXT = 0.03, 0.002, 0.001, 2e-6, 4e-6  # what steps here cost, in seconds


@pytest.fixture(scope="session")
def design() -> EngineDesign:
    spec = load_model("smollm2-135m")
    config = EngineConfig(
        model_dir=Path("model"),
        model_name="smollm2",
        store_url="",
        endpoint="",
        max_model_len=1024,
        max_num_seqs=16,
        kv_cache_bytes=120 * MIB,
        adapter_pool_bytes=64 * MIB,
    )
    weights = weights_in_memory(spec)
    budget = plan_memory(config, spec, itemsize=2, weights_bytes=weights, available_bytes=4 * GIB)
    return describe(
        config,
        budget,
        dtype="bfloat16",
        itemsize=2,
        model=spec,
        cost=ModelCost.of(spec),
        device=load_device("cpu2"),
    )


def seconds_of(shape: StepShape) -> float:
    return (
        FIXED
        + ROW * shape.n_decode
        + TOKEN * shape.n_prefill
        + PAIR * shape.prefill_pairs
        + CONTEXT * shape.decode_context
    )


def shapes_of(*, batches: Sequence[int], contexts: Sequence[int], prompts: int = 10) -> list[StepShape]:
    """Prompts in one chunk beside nobody and beside a batch, and then decodes, for each batch and context."""
    shapes = []
    for batch in batches:
        for context in contexts:
            for others in prompts * (0, batch - 1):
                mixed = StepShape()
                for _ in range(others):
                    mixed.add_decode(context)
                mixed.add_prefill(min(context, 512), 0, samples=True)
                shapes.append(mixed)
            for further in range(20):
                decode = StepShape()
                for _ in range(batch):
                    decode.add_decode(context + 3 * further)
                shapes.append(decode)
    return shapes


def steps_of(shapes: Sequence[StepShape], *, noise: float = 0.05, gap_s: float = 0.004) -> list[StepSample]:
    """As an engine remembers them, one after another, each up to `noise` too short or too long."""
    numbers, end_s, samples = Random(3), 100.0, []
    for shape in shapes:
        seconds = seconds_of(shape) * (1 + noise * (2 * numbers.random() - 1))
        end_s += seconds + gap_s
        kind = "decode" if not shape.n_prefill else "mixed" if shape.n_decode else "prefill"
        samples.append(
            StepSample(
                end_s=end_s,
                kind=kind,
                seconds=seconds,
                n_decode=shape.n_decode,
                decode_context=shape.decode_context,
                n_prefill=shape.n_prefill,
                prefill_pairs=shape.prefill_pairs,
                prefill_context=shape.prefill_context,
                n_sampled=shape.n_sampled,
                lora_bytes=shape.lora_bytes,
                lora_flops=shape.lora_flops,
                running=shape.n_decode + (shape.n_prefill > 0),
                waiting=0,
                kv_used_bytes=0,
            )
        )
    return samples


@pytest.fixture(scope="session")
def steps() -> list[StepSample]:
    """Of 1 to 8 requests at 64 to 577 tokens of context."""
    shapes = shapes_of(batches=(1, 2, 3, 5, 8), contexts=(64, 128, 320, 520))
    Random(1).shuffle(shapes)
    return steps_of(shapes)
