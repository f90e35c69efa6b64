"""Between the socket's messages and the engine's own records: what a submit asks for, and how an answer is put."""

from __future__ import annotations

from lorikeet_engine.errors import EngineError, InvalidRequest
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.outbox.book import Use
from lorikeet_engine.protocol import MAX_CHOICES, Failed, RequestCounts, Submit, Warmed, sequence_id
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request

MAX_CAPS = 8
SEED_STRIDE = 1 << 64  # callers' seeds have 64 bits, so the answers of one request never repeat another's draws


def check(message: Submit) -> None:
    """Refuse what nothing behind the socket can honour; the gateway checks too, but a peer is not trusted for it."""
    if not 0.0 <= message.temperature < float("inf"):
        raise InvalidRequest(f"temperature is {message.temperature}; it must be at least 0", param="temperature")
    if not 0.0 < message.top_p <= 1.0:
        raise InvalidRequest(f"top_p is {message.top_p}; it must be in (0, 1]", param="top_p")
    if message.top_k < 0:
        raise InvalidRequest(f"top_k is {message.top_k}; it must be at least 0", param="top_k")
    if not 1 <= message.n <= MAX_CHOICES:
        raise InvalidRequest(f"n is {message.n}; it must be from 1 to {MAX_CHOICES}", param="n")
    if len(message.caps) > MAX_CAPS:
        raise InvalidRequest(f"a request comes with at most {MAX_CAPS} caps, not {len(message.caps)}")
    if not 0.0 < message.weight < float("inf"):
        raise InvalidRequest(f"weight is {message.weight}; it must be positive", param="weight")


def requests_of(message: Submit) -> list[Request]:
    prompt = tuple(message.prompt)
    return [
        Request(
            request_id=sequence_id(message.request_id, index),
            tenant=message.tenant,
            weight=message.weight,
            prompt=prompt,
            max_tokens=message.max_tokens,
            sampling=SamplingParams(
                message.temperature, message.top_p, message.top_k, message.seed + index * SEED_STRIDE
            ),
            adapter=AdapterKey(message.tenant, message.adapter) if message.adapter else None,
            cache_salt=message.cache_salt,
            ignore_eos=message.ignore_eos,
        )
        for index in range(message.n)
    ]


def counts_of(use: Use) -> RequestCounts:
    return RequestCounts(
        request_id=use.request_id,
        tenant=use.tenant,
        state="running" if use.n_uncharged else use.state,
        prompt_tokens=use.prompt_tokens,
        cached_tokens=use.cached_tokens,
        completion_tokens=use.completion_tokens,
        cost=use.cost if use.is_whole else None,
    )


def warmed(ticket: int, error: EngineError | None) -> Warmed:
    if error is None:
        return Warmed(ticket, "", "", None)
    return Warmed(ticket, error.code, error.message, error.retry_after_s)


def failed(request_id: str, error: EngineError) -> Failed:
    return Failed(
        request_id=request_id,
        code=error.code,
        message=error.message,
        param=error.param,
        retry_after_s=error.retry_after_s,
        reason=error.reason,
    )
