"""An answer's event stream taken apart: pieces of text, the reason of its end, the server's counts, an error.

Reads what OpenAI-compatible servers have in common; what a piece says beyond that is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

DATA, FAILED, DONE = b"data:", b"error:", b"[DONE]"


class PromptDetails(msgspec.Struct, frozen=True):
    cached_tokens: int | None = None


class UsageCounts(msgspec.Struct, frozen=True):
    """Tokens as the server counts them; None where it does not say."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: PromptDetails | None = None


class ErrorObject(msgspec.Struct, frozen=True):
    """Servers write a word or a number as its code, or leave it out."""

    message: str | None = ""
    code: str | int | None = None
    type: str | None = None


class _Delta(msgspec.Struct, frozen=True):
    """A tool's name and arguments are made of tokens like any text."""

    content: Any = None  # a text, or a list of parts
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None

    @property
    def has_text(self) -> bool:
        return bool(self.content or self.reasoning_content or self.reasoning or self.tool_calls)


class _Choice(msgspec.Struct, frozen=True):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class Event(msgspec.Struct, frozen=True):
    """One event of the stream."""

    choices: list[_Choice] | None = None
    usage: UsageCounts | None = None
    error: ErrorObject | str | None = None

    @property
    def has_text(self) -> bool:
        return any(choice.text or (choice.delta and choice.delta.has_text) for choice in self.choices or ())

    @property
    def is_last(self) -> bool:
        return any(choice.finish_reason for choice in self.choices or ())


class StreamBroken(ValueError):
    """What came is no event of such a stream."""


class EventReader:
    """Takes bytes as they come, gives whole events; `is_done` after the mark that ends the stream."""

    def __init__(self) -> None:
        self._rest = b""
        self._decoder = msgspec.json.Decoder(Event, strict=False)  # some write counts as 2.0
        self.is_done = False

    def feed(self, piece: bytes) -> Iterator[Event]:
        """Raises StreamBroken."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if not line.startswith((DATA, FAILED)):
                continue  # comments, names of events, and the empty lines between them
            payload = line[len(DATA) :].strip() if line.startswith(DATA) else line[len(FAILED) :].strip()
            if payload == DONE:
                self.is_done = True
            elif line.startswith(FAILED):
                yield Event(error=read_error(payload))
            else:
                yield self._event(payload)

    def _event(self, payload: bytes) -> Event:
        try:
            return self._decoder.decode(payload)
        except msgspec.MsgspecError as error:
            raise StreamBroken(f"no event of an answer's stream: {error}") from None


class _ErrorBody(msgspec.Struct, frozen=True):
    error: ErrorObject | str | None = None
    detail: msgspec.Raw = msgspec.Raw(b"")  # FastAPI's own refusals: a text, or a list of what is wrong
    message: str | None = ""
    code: str | int | None = None
    type: str | None = None


def read_error(body: bytes) -> ErrorObject:
    """What an error answer says, inside of `error` or by itself; servers differ."""
    try:
        read = msgspec.json.decode(body, type=_ErrorBody)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ErrorObject()
    if isinstance(read.error, str):
        return ErrorObject(read.error)
    message = read.message or bytes(read.detail).decode("utf-8", "replace")
    return read.error or ErrorObject(message, read.code, read.type)
