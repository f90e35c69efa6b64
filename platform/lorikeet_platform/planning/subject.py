"""What is planned for: a model on a device with its settings and its divided memory.

Either a shipped pair, sized as an engine would size itself at start, or the engine that runs. Settings that the
question names take the place of its own, and the memory is divided anew by the engine's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

from lorikeet_engine.config import EngineConfig, read_config
from lorikeet_engine.cost import DeviceProfile, ModelCost, blocks_for
from lorikeet_engine.errors import UnsupportedModel
from lorikeet_engine.model_spec import ModelSpec
from lorikeet_engine.simulation.shipped import load_device, load_model
from lorikeet_engine.simulation.workload.strict_records import DescriptionError
from lorikeet_engine.sizing.capacity import weights_in_memory
from lorikeet_engine.sizing.memory_budget import GPU_MAX_SEQS, GPU_SHARE, MemoryBudget, plan_memory
from lorikeet_engine.sizing.step_memory import few_numbers
from lorikeet_engine.stats import EngineDesign
from lorikeet_platform.errors import PlatformError

ITEMSIZE = 2  # bf16, unless a running engine says otherwise
HOST_BYTES = 1 << 50  # nobody knows the host of a device that is only planned; what lies on it is not checked

Knobs = Mapping[str, int | float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """
    Attributes:
        config: with every automatic value but `max_num_seqs` decided.
        memory: the rows of the memory table; they add up to `available_bytes`.
        n_blocks: KV blocks that requests can have.
        is_stretched: `max_model_len` was set to what the workload needs, since the automatic one does not do.
    """

    model: str
    device: str
    spec: ModelSpec
    cost: ModelCost
    profile: DeviceProfile
    itemsize: int
    config: EngineConfig
    memory: tuple[tuple[str, int], ...]
    available_bytes: int
    n_blocks: int
    block_bytes: int
    max_model_len: int
    is_stretched: bool = False

    @property
    def pool_tokens(self) -> int:
        return self.n_blocks * self.config.block_size

    def request_blocks(self, n_tokens: int) -> int:
        return blocks_for(n_tokens, self.config.block_size)


def shipped_model(name: str) -> ModelSpec:
    """By name or path; raises PlatformError(invalid_value)."""
    return cast(ModelSpec, _found("model", load_model, name))


def shipped_device(name: str) -> DeviceProfile:
    return cast(DeviceProfile, _found("device", load_device, name))


def new_subject(model: str, spec: ModelSpec, profile: DeviceProfile, knobs: Knobs, context: int) -> Subject:
    """An engine that would be started on the whole device, with room for requests of `context` tokens.

    Raises:
        PlatformError: invalid_value naming the field.
    """
    kind = "cpu" if profile.shares_host_memory else "cuda"
    config = _config({"device": kind} | dict(knobs), model)
    share = 1.0 if kind == "cpu" else config.gpu_memory_utilization or GPU_SHARE
    return _divided(
        Subject(
            model=model,
            device=profile.name,
            spec=spec,
            cost=ModelCost.of(spec, itemsize=ITEMSIZE),
            profile=profile,
            itemsize=ITEMSIZE,
            config=config,
            memory=(("weights", weights_in_memory(spec, itemsize=ITEMSIZE)),),
            available_bytes=int(profile.memory_bytes * share),
            n_blocks=0,
            block_bytes=0,
            max_model_len=0,
        ),
        knobs,
        context,
    )


def running_subject(model: str, design: EngineDesign, knobs: Knobs, context: int) -> Subject:
    """The engine that runs; its own table where nothing about it is asked to change."""
    values = {name: value for name, value in design.knobs.items() if name != "gpu_memory_utilization" or value}
    config = _config(values, model)
    running = Subject(
        model=model,
        device=design.device.name,
        spec=design.model,
        cost=design.cost,
        profile=design.device,
        itemsize=design.itemsize,
        config=config,
        memory=tuple((name, n_bytes) for name, n_bytes in design.memory),
        available_bytes=design.available_bytes,
        n_blocks=design.n_blocks,
        block_bytes=design.block_bytes,
        max_model_len=design.max_model_len,
    )
    if not knobs and context <= design.max_model_len:
        return running
    available = design.available_bytes
    if config.device == "cuda":
        values |= {"kv_cache_bytes": 0}  # what the rest leaves, unless the question says otherwise
        more = float(knobs.get("gpu_memory_utilization", 0)) - config.gpu_memory_utilization
        available += int(more * design.device.memory_bytes) if "gpu_memory_utilization" in knobs else 0
    changed = replace(running, config=_config(values | dict(knobs), model), available_bytes=available)
    return _divided(changed, knobs, context)


def _found(param: str, load: Any, name: str) -> Any:
    try:
        return load(name)
    except DescriptionError as error:
        raise PlatformError("invalid_value", f"{error}.", param) from None


def _config(values: Mapping[str, Any], model: str) -> EngineConfig:
    """Settings of an engine that nobody starts: its places are empty."""
    places = {"model_dir": "", "model_name": model, "store_url": "", "endpoint": ""}
    try:
        return read_config({**values, **places})
    except ValueError as error:
        raise PlatformError("invalid_value", f"{error}.", _knob_in(str(error))) from None


def _knob_in(sentence: str) -> str:
    name = sentence.replace("(", " ").replace(":", " ").split()[0]
    return f"knobs.{name}" if "_" in name else "knobs"


def _divided(subject: Subject, knobs: Knobs, context: int) -> Subject:
    """With its memory divided; `max_model_len` gives way where it is automatic and does not suit the workload."""
    if context > subject.spec.max_positions:
        raise PlatformError(
            "invalid_value",
            f"prompt_tokens and output_tokens are {context} tokens together; {subject.model} has a context of "
            f"{subject.spec.max_positions}.",
            "prompt_tokens",
        )
    try:
        budget = _budget(subject, subject.config)
        is_stretched = budget.max_model_len < context
    except UnsupportedModel:
        is_stretched = True
    if is_stretched:
        blocks = blocks_for(context, subject.config.block_size)
        needed = min(blocks * subject.config.block_size, subject.spec.max_positions)
        try:
            budget = _budget(subject, replace(subject.config, max_model_len=needed))
        except UnsupportedModel as error:
            param = f"knobs.{next(iter(knobs))}" if knobs else "device"
            sentence = str(error).partition("\n")[0]
            raise PlatformError("invalid_value", f"{subject.model} on {subject.device}: {sentence}.", param) from None
    config = replace(subject.config, kv_cache_bytes=budget.kv_bytes, max_model_len=budget.max_model_len)
    return replace(
        subject,
        config=config,
        memory=budget.rows,
        available_bytes=budget.available_bytes,
        n_blocks=budget.n_blocks - 1,  # the first one is never handed out
        block_bytes=budget.block_bytes,
        max_model_len=budget.max_model_len,
        is_stretched=is_stretched,
    )


def _budget(subject: Subject, config: EngineConfig) -> MemoryBudget:
    is_gpu = config.device == "cuda"
    return plan_memory(
        config,
        subject.spec,
        itemsize=subject.itemsize,
        weights_bytes=dict(subject.memory)["weights"],
        available_bytes=subject.available_bytes,
        host_bytes=HOST_BYTES if is_gpu else None,
        recorded_rows=few_numbers(config.max_num_seqs or GPU_MAX_SEQS) if is_gpu else (),
    )
