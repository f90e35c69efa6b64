"""A streamed conversation over the tenant API, as any client would hold it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

import httpx
import typer

from lorikeet_platform.cli.api import Api, ApiRefused, ApiUnreachable, Refusal
from lorikeet_platform.cli.console import CommandFailed, ExitCode, say

PROMPT: Final = "> "
# Between two tokens; a busy engine may let a request wait before its first.
STREAM_TIMEOUT_S: Final = 120.0
DONE: Final = "[DONE]"


class Conversation:
    """Remembers what was said, and prints answers to standard output as they come."""

    def __init__(self, api: Api, model: str | None) -> None:
        self._api = api
        self._model = model or _base_model(api)
        self._messages: list[dict[str, str]] = []

    def run(self) -> None:
        """Ask for messages until the input ends; a refused one is reported and forgotten."""
        say(f"Talking to {self._model}. Ctrl-D ends.")
        while True:
            try:
                message = input(PROMPT) if sys.stdin.isatty() else input()
            except EOFError:
                return
            if not message.strip():
                continue
            try:
                self.ask(message)
            except ApiRefused as refused:
                say(refused.message)

    def ask(self, message: str) -> None:
        """Send one message and print the answer; raises CommandFailed."""
        messages = [*self._messages, {"role": "user", "content": message}]
        pieces: list[str] = []
        for piece in self._answer(messages):
            typer.echo(piece, nl=False)
            sys.stdout.flush()
            pieces.append(piece)
        typer.echo()
        self._messages = [*messages, {"role": "assistant", "content": "".join(pieces)}]

    def _answer(self, messages: list[dict[str, str]]) -> Iterator[str]:
        body = {"model": self._model, "messages": messages, "stream": True}
        try:
            with self._api.http.stream("POST", "/v1/chat/completions", json=body, timeout=STREAM_TIMEOUT_S) as response:
                if response.is_error:
                    response.read()
                    raise ApiRefused(Refusal.of(response.status_code, response.content, response.headers))
                yield from _pieces(response)
        except httpx.HTTPError as error:
            raise ApiUnreachable(self._api.url, error) from None


def _pieces(response: httpx.Response) -> Iterator[str]:
    for line in response.iter_lines():
        data = line.removeprefix("data: ")
        if data == line:
            continue
        if data == DONE:
            return
        chunk: dict[str, Any] = json.loads(data)
        if "error" in chunk:
            raise ApiRefused(Refusal.of(httpx.codes.OK, data.encode(), {}))
        for choice in chunk["choices"]:
            if piece := choice["delta"].get("content"):
                yield piece
    raise CommandFailed(ExitCode.NETWORK, "the answer broke off")


def _base_model(api: Api) -> str:
    models = api.get("/v1/models")["data"]
    return str(next(model["id"] for model in models if model["owned_by"] == "platform"))
