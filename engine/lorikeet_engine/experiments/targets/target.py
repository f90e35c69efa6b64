"""What both targets have in common: the closed-loop workload of a setup, and the settings that nobody asks about."""

from __future__ import annotations

from typing import Protocol

from lorikeet_engine.experiments.record import Machine, PointRecord, SetupValue, Source
from lorikeet_engine.experiments.scenarios.setup import Load, Setup
from lorikeet_engine.simulation.workload.description import EngineKnobs, SharedPrefixes, TenantGroup, Workload
from lorikeet_engine.simulation.workload.distributions import Arrivals, Lengths
from lorikeet_engine.simulation.workload.strict_records import DescriptionError

TENANT = "bench"


class Target(Protocol):
    """Where setups are run."""

    @property
    def source(self) -> Source: ...
    @property
    def machine(self) -> Machine: ...
    def run(self, setup: Setup) -> PointRecord:
        """Raises DescriptionError where it cannot, by the name of the setting."""
        ...


def unlimited(load: Load) -> dict[str, SetupValue]:
    """One tenant is all there is, and nobody is refused; a setup may say otherwise."""
    return {
        "max_queued_requests": max(256, load.concurrency),
        "max_queued_tokens": 1 << 30,
        "ttft_deadline": 0.0,
        "tenant_queue_share": 1.0,
    }


def pool_tokens(setup: Setup, block_size: int) -> int:
    """Raises DescriptionError where they are no whole blocks."""
    if setup.pool_tokens % block_size:
        raise DescriptionError(f"pool_tokens {setup.pool_tokens} are no whole blocks of {block_size} tokens")
    return setup.pool_tokens


def closed_loop(name: str, load: Load, knobs: EngineKnobs, *, model: str, device: str) -> Workload:
    """The load as a workload; answers take all that they ask for.

    Raises:
        DescriptionError: its requests are longer than the engine serves.
    """
    if load.prompt_tokens + load.output_tokens > knobs.max_model_len:
        raise DescriptionError(
            f"prompt_tokens {load.prompt_tokens} and output_tokens {load.output_tokens} are more than the engine's "
            f"max_model_len {knobs.max_model_len}"
        )
    shared = SharedPrefixes(tokens=load.shared_tokens) if load.shared_tokens else None
    return Workload(
        name=name,
        model=model,
        device=device,
        seed=load.seed,
        n_requests=load.concurrency * load.requests_per_client,
        engine=knobs,
        tenants=(
            TenantGroup(
                name=TENANT,
                arrivals=Arrivals(kind="closed", concurrency=load.concurrency, think_s=load.pause_s),
                prompt=Lengths(value=load.prompt_tokens),
                output=Lengths(value=load.output_tokens),
                shared_prefixes=shared,
            ),
        ),
    )
