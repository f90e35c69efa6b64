"""What crosses the engine's socket: MessagePack frames with a version, one message a frame, never pickle.

A client says `Hello` once a second; the engine answers each with a `Welcome`. Another `session` than before tells the
client that the engine does not know its requests any more: it restarted, or it took the client for dead. A client that
lost its connection aborts what it had running, since tokens may have been lost with it.
"""

from __future__ import annotations

import msgspec

from lorikeet_engine.cost_vector import CostVector
from lorikeet_engine.stats import AdapterResidency, EngineDesign, EngineStats, PromptHeads, StepSample

PROTOCOL_VERSION = 5
STANDSTILL_S = 120.0  # an engine whose loop has not turned for so long is dead; a large step on a CPU takes part of it
UNCLAIMED_AFTER_S = 30.0  # a client that lives settles within seconds
MAX_CHOICES = 8  # answers to one prompt; each takes a seat of the batch


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs to know of the engine before it can send work."""

    model_name: str
    model_digest: str
    device: str
    dtype: str
    max_model_len: int
    block_size: int
    vocab: int


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    version: int


class Cap(msgspec.Struct, frozen=True, array_like=True):
    """How many requests of one subject, a tenant or a key's lineage, may be in the engine, and how many of them wait.

    Sent with every request, so that the newest word counts; 0 = none.
    """

    subject: str
    concurrent: int
    waiting: int


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """One prompt with `n` answers to it, named by `sequence_id`; all of them are taken, or none.

    `adapter` is a digest of the tenant's, empty for the base model. `cache_salt` separates the tenant's prefix cache.
    The request counts for every subject in `caps`, once whatever `n` is. With `ignore_eos` an answer ends at
    `max_tokens` only.
    """

    request_id: str
    tenant: str
    weight: float
    cache_salt: bytes
    n: int
    prompt: list[int]
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int
    adapter: str
    caps: list[Cap]
    ignore_eos: bool


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    """Stop one answer of a request, or all that are left when `index` is None."""

    request_id: str
    index: int | None


class Settled(msgspec.Struct, frozen=True, tag="settled"):
    """The use of these requests is on record: the engine need not remember it any more."""

    request_ids: list[str]


class AskCounts(msgspec.Struct, frozen=True, tag="ask_counts"):
    """What these requests have used, as far as the engine knows them; without ids, every ended one that nobody claims.

    Nobody claims a request whose client is gone, or has not said `Settled` for `UNCLAIMED_AFTER_S` since its end.
    """

    ticket: int
    request_ids: list[str]


class Retire(msgspec.Struct, frozen=True, tag="retire"):
    """Take an adapter out of service: nothing new starts on it.

    What runs ends as it began, or at once with `force`, with the error `adapter_retired`.
    """

    tenant: str
    digest: str
    force: bool


class Warm(msgspec.Struct, frozen=True, tag="warm"):
    """Put an adapter into service again if it was retired, and bring its image into host memory: see `Warmed`."""

    ticket: int
    tenant: str
    digest: str


class AskStats(msgspec.Struct, frozen=True, tag="ask_stats"):
    """The engine's figures; `names_adapters`: the adapters in demand one by one, too."""

    ticket: int
    names_adapters: bool = False


class AskAdapter(msgspec.Struct, frozen=True, tag="ask_adapter"):
    """What the engine knows of one adapter."""

    ticket: int
    tenant: str
    digest: str


class AskSteps(msgspec.Struct, frozen=True, tag="ask_steps"):
    """The steps that ended after `after_s` on the engine's clock, as far as it remembers them."""

    ticket: int
    after_s: float


class AskPrompts(msgspec.Struct, frozen=True, tag="ask_prompts"):
    """How alike the newest prompts are, of the tenants that look most up in the prefix cache."""

    ticket: int


class AskDesign(msgspec.Struct, frozen=True, tag="ask_design"):
    ticket: int


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    version: int
    session: str
    info: EngineInfo


class Token(msgspec.Struct, frozen=True, array_like=True):
    """One new token of one sequence; `finish_reason` is empty until its last."""

    request_id: str
    token: int
    finish_reason: str


class Admitted(msgspec.Struct, frozen=True, array_like=True):
    """A sequence left the queue after `queue_s`; the keys and values of `cached_tokens` of its prompt were there.

    For `adapter_wait_s` of the queue it waited for nothing but its adapter.
    """

    request_id: str
    cached_tokens: int
    queue_s: float
    adapter_wait_s: float


class Step(msgspec.Struct, frozen=True, tag="step"):
    """All that one step made for one client; a sequence is admitted before its first token."""

    tokens: list[Token]
    admitted: list[Admitted]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """A request was refused, or one of its sequences broke; `code` is one of `errors.ERRORS_BY_CODE`.

    `retry_after_s` and `reason` (one of `errors.REFUSAL_REASONS`) are set where waiting helps.
    """

    request_id: str
    code: str
    message: str
    param: str | None
    retry_after_s: float | None
    reason: str


class RequestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What one request has used. `state` is "running" (or waiting), "ended", or "lost": it ran when its engine died.

    Tokens behind a stop string count here: only the client knows about those. `cost` is None while it runs, which it
    does to the end of the step that it was aborted in, and of what an engine before this one computed.
    """

    request_id: str
    tenant: str
    state: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    cost: CostVector | None


class Counts(msgspec.Struct, frozen=True, tag="counts"):
    ticket: int
    requests: list[RequestCounts]


class Warmed(msgspec.Struct, frozen=True, tag="warmed"):
    """The adapter's image is in host memory or on the device, `code` is empty; or why it is not, as in `Failed`."""

    ticket: int
    code: str
    message: str
    retry_after_s: float | None


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    ticket: int
    stats: EngineStats


class Adapter(msgspec.Struct, frozen=True, tag="adapter"):
    """`adapter` is None for one that the engine does not know: nobody runs on it or waits for it."""

    ticket: int
    adapter: AdapterResidency | None


class Steps(msgspec.Struct, frozen=True, tag="steps"):
    """`now_s` is the engine's clock."""

    ticket: int
    now_s: float
    samples: list[StepSample]


class Prompts(msgspec.Struct, frozen=True, tag="prompts"):
    ticket: int
    heads: list[PromptHeads]


class Design(msgspec.Struct, frozen=True, tag="design"):
    ticket: int
    design: EngineDesign


Question = AskCounts | AskStats | AskAdapter | AskSteps | AskPrompts | AskDesign
ClientMessage = Hello | Submit | Settled | Abort | Retire | Warm | Question
EngineMessage = Welcome | Step | Failed | Warmed | Counts | Stats | Adapter | Steps | Prompts | Design

encode = msgspec.msgpack.Encoder().encode
decode_client = msgspec.msgpack.Decoder(ClientMessage).decode
decode_engine = msgspec.msgpack.Decoder(EngineMessage).decode


def sequence_id(request_id: str, index: int) -> str:
    """The name of one answer of a request; the first has the request's own."""
    return f"{request_id}#{index}" if index else request_id
