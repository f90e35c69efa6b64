"""What the inference routes send: OpenAI's response objects, whole and in chunks.

Shape only. Who may see an answer, and what it costs, is the service's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from lorikeet_engine.client import Delta, Usage

DONE: Final = b"data: [DONE]\n\n"

_encode = msgspec.json.Encoder().encode


class PromptTokensDetails(Struct):
    cached_tokens: int


class UsageBody(Struct):
    """The prompt counts once, however many answers it got."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails

    @classmethod
    def of(cls, usage: Usage) -> UsageBody:
        return cls(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.prompt_tokens + usage.completion_tokens,
            PromptTokensDetails(usage.cached_tokens),
        )


class AssistantMessage(Struct):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(Struct):
    message: AssistantMessage
    finish_reason: str
    index: int = 0
    logprobs: None = None


class ChatDelta(Struct, omit_defaults=True):
    role: str | None = None
    content: str | None = None


class ChatChunkChoice(Struct):
    delta: ChatDelta
    finish_reason: str | None = None
    index: int = 0
    logprobs: None = None


class TextChoice(Struct):
    text: str
    finish_reason: str | None = None
    index: int = 0
    logprobs: None = None


class Answer(Struct):
    """Every object both routes send; only the choices differ."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice] | list[ChatChunkChoice] | list[TextChoice]
    system_fingerprint: str | None = None
    usage: UsageBody | UnsetType | None = UNSET


class Heading(Struct, frozen=True):
    """What stays the same in all chunks of one response; `n` is how many choices it has."""

    request_id: str
    created: int
    model: str
    fingerprint: str | None
    n: int


class WholeText(Struct, frozen=True):
    """One choice, complete."""

    text: str
    finish_reason: str


class AnswerWriter(Protocol):
    """One response as bytes: either `whole`, or `opening`, then `chunk` for every delta, then `closing`."""

    def whole(self, texts: Sequence[WholeText], usage: Usage) -> bytes: ...

    def opening(self) -> bytes: ...

    def chunk(self, delta: Delta) -> bytes: ...

    def closing(self, usage: Usage) -> bytes: ...


class ChatWriter:
    """Answers of /v1/chat/completions."""

    def __init__(self, heading: Heading, *, include_usage: bool) -> None:
        self._heading = heading
        self._include_usage = include_usage

    def whole(self, texts: Sequence[WholeText], usage: Usage) -> bytes:
        choices = [
            ChatChoice(AssistantMessage(whole.text), whole.finish_reason, index) for index, whole in enumerate(texts)
        ]
        return _encode(self._answer("chat.completion", choices, UsageBody.of(usage)))

    def opening(self) -> bytes:
        role = ChatDelta(role="assistant", content="")
        return b"".join(self._frame(ChatChunkChoice(role, index=index)) for index in range(self._heading.n))

    def chunk(self, delta: Delta) -> bytes:
        text = self._frame(ChatChunkChoice(ChatDelta(content=delta.text), index=delta.index)) if delta.text else b""
        if delta.finish_reason is None:
            return text
        return text + self._frame(ChatChunkChoice(ChatDelta(), delta.finish_reason, delta.index))

    def closing(self, usage: Usage) -> bytes:
        if not self._include_usage:
            return DONE
        return _event(self._answer("chat.completion.chunk", _no_chat_choices(), UsageBody.of(usage))) + DONE

    def _frame(self, choice: ChatChunkChoice) -> bytes:
        return _event(self._answer("chat.completion.chunk", [choice], None if self._include_usage else UNSET))

    def _answer(
        self, kind: str, choices: list[ChatChoice] | list[ChatChunkChoice], usage: UsageBody | UnsetType | None
    ) -> Answer:
        heading = self._heading
        answer_id = f"chatcmpl-{heading.request_id}"
        return Answer(answer_id, kind, heading.created, heading.model, choices, heading.fingerprint, usage)


class TextWriter:
    """Answers of /v1/completions."""

    def __init__(self, heading: Heading, *, include_usage: bool) -> None:
        self._heading = heading
        self._include_usage = include_usage

    def whole(self, texts: Sequence[WholeText], usage: Usage) -> bytes:
        choices = [TextChoice(whole.text, whole.finish_reason, index) for index, whole in enumerate(texts)]
        return _encode(self._answer(choices, UsageBody.of(usage)))

    def opening(self) -> bytes:
        return b""

    def chunk(self, delta: Delta) -> bytes:
        if not delta.text and delta.finish_reason is None:
            return b""
        choices = [TextChoice(delta.text, delta.finish_reason, delta.index)]
        return _event(self._answer(choices, None if self._include_usage else UNSET))

    def closing(self, usage: Usage) -> bytes:
        return (_event(self._answer([], UsageBody.of(usage))) + DONE) if self._include_usage else DONE

    def _answer(self, choices: list[TextChoice], usage: UsageBody | UnsetType | None) -> Answer:
        heading = self._heading
        answer_id = f"cmpl-{heading.request_id}"
        return Answer(answer_id, "text_completion", heading.created, heading.model, choices, heading.fingerprint, usage)


def error_frame(body: object) -> bytes:
    """The last frame of a stream that failed; no [DONE] follows, or clients would take the answer for complete."""
    return _event(body)


def _event(body: object) -> bytes:
    return b"data: " + _encode(body) + b"\n\n"


def _no_chat_choices() -> list[ChatChunkChoice]:
    return []
