"""OpenAI's own client asks for several answers, is refused, and reads the details of usage."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest

from lorikeet_engine.client import Delta
from lorikeet_engine.errors import DeadlineExceeded, EngineError, Overloaded, TenantLimited
from tests.platform.inference.conftest import BASE, Gateway

MESSAGES: list[Any] = [{"role": "user", "content": "one two three"}]
# Three answers that end at different times, their pieces in an order of their own.
THREE = (
    Delta("red", index=0),
    Delta("green", index=1),
    Delta(" one", index=1),
    Delta("", "stop", index=1),
    Delta("blue", index=2),
    Delta(" two", "length", index=0),
    Delta(" three", "stop", index=2),
)
TEXTS = ["red two", "green one", "blue three"]
REASONS = ["length", "stop", "stop"]


def ask(gateway: Gateway, scenario: Callable[[openai.AsyncOpenAI], Awaitable[None]]) -> None:
    async def run() -> None:
        transport = httpx.ASGITransport(app=gateway.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport) as http:
            await scenario(
                openai.AsyncOpenAI(
                    base_url="http://gateway/v1", api_key=gateway.keys["harbour"], http_client=http, max_retries=0
                )
            )

    asyncio.run(run())


def test_a_whole_chat_answer_has_all_choices_in_order(gateway: Gateway) -> None:
    gateway.engine.scripts.append(THREE)
    gateway.engine.cached_tokens = 2

    async def scenario(api: openai.AsyncOpenAI) -> None:
        answer = await api.chat.completions.create(model=BASE, messages=MESSAGES, n=3)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        assert [choice.message.content for choice in answer.choices] == TEXTS
        assert [choice.finish_reason for choice in answer.choices] == REASONS
        usage = answer.usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (4, 7, 11)
        assert usage.prompt_tokens_details.cached_tokens == 2

    ask(gateway, scenario)
    assert gateway.engine.generations[-1].request.n == 3
    assert [(r.outcome, r.prompt_tokens, r.completion_tokens) for r in gateway.usage()] == [("ok", 4, 7)]


def test_a_streamed_chat_answer_says_which_choice_each_chunk_is_of(gateway: Gateway) -> None:
    gateway.engine.scripts.append(THREE)

    async def scenario(api: openai.AsyncOpenAI) -> None:
        stream = await api.chat.completions.create(
            model=BASE, messages=MESSAGES, n=3, stream=True, stream_options={"include_usage": True}
        )
        texts: defaultdict[int, str] = defaultdict(str)
        roles, reasons, usage = {}, {}, None
        async for chunk in stream:
            usage = chunk.usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                if choice.delta.role:
                    roles[choice.index] = choice.delta.role
                if choice.finish_reason:
                    reasons[choice.index] = choice.finish_reason
        assert [texts[index] for index in range(3)] == TEXTS
        assert [reasons[index] for index in range(3)] == REASONS
        assert roles == dict.fromkeys(range(3), "assistant")
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens) == (4, 7)

    ask(gateway, scenario)


def test_text_completions_have_choices_too_whole_and_streamed(gateway: Gateway) -> None:
    gateway.engine.scripts += [THREE, THREE]

    async def scenario(api: openai.AsyncOpenAI) -> None:
        answer = await api.completions.create(model=BASE, prompt="a b", n=3, best_of=3)
        assert [(choice.index, choice.text) for choice in answer.choices] == list(enumerate(TEXTS))
        texts: defaultdict[int, str] = defaultdict(str)
        async for chunk in await api.completions.create(model=BASE, prompt="a b", n=3, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
        assert [texts[index] for index in range(3)] == TEXTS

    ask(gateway, scenario)


@pytest.mark.parametrize(
    ("error", "raised", "status"),
    [
        (TenantLimited("your own limit: full", retry_after_s=2.5), openai.RateLimitError, 429),
        (Overloaded("the engine is full: full", retry_after_s=2.5), openai.InternalServerError, 503),
        (DeadlineExceeded("no first token in time", retry_after_s=2.5), openai.InternalServerError, 504),
    ],
)
def test_a_refusal_is_the_clients_own_error_with_the_time_to_come_back(
    gateway: Gateway, error: EngineError, raised: type[openai.APIStatusError], status: int
) -> None:
    gateway.engine.scripts.append([error])

    async def scenario(api: openai.AsyncOpenAI) -> None:
        with pytest.raises(raised) as refusal:
            await api.chat.completions.create(model=BASE, messages=MESSAGES)
        assert (refusal.value.status_code, refusal.value.code) == (status, error.code)
        assert refusal.value.response.headers["retry-after"] == "3"

    ask(gateway, scenario)
