"""Keys as an attacker sends them, and where a key must never be seen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from lorikeet_platform.auth.key_format import checksum
from tests.support.platform_parts import Tenant
from tests.support.raw_requests import RawAnswer, raw
from tests.support.stack_place import Place, chat_body
from tests.support.tenant_things import dump


def ask(place: Place, *lines: str | bytes, target: str = "/v1/models") -> RawAnswer:
    head = f"GET {target} HTTP/1.1\r\nhost: x".encode()
    for line in lines:
        head += b"\r\n" + (line.encode() if isinstance(line, str) else line)
    return raw(place.apis[0], head)


def flipped(key: str) -> str:
    return key[:20] + ("A" if key[20] != "A" else "B") + key[21:]


def wrong_secret(key: str) -> str:
    """The right public id and a good checksum over another secret."""
    body = flipped(key)[:-6]
    return body + checksum(body)


def variants(key: str) -> dict[str, tuple[str | bytes, ...]]:
    return {
        "two headers": (f"authorization: Bearer {key}", f"authorization: Bearer {key}"),
        "two keys": (f"authorization: Bearer  {key} {key}",),
        "two keys, a comma": (f"authorization: Bearer {key},{key}",),
        "no scheme": (f"authorization: {key}",),
        "another scheme": (f"authorization: Basic {key}",),
        "sql": ("authorization: Bearer ' OR 1=1 --",),
        "sql behind a key": (f"authorization: Bearer {key}' OR '1'='1",),
        "percent": (f"authorization: Bearer %6ck{key[2:]}",),
        "utf-16": (b"authorization: Bearer " + key.encode("utf-16-le"),),
        "not ascii": (f"authorization: Bearer {key}é".encode("latin-1"),),
        "one character flipped": (f"authorization: Bearer {flipped(key)}",),
        "right id, wrong secret": (f"authorization: Bearer {wrong_secret(key)}",),
        "empty": ("authorization: Bearer ",),
        "huge": (b"authorization: Bearer " + b"k" * (1 << 20),),
    }


@contextmanager
def statements_of(place: Place) -> Iterator[list[tuple[str, Any]]]:
    """What the gateway's own database is asked meanwhile; a gateway in another process cannot be listened to."""
    heard: list[tuple[str, Any]] = []

    def hear(_connection: object, _cursor: object, statement: str, parameters: Any, *_rest: object) -> None:
        heard.append((statement, parameters))

    event.listen(place.db.engine, "before_cursor_execute", hear)
    try:
        yield heard
    finally:
        event.remove(place.db.engine, "before_cursor_execute", hear)


@pytest.mark.parametrize("name", list(variants("lk_" + "x" * 51)))
def test_n_14_a_header_that_is_not_one_whole_key_is_401_and_says_nothing_to_the_database(
    place: Place, ours: Tenant, name: str
) -> None:
    lines, logged = variants(ours.secret)[name], len(place.logs())
    with statements_of(place) as heard:
        answer = ask(place, *lines)
    if name in ("huge", "utf-16"):  # a header that large, or with NULs, is refused as HTTP already
        assert answer.status in (0, 400, 401, 431)
    else:
        assert answer.status == 401
        assert answer.json()["error"]["code"] in ("invalid_api_key", "missing_api_key")
    asked = [(statement, parameters) for statement, parameters in heard if "api_keys" in statement]
    assert len(asked) <= 1
    for statement, _ in heard:
        assert "OR 1=1" not in statement
        assert ours.secret[3:15] not in statement
    said = place.logs()[logged:]
    assert ours.secret[16:] not in said
    assert "OR 1=1" not in said


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_n_14_the_scheme_of_a_good_key_may_be_written_in_any_case(place: Place, ours: Tenant, scheme: str) -> None:
    assert ask(place, f"authorization: {scheme} {ours.secret}").status == 200


