"""Every bad request: a 4xx with its code and the field's name, nothing recorded, nothing asked of the engine."""

from __future__ import annotations

from typing import Any

import pytest

from lorikeet_engine.protocol import MAX_CHOICES
from tests.platform.inference.conftest import CHAT, Gateway
from tests.support.scripted_engine import CONTEXT, VOCAB

USER = {"role": "user", "content": "hi"}


def refused(gateway: Gateway, response: Any, status: int, code: str, param: str | None) -> None:
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (status, code, param), error
    assert response.json()["request_id"] == response.headers["x-request-id"]
    assert len(error["message"]) < 400
    assert gateway.usage() == []
    assert gateway.engine.generations == []


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [0, -1, True, False, 1.5, "7", 2**40, [], {}])
def test_a_limit_must_be_a_positive_integer(gateway: Gateway, field: str, value: object) -> None:
    refused(gateway, gateway.post({**CHAT, field: value}), 400, "invalid_value", field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 2.1),
        ("temperature", True),
        ("temperature", "1"),
        ("top_p", 0),
        ("top_p", 1.01),
        ("top_k", -1),
        ("top_k", 1.5),
        ("seed", 2**63),
        ("seed", 1.0),
        ("stop", ""),
        ("stop", ["a"] * 5),
        ("stop", ["a" * 65]),
        ("stop", [1]),
        ("stop", {}),
        ("ignore_eos", "true"),
        ("ignore_eos", 1),
        ("stream", "true"),
        ("stream", 1),
        ("n", 0),
        ("n", MAX_CHOICES + 1),
        ("n", True),
        ("n", "2"),
        ("model", ""),
        ("model", 3),
        ("messages", []),
        ("messages", {}),
        ("messages", "hi"),
        ("messages", [USER] * 1025),
    ],
)
def test_a_value_out_of_range_names_its_field(gateway: Gateway, field: str, value: object) -> None:
    refused(gateway, gateway.post({**CHAT, field: value}), 400, "invalid_value", field)


@pytest.mark.parametrize(
    ("message", "code", "param"),
    [
        ({"role": "user"}, "missing_parameter", "messages.0.content"),
        ({"role": "user", "content": None}, "missing_parameter", "messages.0.content"),
        ({"content": "hi"}, "missing_parameter", "messages.0.role"),
        ({"role": "wizard", "content": "hi"}, "invalid_value", "messages.0.role"),
        ({"role": "user", "content": 3}, "invalid_value", "messages.0.content"),
        ({"role": "user", "content": []}, "invalid_value", "messages.0.content"),
        ({"role": "user", "content": [{"type": "text"}]}, "invalid_value", "messages.0.content"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "unsupported_parameter", "messages.0.content"),
        ({"role": "user", "content": "hi", "name": "bo"}, "unsupported_parameter", "messages.0.name"),
        ({"role": "user", "content": "hi", "colour": "red"}, "unknown_parameter", "messages.0.colour"),
        ({"role": "tool", "content": "hi"}, "unsupported_parameter", "messages.0.role"),
        ({"role": "assistant", "content": "x", "tool_calls": [{}]}, "unsupported_parameter", "messages.0.tool_calls"),
        ("hi", "invalid_value", "messages.0"),
    ],
)
def test_a_bad_message_is_named_by_its_place(gateway: Gateway, message: object, code: str, param: str) -> None:
    refused(gateway, gateway.post({"model": "tiny", "messages": [message]}), 400, code, param)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("logprobs", True),
        ("top_logprobs", 3),
        ("tools", [{"type": "function"}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("logit_bias", {"5": 1}),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
        ("audio", {"voice": "x"}),
        ("modalities", ["text", "audio"]),
        ("reasoning_effort", "high"),
        ("service_tier", "flex"),
    ],
)
def test_what_would_change_the_answer_is_refused_by_name(gateway: Gateway, field: str, value: object) -> None:
    refused(gateway, gateway.post({**CHAT, field: value}), 400, "unsupported_parameter", field)


@pytest.mark.parametrize(("field", "value"), [("best_of", 2), ("echo", True), ("suffix", "end"), ("logprobs", 0)])
def test_completions_refuse_what_would_change_the_answer(gateway: Gateway, field: str, value: object) -> None:
    response = gateway.post({"model": "tiny", "prompt": "a", field: value}, path="/v1/completions")
    refused(gateway, response, 400, "unsupported_parameter", field)


