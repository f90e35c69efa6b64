"""What crosses the engine's socket: MessagePack frames with a version, one message a frame, never pickle.

A client says `Hello` once a second; the engine answers each with a `Welcome`. Another `session` than before tells the
client that the engine does not know its requests any more: it restarted, or it took the client for dead. A client that
lost its connection aborts what it had running, since tokens may have been lost with it.
"""

from __future__ import annotations

import msgspec

from lorikeet_engine.ledger_snapshot import LedgerSnapshot

PROTOCOL_VERSION = 1
STANDSTILL_S = 120.0  # an engine whose loop has not turned for so long is dead; a large step on a CPU takes part of it


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


class Submit(msgspec.Struct, frozen=True, kw_only=True, tag="submit"):
    """One request. `adapter` is a digest of the tenant's, empty for the base model."""

    request_id: str
    tenant: str
    prompt: list[int]
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int
    adapter: str


class Abort(msgspec.Struct, frozen=True, tag="abort"):
    request_id: str


class AskStats(msgspec.Struct, frozen=True, tag="ask_stats"):
    ticket: int


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    version: int
    session: str
    info: EngineInfo


class Token(msgspec.Struct, frozen=True, array_like=True):
    """One new token of one request; `finish_reason` is empty until its last."""

    request_id: str
    token: int
    finish_reason: str


class Step(msgspec.Struct, frozen=True, tag="step"):
    """All new tokens of one step for one client."""

    tokens: list[Token]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    """A request was refused or broke; `code` is one of `errors.ERRORS_BY_CODE`."""

    request_id: str
    code: str
    message: str
    param: str | None


class AdapterResidency(msgspec.Struct, frozen=True, kw_only=True):
    """One adapter that the engine knows: its state, bytes, and the running requests that use it."""

    tenant: str
    digest: str
    state: str
    bytes: int
    requests: int


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's figures at one moment; `tokens_per_second` counts sampled tokens over the last 10 s."""

    uptime_s: float
    running: int
    waiting: int
    prompt_tokens_total: int
    generated_tokens_total: int
    steps_total: int
    steps_by_kind: dict[str, int]
    tokens_per_second: float
    kv: LedgerSnapshot
    arena: LedgerSnapshot
    adapters: list[AdapterResidency]


class Stats(msgspec.Struct, frozen=True, tag="stats"):
    ticket: int
    stats: EngineStats


ClientMessage = Hello | Submit | Abort | AskStats
EngineMessage = Welcome | Step | Failed | Stats

encode = msgspec.msgpack.Encoder().encode
decode_client = msgspec.msgpack.Decoder(ClientMessage).decode
decode_engine = msgspec.msgpack.Decoder(EngineMessage).decode
