"""The engine's socket: takes work from clients, runs the loop, sends back what each step made.

One thread: messages are taken between two steps, so nothing in the loop needs a lock. A client that has been silent
for `CLIENT_TIMEOUT_S` is taken for dead and its requests are aborted.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import defaultdict
from dataclasses import dataclass, field

import msgspec
import zmq

from lorikeet_engine.errors import EngineError, EngineUnavailable, InvalidRequest
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.protocol import (
    PROTOCOL_VERSION,
    Abort,
    AdapterResidency,
    AskStats,
    ClientMessage,
    EngineInfo,
    EngineMessage,
    EngineStats,
    Failed,
    Hello,
    Stats,
    Step,
    Submit,
    Token,
    Welcome,
    decode_client,
    encode,
)
from lorikeet_engine.scheduling.plan import SamplingParams
from lorikeet_engine.scheduling.request import Request
from lorikeet_engine.scheduling.scheduler import RequestFailure, TokenOutput
from lorikeet_engine.socket_keys import SocketKeys, keep_alive, secure_engine

CLIENT_TIMEOUT_S = 20.0
DRAIN_S = 100.0  # running requests may end within it after a stop
LINGER_MS = 500
IDLE_WAIT_MS = 20
LOADING_WAIT_MS = 2
PUBLISH_EVERY_S = 0.25

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Client:
    """One connected gateway: its ZeroMQ identity, when it last spoke, and its unfinished requests.

    `session` is new whenever the engine meets the client anew.
    """

    identity: bytes
    last_seen_s: float
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    requests: set[str] = field(default_factory=set)


class EngineServer:
    """Serves one `EngineLoop` on one endpoint until `stop`, and `drain_s` more for what still runs then."""

    def __init__(
        self,
        *,
        loop: EngineLoop,
        info: EngineInfo,
        endpoint: str,
        keys: SocketKeys | None,
        drain_s: float = DRAIN_S,
    ) -> None:
        self._loop = loop
        self._info = info
        self._drain_s = drain_s
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._socket.linger = LINGER_MS
        self._socket.sndhwm = 0  # tokens are never dropped; a dead client is dropped whole
        self._socket.router_handover = True  # a client that lost its connection comes back under its name
        keep_alive(self._socket)
        self._authenticator = secure_engine(self._socket, keys) if keys else None
        self._socket.bind(endpoint)
        self._clients: dict[bytes, Client] = {}
        self._owners: dict[str, Client] = {}
        self._stop = threading.Event()
        self._started_s = time.monotonic()
        self.last_turn_s = self._started_s
        self.published = self.stats()  # for other threads: the live figures change while they are read
        self._published_s = self._started_s

    def run(self) -> None:
        """Serve until `stop` is called and what runs has ended, or has been told; closes the socket at the end."""
        try:
            while not self._stop.is_set():
                self.turn(wait_ms=self._wait_ms())
            deadline_s = time.monotonic() + self._drain_s
            while self._owners and time.monotonic() < deadline_s:
                self.turn(wait_ms=self._wait_ms())
            for request_id, client in self._owners.items():
                self._send(client, _failed(request_id, EngineUnavailable("the engine is shutting down")))
        finally:
            if self._authenticator:
                self._authenticator.stop()
            self._socket.close()
            self._context.term()

    def stop(self) -> None:
        """Take no more requests and end `run`; may be called from any thread or a signal handler."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def turn(self, *, wait_ms: int) -> None:
        """Take all waiting messages, run one step, send its results."""
        self.last_turn_s = time.monotonic()
        if self._socket.poll(wait_ms):
            self._receive_all()
        self._drop_silent_clients()
        self._send_events(self._loop.step(time.monotonic()))
        if self.last_turn_s - self._published_s > PUBLISH_EVERY_S:
            self.published, self._published_s = self.stats(), self.last_turn_s

    def _wait_ms(self) -> int:
        if self._loop.is_computing:
            return 0
        return LOADING_WAIT_MS if self._loop.has_work else IDLE_WAIT_MS

    def stats(self) -> EngineStats:
        loop = self._loop
        now = time.monotonic()
        return EngineStats(
            uptime_s=now - self._started_s,
            running=loop.scheduler.n_running,
            waiting=loop.scheduler.n_waiting,
            prompt_tokens_total=loop.counters.prompt_tokens,
            generated_tokens_total=loop.counters.generated_tokens,
            steps_total=loop.counters.steps.total(),
            steps_by_kind=dict(loop.counters.steps),
            tokens_per_second=loop.tokens_per_second(now),
            kv=loop.kv.snapshot(),
            arena=loop.residency.snapshot(),
            adapters=[
                AdapterResidency(tenant=key.tenant, digest=key.digest, state=state, bytes=n_bytes, requests=pins)
                for key, state, n_bytes, pins in loop.residency.overview()
            ],
        )

    def _receive_all(self) -> None:
        while True:
            try:
                identity, frame = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            except ValueError:
                log.warning("a message with an unexpected number of frames was dropped")
                continue
            client = self._clients.setdefault(identity, Client(identity, 0.0))
            client.last_seen_s = time.monotonic()
            try:
                message = decode_client(frame)
            except msgspec.MsgspecError:
                log.warning("a frame that is no message of protocol %d was dropped", PROTOCOL_VERSION)
                continue
            self._handle(client, message)

    def _handle(self, client: Client, message: ClientMessage) -> None:
        match message:
            case Hello():
                self._send(client, Welcome(PROTOCOL_VERSION, client.session, self._info))
            case Submit():
                self._submit(client, message)
            case Abort(request_id):
                if request_id in client.requests:
                    self._loop.abort(request_id)
                    self._forget(request_id)
            case AskStats(ticket):
                self._send(client, Stats(ticket, self.stats()))

    def _submit(self, client: Client, message: Submit) -> None:
        request = Request(
            request_id=message.request_id,
            tenant=message.tenant,
            prompt=tuple(message.prompt),
            max_tokens=message.max_tokens,
            sampling=SamplingParams(message.temperature, message.top_p, message.top_k, message.seed),
            adapter=AdapterKey(message.tenant, message.adapter) if message.adapter else None,
        )
        try:
            if self.stopping:
                raise EngineUnavailable("the engine is shutting down")
            _check_sampling(request.sampling)
            self._loop.submit(request)
        except EngineError as error:
            self._send(client, _failed(message.request_id, error))
        else:
            client.requests.add(message.request_id)
            self._owners[message.request_id] = client

    def _send_events(self, events: list[TokenOutput | RequestFailure]) -> None:
        tokens: defaultdict[bytes, list[Token]] = defaultdict(list)
        for event in events:
            client = self._owners.get(event.request_id)
            if client is None:
                continue
            if isinstance(event, RequestFailure):
                self._send(client, _failed(event.request_id, event.error))
                self._forget(event.request_id)
            else:
                tokens[client.identity].append(Token(event.request_id, event.token, event.finish_reason or ""))
                if event.finish_reason:
                    self._forget(event.request_id)
        for identity, batch in tokens.items():
            self._send(self._clients[identity], Step(batch))

    def _send(self, client: Client, message: EngineMessage) -> None:
        self._socket.send_multipart([client.identity, encode(message)])

    def _forget(self, request_id: str) -> None:
        self._owners.pop(request_id).requests.discard(request_id)

    def _drop_silent_clients(self) -> None:
        limit = self.last_turn_s - CLIENT_TIMEOUT_S
        for client in [c for c in self._clients.values() if c.last_seen_s < limit]:
            log.warning("a client fell silent; %d requests are aborted", len(client.requests))
            for request_id in list(client.requests):
                self._loop.abort(request_id)
                self._forget(request_id)
            del self._clients[client.identity]


def _check_sampling(sampling: SamplingParams) -> None:
    """Values that no sampler can honour; the gateway has checked them too, a socket peer is not trusted for it."""
    if not 0.0 <= sampling.temperature < float("inf"):
        raise InvalidRequest(f"temperature is {sampling.temperature}; it must be at least 0", param="temperature")
    if not 0.0 < sampling.top_p <= 1.0:
        raise InvalidRequest(f"top_p is {sampling.top_p}; it must be in (0, 1]", param="top_p")
    if sampling.top_k < 0:
        raise InvalidRequest(f"top_k is {sampling.top_k}; it must be at least 0", param="top_k")


def _failed(request_id: str, error: EngineError) -> Failed:
    return Failed(request_id=request_id, code=error.code, message=error.message, param=error.param)