def test_n_19_no_error_says_a_key_anywhere(place: Place, ours: Tenant) -> None:
    """Every way to be refused, with a good key in the request; then everything that is written anywhere is read."""
    bodies: list[str] = []
    with place.client(ours.secret) as client:
        for answer in refusals(client, ours.secret):
            bodies.append(answer.text + str(answer.headers))
    place.engine.script(ours.id, refuse="engine_failure")
    bodies.append(place.chat(ours.secret).text)
    place.limit(ours, monthly_tokens=1)
    bodies.append(place.chat(place.key(ours.slug)["secret"]).text)
    place.limit(ours, monthly_tokens=None, rpm=0)
    bodies.append(place.chat(place.key(ours.slug)["secret"]).text)
    place.ask_admin("POST", f"/admin/v1/tenants/{ours.slug}/suspend", json={})
    bodies.append(place.chat(ours.secret).text)
    place.ask_admin("POST", f"/admin/v1/tenants/{ours.slug}/keys/{ours.key_id}/revoke", json={"reason": "leaked"})
    bodies.append(place.chat(ours.secret).text)
    place.admin.post("/admin/v1/leaked_keys", json={"key": ours.secret, "more": 1})
    bodies.append(place.admin.post("/admin/v1/leaked_keys", json={"key": ours.secret}).text)
    metrics = "".join(httpx.get(f"{admin}/metrics", trust_env=False).text for admin in place.admins)
    for written in (*bodies, place.logs(), repr(dump(place.db)), metrics):
        assert ours.secret[16:] not in written


def refusals(client: httpx.Client, secret: str) -> Iterator[httpx.Response]:
    """One answer for each kind of mistake that a caller with a key can make."""
    yield client.get("/v1/models", params={"api_key": secret})
    yield client.get("/v1/models", params={"key": secret})
    yield client.get(f"/v1/{secret}")
    yield client.get("/v1/models/none")
    yield client.put("/v1/models")
    yield client.post("/v1/chat/completions", json=chat_body(model="none"))
    yield client.post("/v1/chat/completions", json=chat_body(n=0))
    yield client.post("/v1/chat/completions", json=chat_body(unknown=1))
    yield client.post("/v1/chat/completions", json=chat_body("x" * 5_000))
    yield client.post("/v1/chat/completions", content=b"{")
    yield client.post("/v1/chat/completions", content=b'{"a": 1, "a": 2}')
    yield client.post("/v1/chat/completions", content=b"{}", headers={"content-type": "text/plain"})
    yield client.post("/v1/chat/completions", content=b" " * ((2 << 20) + 1))
    yield client.get("/v1/adapters/none/versions/1")
    yield client.post("/v1/uploads", headers={"tus-resumable": "0.0.1"})
    yield client.post("/v1/keys", json={"name": "a", "scopes": ["*"]})
    yield client.get("/v1/usage", params={"bucket": "1y"})


TARGETS = (
    "//v1/models",
    "/v1//models",
    "/v1/../admin/v1/tenants",
    "/v1/%2e%2e/admin/v1/tenants",
    "/admin/v1/tenants",
    "/v1/models;x=1/../../admin/v1/tenants",
    "/v1/models/..;/..;/admin/v1/tenants",
    "http://elsewhere/v1/models",
    "http://127.0.0.1/admin/v1/tenants",
    "/%76%31/models",
    "/v1/models%00",
    "/v1/models?x=/../livez",
    "/livez/../v1/models",
    "/livez%2f..%2fv1%2fmodels",
)


@pytest.mark.parametrize("host", ["x", "x/livez?", "a@b", "x#/livez", "localhost:8001", ""])
def test_n_20_no_way_to_write_an_address_leads_past_the_key(place: Place, ours: Tenant, host: str) -> None:
    """With and without a key: what is answered depends on the path that the route was found by, and on nothing else."""
    good = f"authorization: Bearer {ours.secret}"
    for target in TARGETS:
        head = f"GET {target} HTTP/1.1\r\nhost: {host}"
        without, with_key = (raw(place.apis[0], f"{head}{rest}".encode()) for rest in ("", f"\r\n{good}"))
        assert without.status in (0, 400, 401, 404, 405), (target, without.status)
        assert with_key.status in (0, 200, 400, 404, 405), (target, with_key.status)
        assert b"slug" not in with_key.body
        if with_key.status == 200:
            assert without.status == 401
    for target in ("/admin/v1/tenants", "/metrics"):
        assert raw(place.apis[0], f"GET {target} HTTP/1.1\nhost: {host or 'x'}\n{good}").status in (400, 404)
