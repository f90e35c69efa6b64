"""What a well-formed request gets: whole answers, streams, usage."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from lorikeet_engine.client import Delta
from lorikeet_engine.errors import AdapterUnavailable, EngineFailure, EngineUnavailable, Overloaded
from lorikeet_platform.db.tables import Tenant
from lorikeet_platform.usage.ledger import Verdict
from lorikeet_platform.usage.service import UsageService
from tests.platform.inference.conftest import CHAT, Gateway
from tests.support.scripted_engine import CONTEXT

USAGE = {
    "prompt_tokens": 4,
    "completion_tokens": 3,
    "total_tokens": 7,
    "prompt_tokens_details": {"cached_tokens": 0},
}


def frames(response: httpx.Response) -> list[Any]:
    """The data of each event; every event is one line and a blank one."""
    events = response.text.split("\n\n")
    assert events.pop() == ""
    assert all(event.startswith("data: ") for event in events)
    return [event.removeprefix("data: ") for event in events]


def chunks(response: httpx.Response) -> list[Any]:
    *data, done = frames(response)
    assert done == "[DONE]"
    return [json.loads(frame) for frame in data]


def test_a_chat_answer_has_openais_shape(gateway: Gateway) -> None:
    response = gateway.post(CHAT)
    answer = response.json()
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert answer["id"] == f"chatcmpl-{response.headers['x-request-id']}"
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "tiny"
    assert answer["system_fingerprint"] == "d" * 64
    assert answer["usage"] == USAGE
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello world.", "refusal": None},
            "finish_reason": "stop",
            "logprobs": None,
        }
    ]


def test_a_stream_begins_with_the_role_and_ends_with_done(gateway: Gateway) -> None:
    response = gateway.post({**CHAT, "stream": True})
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-accel-buffering"] == "no"
    assert "content-length" not in response.headers
    got = chunks(response)
    assert [chunk["choices"][0]["delta"] for chunk in got] == [
        {"role": "assistant", "content": ""},
        {"content": "Hello"},
        {"content": " world."},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in got] == [None, None, None, "stop"]
    assert {chunk["object"] for chunk in got} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in got}) == 1
    assert not any("usage" in chunk for chunk in got)


def test_usage_comes_in_a_last_chunk_without_choices_when_asked_for(gateway: Gateway) -> None:
    *content, last = chunks(gateway.post({**CHAT, "stream": True, "stream_options": {"include_usage": True}}))
    assert all(chunk["usage"] is None for chunk in content)
    assert last["choices"] == []
    assert last["usage"] == USAGE


def test_a_completion_takes_a_text_or_token_ids(gateway: Gateway) -> None:
    for prompt, n_tokens in (("a b c", 3), (["a b c"], 3), ([5, 6], 2), ([[5, 6]], 2)):
        answer = gateway.post({"model": "tiny", "prompt": prompt}, path="/v1/completions").json()
        assert answer["object"] == "text_completion"
        assert answer["choices"] == [{"text": "Hello world.", "index": 0, "finish_reason": "stop", "logprobs": None}]
        assert answer["usage"]["prompt_tokens"] == n_tokens


def test_a_streamed_completion_has_text_and_no_role(gateway: Gateway) -> None:
    got = chunks(gateway.post({"model": "tiny", "prompt": "a", "stream": True}, path="/v1/completions"))
    assert [chunk["choices"][0]["text"] for chunk in got] == ["Hello", " world.", ""]
    assert got[-1]["choices"][0]["finish_reason"] == "stop"


def test_a_name_pins_the_version_and_reaches_the_engine_as_tenant_and_digest(gateway: Gateway) -> None:
    for model in ("pirate", "pirate@live", "pirate:1"):
        response = gateway.post({**CHAT, "model": model})
        assert response.json()["model"] == model
        assert response.headers["x-lorikeet-model-version"].startswith("ver_")
    asked = gateway.engine.generations[-1].request
    assert asked.adapter_digest == ("pirate" * 64)[:64]
    assert asked.tenant == gateway.usage()[-1].tenant_id
    assert gateway.usage()[-1].version_id == response.headers["x-lorikeet-model-version"]


def test_options_reach_the_engine_as_they_were_sent(gateway: Gateway) -> None:
    options = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "seed": -3, "stop": ["a", "b"], "max_tokens": 5}
    gateway.post({**CHAT, **options})
    asked = gateway.engine.generations[-1].request
    assert (asked.sampling.temperature, asked.sampling.top_p, asked.sampling.top_k) == (0.5, 0.9, 7)
    assert (asked.sampling.seed, asked.stop, asked.max_tokens) == (-3, ("a", "b"), 5)


@pytest.mark.parametrize("body", [CHAT, {"model": "tiny", "prompt": [3, 4]}])
def test_an_answer_goes_past_its_end_only_when_that_is_asked_for(gateway: Gateway, body: dict[str, Any]) -> None:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    for value, expected in ((True, True), (False, False), (None, False)):
        gateway.post({**body, "ignore_eos": value}, path=path)
        assert gateway.engine.generations[-1].request.ignore_eos is expected
    gateway.post(body, path=path)
    assert gateway.engine.generations[-1].request.ignore_eos is False


def test_the_tenants_weight_and_its_own_salt_reach_the_engine(gateway: Gateway) -> None:
    with gateway.db.platform.unit_of_work() as work:
        tenants = {tenant.slug: tenant for tenant in work.scalars(select(Tenant))}
        tenants["harbour"].weight = 2.5
        salts = {slug: tenant.cache_salt for slug, tenant in tenants.items()}
    for slug in ("harbour", "orchard"):
        gateway.post(CHAT, tenant=slug)
    harbour, orchard = (generation.request for generation in gateway.engine.generations)
    assert (harbour.weight, orchard.weight) == (2.5, 1.0)
    assert (harbour.cache_salt, orchard.cache_salt) == (salts["harbour"], salts["orchard"])
    assert harbour.cache_salt != orchard.cache_salt


def test_tokens_found_in_the_prefix_cache_are_shown_recorded_and_counted(gateway: Gateway) -> None:
    gateway.engine.cached_tokens = 3
    assert gateway.post(CHAT).json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    [record] = gateway.usage()
    assert (record.prompt_tokens, record.cached_tokens) == (4, 3)
    assert "lorikeet_gateway_cached_tokens_total 3.0" in gateway.metrics()


def test_requests_without_a_seed_get_different_ones(gateway: Gateway) -> None:
    gateway.post(CHAT)
    gateway.post(CHAT)
    assert len({generation.request.sampling.seed for generation in gateway.engine.generations}) == 2


def test_without_a_limit_an_answer_may_fill_the_context(gateway: Gateway) -> None:
    gateway.post(CHAT)
    assert gateway.engine.generations[-1].request.max_tokens == CONTEXT - 4


def test_null_is_absent_and_harmless_fields_are_taken(gateway: Gateway) -> None:
    harmless = {
        "n": 1,
        "logprobs": False,
        "tools": [],
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "presence_penalty": 0,
        "frequency_penalty": 0.0,
        "logit_bias": {},
        "modalities": ["text"],
        "user": "u",
        "metadata": {"a": "b"},
        "store": True,
        "service_tier": "auto",
        "parallel_tool_calls": True,
        "safety_identifier": "x",
        "temperature": None,
        "stop": None,
        "max_tokens": None,
        "audio": None,
        "stream_options": {"include_usage": True},
    }
    assert gateway.post({**CHAT, **harmless}).status_code == 200


def test_text_parts_are_one_text_and_developer_is_system(gateway: Gateway) -> None:
    messages = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "text", "text": "c"}]},
        {"role": "assistant", "content": "d", "tool_calls": [], "refusal": None},
    ]
    assert gateway.post({"model": "tiny", "messages": messages}).json()["usage"]["prompt_tokens"] == 9


def test_every_answer_is_on_record_before_the_caller_has_it(gateway: Gateway) -> None:
    gateway.post(CHAT)
    gateway.post({**CHAT, "stream": True})
    assert [(r.state, r.outcome, r.prompt_tokens, r.completion_tokens, r.stream) for r in gateway.usage()] == [
        ("settled", "ok", 4, 3, False),
        ("settled", "ok", 4, 3, True),
    ]
    assert [generation.n_closed for generation in gateway.engine.generations] == [1, 1]


@pytest.mark.parametrize("stream", [False, True])
def test_a_database_in_trouble_leaves_the_answer_good_and_the_record_open(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    def failing(_service: UsageService, _settlement: object) -> Verdict:
        raise OperationalError("update", {}, Exception("database is locked"))

    monkeypatch.setattr(UsageService, "settle", failing)
    response = gateway.post({**CHAT, "stream": stream})
    assert response.status_code == 200
    assert not stream or frames(response)[-1] == "[DONE]"
    assert [(record.state, record.completion_tokens) for record in gateway.usage()] == [("open", 0)]
    assert gateway.engine.on_record == []


def test_an_error_after_the_first_token_is_a_frame_and_no_done_follows(gateway: Gateway) -> None:
    gateway.engine.scripts.append([Delta("Hel"), EngineUnavailable("the engine restarted")])
    response = gateway.post({**CHAT, "stream": True})
    *_, last = frames(response)
    assert response.status_code == 200
    error = json.loads(last)
    assert error["error"]["code"] == "engine_unavailable"
    assert error["request_id"] == response.headers["x-request-id"]
    assert [(r.outcome, r.completion_tokens) for r in gateway.usage()] == [("server_error", 1)]


def test_a_bug_in_the_middle_of_a_stream_is_an_internal_error_without_details(gateway: Gateway) -> None:
    gateway.engine.scripts.append([Delta("Hel"), ValueError("secret detail")])
    response = gateway.post({**CHAT, "stream": True})
    assert json.loads(frames(response)[-1])["error"]["code"] == "internal_error"
    assert "secret detail" not in response.text
    assert [record.outcome for record in gateway.usage()] == ["server_error"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Overloaded("no room now"), 503, "overloaded"),
        (EngineUnavailable("the engine restarted"), 503, "engine_unavailable"),
        (EngineFailure("a step failed"), 500, "internal_error"),
        (AdapterUnavailable("its image is damaged"), 503, "adapter_unavailable"),
    ],
)
def test_what_the_engine_refuses_before_the_first_token_is_a_status(
    gateway: Gateway, error: Exception, status: int, code: str, stream: bool
) -> None:
    gateway.engine.scripts.append([error])
    response = gateway.post({**CHAT, "stream": stream})
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert [(r.state, r.prompt_tokens, r.completion_tokens) for r in gateway.usage()] == [("settled", 0, 0)]


def test_without_an_engine_nothing_is_recorded(gateway: Gateway) -> None:
    gateway.engine.is_up = False
    response = gateway.post(CHAT)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_unavailable")
    assert gateway.usage() == []


def test_tokens_and_times_are_counted(gateway: Gateway) -> None:
    gateway.post({**CHAT, "model": "pirate"})
    text = gateway.metrics()
    assert 'lorikeet_gateway_tokens_total{type="prompt"} 4.0' in text
    assert 'lorikeet_gateway_tokens_total{type="completion"} 3.0' in text
    assert 'lorikeet_gateway_ttft_seconds_count{kind="adapter"} 1.0' in text
    assert "lorikeet_gateway_generations_in_flight 0.0" in text
