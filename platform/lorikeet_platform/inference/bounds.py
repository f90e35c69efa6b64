"""What one request may ask for: answers, tokens, and room in the context, by the model and by its caller's limits."""

from __future__ import annotations

from typing import Final

from lorikeet_engine.client import Cap, EngineInfo
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.inference.schemas import SamplingFields
from lorikeet_platform.limits.effective import EffectiveLimits

# Longest answer of a request that names no limit.
DEFAULT_MAX_TOKENS: Final = 1024


def check_prompt(prompt: tuple[int, ...], field: str, info: EngineInfo) -> None:
    if not prompt:
        raise PlatformError("invalid_value", f"{field}: must hold at least one token", param=field)
    if max(prompt) >= info.vocab:
        raise PlatformError("invalid_value", f"{field}: token ids lie below {info.vocab}", param=field)


def check_answers(body: SamplingFields, limits: EffectiveLimits) -> None:
    """Raises PlatformError(invalid_value) for more answers than the limit allows."""
    limit = limits["max_n"]
    if body.n > limit.value:
        raise PlatformError("invalid_value", f"n: the {limit.origin}'s limit is {limit.value} answers", param="n")


def answer_tokens(body: SamplingFields, n_prompt: int, n_context: int, limits: EffectiveLimits) -> int:
    """How many tokens each answer may have.

    Args:
        n_context: the model's context.

    Raises:
        PlatformError: invalid_value for more tokens than the limit allows, context_length_exceeded.
    """
    longest = limits["max_output_tokens"]
    wanted = 1 if body.limit is None else body.limit
    if wanted > longest.value:
        raise PlatformError(
            "invalid_value", f"max_tokens: the {longest.origin}'s limit is {longest.value} tokens", param="max_tokens"
        )
    room = limits["max_context"]
    context, whose = min((n_context, "the model's context"), (room.value, f"the {room.origin}'s limit"))
    if n_prompt + wanted > context:
        raise PlatformError(
            "context_length_exceeded",
            f"the prompt has {n_prompt} tokens and max_tokens is {wanted}; "
            f"together they exceed {whose} of {context} tokens",
            param=body.PROMPT if n_prompt >= context else "max_tokens",
        )
    return min(context - n_prompt, DEFAULT_MAX_TOKENS, longest.value) if body.limit is None else body.limit


def caps_of(caller: Principal) -> tuple[Cap, ...]:
    """What the engine holds the tenant and, where it has limits of its own, the key's lineage to."""
    tenant, own = caller.limits.of_tenant, caller.limits.of_key
    caps = (Cap(caller.tenant_id, tenant["concurrent"].value, tenant["queue_depth"].value),)
    if "concurrent" not in own and "queue_depth" not in own:
        return caps
    concurrent, waiting = caller.limits["concurrent"].value, caller.limits["queue_depth"].value
    return (*caps, Cap(caller.subject_id, concurrent, waiting))
