"""An OpenAI-compatible server that answers from a script, in a thread: for what real servers rarely do."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """How one request is answered.

    Attributes:
        first_s, pace_s: until the first token, and between two.
        status, code: an error instead of an answer.
        tokens_a_piece: sent together; the last piece may have fewer.
        ends_after: the connection closes behind so many pieces; -1 = the answer comes whole.
        error_after: an error's event comes behind so many pieces.
        has_usage, has_garbage: whether counts are told; whether something comes that is no event.
        is_mute: tokens are counted and none of their text comes.
        headers: of an error's answer.
    """

    first_s: float = 0.0
    pace_s: float = 0.0
    status: int = 200
    code: str | int = ""
    tokens_a_piece: int = 1
    ends_after: int = -1
    error_after: int = -1
    has_usage: bool = True
    has_garbage: bool = False
    is_mute: bool = False
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class OpenAiServer:
    """What the server was asked, and what it counted itself. `behaviours` are taken in turn, then the last for ever.

    It answers compressed where it is asked to; `metrics_told` is what its counters say in place of the truth, in turn.
    """

    url: str = ""
    behaviours: list[Behaviour] = field(default_factory=lambda: [Behaviour()])
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    prompt_tokens: int = 0
    output_tokens: int = 0
    n_running: int = 0
    most_running: int = 0
    n_hung_up: int = 0
    metrics_told: list[str] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "tiny", "object": "model"}])

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append({"path": request.path, **body})
        self.keys.append(request.headers.get("authorization", ""))
        behaviour = self.behaviours.pop(0) if len(self.behaviours) > 1 else self.behaviours[0]
        if behaviour.status != 200:
            body = {"error": {"message": "no", "code": behaviour.code}}
            return web.json_response(body, status=behaviour.status, headers=behaviour.headers)
        self.n_running += 1
        self.most_running = max(self.most_running, self.n_running)
        try:
            return await self._stream(request, body, behaviour)
        except (ConnectionError, asyncio.CancelledError):
            self.n_hung_up += 1
            raise
        finally:
            self.n_running -= 1

    async def list_models(self, _request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": self.models})

    async def metrics(self, _request: web.Request) -> web.Response:
        if self.metrics_told:
            text = self.metrics_told.pop(0) if len(self.metrics_told) > 1 else self.metrics_told[0]
            return web.Response(text=text, status=200 if text else 503)
        lines = [
            "# HELP vllm:prompt_tokens_total Number of prefill tokens processed.",
            f'vllm:prompt_tokens_total{{model_name="tiny"}} {self.prompt_tokens}.0',
            f'vllm:generation_tokens_total{{model_name="tiny"}} {self.output_tokens}.0',
            f'vllm:num_requests_running{{model_name="tiny"}} {self.n_running}.0',
            'vllm:num_requests_waiting{model_name="tiny"} 0.0',
            'vllm:num_preemptions_total{model_name="tiny"} 0.0',
            f'vllm:kv_cache_usage_perc{{model_name="tiny"}} {self.n_running / 10}',
        ]
        return web.Response(text="\n".join(lines) + "\n")

    async def _stream(self, request: web.Request, body: dict[str, Any], behaviour: Behaviour) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        response.enable_compression()
        await response.prepare(request)
        n_prompt, n_output = _n_tokens(body), body["max_tokens"]
        self.prompt_tokens += n_prompt
        await asyncio.sleep(behaviour.first_s)
        n_sent = n_pieces = 0
        while n_sent < n_output:
            if n_pieces in (behaviour.ends_after, behaviour.error_after):
                break
            if n_pieces:
                await asyncio.sleep(behaviour.pace_s)
            n_now = min(behaviour.tokens_a_piece, n_output - n_sent)
            n_sent += n_now
            n_pieces += 1
            self.output_tokens += n_now
            reason = "length" if n_sent == n_output else None
            await _send(
                response, {"choices": [_choice(request.path, "" if behaviour.is_mute else " word" * n_now, reason)]}
            )
        if behaviour.has_garbage:
            await response.write(b"data: {not json\n\n")
        if behaviour.error_after == n_pieces:
            await _send(response, {"error": {"message": "lost", "code": behaviour.code}})
        if n_pieces in (behaviour.ends_after, behaviour.error_after):
            return response
        if behaviour.has_usage:
            usage = {"prompt_tokens": n_prompt, "completion_tokens": n_sent, "total_tokens": n_prompt + n_sent}
            await _send(response, {"choices": [], "usage": usage})
        await response.write(b"data: [DONE]\n\n")
        return response


def _n_tokens(body: dict[str, Any]) -> int:
    prompt = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
    return len(prompt.split()) if isinstance(prompt, str) else len(prompt)


def _choice(path: str, text: str, reason: str | None) -> dict[str, Any]:
    piece = {"delta": {"content": text}} if path.endswith("chat/completions") else {"text": text}
    return {"index": 0, "finish_reason": reason, **piece}


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


@contextmanager
def openai_server(**changes: Any) -> Iterator[OpenAiServer]:
    """Running on a port of its own."""
    server, loop = OpenAiServer(**changes), asyncio.new_event_loop()
    started = threading.Event()

    async def start() -> web.AppRunner:
        application = web.Application()
        application.router.add_post("/v1/completions", server.answer)
        application.router.add_post("/v1/chat/completions", server.answer)
        application.router.add_get("/v1/models", server.list_models)
        application.router.add_get("/metrics", server.metrics)
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def serve() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        started.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    started.wait(10)
    yield server
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)
