"""Does the engine that will serve an adapter answer alike with it alone and in company?

Two fixed prompts, eight greedy tokens each, of the adapter and of the base model: one question at a time, then all at
once. Every answer must have the same tokens both times.
"""

from __future__ import annotations

from typing import Final

from lorikeet_platform.registry.work.tools import Engine

PROMPTS: Final = ("The capital of France is", "Write one short sentence about the sea:")
N_TOKENS: Final = 8


def is_served_alike(engine: Engine, tenant_id: str, digest: str) -> bool:
    """Asks the engine; raises its errors."""
    engine.warm(tenant_id, digest)
    prompts = [engine.encode(text) for text in PROMPTS]
    questions = [(model, prompt) for prompt in prompts for model in (digest, None)]
    alone = [engine.answers(tenant_id, [question], N_TOKENS)[0] for question in questions]
    together = engine.answers(tenant_id, questions, N_TOKENS)
    return alone == together
