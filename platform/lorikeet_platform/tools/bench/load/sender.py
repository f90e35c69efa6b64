"""Sends one request and watches its answer come.

Times count from when a request was due, so that a server that keeps the generator from sending is not let off.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from lorikeet_engine.experiments.record import Outcome, RequestRecord
from lorikeet_platform.tools.bench.load.pauses import retry_after
from lorikeet_platform.tools.bench.load.stream import ErrorObject, EventReader, StreamBroken, UsageCounts, read_error
from lorikeet_platform.tools.bench.load.target import Target
from lorikeet_platform.tools.bench.load.traffic import Ask

CONNECT_S: Final = 30.0
SILENCE_S: Final = 600.0  # between two pieces of an answer
OK: Final = 200
OUTCOMES: Final[dict[int, Outcome]] = {429: "refused", 503: "refused", 504: "expired"}

Clock = Callable[[], float]


@dataclass(slots=True)
class Answer:
    """What came of one request; times in seconds since the start. `pieces_s` are those of its text.

    `has_end`: the server said why it ended; `retry_after_s`: how long it asked to be left alone.
    """

    ask: Ask
    sent_s: float
    pieces_s: list[float] = field(default_factory=list)
    ended_s: float = 0.0
    has_end: bool = False
    usage: UsageCounts | None = None
    outcome: Outcome = "failed"
    code: str = ""
    message: str = ""
    retry_after_s: float | None = None

    @property
    def n_output(self) -> int:
        """As the server counts, or else the pieces."""
        told = self.usage.completion_tokens if self.usage else None
        return len(self.pieces_s) if told is None else told

    @property
    def has_counts(self) -> bool:
        """Whether the server has told both."""
        usage = self.usage
        return usage is not None and usage.prompt_tokens is not None and usage.completion_tokens is not None

    @property
    def last_s(self) -> float | None:
        """Of its text; the end that a server tells apart from the last piece belongs to it, also without any text."""
        if self.has_end:
            return self.ended_s
        return self.pieces_s[-1] if self.pieces_s else None

    def record(self) -> RequestRecord:
        usage, ask = self.usage, self.ask
        details = usage.prompt_tokens_details if usage else None
        return RequestRecord(
            tenant=ask.tenant,
            adapter=ask.adapter,
            n_prompt=ask.n_prompt if usage is None or usage.prompt_tokens is None else usage.prompt_tokens,
            n_cached=details.cached_tokens if details else None,
            n_output=self.n_output,
            sent_s=ask.at,
            queue_s=None,
            first_s=self.pieces_s[0] if self.pieces_s else None,
            last_s=self.last_s,
            outcome=self.outcome,
            code=self.code,
        )


def open_session() -> aiohttp.ClientSession:
    """For as many connections at a time as there are requests; nothing is waited for in a queue of ours.

    Nothing is asked for compressed: unpacking takes time from the generator, and pieces may come late for it.
    """
    return aiohttp.ClientSession(
        headers={"Accept-Encoding": "identity"},
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=SILENCE_S),
        auto_decompress=False,
    )


class Sender:
    """Sends what it is given; `clock` is the time since the start."""

    def __init__(self, session: aiohttp.ClientSession, target: Target, clock: Clock) -> None:
        self._session = session
        self._url = target.url + target.endpoint
        self._clock = clock

    async def send(self, ask: Ask) -> Answer:
        """Whatever happens, an answer comes back, and says so."""
        answer = Answer(ask, self._clock())
        try:
            left_s = ask.at + ask.abort_after_s - self._clock() if ask.abort_after_s else None
            async with asyncio.timeout(left_s):
                await self._exchange(answer)
        except TimeoutError as error:
            if isinstance(error, aiohttp.ServerTimeoutError):
                answer.outcome, answer.code, answer.message = "failed", "timeout", str(error)
            else:
                answer.outcome = "aborted"
        except StreamBroken as error:
            answer.code, answer.message = "broken_stream", str(error)
        except (aiohttp.ClientError, OSError) as error:
            answer.code, answer.message = "connection_lost", str(error) or type(error).__name__
        except Exception as error:  # one request's trouble, however odd, is not the end of the test
            answer.code, answer.message = type(error).__name__, str(error)
        if not answer.has_end:
            answer.ended_s = self._clock()
        return answer

    async def _exchange(self, answer: Answer) -> None:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if answer.ask.key:
            headers["Authorization"] = f"Bearer {answer.ask.key}"
        async with self._session.post(self._url, data=answer.ask.body, headers=headers) as response:
            if response.status != OK:
                answer.outcome = OUTCOMES.get(response.status, "failed")
                answer.retry_after_s = retry_after(response.headers)
                _fail(answer, read_error(await response.read()), f"http_{response.status}")
                return
            await self._read(response.content, answer)

    async def _read(self, content: aiohttp.StreamReader, answer: Answer) -> None:
        reader = EventReader()
        async for piece in content.iter_any():
            now = self._clock()
            for event in reader.feed(piece):
                if event.error:
                    error = event.error if isinstance(event.error, ErrorObject) else ErrorObject(event.error)
                    _fail(answer, error, "error")
                    return
                if event.has_text:
                    answer.pieces_s.append(now)
                if event.is_last:
                    answer.has_end, answer.ended_s = True, now
                if event.usage:  # some servers count in every piece
                    answer.usage = event.usage
        if answer.has_end:
            answer.outcome = "ok"
        else:
            answer.code = "stream_ended_early"
            answer.message = "the stream ended without a reason why"


def _fail(answer: Answer, error: ErrorObject, code: str) -> None:
    answer.code = str(error.code or error.type or code)
    answer.message = error.message or ""
