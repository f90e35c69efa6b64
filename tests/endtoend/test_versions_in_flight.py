"""An adapter is replaced, rolled back, shared out, retired and deleted while 200 answers are on their way.

The arena and the host cache hold two adapters, three are asked for: every step of a version's life meets churn. Each
answer must be what transformers + PEFT say of the very version that its header names.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from lorikeet_engine.model_spec import load_model_spec
from lorikeet_engine.text.tokenizer import Tokenizer
from tests.engine.equality.prompts import N_TOKENS, adapter_dirs
from tests.engine.equality.record_reference import REFERENCE
from tests.support.lora_files import normalise_folder
from tests.support.running_lorikeet import RunningLorikeet, start_lorikeet

pytestmark = pytest.mark.slow

N_REQUESTS = 200
N_EARLY = 60
BY_NUMBER = "style:2"
CONTENTS = ("pirate", "haiku", "json")  # of the versions 1, 2 and 3 of `style`
FLOAT32_BYTES = 4
WITHIN_S = 400.0


@pytest.fixture(scope="module")
def installation(embedded_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLorikeet]:
    """Serving in float32, as the recorded answers were made, with room for two adapters of the largest size."""
    table = load_model_spec(embedded_model_dir).module_table("base")
    largest = max(normalise_folder(path, table)[0].serving_bytes(FLOAT32_BYTES) for path in adapter_dirs().values())
    running = start_lorikeet(
        tmp_path_factory.mktemp("flight"),
        embedded_model_dir.parent,
        LORIKEET_ENGINE__DTYPE="float32",
        LORIKEET_ENGINE__ADAPTER_POOL_BYTES=str(2 * largest),
        LORIKEET_ENGINE__HOST_ADAPTER_CACHE_BYTES=str(2 * largest),
        LORIKEET_ENGINE__TTFT_DEADLINE="0",
        LORIKEET_ENGINE__TENANT_QUEUE_SHARE="1",
        LORIKEET_ENGINE__MAX_MODEL_LEN="256",
    )
    yield running
    running.stop()


@dataclass(frozen=True)
class Oracle:
    """Recorded greedy answers of transformers + PEFT in float32, as text, by adapter and prompt."""

    prompts: list[list[int]]
    texts: dict[str, list[str]]

    @classmethod
    def read(cls, model_dir: Path) -> Oracle:
        recorded = json.loads(REFERENCE.read_text())
        decode = Tokenizer(model_dir).decode
        texts = {name: [decode(tokens) for tokens in recorded["tokens"]["chat"][name]] for name in CONTENTS}
        return cls(recorded["prompts"]["chat"], texts)


@dataclass
class Flight:
    """The requests, and what became of them."""

    api: httpx.AsyncClient
    oracle: Oracle
    content_of: dict[str, str]  # by version id
    outcomes: list[str] = field(default_factory=list)
    served: Counter[str] = field(default_factory=Counter)
    begun: Counter[str] = field(default_factory=Counter)

    async def ask(self, model: str, prompt: int) -> None:
        """One streamed answer, compared with the oracle of the version that its header names."""
        body = {
            "model": model,
            "prompt": self.oracle.prompts[prompt],
            "max_tokens": N_TOKENS["chat"],
            "temperature": 0,
            "stream": True,
        }
        async with self.api.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                self.outcomes.append(f"{model}: {answer.status_code} {(await answer.aread()).decode()}")
                return
            self.begun[model] += 1
            content = self.content_of[answer.headers["x-lorikeet-model-version"]]
            text = "".join([piece async for piece in _pieces(answer)])
        expected = self.oracle.texts[content][prompt]
        self.served[content] += 1
        self.outcomes.append("as the oracle" if text == expected else f"{model}: {content}: {text!r} != {expected!r}")

    async def until(self, n_answers: int) -> None:
        while len(self.outcomes) < n_answers:
            await asyncio.sleep(0.05)


async def _pieces(answer: httpx.Response) -> AsyncIterator[str]:
    async for line in answer.aiter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            frame = json.loads(line.removeprefix("data: "))
            assert "error" not in frame, frame
            for choice in frame["choices"]:
                yield choice["text"]


def test_every_one_of_200_answers_is_that_of_the_version_its_header_names(
    installation: RunningLorikeet, embedded_model_dir: Path
) -> None:
    key = a_key(installation, "meadow")
    version_ids = [push(installation, key, content)["id"] for content in CONTENTS]
    asyncio.run(fly(installation, key, Oracle.read(embedded_model_dir), dict(zip(version_ids, CONTENTS, strict=True))))
    everything_came_back(installation)


def a_key(installation: RunningLorikeet, slug: str) -> str:
    created = installation.cli("tenants", "create", slug)
    assert created.returncode == 0, created.stderr
    key = installation.cli("keys", "create", "--tenant", slug, "--name", "flight")
    assert key.returncode == 0, key.stderr
    return key.stdout.strip()


def push(installation: RunningLorikeet, key: str, content: str) -> dict[str, Any]:
    arguments = ("adapters", "push", str(adapter_dirs()[content]), "--name", "style", "--json")
    pushed = installation.cli(*arguments, key=key)
    assert pushed.returncode == 0, pushed.stderr
    version: dict[str, Any] = json.loads(pushed.stdout)
    return version


async def fly(installation: RunningLorikeet, key: str, oracle: Oracle, content_of: dict[str, str]) -> None:
    limits = httpx.Limits(max_connections=N_REQUESTS + 10)
    auth = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(
        base_url=installation.demo["api"], headers=auth, limits=limits, timeout=WITHIN_S
    ) as api:
        flight = Flight(api, oracle, content_of)
        await change(api, "PUT", "aliases/beta", {"targets": [{"version": 3}]})
        models = draw_models()
        async with asyncio.timeout(WITHIN_S):
            await asyncio.gather(send_all(flight, models), operate(flight, models))
        assert Counter(flight.outcomes) == {"as the oracle": N_REQUESTS}
        assert set(flight.served) == set(CONTENTS), "every version has answered"


def draw_models() -> list[str]:
    """What each request asks for; a version by its number only among the first, before anything is retired."""
    rng = random.Random(5)
    early = [rng.choice(["style", "style@beta", BY_NUMBER]) for _ in range(N_EARLY)]
    return early + [rng.choice(["style", "style", "style@beta"]) for _ in range(N_REQUESTS - N_EARLY)]


async def send_all(flight: Flight, models: list[str]) -> None:
    """A few at a time, so that operations find some queued, some begun, some to come."""
    rng, sending = random.Random(6), []
    for model in models:
        sending.append(asyncio.ensure_future(flight.ask(model, rng.randrange(len(flight.oracle.prompts)))))
        await asyncio.sleep(0.02)
        if len(sending) == N_EARLY:
            await flight.until(10)
    await asyncio.gather(*sending)


async def operate(flight: Flight, models: list[str]) -> None:
    """Replace, roll back, share out, retire, restore, delete."""
    api = flight.api
    await flight.until(10)
    await change(api, "PUT", "aliases/live", {"targets": [{"version": 2}]})
    await flight.until(30)
    await change(api, "POST", "aliases/live/rollback", {})
    while flight.begun[BY_NUMBER] < models.count(BY_NUMBER):  # the rest of them are on their way
        await asyncio.sleep(0.05)
    await change(api, "POST", "versions/2/retire", {})
    assert (await api.post("/v1/completions", json={"model": "style:2", "prompt": "x"})).status_code == 404
    await flight.until(60)
    shares = [{"version": 1, "weight": 90}, {"version": 3, "weight": 10}]
    await change(api, "PUT", "aliases/live", {"targets": shares})
    await flight.until(90)
    await change(api, "POST", "versions/2/restore", {})
    await change(api, "PUT", "aliases/beta", {"targets": [{"version": 2}]})
    await flight.until(120)
    await change(api, "PUT", "aliases/live", {"targets": [{"version": 1}]})
    await change(api, "DELETE", "versions/3", None)
    await flight.until(150)
    await change(api, "PUT", "aliases/beta", {"targets": [{"version": 1}]})
    await change(api, "POST", "versions/2/retire", {"force": False, "reason": "the end"})


async def change(api: httpx.AsyncClient, method: str, path: str, body: dict[str, Any] | None) -> None:
    answer = await api.request(method, f"/v1/adapters/style/{path}", json=body)
    assert answer.is_success, f"{method} {path}: {answer.text}"


def everything_came_back(installation: RunningLorikeet) -> None:
    """No block, no byte and no request is left in use, and every request is on record once."""
    token = (installation.data_dir / "admin.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=installation.demo["admin"], headers=headers) as admin:
        engine = admin.get("/admin/v1/overview").json()["engine"]
    assert (engine["running"], engine["waiting"]) == (0, 0)
    assert sum(engine["adapter_traffic"]["evictions"].values()) > len(CONTENTS), "no churn, so nothing was tried"
    for pool in ("kv", "arena", "host", "swap"):
        ledger = engine[pool]
        assert [ledger[state] for state in ("used", "reserved", "in_flight")] == [0, 0, 0], ledger
    with contextlib.closing(sqlite3.connect(installation.data_dir / "lorikeet.db")) as database:
        records = database.execute(
            "SELECT state, outcome, count(*) FROM usage_records AS u JOIN tenants AS t ON t.id = u.tenant_id"
            " WHERE t.slug = 'meadow' GROUP BY state, outcome"
        ).fetchall()
    assert records == [("settled", "ok", N_REQUESTS)]
