"""Every request is counted and logged once, with its id, also one that is refused at the door or left half sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message
from structlog.testing import capture_logs

from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.context import PlatformContext
from tests.support.platform_parts import Tenant, Uploader


def count(context: PlatformContext, route: str, method: str, status: int) -> float:
    labels = {"route": route, "method": method, "status": str(status)}
    return context.metrics_registry.get_sample_value("lorikeet_gateway_requests_total", labels) or 0


def test_a_line_names_the_request_and_the_clients_own_name_for_it(api: TestClient) -> None:
    with capture_logs() as lines:
        named = api.get("/v1/adapters", headers={"x-client-request-id": "theirs-1"})
        unnamed = api.get("/v1/adapters", headers={"x-client-request-id": "not one: spaces"})
    assert [line["event"] for line in lines] == ["request", "request"]
    assert [line["request_id"] for line in lines] == [r.headers["x-request-id"] for r in (named, unnamed)]
    assert lines[0]["client_request_id"] == "theirs-1"
    assert "client_request_id" not in lines[1]


def test_what_the_guard_refuses_is_counted_and_logged(api: TestClient, context: PlatformContext) -> None:
    with capture_logs() as lines:
        response = api.get("/v1/adapters?api_key=x")
    assert response.status_code == 400
    assert [(line["status"], line["request_id"]) for line in lines] == [(400, response.headers["x-request-id"])]
    assert count(context, "other", "GET", 400) == 1


@pytest.mark.parametrize(
    ("method", "path", "route", "content_type"),
    [
        ("POST", "/v1/chat/completions", "/v1/chat/completions", "application/json"),
        ("POST", "/v1/adapters/pirate/versions", "/v1/adapters/{name}/versions", "application/json"),
        ("PATCH", "/v1/uploads/{upload}", "/v1/uploads/{upload_id}", "application/offset+octet-stream"),
    ],
)
def test_a_caller_that_hangs_up_in_its_body_is_no_fault_of_ours(
    context: PlatformContext,
    harbour: Tenant,
    uploader: Uploader,
    method: str,
    path: str,
    route: str,
    content_type: str,
) -> None:
    upload = uploader.create(b"0123456789").headers["location"].rpartition("/")[2]
    headers = harbour.auth | {
        "content-type": content_type,
        "content-length": "10",
        "tus-resumable": "1.0.0",
        "upload-offset": "0",
    }
    with capture_logs() as lines:
        sent = asyncio.run(hang_up(context, method, path.format(upload=upload), headers))
    assert sent == []
    assert [(line["event"], line["status"]) for line in lines] == [("request", 499)]
    assert count(context, route, method, 499) == 1


async def hang_up(context: PlatformContext, method: str, path: str, headers: dict[str, str]) -> list[Message]:
    """A raw request whose connection closes in the middle of the body; returns what was answered."""
    incoming: list[Message] = [
        {"type": "http.request", "body": b'{"mo', "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Message] = []

    async def receive() -> Message:
        return incoming.pop(0) if len(incoming) > 1 else incoming[0]

    async def send(message: Message) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    await create_tenant_app(context)(scope, receive, send)
    return sent
