"""An answer on its way to the caller: server-sent events or one JSON body.

The response owns the generation from its first token to its settled usage record, because only here is it known
whether the caller is still there. A closed connection cancels the work within one step; a stream that fails after it
began ends with an error frame and without [DONE], which clients would take for a complete answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from lorikeet_engine.client import Delta
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.inference.answers import AnswerWriter, WholeText, error_frame
from lorikeet_platform.inference.running.answer import RunningAnswer
from lorikeet_platform.inference.running.refusals import draining, refusal_of
from lorikeet_platform.inference.running.turns import to_its_end
from lorikeet_platform.inference.service import Call, InferenceService
from lorikeet_platform.telemetry.metrics import GatewayMetrics
from lorikeet_platform.web.errors import error_body

log = structlog.get_logger(__name__)


class GenerationResponse(Response):
    """Runs `call` when the server sends it; refusals before the first token raise and become ordinary errors."""

    def __init__(self, *, call: Call, writer: AnswerWriter, service: InferenceService, metrics: GatewayMetrics) -> None:
        super().__init__(media_type="text/event-stream; charset=utf-8" if call.stream else "application/json")
        self._call = call
        self._writer = writer
        self._service = service
        self._metrics = metrics
        self._started_at = time.monotonic()
        self._is_started = False
        del self.headers["content-length"]
        if call.stream:
            self.headers["x-accel-buffering"] = "no"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        work = asyncio.ensure_future(self._answer(send))
        self._service.track(work, self._call.principal)
        gone = asyncio.ensure_future(_closed(receive))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
            is_gone = gone.done()
        finally:
            gone.cancel()
            if not work.done():
                work.cancel()
                await to_its_end(asyncio.wait({work}))
        if not work.cancelled():
            work.result()
        elif not is_gone and not self._is_started:  # ended before its first turn, so that nobody has been told
            error = self._service.why_ended(self._call)
            error.headers |= self._call.passage.headers
            raise error

    async def _answer(self, send: Send) -> None:
        try:
            if self._call.stream:
                await self._stream(send)
            else:
                await self._whole(send)
        except asyncio.CancelledError:
            code = self._service.ended_by(asyncio.current_task())
            if code is not None:
                await self._fail(PlatformError(code) if self._is_started else refusal_of(code), send)
            elif self._service.is_draining:
                await self._fail(draining(), send)
            else:
                raise
        except PlatformError as error:
            await self._fail(error, send)
        except Exception as error:
            if not self._is_started:
                raise
            log.exception("a stream failed", request_id=self._call.generation.request_id, error=type(error).__name__)
            await self._fail(PlatformError("internal_error", "an internal error ended this answer"), send)

    async def _whole(self, send: Send) -> None:
        n = self._call.generation.n
        pieces: list[list[str]] = [[] for _ in range(n)]
        reasons = ["stop"] * n
        async with self._service.run(self._call) as answer:
            async for delta in self._timed(answer):
                pieces[delta.index].append(delta.text)
                reasons[delta.index] = delta.finish_reason or reasons[delta.index]
        # Sent only now: an answer that the caller has is an answer that is on record.
        texts = [WholeText("".join(text), reason) for text, reason in zip(pieces, reasons, strict=True)]
        body = self._writer.whole(texts, answer.usage)
        self.headers["content-length"] = str(len(body))
        await self._start(answer, send)
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, send: Send) -> None:
        async with self._service.run(self._call) as answer:
            async for delta in self._timed(answer):
                frames = self._writer.chunk(delta)
                if not self._is_started:
                    await self._start(answer, send)
                    frames = self._writer.opening() + frames
                if frames:
                    await send({"type": "http.response.body", "body": frames, "more_body": True})
        await send({"type": "http.response.body", "body": self._writer.closing(answer.usage)})

    async def _timed(self, answer: RunningAnswer) -> AsyncIterator[Delta]:
        kind = "base" if self._call.resolved.digest is None else "adapter"
        is_first = True
        async for delta in answer:
            if is_first:
                self._metrics.ttft_seconds.labels(kind).observe(time.monotonic() - self._started_at)
                is_first = False
            yield delta
        self._metrics.e2e_seconds.labels(kind).observe(time.monotonic() - self._started_at)

    async def _start(self, answer: RunningAnswer, send: Send) -> None:
        """Only now it is certain which version answers."""
        self._is_started = True
        self.headers.update(self._call.passage.headers)
        self.headers["x-lorikeet-model-version"] = answer.resolved.version_id or answer.resolved.model
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

    async def _fail(self, error: PlatformError, send: Send) -> None:
        if not self._is_started:
            error.headers |= self._call.passage.headers
            raise error
        frame = error_frame(error_body(error, self._call.generation.request_id))
        await send({"type": "http.response.body", "body": frame})


async def _closed(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
