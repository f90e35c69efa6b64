"""Threads ask the engine: answers come back, errors too, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from lorikeet_engine.client import EngineClient, EngineInfo, EngineStats, Generation, GenerationRequest
from lorikeet_engine.errors import AdapterDamaged, AdapterUnavailable, EngineUnavailable
from lorikeet_engine.protocol import Token
from lorikeet_engine.stats import AdapterResidency
from lorikeet_platform import engine_link
from lorikeet_platform.engine_link import EngineLink
from tests.support.engine_figures import engine_stats

DIGEST = "d" * 64


@dataclass
class ScriptedClient(EngineClient):
    """Answers a prompt with its own numbers, doubled; adapters add one."""

    is_up: bool = True
    fault: Exception | None = None
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    hangs: bool = False
    adapters: list[AdapterResidency] = field(default_factory=list)

    async def start(self) -> None:
        self.calls.append(("start", threading.current_thread().name))

    async def stop(self) -> None:
        self.calls.append(("stop",))

    async def wait_ready(self, timeout_s: float) -> None:
        if not self.is_up:
            await asyncio.sleep(timeout_s)
            raise EngineUnavailable("the engine did not answer")

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            model_name="tiny",
            model_digest="m",
            device="cpu",
            dtype="float32",
            max_model_len=64,
            block_size=16,
            vocab=100,
        )

    async def warm_adapter(self, tenant: str, digest: str, timeout_s: float) -> None:
        self.calls.append(("warm", tenant, digest, timeout_s > 1))
        if self.fault is not None:
            raise self.fault

    async def retire_adapter(self, tenant: str, digest: str, *, force: bool = False) -> None:
        self.calls.append(("retire", tenant, digest, force))

    async def stats(self, *, names_adapters: bool = False) -> EngineStats:
        return engine_stats(adapters=self.adapters if names_adapters else [])

    async def adapter(self, tenant: str, digest: str) -> AdapterResidency | None:
        return next((one for one in self.adapters if (one.tenant, one.digest) == (tenant, digest)), None)

    async def generate(self, request: GenerationRequest) -> Generation:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0.01)
        generation = Generation(self, request, lambda _tokens: "")
        if not self.hangs:
            answer = [2 * token + (request.adapter_digest is not None) for token in request.prompt]
            for index, token in enumerate(answer):
                is_last = index == len(answer) - 1
                generation.push(0, Token(request.request_id, token, "length" if is_last else ""))
        self.at_once -= 1
        return generation

    async def abort(self, request_id: str, index: int | None) -> None:
        self.calls.append(("abort", bool(request_id), index))

    def forget(self, request: GenerationRequest) -> None:
        pass


@pytest.fixture
def client() -> ScriptedClient:
    return ScriptedClient()


@pytest.fixture
def link(client: ScriptedClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineLink]:
    monkeypatch.setattr(engine_link, "CONNECT_S", 0.05)
    link = EngineLink(lambda: client)
    yield link
    link.close()


def test_the_connection_begins_with_the_first_question_in_a_thread_of_its_own(
    link: EngineLink, client: ScriptedClient
) -> None:
    assert client.calls == []
    assert link.info().model_name == "tiny"
    assert link.info().dtype == "float32"
    assert client.calls == [("start", "engine-link")]


def test_answers_are_tokens_and_asked_at_once(link: EngineLink, client: ScriptedClient) -> None:
    questions = [(DIGEST, (1, 2)), (None, (1, 2)), (DIGEST, (5,)), (None, (5,))]
    assert link.answers("ten_1", questions, 8) == [(3, 5), (2, 4), (11,), (10,)]
    assert client.most_at_once == 4


def test_threads_ask_side_by_side(link: EngineLink) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: link.answers("ten_1", [(None, (number,))], 8), range(32)))
    assert answers == [[(2 * number,)] for number in range(32)]


def test_what_runs_on_an_adapter_is_counted_with_what_waits_for_it(link: EngineLink, client: ScriptedClient) -> None:
    def residency(tenant: str, digest: str, requests: int, waiting: int) -> AdapterResidency:
        return AdapterResidency(
            tenant=tenant, digest=digest, state="resident", bytes=1, requests=requests, waiting=waiting, heat=0.0
        )

    client.adapters = [
        residency("ten_1", DIGEST, 2, 3),
        residency("ten_2", DIGEST, 7, 7),
        residency("ten_1", "e", 9, 9),
    ]
    assert link.running_on("ten_1", DIGEST) == 5
    assert link.running_on("ten_1", "f") == 0


@pytest.mark.parametrize("fault", [AdapterUnavailable("no such image"), AdapterDamaged("another digest")])
def test_the_engine_s_errors_come_through(link: EngineLink, client: ScriptedClient, fault: Exception) -> None:
    client.fault = fault
    with pytest.raises(type(fault), match=str(fault)):
        link.warm("ten_1", DIGEST)
    client.fault = None
    link.warm("ten_1", DIGEST)
    link.retire("ten_1", DIGEST, force=True)
    assert client.calls[-1] == ("retire", "ten_1", DIGEST, True)


def test_no_engine_is_said_soon(link: EngineLink, client: ScriptedClient) -> None:
    client.is_up = False
    started_at = time.monotonic()
    with pytest.raises(EngineUnavailable):
        link.info()
    assert time.monotonic() - started_at < 2
    client.is_up = True
    assert link.info().model_name == "tiny"


def test_an_engine_that_falls_silent_is_not_waited_for(
    link: EngineLink, client: ScriptedClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_link, "ANSWER_S", 0.05)
    client.hangs = True
    with pytest.raises(EngineUnavailable):
        link.answers("ten_1", [(None, (1,))], 8)
    assert ("abort", True, None) in client.calls  # the engine's work on it was stopped


def test_a_closed_link_ends_who_waits_and_refuses_who_comes(link: EngineLink, client: ScriptedClient) -> None:
    client.hangs = True
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            link.answers("ten_1", [(None, (1,))], 8)
        except EngineUnavailable as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    link.info()
    thread.start()
    time.sleep(0.1)
    link.close()
    thread.join(2)
    assert not thread.is_alive()
    assert len(ended) == 1
    assert ("stop",) in client.calls
    with pytest.raises(EngineUnavailable):
        link.info()
    link.close()  # again, without effect


@pytest.mark.parametrize(("fault", "raised"), [(OSError("no socket"), OSError), (TimeoutError(), EngineUnavailable)])
def test_a_start_that_fails_leaves_no_thread_and_is_tried_again(
    link: EngineLink,
    client: ScriptedClient,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    raised: type[Exception],
) -> None:
    async def fail() -> None:
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(client, "start", fail)
        for _ in range(3):
            with pytest.raises(raised):
                link.info()
    assert "engine-link" not in {thread.name for thread in threading.enumerate()}
    assert link.info().model_name == "tiny"
