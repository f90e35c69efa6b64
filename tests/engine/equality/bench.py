"""An engine to ask, and how to ask it: requests in waves, tokens out."""

from __future__ import annotations

from dataclasses import dataclass

from lorikeet_engine.build import Engine
from lorikeet_engine.config import EngineConfig
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import TokenOutput
from tests.engine.equality.prompts import BASE, N_TOKENS

TENANT = "tenant"


@dataclass(frozen=True)
class Workbench:
    """A built engine and the digests of the demo adapters in its store."""

    engine: Engine
    digests: dict[str, str]
    config: EngineConfig


def make_request(bench: Workbench, name: str, index: int, prompt: list[int], max_tokens: int = N_TOKENS) -> Request:
    return Request(
        request_id=f"{name}-{index}",
        tenant=TENANT,
        prompt=tuple(prompt),
        max_tokens=max_tokens,
        sampling=SamplingParams(),
        adapter=None if name == BASE else AdapterKey(TENANT, bench.digests[name]),
    )


def run(bench: Workbench, waves: list[list[Request]], *, steps_between: int) -> dict[str, list[int]]:
    """Submit wave after wave, a few steps apart, and step until all are done."""
    tokens: dict[str, list[int]] = {}
    loop, pending = bench.engine.loop, list(waves)
    step = 0
    while pending or loop.has_work:
        if pending and step % steps_between == 0:
            for request in pending.pop(0):
                loop.submit(request)
        for event in loop.step(float(step)):
            assert isinstance(event, TokenOutput), event
            tokens.setdefault(event.request_id, []).append(event.token)
        step += 1
    return tokens
