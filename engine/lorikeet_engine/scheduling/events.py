"""What the scheduler tells about requests, for whoever sent them. Tuples, because hundreds are made every step."""

from __future__ import annotations

from typing import NamedTuple

from lorikeet_engine.errors import EngineError
from lorikeet_engine.scheduling.request import FinishReason


class TokenOutput(NamedTuple):
    """One new token of a request; `finish_reason` is set on its last."""

    request_id: str
    token: int
    finish_reason: FinishReason | None


class RequestFailure(NamedTuple):
    """A request that ended with an error."""

    request_id: str
    error: EngineError


class Admitted(NamedTuple):
    """A request began to run: prompt tokens found in the KV cache, and seconds in the queue. Told once a request.

    `adapter_wait_s` is the part of the queue in which it waited for nothing but its adapter.
    """

    request_id: str
    cached_tokens: int
    queue_s: float
    adapter_wait_s: float


Event = TokenOutput | RequestFailure | Admitted
