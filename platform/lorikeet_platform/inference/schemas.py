"""Bodies of the two inference routes as this server serves them.

Strict: no value is converted, so a bool is not a number and "7" is not 7. Every refusal names its field and never
repeats the caller's text. The models know nothing of the tokenizer: what depends on token counts is checked later.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from lorikeet_engine.client import SamplingParams
from lorikeet_engine.protocol import MAX_CHOICES
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.inference.fields import take_supported

MAX_MESSAGES: Final = 1024
MAX_STOPS: Final = 4
MAX_STOP_CHARS: Final = 64
MAX_WHO: Final = 512
INT64_MAX: Final = 2**63 - 1
INT32_MAX: Final = 2**31 - 1

# Parts and message fields of OpenAI's API that carry something this server does not read.
FOREIGN_PARTS: Final = frozenset({"image_url", "input_audio", "file", "refusal"})
FOREIGN_MESSAGE_FIELDS: Final = frozenset({"name", "refusal", "audio", "function_call", "tool_calls", "tool_call_id"})

Body = TypeVar("Body", bound="SamplingFields")


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class StreamOptions(_Strict):
    include_usage: bool = False
    include_obfuscation: bool = False  # padding against traffic analysis: it never changes the answer, and we send none

    @model_validator(mode="before")
    @classmethod
    def null_is_absent(cls, value: object) -> object:
        return without_nulls(value)


class SamplingFields(_Strict):
    """What both routes share; `ROUTE` and `PROMPT` name the route and the field that holds the prompt.

    `top_k` and `ignore_eos` are no fields of OpenAI's API; they mean what they mean in vLLM.
    """

    ROUTE: ClassVar[str]
    PROMPT: ClassVar[str]

    model: str = Field(min_length=1, max_length=256)
    max_tokens: int | None = Field(default=None, ge=1, le=INT32_MAX)
    temperature: float = Field(default=1.0, ge=0, le=2, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1, allow_inf_nan=False)
    top_k: int = Field(default=0, ge=0, le=INT32_MAX)
    seed: int | None = Field(default=None, ge=-(2**63), le=INT64_MAX)
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    n: int = Field(default=1, ge=1, le=MAX_CHOICES)
    stream: bool = False
    stream_options: StreamOptions = Field(default_factory=StreamOptions)
    user: str | None = Field(default=None, max_length=MAX_WHO)
    safety_identifier: str | None = Field(default=None, max_length=MAX_WHO)

    @property
    def who(self) -> str | None:
        """Who is asking, for sticky aliases and nothing else; an empty name says nothing."""
        return self.user or self.safety_identifier or None

    @field_validator("stop", mode="before")
    @classmethod
    def one_or_several_strings(cls, value: object) -> tuple[str, ...]:
        stops = [value] if isinstance(value, str) else value
        if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
            raise PydanticCustomError("invalid_value", "must be a string or a list of strings")
        if len(stops) > MAX_STOPS:
            raise PydanticCustomError("invalid_value", f"at most {MAX_STOPS} stop strings are allowed")
        if not all(1 <= len(stop) <= MAX_STOP_CHARS for stop in stops):
            raise PydanticCustomError("invalid_value", f"each stop string has 1 to {MAX_STOP_CHARS} characters")
        return tuple(stops)

    @property
    def limit(self) -> int | None:
        """How many tokens the caller asked for at most; None when that was left to us."""
        return self.max_tokens

    def sampling(self) -> SamplingParams:
        # Without a seed each request gets its own, or equal prompts would always get equal answers.
        seed = secrets.randbits(63) if self.seed is None else self.seed
        return SamplingParams(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, seed=seed)


class Message(_Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: str

    @model_validator(mode="before")
    @classmethod
    def only_text_messages(cls, value: object) -> object:
        message = without_nulls(value)
        if not isinstance(message, dict):
            return message
        if message.get("role") in ("tool", "function"):
            raise _unsupported("role", "messages of this role need tools, which this server does not support")
        for name in FOREIGN_MESSAGE_FIELDS & message.keys():
            if message[name] != []:
                raise _unsupported(name, "is not supported by this server")
            del message[name]
        return message

    @field_validator("content", mode="before")
    @classmethod
    def text_parts_as_one_text(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        if not value:
            raise PydanticCustomError("invalid_value", "must hold at least one part")
        return "\n".join(_text_of(part) for part in value)

    def for_template(self) -> dict[str, str]:
        # "developer" is OpenAI's later name for the same thing; chat templates know the older one.
        return {"role": "system" if self.role == "developer" else self.role, "content": self.content}


class ChatRequest(SamplingFields):
    ROUTE = "/v1/chat/completions"
    PROMPT = "messages"

    messages: list[Message] = Field(min_length=1, max_length=MAX_MESSAGES)
    max_completion_tokens: int | None = Field(default=None, ge=1, le=INT32_MAX)

    @model_validator(mode="after")
    def one_limit(self) -> Self:
        if None not in (self.max_tokens, self.max_completion_tokens) and self.max_tokens != self.max_completion_tokens:
            raise _at("invalid_value", "max_completion_tokens", "contradicts max_tokens; send one of them")
        return self

    @property
    def limit(self) -> int | None:
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens


class CompletionRequest(SamplingFields):
    """`prompt` is a text or token ids; a list that holds exactly one of those is that one."""

    ROUTE = "/v1/completions"
    PROMPT = "prompt"

    prompt: str | tuple[int, ...]
    best_of: int | None = None

    @model_validator(mode="after")
    def all_answers_are_given(self) -> Self:
        if self.best_of not in (None, self.n):
            raise _unsupported("best_of", "choosing among more answers is not supported; leave it out or send n")
        return self

    @field_validator("prompt", mode="before")
    @classmethod
    def one_prompt(cls, value: object) -> object:
        if isinstance(value, list) and any(isinstance(item, (str, list)) for item in value):
            if len(value) > 1:
                raise PydanticCustomError("unsupported_parameter", "this server takes one prompt a request")
            value = value[0]
        if isinstance(value, str):
            return value
        if not isinstance(value, list) or not value or not all(_is_token_id(item) for item in value):
            raise PydanticCustomError("invalid_value", "must be a string or a non-empty list of token ids")
        return tuple(value)


def parse(body: object, schema: type[Body]) -> Body:
    """`body` as a request of `schema`, or PlatformError naming the first field at fault."""
    if not isinstance(body, dict):
        raise PlatformError("invalid_value", "the body must be a JSON object")
    try:
        return schema.model_validate(take_supported(body, schema.model_fields))
    except ValidationError as error:
        raise _refusal(error) from None


def without_nulls(value: object) -> object:
    return {k: v for k, v in value.items() if v is not None} if isinstance(value, Mapping) else value


def _is_token_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= INT32_MAX


def _text_of(part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if isinstance(kind, str) and kind in FOREIGN_PARTS:
        raise PydanticCustomError("unsupported_parameter", f"content parts of type {kind} are not supported")
    if not isinstance(part, dict) or part.keys() != {"type", "text"} or kind != "text" or type(part["text"]) is not str:
        raise PydanticCustomError("invalid_value", 'each content part must be {"type": "text", "text": string}')
    text: str = part["text"]
    return text


def _unsupported(name: str, why: str) -> PydanticCustomError:
    return _at("unsupported_parameter", name, why)


def _at(code: Literal["unsupported_parameter", "invalid_value"], name: str, why: str) -> PydanticCustomError:
    """An error of a whole object that lies in its field `name`."""
    return PydanticCustomError(code, "{why}", {"why": why, "field": name})


def _refusal(error: ValidationError) -> PlatformError:
    first: Any = error.errors(include_url=False, include_input=False)[0]
    path = [str(step) for step in first["loc"]]
    if field := first.get("ctx", {}).get("field"):
        path.append(field)
    code = {"missing": "missing_parameter", "extra_forbidden": "unknown_parameter"}.get(first["type"], first["type"])
    if code not in ("missing_parameter", "unknown_parameter", "unsupported_parameter"):
        code = "invalid_value"
    param = ".".join(path)[:120] or None
    return PlatformError(code, f"{param}: {first['msg']}" if param else str(first["msg"]), param=param)
