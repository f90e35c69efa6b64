"""A sweep: setups of load and engine that differ in what is asked about, run one after another on equal terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from lorikeet_engine.experiments.record import SetupValue
from lorikeet_engine.simulation.workload.strict_records import DescriptionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Clients in a closed loop, each sending its next request a moment after its last answer.

    Attributes:
        prompt_tokens: random ones, save for a head of `shared_tokens` that all prompts begin with.
        output_tokens: of every answer, whatever the model says.
        pause_s: between an answer and the client's next request: HTTP and tokenising.
    """

    prompt_tokens: int = 512
    output_tokens: int = 256
    concurrency: int = 8
    shared_tokens: int = 0
    requests_per_client: int = 6
    pause_s: float = 0.005
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "output_tokens", "concurrency", "requests_per_client"):
            if getattr(self, name) < 1:
                raise DescriptionError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.shared_tokens < self.prompt_tokens:
            raise DescriptionError(f"shared_tokens {self.shared_tokens} must lie in 0 … prompt_tokens - 1")
        if self.pause_s < 0:
            raise DescriptionError(f"pause_s must not be negative, not {self.pause_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One point of a sweep.

    Attributes:
        pool_tokens: room of the KV pool in tokens, whatever the model; 0 = as the engine sizes it.
        engine: other settings of the engine that differ from their defaults, under their own names.
    """

    load: Load
    pool_tokens: int = 0
    engine: Mapping[str, SetupValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.pool_tokens < 0:
            raise DescriptionError(f"pool_tokens must not be negative, not {self.pool_tokens}")
        if self.pool_tokens and "kv_cache_bytes" in self.engine:
            raise DescriptionError("pool_tokens and kv_cache_bytes both size the KV pool; give one of them")

    def values(self) -> dict[str, SetupValue]:
        """What the record keeps of it."""
        load: dict[str, SetupValue] = {name: getattr(self.load, name) for name in LOAD_NAMES}
        pool: dict[str, SetupValue] = {"pool_tokens": self.pool_tokens} if self.pool_tokens else {}
        return load | pool | dict(self.engine)


LOAD_NAMES = tuple(field.name for field in fields(Load))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Points along `axis`, a name in their setups; points that differ in anything else too are lines of their own.

    Attributes:
        model: of a simulator a shipped model's name or the path of a `config.json`, of an engine a model as
            `lorikeet_engine.prepare_model` takes it.
        device: of a simulator a shipped profile's name or its path, of an engine "cpu", "cuda" or "auto".
    """

    name: str
    axis: str
    model: str
    device: str
    setups: Sequence[Setup]

    def __post_init__(self) -> None:
        if not self.setups:
            raise DescriptionError("a scenario needs at least one setup")
        if self.axis and any(self.axis not in setup.values() for setup in self.setups):
            raise DescriptionError(f"axis {self.axis} is not in every setup")
