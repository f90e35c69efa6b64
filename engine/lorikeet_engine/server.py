"""The engine's socket: takes work from clients, runs the loop, sends back what each step made.

One thread: messages are taken between two steps, so nothing in the loop needs a lock. A client that has been silent
for `CLIENT_TIMEOUT_S`, or that cannot be sent to, is taken for dead and its requests are aborted.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
import zmq

from lorikeet_engine.errors import EngineError, EngineUnavailable
from lorikeet_engine.identity import AdapterKey
from lorikeet_engine.loop import EngineLoop
from lorikeet_engine.measure import known_adapter, measure, prompt_heads, recent_steps
from lorikeet_engine.messages import check, counts_of, failed, requests_of, warmed
from lorikeet_engine.outbox.book import Book, Notebook, Use
from lorikeet_engine.profiling.timeline import NOT_PROFILED, Timeline
from lorikeet_engine.protocol import (
    MAX_CHOICES,
    PROTOCOL_VERSION,
    UNCLAIMED_AFTER_S,
    Abort,
    Adapter,
    Admitted,
    AskAdapter,
    AskCounts,
    AskDesign,
    AskPrompts,
    AskStats,
    AskSteps,
    ClientMessage,
    Counts,
    Design,
    EngineInfo,
    EngineMessage,
    Hello,
    Prompts,
    Question,
    Retire,
    Settled,
    Stats,
    Step,
    Steps,
    Submit,
    Token,
    Warm,
    Welcome,
    decode_client,
    encode,
    sequence_id,
)
from lorikeet_engine.scheduling.events import Event, RequestFailure, TokenOutput
from lorikeet_engine.scheduling.request import Request, Stage
from lorikeet_engine.socket_keys import SocketKeys, keep_alive, secure_engine
from lorikeet_engine.stats import EngineDesign, EngineStats

CLIENT_TIMEOUT_S = 20.0
DRAIN_S = 100.0  # running requests may end within it after a stop
LINGER_MS = 500
IDLE_WAIT_MS = 20
LOADING_WAIT_MS = 2
PUBLISH_EVERY_S = 1.0
MESSAGES_A_TURN = 1000
MAX_FRAME_BYTES = 16 << 20  # a prompt of two million tokens; whoever announces more loses its connection
SAY_DROPPED_EVERY_S = 10.0
GONE = float("-inf")  # when a client was last seen whose connection has ended

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Client:
    """One connected gateway: its ZeroMQ identity, when it last spoke, and the sequences it has unfinished.

    `session` is new whenever the engine meets the client anew.
    """

    identity: bytes
    last_seen_s: float
    session: str = field(default_factory=lambda: uuid.uuid4().hex)
    sequences: set[str] = field(default_factory=set)


class Answer(NamedTuple):
    """Whose one answer of a request is, where its use is counted, and what the engine makes it by."""

    client: Client
    use: Use
    request: Request


class WarmCaller(NamedTuple):
    """Who is to be told how warming an adapter ended: the client, its session, and its own ticket."""

    identity: bytes
    session: str
    ticket: int


class EngineServer:
    """Serves one `EngineLoop` on one endpoint until `stop`, and `drain_s` more for what still runs then."""

    def __init__(
        self,
        *,
        loop: EngineLoop,
        info: EngineInfo,
        design: EngineDesign,
        endpoint: str,
        keys: SocketKeys | None,
        journal: Notebook | None = None,
        unclaimed_after_s: float = UNCLAIMED_AFTER_S,
        drain_s: float = DRAIN_S,
        timeline: Timeline = NOT_PROFILED,
    ) -> None:
        """`journal`: where what requests have used survives this process; None = nowhere."""
        self._loop = loop
        self._timeline = timeline
        self._info = info
        self._design = design
        self._drain_s = drain_s
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.ROUTER)
        self._socket.linger = LINGER_MS
        self._socket.maxmsgsize = MAX_FRAME_BYTES
        self._socket.sndhwm = 0  # tokens are never dropped; a dead client is dropped whole
        self._socket.router_mandatory = True  # whose connection has ended is told from who is slow
        self._socket.router_handover = True  # a client that lost its connection comes back under its name
        keep_alive(self._socket)
        self._authenticator = secure_engine(self._socket, keys) if keys else None
        self._socket.bind(endpoint)
        self._clients: dict[bytes, Client] = {}
        self._answers: dict[str, Answer] = {}  # by sequence id
        self._landing: list[Answer] = []  # aborted in a step that is not over
        self._dropped_s = float("-inf")
        self._n_dropped = 0  # frames that were no messages, since it was last said
        self._stop = threading.Event()
        self._started_s = time.monotonic()
        self._book = Book(journal, unclaimed_after_s=unclaimed_after_s, now=self._started_s)
        self.last_turn_s = self._started_s
        # For other threads: the live figures change while they are read.
        self.published = self._measured()
        self._published_s = self._started_s

    def run(self) -> None:
        """Serve until `stop` is called and what runs has ended, or has been told; closes the socket at the end."""
        try:
            while not self._stop.is_set():
                self.turn(wait_ms=self._wait_ms())
            deadline_s = time.monotonic() + self._drain_s
            while self._answers and time.monotonic() < deadline_s:
                self.turn(wait_ms=self._wait_ms())
            for name, answer in list(self._answers.items()):
                self._send(answer.client, failed(name, EngineUnavailable("the engine is shutting down")))
                self._forget(name)
        finally:
            self._book.close(time.monotonic())
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
        has_messages = self._socket.poll(wait_ms)
        phase = self._timeline.phase
        with self._timeline.turn():
            with phase("receive"):
                if has_messages:
                    self._receive_all()
                self._drop_silent_clients()
            events = self._loop.step(time.monotonic())
            with phase("send"):
                self._send_events(events)
                self._send_warmed()
                self._landing = [answer for answer in self._landing if not _charge(answer)]
                self._book.turn(self.last_turn_s)
        if self.last_turn_s - self._published_s > PUBLISH_EVERY_S:
            self.published, self._published_s = self._measured(), self.last_turn_s

    def _wait_ms(self) -> int:
        if self._loop.is_computing:
            return 0
        return LOADING_WAIT_MS if self._loop.has_work else IDLE_WAIT_MS

    def _measured(self, *, names_adapters: bool = False, by_owner: bool = False) -> EngineStats:
        now = time.monotonic()
        return measure(
            self._loop,
            now=now,
            uptime_s=now - self._started_s,
            unsettled=self._book.n_ended,
            names_adapters=names_adapters,
            by_owner=by_owner,
        )

    def _receive_all(self) -> None:
        """What has come, but no more than `MESSAGES_A_TURN`: whoever floods the socket does not stop the loop."""
        for _ in range(MESSAGES_A_TURN):
            try:
                identity, *frames = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                (frame,) = frames
                message = decode_client(frame)
            except (ValueError, msgspec.MsgspecError, RecursionError):  # not one frame, no message, or nested too deep
                self._n_dropped += 1
                continue
            client = self._clients.get(identity)
            if client is None:
                client = self._clients[identity] = Client(identity, 0.0)
            client.last_seen_s = time.monotonic()
            self._handle(client, message)

    def _handle(self, client: Client, message: ClientMessage) -> None:
        match message:
            case Hello():
                self._send(client, Welcome(PROTOCOL_VERSION, client.session, self._info))
            case Submit():
                self._submit(client, message)
            case Abort(request_id, index):
                indices = range(MAX_CHOICES) if index is None else [index]
                self._abort(client, [sequence_id(request_id, i) for i in indices])
            case Retire(tenant, digest, force):
                self._loop.retire(AdapterKey(tenant, digest), force=force)
            case Warm(ticket, tenant, digest):
                caller = WarmCaller(client.identity, client.session, ticket)
                self._loop.warm(AdapterKey(tenant, digest), time.monotonic(), caller)
            case Settled(request_ids):
                self._book.settle(request_ids)
            case _:
                self._send(client, self._answer(message))

    def _answer(self, question: Question) -> EngineMessage:
        match question:
            case AskCounts(ticket, request_ids):
                uses = self._book.known(request_ids) if request_ids else self._book.unclaimed(time.monotonic())
                return Counts(ticket, [counts_of(use) for use in uses])
            case AskStats(ticket, names_adapters):
                return Stats(ticket, self._measured(names_adapters=names_adapters, by_owner=True))
            case AskAdapter(ticket, tenant, digest):
                key = AdapterKey(tenant, digest)
                return Adapter(ticket, known_adapter(self._loop, key, time.monotonic()))
            case AskSteps(ticket, after_s):
                return Steps(ticket, time.monotonic(), recent_steps(self._loop, after_s))
            case AskPrompts(ticket):
                return Prompts(ticket, prompt_heads(self._loop))
            case AskDesign(ticket):
                return Design(ticket, self._design)

    def _submit(self, client: Client, message: Submit) -> None:
        try:
            if self.stopping:
                raise EngineUnavailable("the engine is shutting down")
            if self._book.is_full:
                raise EngineUnavailable("too much of what requests have used is not on record yet; try again later")
            check(message)
            requests = requests_of(message)
            self._loop.submit(requests, time.monotonic(), message.caps)
        except EngineError as error:
            self._send(client, failed(message.request_id, error))
        else:
            use = self._book.open(
                message.request_id,
                tenant=message.tenant,
                owner=client.session,
                n_prompt=len(message.prompt),
                n_answers=message.n,
            )
            for request in requests:
                client.sequences.add(request.request_id)
                self._answers[request.request_id] = Answer(client, use, request)

    def _abort(self, client: Client, sequences: Iterable[str]) -> None:
        for name in client.sequences.intersection(sequences):
            self._loop.abort(name)
            self._forget(name)

    def _send_events(self, events: Sequence[Event]) -> None:
        steps: dict[bytes, Step] = {}
        for event in events:
            answer = self._answers.get(event.request_id)
            if answer is None:
                continue
            client, use, _ = answer
            if isinstance(event, RequestFailure):
                self._send(client, failed(event.request_id, event.error))
                self._forget(event.request_id)
                continue
            step = steps.setdefault(client.identity, Step([], []))
            if isinstance(event, TokenOutput):
                step.tokens.append(Token(event.request_id, event.token, event.finish_reason or ""))
                self._book.count_token(use)
                if event.finish_reason:
                    self._forget(event.request_id)
            else:
                step.admitted.append(Admitted(*event))
                if event.request_id == use.request_id:  # the first answer; the others share the prompt with it
                    use.n_cached = event.cached_tokens
        for identity, step in steps.items():
            self._send(self._clients[identity], step)

    def _send_warmed(self) -> None:
        for _, error, callers in self._loop.take_warmed():
            for caller in callers:
                assert isinstance(caller, WarmCaller)
                client = self._clients.get(caller.identity)
                if client and client.session == caller.session:
                    self._send(client, warmed(caller.ticket, error))

    def _send(self, client: Client, message: EngineMessage) -> None:
        try:
            self._socket.send_multipart([client.identity, encode(message)])
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            client.last_seen_s = GONE

    def _forget(self, name: str) -> None:
        answer = self._answers.pop(name)
        answer.client.sequences.discard(name)
        self._book.end_answer(answer.use, time.monotonic())
        answer.use.n_uncharged += 1
        if not _charge(answer):
            self._landing.append(answer)

    def _drop_silent_clients(self) -> None:
        limit = self.last_turn_s - CLIENT_TIMEOUT_S
        for client in [c for c in self._clients.values() if c.last_seen_s < limit]:
            log.warning("a client is gone; %d sequences are aborted", len(client.sequences))
            self._abort(client, set(client.sequences))
            self._book.leave(client.session)
            del self._clients[client.identity]
        if self._n_dropped and self.last_turn_s - self._dropped_s > SAY_DROPPED_EVERY_S:
            log.warning("%d frames that are no messages of protocol %d were dropped", self._n_dropped, PROTOCOL_VERSION)
            self._n_dropped, self._dropped_s = 0, self.last_turn_s


def _charge(answer: Answer) -> bool:
    """Note what an answer has cost, if its request has ended: one that was aborted ends with the step in hand."""
    has_ended = answer.request.stage is Stage.ENDED
    if has_ended:
        answer.use.charge(answer.request.cost)
    return has_ended
