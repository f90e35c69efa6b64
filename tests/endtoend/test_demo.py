"""What a newcomer meets: the welcome, its curl lines, and the official client."""

from __future__ import annotations

import json
import shlex
import sqlite3
import stat
import time
from typing import Any

import httpx
import openai
import pytest

from tests.support.running_lorikeet import RunningLorikeet

pytestmark = pytest.mark.slow

QUESTION = [{"role": "user", "content": "Tell me about the sea."}]


def client(lorikeet: RunningLorikeet, slug: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{lorikeet.demo['api']}/v1", api_key=lorikeet.key(slug), max_retries=0)


def overview(lorikeet: RunningLorikeet) -> dict[str, Any]:
    token = (lorikeet.data_dir / "admin.token").read_text().strip()
    answer = httpx.get(f"{lorikeet.demo['admin']}/admin/v1/overview", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def usage_records(lorikeet: RunningLorikeet) -> list[tuple[Any, ...]]:
    with sqlite3.connect(lorikeet.data_dir / "lorikeet.db") as database:
        return database.execute("SELECT state, outcome, prompt_tokens, completion_tokens FROM usage_records").fetchall()


def send_curl(line: str) -> dict[str, Any]:
    """Send what a curl line would send."""
    words = shlex.split(line)
    headers = dict(words[i + 1].split(": ", 1) for i, word in enumerate(words) if word == "-H")
    url = next(word for word in words if word.startswith("http"))
    answer = httpx.post(url, headers=headers, content=words[words.index("-d") + 1], timeout=60)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def test_the_welcomes_curl_lines_give_different_answers(lorikeet: RunningLorikeet) -> None:
    answers = [send_curl(line)["choices"][0]["message"]["content"] for line in lorikeet.curl_lines()]
    assert len(answers) == 3
    assert len(set(answers)) == 3


def test_demo_json_holds_the_facts_and_only_its_owner_reads_it(lorikeet: RunningLorikeet) -> None:
    path = lorikeet.data_dir / "demo.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    facts = json.loads(path.read_text())
    assert set(facts) == {"api", "admin", "owner_token", "base_model", "tenants"}
    assert len(facts["tenants"]) == 2
    for tenant in facts["tenants"]:
        assert set(tenant) == {"slug", "key", "adapters"}
        assert tenant["key"].startswith("lk_")


def test_the_memory_table_is_printed_at_start(lorikeet: RunningLorikeet) -> None:
    text = "".join(lorikeet.output)
    for row in ("weights", "adapter arena", "KV pool", "activations", "reserve", "suggested max_num_seqs"):
        assert row in text


def test_the_openai_client_lists_chats_streams_and_gets_usage(lorikeet: RunningLorikeet) -> None:
    for tenant in lorikeet.demo["tenants"]:
        api = client(lorikeet, tenant["slug"])
        listed = {model.id for model in api.models.list()}
        assert {lorikeet.demo["base_model"], *tenant["adapters"]} <= listed
        assert not listed & {
            name for other in lorikeet.demo["tenants"] if other != tenant for name in other["adapters"]
        }
        for model in [lorikeet.demo["base_model"], *tenant["adapters"]]:
            whole = api.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=32)
            stream = api.chat.completions.create(
                model=model,
                messages=QUESTION,
                temperature=0,
                max_tokens=32,
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = list(stream)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
            assert text == whole.choices[0].message.content
            assert whole.usage is not None
            assert chunks[-1].usage.total_tokens == whole.usage.total_tokens > whole.usage.prompt_tokens > 0


def test_several_answers_to_one_prompt_are_told_apart_and_the_prompt_is_billed_once(lorikeet: RunningLorikeet) -> None:
    api = client(lorikeet, "harbour")
    asked: dict[str, Any] = {"model": "pirate", "messages": QUESTION, "temperature": 1.0, "seed": 3, "max_tokens": 12}
    alone = api.chat.completions.create(**asked)
    whole = api.chat.completions.create(**asked, n=3)
    texts = [choice.message.content for choice in whole.choices]
    assert [choice.index for choice in whole.choices] == [0, 1, 2]
    assert texts[0] == alone.choices[0].message.content
    assert len(set(texts)) > 1
    assert alone.usage is not None
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == alone.usage.prompt_tokens
    streamed = ["", "", ""]
    for chunk in api.chat.completions.create(**asked, n=3, stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_a_prompt_asked_again_is_found_in_the_cache_by_its_own_tenant_only(lorikeet: RunningLorikeet) -> None:
    long: list[Any] = [{"role": "user", "content": "Tell me a story of the sea. " * 20}]

    def cached(slug: str) -> int:
        answer = client(lorikeet, slug).chat.completions.create(
            model=lorikeet.demo["base_model"], messages=long, max_tokens=2
        )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        return int(answer.usage.prompt_tokens_details.cached_tokens or 0)

    assert cached("harbour") == 0
    assert cached("harbour") > 100
    assert cached("orchard") == 0
    prefix = overview(lorikeet)["engine"]["prefix"]
    assert 0 < prefix["hit_rate"] < 1
    assert prefix["misses"]["cold"] >= 2


def test_another_tenants_adapter_is_missing_exactly_like_one_that_never_was(lorikeet: RunningLorikeet) -> None:
    ours, theirs = lorikeet.demo["tenants"]
    errors = []
    for model in (theirs["adapters"][0], "never-was"):
        with pytest.raises(openai.NotFoundError) as refusal:
            client(lorikeet, ours["slug"]).chat.completions.create(model=model, messages=QUESTION)
        assert refusal.value.code == "model_not_found"
        errors.append({**refusal.value.body, "message": refusal.value.body["message"].replace(model, "X")})
    assert errors[0] == errors[1]


def test_sampling_with_a_seed_is_repeatable_in_any_company(lorikeet: RunningLorikeet) -> None:
    api = client(lorikeet, "harbour")

    def ask(seed: int) -> str:
        answer = api.chat.completions.create(
            model="pirate",
            messages=QUESTION,
            temperature=1.2,
            seed=seed,
            max_tokens=16,
        )
        return str(answer.choices[0].message.content)

    assert ask(5) == ask(5)
    assert len({ask(seed) for seed in range(4)}) > 1


BAD_REQUESTS: list[tuple[str, dict[str, Any], int, str, str | None]] = [
    ("unknown model", {"model": "nobody"}, 404, "model_not_found", "model"),
    ("empty messages", {"messages": []}, 400, "invalid_value", "messages"),
    ("max_tokens 0", {"max_tokens": 0}, 400, "invalid_value", "max_tokens"),
    ("max_tokens negative", {"max_tokens": -1}, 400, "invalid_value", "max_tokens"),
    ("prompt longer than the context", {"messages": [{"role": "user", "content": "sea " * 3000}]}, 400,
     "context_length_exceeded", "messages"),
    ("prompt and max_tokens longer than the context", {"max_tokens": 2040}, 400, "context_length_exceeded",
     "max_tokens"),
    ("unknown field", {"sparkle": 1}, 400, "unknown_parameter", "sparkle"),
    ("unsupported field", {"logit_bias": {"5": 3}}, 400, "unsupported_parameter", "logit_bias"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "status", "code", "param"), [case[1:] for case in BAD_REQUESTS],
                         ids=[case[0] for case in BAD_REQUESTS])  # fmt: skip
def test_a_bad_request_is_refused_by_name_and_not_billed(
    lorikeet: RunningLorikeet, changes: dict[str, Any], status: int, code: str, param: str | None
) -> None:
    before = usage_records(lorikeet)
    body = {"model": lorikeet.demo["base_model"], "messages": QUESTION, "max_tokens": 4, **changes}
    answer = httpx.post(
        f"{lorikeet.demo['api']}/v1/chat/completions",
        headers={"Authorization": f"Bearer {lorikeet.key('harbour')}"},
        json=body,
        timeout=30,
    )
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert usage_records(lorikeet) == before


@pytest.mark.parametrize(
    ("headers", "content", "status", "code"),
    [
        ({"Content-Type": "application/json"}, b'{"model": NaN}', 400, "invalid_json"),
        ({"Content-Type": "application/json"}, b'{"model": "a", "model": "b"}', 400, "duplicate_key"),
        ({"Content-Type": "text/plain"}, b"{}", 415, "unsupported_media_type"),
        ({"Content-Type": "application/json", "Authorization": "Bearer nonsense"}, b"{}", 401, "invalid_api_key"),
    ],
)
def test_what_cannot_be_read_is_refused_in_the_same_shape(
    lorikeet: RunningLorikeet, headers: dict[str, str], content: bytes, status: int, code: str
) -> None:
    headers = {"Authorization": f"Bearer {lorikeet.key('harbour')}", **headers}
    answer = httpx.post(f"{lorikeet.demo['api']}/v1/chat/completions", headers=headers, content=content)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["request_id"] == answer.headers["x-request-id"]


def test_a_revoked_key_is_refused_like_a_malformed_one(lorikeet: RunningLorikeet) -> None:
    created = json.loads(
        lorikeet.cli("keys", "create", "--tenant", "orchard", "--name", "short-lived", "--json").stdout
    )
    url, headers = f"{lorikeet.demo['api']}/v1/models", {"Authorization": f"Bearer {created['secret']}"}
    assert httpx.get(url, headers=headers).status_code == 200
    assert lorikeet.cli("keys", "revoke", created["id"], "--tenant", "orchard").returncode == 0
    revoked, malformed = httpx.get(url, headers=headers), httpx.get(url, headers={"Authorization": "Bearer x"})
    assert revoked.status_code == malformed.status_code == 401
    assert revoked.json()["error"] == malformed.json()["error"]


def test_a_client_that_leaves_stops_the_engine_and_is_billed_once(lorikeet: RunningLorikeet) -> None:
    before = usage_records(lorikeet)
    body = {"model": "pirate", "messages": QUESTION, "max_tokens": 1000, "temperature": 1.5, "stream": True}
    headers = {"Authorization": f"Bearer {lorikeet.key('harbour')}"}
    with httpx.stream("POST", f"{lorikeet.demo['api']}/v1/chat/completions", headers=headers, json=body) as stream:
        lines = stream.iter_lines()
        for _ in range(8):
            next(lines)
    wait_until(lambda: all(record[0] == "settled" for record in usage_records(lorikeet)))
    wait_until(lambda: overview(lorikeet)["engine"]["running"] == 0)
    records = usage_records(lorikeet)
    assert len(records) == len(before) + 1
    assert overview(lorikeet)["engine"]["kv"]["used"] == 0


def test_after_the_drain_all_ledgers_add_up_and_nothing_is_in_use(lorikeet: RunningLorikeet) -> None:
    wait_until(lambda: overview(lorikeet)["engine"]["running"] == 0)
    engine = overview(lorikeet)["engine"]
    for ledger in (engine["kv"], engine["arena"], engine["host"], engine["swap"]):
        parts = sum(ledger[state] for state in ("used", "reserved", "in_flight", "cached", "free"))
        assert parts == ledger["capacity"]
        assert sum(item["bytes"] for item in ledger["by_tenant"]) + ledger["free"] == ledger["capacity"]
        assert ledger["used"] == ledger["reserved"] == ledger["in_flight"] == 0
    resident = [adapter for adapter in engine["adapters"] if adapter["state"] == "resident"]
    assert sum(adapter["bytes"] for adapter in resident) == engine["arena"]["cached"] > 0


def wait_until(condition: Any, timeout_s: float = 20.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)
