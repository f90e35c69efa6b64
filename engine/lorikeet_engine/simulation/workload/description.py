"""A workload as its file describes it: which engine on which device, and which tenants send what."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import yaml

from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_engine.simulation.workload.strict_records import DescriptionError, read_record

SHIPPED = Path(__file__).parents[1] / "workloads"
MIB, GIB = 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKnobs:
    """The knobs of `EngineConfig` that deciding needs, under the same names and with a GPU's defaults.

    Attributes:
        kv_cache_bytes: 0 = what `gpu_memory_utilization` leaves beside weights and arena.
        adapter_eviction: "gdsf", or "lru" to compare with.
        adapter_affinity: whether requests whose adapter is in the arena may go first, within the fairness quantum.
    """

    max_model_len: int = 8192
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    kv_cache_bytes: int = 0
    gpu_memory_utilization: float = 0.9
    swap_space: int = 4 * GIB
    preemption: Literal["auto", "swap", "recompute"] = "auto"
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    adapter_pool_bytes: int = 2 * GIB
    max_adapters_per_step: int = 64
    host_adapter_cache_bytes: int = 8 * GIB
    max_queued_requests: int = 256
    max_queued_tokens: int = 262_144
    ttft_deadline: float = 10.0
    tenant_queue_share: float = 0.5
    tenant_seat_share: float = 1.0
    tenant_kv_share: float = 1.0
    tenant_arena_share: float = 1.0
    adapter_eviction: Literal["gdsf", "lru"] = "gdsf"
    adapter_affinity: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapters:
    """Adapters of a group of tenants, dealt out to them in turn.

    Attributes:
        zipf: exponent of their popularity; 0 = all alike.
        ranks: drawn with equal chance for each adapter.
        targets: module names, as in PEFT's `target_modules`.
        base_share: how many of the requests ask for the base model.
    """

    count: int
    zipf: float = 1.0
    ranks: tuple[int, ...] = (16,)
    targets: tuple[str, ...] = ("q_proj", "v_proj")
    base_share: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1 or not self.ranks or min(self.ranks) < 1 or not self.targets:
            raise DescriptionError("adapters need a count, ranks and targets, all at least 1")
        if not 0 <= self.base_share <= 1:
            raise DescriptionError("base_share must lie in 0 … 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedPrefixes:
    """Heads that several prompts of one tenant begin with: `share` of the prompts have one of `variants`."""

    tokens: int
    variants: int = 1
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.tokens < 1 or self.variants < 1 or not 0 <= self.share <= 1:
            raise DescriptionError("shared prefixes need tokens and variants of at least 1, and a share in 0 … 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborts:
    """Clients that hang up: `share` of the requests, after a time with mean `after_s`."""

    share: float
    after_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1 or self.after_s <= 0:
            raise DescriptionError("aborts need a share in 0 … 1 and an after_s above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantGroup:
    """`tenants` tenants that behave alike; arrivals, prompts and adapters are those of all of them together.

    Attributes:
        name: of the one tenant, or the first part of the names of several.
        max_tokens: what requests ask for; 0 = exactly what their answer takes.
        has_equal_prompts: prompts of one length are one and the same, which takes no memory; for engines that cache no
            prefixes.
    """

    name: str
    arrivals: Arrivals
    prompt: Lengths
    output: Lengths
    tenants: int = 1
    weight: float = 1.0
    max_tokens: int = 0
    has_equal_prompts: bool = False
    adapters: Adapters | None = None
    shared_prefixes: SharedPrefixes | None = None
    aborts: Aborts | None = None

    def __post_init__(self) -> None:
        if self.tenants < 1 or self.weight <= 0 or self.max_tokens < 0:
            raise DescriptionError("a group needs at least 1 tenant, a weight above 0 and no negative max_tokens")
        if self.adapters and self.adapters.count < self.tenants:
            raise DescriptionError("a group needs at least as many adapters as tenants")

    def tenant_names(self) -> list[str]:
        return [self.name] if self.tenants == 1 else [f"{self.name}-{i}" for i in range(self.tenants)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What a served request must keep to count as good: time to the first token, and mean time between tokens."""

    ttft_s: float = 10.0
    tpot_s: float = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One simulation. It ends after `duration_s` seconds or `n_requests` requests, whichever comes first, and drains.

    Attributes:
        model: a shipped model's name, or the path of a `config.json`.
        device: a shipped device's name, or the path of a profile.
        host_overhead_s: the host's own time between two steps, where the device's constants leave it out.
        tenants: who sends what; or else
        trace: a file of recorded requests, one JSON object a line, beside the description.
    """

    name: str
    model: str
    device: str
    seed: int = 1
    duration_s: float = 0.0
    n_requests: int = 0
    host_overhead_s: float = 0.0
    engine: EngineKnobs = field(default_factory=EngineKnobs)
    slo: Slo = field(default_factory=Slo)
    tenants: tuple[TenantGroup, ...] = ()
    trace: str = ""

    def __post_init__(self) -> None:
        if bool(self.tenants) == bool(self.trace):
            raise DescriptionError("a workload needs tenants or a trace, and not both")
        if self.tenants and self.duration_s <= 0 and self.n_requests <= 0:
            raise DescriptionError("a workload needs a duration_s or an n_requests, or it would never end")
        if self.host_overhead_s < 0:
            raise DescriptionError("host_overhead_s must not be negative")
        if len({group.name for group in self.tenants}) < len(self.tenants):
            raise DescriptionError("two groups of tenants have the same name")


def read_workload(description: object) -> Workload:
    """A workload from parsed YAML or JSON."""
    return read_record(Workload, description, "")


def load_workload(path_or_name: str) -> Workload:
    """A workload from a file, or one of those that are shipped.

    Raises:
        DescriptionError: there is no such file, or it does not describe a workload.
    """
    path = Path(path_or_name)
    if not path.exists():
        path = SHIPPED / f"{path_or_name}.yaml"
    if not path.exists():
        shipped = ", ".join(sorted(known.stem for known in SHIPPED.glob("*.yaml")))
        raise DescriptionError(f"there is no file {path_or_name}, and no such workload is shipped; shipped: {shipped}")
    text = path.read_text()
    try:
        parsed = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise DescriptionError(f"{path.name} cannot be read: {error}") from None
    if isinstance(parsed, dict) and isinstance(parsed.get("trace"), str):
        parsed["trace"] = str(path.parent / parsed["trace"])
    return read_workload(parsed)
