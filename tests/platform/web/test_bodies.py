"""The surprises S4 to S7 of the stock stack, and bodies in general: one meaning, one shape of refusal."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.context import PlatformContext
from tests.support.platform_parts import CONFIG, WEIGHTS, Tenant

ROUTES = ["/admin/v1/tenants", "/v1/adapters/pirate/versions", "/v1/chat/completions"]


@pytest.fixture(params=ROUTES)
def send(
    request: pytest.FixtureRequest, api: TestClient, admin: TestClient, harbour: Tenant, as_admin: dict[str, str]
) -> Any:
    """POST text to a route with a JSON body, signed in: framework-parsed and self-parsed ones alike."""
    client, auth = (admin, as_admin) if request.param.startswith("/admin") else (api, harbour.auth)

    def post(body: str | bytes, content_type: str | None = "application/json") -> Any:
        headers = auth | ({"content-type": content_type} if content_type else {})
        return client.post(request.param, content=body, headers=headers)

    return post


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"n": NaN}', "invalid_json"),  # S4
        ('{"n": Infinity}', "invalid_json"),
        ('{"n": 1e999}', "invalid_json"),
        ('{"n": ' + "9" * 21 + "}", "invalid_json"),
        ('{"n": 1, "n": 7}', "duplicate_key"),  # S5
        ('{"a": {"n": 1, "n": 7}}', "duplicate_key"),
        ('{"s": "\\ud800"}', "invalid_unicode"),  # S6
        (b'{"s": "\xff"}', "invalid_unicode"),
        ('{"a":' * 65 + "1" + "}" * 65, "json_too_deep"),
        ("[" * 100_000, "json_too_deep"),
        ("", "invalid_json"),
        ("[1]", "invalid_json"),
        ("null", "invalid_json"),
        ('{"a": 1} x', "invalid_json"),
        ("{'a': 1}", "invalid_json"),
    ],
)
def test_what_is_not_strict_json_is_400_with_its_code(send: Any, body: str | bytes, code: str) -> None:
    response = send(body)
    assert (response.status_code, response.json()["error"]["code"]) == (400, code)


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "application/jsonp",
    ],
)
def test_only_json_is_read_as_json(send: Any, content_type: str | None) -> None:
    response = send('{"slug": "harbour"}', content_type)
    assert (response.status_code, response.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_a_charset_that_is_utf8_is_welcome(admin: TestClient, as_admin: dict[str, str]) -> None:
    headers = as_admin | {"content-type": "application/json; charset=UTF-8"}
    response = admin.post("/admin/v1/tenants", content='{"slug": "northern"}', headers=headers)
    assert response.status_code == 201


def test_a_body_over_the_limit_is_413(send: Any, context: PlatformContext) -> None:
    response = send(b" " * (context.settings.limits.json_body_bytes + 1))
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


def test_a_body_without_a_length_is_cut_at_the_limit(
    api: TestClient, harbour: Tenant, context: PlatformContext
) -> None:
    n_sent = 0

    def endless() -> Any:
        nonlocal n_sent
        while n_sent < 100:
            n_sent += 1
            yield b" " * (1 << 20)

    headers = harbour.auth | {"content-type": "application/json"}
    response = api.post("/v1/chat/completions", content=endless(), headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "request_too_large")


def test_a_field_of_the_wrong_kind_is_400_and_named(admin: TestClient, as_admin: dict[str, str]) -> None:
    def refused(body: object) -> tuple[int, str, str | None]:
        response = admin.post("/admin/v1/tenants", json=body, headers=as_admin)
        error = response.json()["error"]
        return response.status_code, error["code"], error["param"]

    assert refused({}) == (400, "missing_parameter", "slug")
    assert refused({"slug": 7}) == (400, "invalid_value", "slug")
    assert refused({"slug": "A B"}) == (400, "invalid_value", "slug")
    assert refused({"slug": "abc", "colour": "red"}) == (400, "unknown_parameter", "colour")


@pytest.mark.parametrize(
    ("route", "body", "param"),
    [
        ("/admin/v1/tenants", {"slug": "abc", "display_name": "a\0b"}, "display_name"),
        ("/admin/v1/tenants/harbour/keys", {"name": "\0"}, "name"),
        ("/auth/bootstrap", {"token": "\0"}, "token"),
        ("/v1/adapters/pirate/versions", {"files": {CONFIG: "\0", WEIGHTS: "b"}}, f"files.{CONFIG}"),
        (
            "/v1/adapters/pirate/versions",
            {"files": {CONFIG: "a", WEIGHTS: "b"}, "description": "one\0"},
            "description",
        ),
        ("/v1/adapters/pirate/versions", {"files": [{"a": 1}, {"b\0": 1}]}, "files.1.b"),
    ],
)
def test_a_nul_character_in_what_would_be_stored_is_400_and_named(
    api: TestClient,
    admin: TestClient,
    harbour: Tenant,
    as_admin: dict[str, str],
    route: str,
    body: object,
    param: str,
) -> None:
    client, auth = (api, harbour.auth) if route.startswith("/v1") else (admin, as_admin)
    response = client.post(route, json=body, headers=auth)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["param"]) == (400, "invalid_value", param)


def test_a_refusal_never_repeats_much_of_what_was_sent(admin: TestClient, as_admin: dict[str, str]) -> None:
    secret = "s3cret" * 100
    for body in ({"slug": secret}, {secret: 1, "slug": "abc"}, {"slug": {"a": secret}}):
        response = admin.post("/admin/v1/tenants", json=body, headers=as_admin)
        assert response.status_code == 400
        assert response.text.count("s3cret") <= 120
