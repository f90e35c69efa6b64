"""What every request must satisfy and every answer carries, whatever the route."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from fastapi import APIRouter
from fastapi.testclient import TestClient
from sqlalchemy.exc import DataError, OperationalError
from starlette.types import Message, Receive, Scope, Send
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.auth.key_format import new_key
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.settings import LimitSettings
from lorikeet_platform.web.access import Public, UndeclaredRoute
from lorikeet_platform.web.guards import Bounds, Guard
from tests.support.platform_parts import Tenant


def shape(response: Any) -> tuple[int, str]:
    """Checks the common shape, and returns status and code."""
    body = response.json()
    assert set(body) == {"error", "request_id"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"] == body["request_id"]
    assert response.headers["content-type"] == "application/json"
    return response.status_code, body["error"]["code"]


@pytest.fixture
def broken(context: PlatformContext) -> TestClient:
    """The tenant API with routes that go wrong."""
    router = APIRouter(dependencies=[Public])

    @router.get("/bug")
    def bug() -> None:
        raise RuntimeError("a secret /path SELECT")

    @router.get("/database")
    def database() -> None:
        raise OperationalError("SELECT secret", {"p": "secret"}, Exception("secret"))

    @router.get("/value")
    def value() -> None:
        raise DataError("SELECT secret", {"p": "secret"}, Exception("secret"))

    return TestClient(create_tenant_app(context, [router]), raise_server_exceptions=False)


def test_unknown_addresses_and_methods_have_the_common_shape(api: TestClient, admin: TestClient) -> None:
    assert shape(api.get("/nothing")) == (404, "not_found")
    assert shape(api.get("/v1/adapters/")) == (404, "not_found")
    wrong = api.put("/v1/adapters")
    assert shape(wrong) == (405, "method_not_allowed")
    assert "GET" in wrong.headers["allow"]
    assert shape(admin.get("/admin/v1/nothing")) == (404, "not_found")
    assert shape(admin.get("/v1/models")) == (404, "not_found")


def test_no_admin_route_exists_on_the_tenant_port(api: TestClient, as_admin: dict[str, str]) -> None:
    for path in ("/admin/v1/tenants", "/admin/v1/overview", "/auth/session", "/metrics", "/"):
        assert shape(api.get(path, headers=as_admin)) == (404, "not_found")


def test_a_bug_is_a_500_that_tells_nothing(broken: TestClient) -> None:
    with capture_logs([merge_contextvars]) as lines:
        response = broken.get("/bug")
    assert shape(response) == (500, "internal_error")
    [failure] = [line for line in lines if line["log_level"] == "error"]
    assert failure["exc_info"]
    assert failure["request_id"] == response.headers["x-request-id"]
    assert "secret" not in response.text
    assert response.headers["x-should-retry"] == "true"


def test_a_database_that_does_not_answer_is_503(broken: TestClient) -> None:
    with capture_logs() as lines:
        response = broken.get("/database")
    assert shape(response) == (503, "db_unavailable")
    assert "secret" not in response.text
    assert response.headers["retry-after"] == "2"
    [failure] = [line for line in lines if line["log_level"] == "error"]
    assert isinstance(failure["exc_info"], OperationalError)
    assert failure["request_id"] == response.headers["x-request-id"]


def test_a_value_that_the_database_cannot_keep_is_400(broken: TestClient) -> None:
    response = broken.get("/value")
    assert shape(response) == (400, "invalid_value")
    assert "secret" not in response.text


@pytest.mark.parametrize("path", ["/livez", "/nothing", "/v1/adapters", "/bug"])
def test_every_answer_carries_the_headers(broken: TestClient, path: str) -> None:
    headers = broken.get(path).headers
    assert re.fullmatch(r"req_[0-9a-z]{26}", headers["x-request-id"])
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["openai-processing-ms"].isdigit()
    assert "server" not in headers


def test_a_request_id_is_ours_and_never_repeats(api: TestClient) -> None:
    ids = {api.get("/livez", headers={"x-request-id": "mine"}).headers["x-request-id"] for _ in range(3)}
    assert len(ids) == 3
    assert "mine" not in ids


def test_length_and_transfer_encoding_together_are_refused(api: TestClient) -> None:  # S2
    headers = {"content-length": "2", "transfer-encoding": "chunked"}
    response = api.post("/v1/chat/completions", content=b"{}", headers=headers)
    assert shape(response) == (400, "bad_request")
    assert response.headers["connection"] == "close"


@pytest.mark.parametrize("length", ["-1", "+2", "2, 2", "0x2", "²", "9" * 5000])
def test_a_length_that_is_no_number_is_refused(length: str) -> None:
    status = asyncio.run(status_of([(b"content-length", length.encode())]))
    assert status == 400


def test_too_many_or_too_large_headers_are_refused(api: TestClient) -> None:
    assert shape(api.get("/livez", headers={f"x-{n}": "a" for n in range(101)})) == (431, "headers_too_large")
    assert shape(api.get("/livez", headers={"x-large": "a" * 33_000})) == (431, "headers_too_large")


def test_a_compressed_body_is_refused(api: TestClient, harbour: Tenant) -> None:
    headers = harbour.auth | {"content-encoding": "gzip", "content-type": "application/json"}
    assert shape(api.post("/v1/chat/completions", content=b"x", headers=headers)) == (415, "unsupported_media_type")


@pytest.mark.parametrize("query", ["api_key=x", "API_KEY=x", "access_token=x", "x={key}", "{key}=", "x=a%20{key}"])
def test_a_credential_in_the_address_is_refused(api: TestClient, admin: TestClient, query: str) -> None:
    for client in (api, admin):
        response = client.get("/livez?" + query.format(key=new_key().text.replace("_", "%5F")))
        assert shape(response) == (400, "key_in_query")
        assert "lk_" not in response.text


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/adapters/%00/versions/1"), ("HEAD", "/v1/uploads/%00"), ("GET", "/v1/models/a%00b"), ("GET", "/%00")],
)
def test_a_nul_character_in_the_address_is_refused(
    api: TestClient, admin: TestClient, harbour: Tenant, method: str, path: str
) -> None:
    for client in (api, admin):
        response = client.request(method, path, headers=harbour.auth | {"tus-resumable": "1.0.0"})
        assert response.status_code == 400
        if method != "HEAD":
            assert shape(response) == (400, "invalid_value")
            assert response.json()["error"]["param"] == "path"


def test_the_owners_link_is_no_credential_in_the_address(admin: TestClient) -> None:
    assert admin.get("/sign-in?token=one-time").status_code == 200


def test_a_body_that_stops_moving_is_408() -> None:
    status = asyncio.run(status_of([(b"content-length", b"10")], stalls=True))
    assert status == 408


async def status_of(headers: list[tuple[bytes, bytes]], *, stalls: bool = False) -> int:
    """The guard around an application that reads the body and answers 204."""

    async def application(_scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Message:
        if stalls:
            await asyncio.sleep(60)
        return {"type": "http.request", "body": b"", "more_body": False}

    statuses: list[int] = []

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    await Guard(application, Bounds(LimitSettings(body_stall_s=0.05)))(scope, receive, send)
    return statuses[0]


def test_an_application_with_an_undeclared_route_is_not_built(context: PlatformContext) -> None:
    open_router = APIRouter()

    @open_router.get("/v1/forgotten")
    def forgotten() -> None:
        """Says nothing about who may call."""

    with pytest.raises(UndeclaredRoute, match="/v1/forgotten"):
        create_tenant_app(context, [open_router])
