"""A scripted engine as a process of its own, behind the engine's real socket: what it answers is told from outside.

    python -m tests.support.engine_process ENDPOINT CONTROL MODEL_DIGEST

Every answer spells the letter of who answers (`letter_of`), so a test sees which adapter did. It counts like the real
engine: tokens are remembered from a request's end until somebody says that they are settled, and are offered to whoever
asks when nobody does. What it does not have: a batch, memory, an outbox on disk.

A second socket takes the controls, JSON in and out: see `EngineControls`.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import signal
import sys
import time
import uuid
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import msgspec
import zmq

from lorikeet_engine.protocol import (
    PROTOCOL_VERSION,
    Abort,
    Adapter,
    Admitted,
    AskAdapter,
    AskCounts,
    AskStats,
    Counts,
    EngineInfo,
    Failed,
    Hello,
    RequestCounts,
    Retire,
    Settled,
    Stats,
    Step,
    Submit,
    Token,
    Warm,
    Warmed,
    Welcome,
    decode_client,
    encode,
    sequence_id,
)
from lorikeet_engine.socket_keys import keep_alive
from lorikeet_engine.stats import AdapterResidency, EngineStats
from tests.support.engine_figures import A_POOL, engine_stats, resident
from tests.support.nothing_seen import nothing_seen

CONTEXT: Final = 4096
VOCAB: Final = 128
EOS: Final = 2
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
# Shorter than the real engine's, so that a test sees a gateway's process die within seconds.
CLIENT_TIMEOUT_S: Final = 3.0
UNCLAIMED_AFTER_S: Final = 2.0
IDLE_MS: Final = 20


def letter_of(digest: str | None) -> str:
    """What an adapter's answers consist of; the base model's for None or an empty digest."""
    return LETTERS[int(hashlib.sha256((digest or "base").encode()).hexdigest(), 16) % len(LETTERS)]


@dataclass(frozen=True)
class Script:
    """How a tenant's requests are answered.

    Attributes:
        tokens: length of an answer that ends by itself; 0 = as long as it may be.
        first_after_s, pace_s: until the first token, and between two.
        hold: say nothing until it is told otherwise.
        refuse: a code of the engine's errors to answer with instead.
    """

    tokens: int = 4
    first_after_s: float = 0.0
    pace_s: float = 0.0
    hold: bool = False
    refuse: str = ""


@dataclass
class Run:
    """One request: what was asked, how far its answers are, and what the engine would bill."""

    client: bytes
    asked: Submit
    came_s: float
    made: int = 0  # tokens of each answer; all advance together
    stopped: set[int] = field(default_factory=set)
    is_held: bool = False
    completion_tokens: int = 0
    ended_s: float | None = None

    def counts(self) -> RequestCounts:
        return RequestCounts(
            request_id=self.asked.request_id,
            tenant=self.asked.tenant,
            state="running" if self.ended_s is None else "ended",
            prompt_tokens=len(self.asked.prompt) if self.completion_tokens else 0,
            cached_tokens=0,
            completion_tokens=self.completion_tokens,
            cost=None,
        )


class ScriptedEngineProcess:
    """One thread, two sockets.

    Args:
        client_timeout_s: how long a gateway may be silent.
    """

    def __init__(
        self, endpoint: str, control: str, model_digest: str, *, client_timeout_s: float = CLIENT_TIMEOUT_S
    ) -> None:
        self._client_timeout_s = client_timeout_s
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._socket.sndhwm = 0
        self._socket.router_handover = True
        keep_alive(self._socket)
        self._socket.bind(endpoint)
        self._control: zmq.Socket[bytes] = self._context.socket(zmq.REP)
        self._control.bind(control)
        self._session = uuid.uuid4().hex
        self._digest = model_digest
        self._scripts: dict[str, Script] = {"": Script()}
        self._runs: dict[str, Run] = {}  # until somebody says that they are settled
        self._inside: dict[str, Run] = {}
        self._subjects: Counter[str] = Counter()
        self._due: list[tuple[float, str]] = []
        self._seen_s: dict[bytes, float] = {}
        self._retired: set[tuple[str, str]] = set()
        self._totals: Counter[str] = Counter()
        self.stopping = False

    def run(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._control, zmq.POLLIN)
        while not self.stopping:
            due_ms = (self._due[0][0] - time.monotonic()) * 1e3 if self._due else IDLE_MS
            wait_ms = int(max(0, min(IDLE_MS, due_ms)))
            ready = dict(poller.poll(wait_ms))
            if self._control in ready:
                self._control.send(json.dumps(self._obey(json.loads(self._control.recv()))).encode())
            if self._socket in ready:
                self._receive_all()
            self._drop_silent_clients()
            self._answer_due()
        self._context.destroy(linger=0)

    # ---- controls

    def _obey(self, told: dict[str, Any]) -> object:
        match told.pop("do"):
            case "script":
                tenant = told.pop("tenant", "")
                self._scripts[tenant] = replace(self._script_of(tenant), **told)
                self._let_go()
                return asdict(self._scripts[tenant])
            case "forget":
                self._scripts = {"": Script()}
                self._totals.clear()
                self._let_go()
                return None
            case "state":
                unsettled = [run.counts() for run in self._runs.values() if run.ended_s is not None]
                return {
                    "inside": len(self._inside),
                    "unsettled": len(unsettled),
                    "clients": len(self._seen_s),
                    **{name: self._totals[name] for name in ("submitted", "refused", "ended", "aborted", "settled")},
                }
        raise ValueError("no such control")

    def _let_go(self) -> None:
        for request_id, run in self._inside.items():
            if run.is_held and not self._script_of(run.asked.tenant).hold:
                run.is_held = False
                heapq.heappush(self._due, (time.monotonic(), request_id))

    def _script_of(self, tenant: str) -> Script:
        return self._scripts.get(tenant, self._scripts[""])

    # ---- messages

    def _receive_all(self) -> None:
        while True:
            try:
                client, frame = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._seen_s[client] = time.monotonic()
            try:
                message = decode_client(frame)
            except msgspec.MsgspecError:
                continue
            match message:
                case Hello():
                    self._send(client, Welcome(PROTOCOL_VERSION, self._session, self._info()))
                case Submit():
                    self._submit(client, message)
                case Abort(request_id, index):
                    self._abort(request_id, index)
                case Settled(request_ids):
                    self._totals["settled"] += sum(self._runs.pop(name, None) is not None for name in request_ids)
                case AskCounts(ticket, request_ids):
                    self._send(client, Counts(ticket, self._counts(request_ids)))
                case Retire(tenant, digest, force):
                    self._retire(tenant, digest, force=force)
                case Warm(ticket, tenant, digest):
                    self._retired.discard((tenant, digest))
                    self._send(client, Warmed(ticket, "", "", None))
                case AskStats(ticket):
                    self._send(client, Stats(ticket, self._stats()))
                case AskAdapter(ticket, tenant, digest):
                    self._send(client, Adapter(ticket, self._adapters().get((tenant, digest))))
                case _:
                    self._send(client, nothing_seen(message))

    def _info(self) -> EngineInfo:
        return EngineInfo(
            model_name="scripted",
            model_digest=self._digest,
            device="none",
            dtype="float32",
            max_model_len=CONTEXT,
            block_size=16,
            vocab=VOCAB,
        )

    def _stats(self) -> EngineStats:
        room, adapters = replace(A_POOL, capacity=1 << 30), list(self._adapters().values())
        return engine_stats(arena=room, host=room, running=len(self._inside), waiting=0, adapters=adapters)

    def _adapters(self) -> dict[tuple[str, str], AdapterResidency]:
        asked = Counter((run.asked.tenant, run.asked.adapter) for run in self._inside.values() if run.asked.adapter)
        return {(tenant, name): resident(name, tenant=tenant, requests=n) for (tenant, name), n in asked.items()}

    def _submit(self, client: bytes, asked: Submit) -> None:
        self._totals["submitted"] += 1
        script = self._script_of(asked.tenant)
        code = script.refuse
        if (asked.tenant, asked.adapter) in self._retired:
            code = "adapter_retired"
        elif any(self._subjects[cap.subject] >= cap.concurrent for cap in asked.caps):
            code = "concurrency_limit_exceeded"
        if code:
            self._totals["refused"] += 1
            self._send(client, _failed(asked.request_id, code))
            return
        run = Run(client, asked, time.monotonic())
        self._runs[asked.request_id] = self._inside[asked.request_id] = run
        self._subjects.update(cap.subject for cap in asked.caps)
        heapq.heappush(self._due, (run.came_s + script.first_after_s, asked.request_id))

    def _abort(self, request_id: str, index: int | None) -> None:
        run = self._inside.get(request_id)
        if run is None:
            return
        run.stopped.update(range(run.asked.n) if index is None else (index,))
        if len(run.stopped) == run.asked.n:
            self._totals["aborted"] += 1
            self._end(run)

    def _retire(self, tenant: str, digest: str, *, force: bool) -> None:
        self._retired.add((tenant, digest))
        for request_id, run in list(self._inside.items()):
            if force and (run.asked.tenant, run.asked.adapter) == (tenant, digest):
                self._send(run.client, _failed(request_id, "adapter_retired"))
                self._end(run)

    def _counts(self, request_ids: list[str]) -> list[RequestCounts]:
        if request_ids:
            return [self._runs[name].counts() for name in request_ids if name in self._runs]
        late = time.monotonic() - UNCLAIMED_AFTER_S
        return [
            run.counts()
            for run in self._runs.values()
            if run.ended_s is not None and (run.ended_s < late or run.client not in self._seen_s)
        ]

    # ---- answers

    def _answer_due(self) -> None:
        now = time.monotonic()
        steps: dict[bytes, Step] = {}
        while self._due and self._due[0][0] <= now:
            _, request_id = heapq.heappop(self._due)
            run = self._inside.get(request_id)
            if run is None:
                continue
            script = self._script_of(run.asked.tenant)
            run.is_held = script.hold
            if not run.is_held:
                self._advance(run, script, steps.setdefault(run.client, Step([], [])), now)
        for client, step in steps.items():
            self._send(client, step)

    def _advance(self, run: Run, script: Script, step: Step, now: float) -> None:
        asked = run.asked
        left = [index for index in range(asked.n) if index not in run.stopped]
        if run.made == 0:
            step.admitted.extend(
                Admitted(sequence_id(asked.request_id, index), 0, now - run.came_s, 0.0) for index in range(asked.n)
            )
        run.made += 1
        is_full = run.made >= asked.max_tokens
        is_said = 0 < script.tokens <= run.made
        token = EOS if is_said and not is_full else ord(letter_of(asked.adapter))
        reason = "length" if is_full else "stop" if is_said else ""
        step.tokens.extend(Token(sequence_id(asked.request_id, index), token, reason) for index in left)
        run.completion_tokens += len(left)
        if reason:
            self._totals["ended"] += 1
            self._end(run)
        else:
            heapq.heappush(self._due, (_next_step(now, script.pace_s), asked.request_id))

    def _end(self, run: Run) -> None:
        run.ended_s = time.monotonic()
        del self._inside[run.asked.request_id]
        self._subjects.subtract(cap.subject for cap in run.asked.caps)

    def _drop_silent_clients(self) -> None:
        limit = time.monotonic() - self._client_timeout_s
        for client in [client for client, seen_s in self._seen_s.items() if seen_s < limit]:
            del self._seen_s[client]
            for request_id in [name for name, run in self._inside.items() if run.client == client]:
                self._abort(request_id, None)

    def _send(self, client: bytes, message: object) -> None:
        self._socket.send_multipart([client, encode(message)])


def _next_step(now: float, pace_s: float) -> float:
    """All answers of one pace move on together, as those of a batch do."""
    return (now // pace_s + 1) * pace_s if pace_s else now


def _failed(request_id: str, code: str) -> Failed:
    said = "as the script says"
    return Failed(request_id=request_id, code=code, message=said, param=None, retry_after_s=1.0, reason="")


class EngineControls:
    """A test's hand on the process."""

    def __init__(self, address: str) -> None:
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.REQ)
        self._socket.connect(address)

    def script(self, tenant: str = "", **changes: Any) -> None:
        """Change how one tenant, by its id, is answered from now on, or everybody without a script of its own."""
        self._tell(do="script", tenant=tenant, **changes)

    def state(self) -> dict[str, int]:
        """How many requests are inside, unsettled, and so far submitted, refused, ended, aborted, settled."""
        told: dict[str, int] = self._tell(do="state")
        return told

    def forget(self) -> None:
        """Back to the first script, and totals of zero."""
        self._tell(do="forget")

    def close(self) -> None:
        self._context.destroy(linger=0)

    def _tell(self, **words: Any) -> Any:
        self._socket.send(json.dumps(words).encode())
        if not self._socket.poll(10_000):
            raise TimeoutError("the scripted engine does not answer")
        return json.loads(self._socket.recv())


def main(endpoint: str, control: str, model_digest: str) -> None:
    engine = ScriptedEngineProcess(endpoint, control, model_digest)

    def stop(_number: int, _frame: object) -> None:
        engine.stopping = True

    signal.signal(signal.SIGTERM, stop)
    engine.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