def test_choosing_the_best_of_more_answers_than_are_given_is_refused(gateway: Gateway) -> None:
    for n, best_of in ((2, 3), (2, 1), (1, 2)):
        response = gateway.post({"model": "tiny", "prompt": "a", "n": n, "best_of": best_of}, path="/v1/completions")
        refused(gateway, response, 400, "unsupported_parameter", "best_of")
    assert gateway.post({"model": "tiny", "prompt": "a", "n": 2, "best_of": 2}, path="/v1/completions").is_success


@pytest.mark.parametrize(
    "field", ["temprature", "chat_template", "guided_json", "lora_request", "cache_salt", "prompt"]
)
def test_an_unknown_field_is_refused(gateway: Gateway, field: str) -> None:
    refused(gateway, gateway.post({**CHAT, field: "x"}), 400, "unknown_parameter", field)


def test_stream_options_know_two_fields(gateway: Gateway) -> None:
    response = gateway.post({**CHAT, "stream_options": {"include_usge": True}})
    refused(gateway, response, 400, "unknown_parameter", "stream_options.include_usge")


@pytest.mark.parametrize("field", ["model", "messages"])
def test_a_missing_field_is_named(gateway: Gateway, field: str) -> None:
    body = {name: value for name, value in CHAT.items() if name != field}
    refused(gateway, gateway.post(body), 400, "missing_parameter", field)


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        ([], "invalid_value"),
        ("", "invalid_value"),
        ([VOCAB], "invalid_value"),
        ([-1], "invalid_value"),
        ([True], "invalid_value"),
        ([1.0], "invalid_value"),
        (7, "invalid_value"),
        ([[]], "invalid_value"),
        (["a", 1], "unsupported_parameter"),
        (["a", "b"], "unsupported_parameter"),
        ([[1], [2]], "unsupported_parameter"),
    ],
)
def test_a_prompt_is_one_text_or_known_token_ids(gateway: Gateway, prompt: object, code: str) -> None:
    response = gateway.post({"model": "tiny", "prompt": prompt}, path="/v1/completions")
    refused(gateway, response, 400, code, "prompt")


def test_a_prompt_longer_than_the_context_gets_the_three_numbers(gateway: Gateway) -> None:
    response = gateway.post({"model": "tiny", "prompt": "a " * CONTEXT}, path="/v1/completions")
    refused(gateway, response, 400, "context_length_exceeded", "prompt")
    response = gateway.post({"model": "tiny", "prompt": "a b", "max_tokens": CONTEXT}, path="/v1/completions")
    refused(gateway, response, 400, "context_length_exceeded", "max_tokens")
    assert {"2", str(CONTEXT)} <= set(response.json()["error"]["message"].replace(";", "").split())


def test_two_limits_that_differ_are_refused(gateway: Gateway) -> None:
    response = gateway.post({**CHAT, "max_tokens": 3, "max_completion_tokens": 4})
    refused(gateway, response, 400, "invalid_value", "max_completion_tokens")
    assert gateway.post({**CHAT, "max_tokens": 3, "max_completion_tokens": 3}).status_code == 200


@pytest.mark.parametrize("model", ["nobody", "haiku", "haiku:1", "haiku@live", "pirate:2", "pirate@next", "Pirate"])
def test_a_model_that_is_missing_or_anothers_is_the_same_404(gateway: Gateway, model: str) -> None:
    response = gateway.post({**CHAT, "model": model})
    refused(gateway, response, 404, "model_not_found", "model")
    assert response.json()["error"]["message"] == f"The model '{model}' does not exist."


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"model": "tiny", "temperature": NaN}', "invalid_json"),
        ('{"model": "tiny", "model": "pirate"}', "duplicate_key"),
        ('{"model": "\\ud800"}', "invalid_unicode"),
        ("[" * 100 + "]" * 100, "json_too_deep"),
        ("{", "invalid_json"),
        ("[]", "invalid_json"),
        ("", "invalid_json"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(gateway: Gateway, body: str, code: str) -> None:
    refused(gateway, gateway.post(body), 400, code, None)


def test_another_content_type_is_refused(gateway: Gateway) -> None:
    refused(gateway, gateway.post(CHAT, content_type="text/plain"), 415, "unsupported_media_type", None)


@pytest.mark.parametrize("credential", ["Bearer lk_wrong", "Bearer ", "Basic abc", "x"])
def test_a_bad_key_is_refused_before_the_body_is_looked_at(gateway: Gateway, credential: str) -> None:
    refused(gateway, gateway.post("{", authorization=credential), 401, "invalid_api_key", None)


def test_a_long_field_name_is_not_repeated_whole(gateway: Gateway) -> None:
    response = gateway.post({**CHAT, "x" * 5000: 1})
    assert response.status_code == 400
    assert len(response.text) < 600
