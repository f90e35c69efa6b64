"""The bare server on a socket: header bounds, deadlines, no name (S1 and S3)."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from starlette.types import Receive, Scope, Send

from lorikeet_platform.settings import LimitSettings
from lorikeet_platform.web.server import uvicorn_server


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "lifespan":
        while True:
            kind = (await receive())["type"]
            await send({"type": f"{kind}.complete"})
            if kind == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    bound = socket.create_server(("127.0.0.1", 0))
    server = uvicorn_server(application, "127.0.0.1", 0, limits=LimitSettings(header_deadline_s=0.4))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    yield bound.getsockname()[1]
    server.should_exit = True
    thread.join()


def talk(port: int, data: bytes, *, wait_s: float = 5) -> bytes:
    """Everything the server says until it closes the connection; fails when it does not."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=wait_s)) as connection:
        connection.sendall(data)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
        return answer


def test_an_ordinary_request_is_answered_without_a_server_name(port: int) -> None:
    answer = talk(port, b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    assert b"server:" not in answer.lower()


def test_headers_larger_than_the_bound_are_refused_by_the_parser(port: int) -> None:
    answer = talk(port, b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * 60_000)
    assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize("head", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\nx-half: "])
def test_a_half_sent_head_is_hung_up_on(port: int, head: bytes) -> None:
    started_at = time.monotonic()
    assert talk(port, head) == b""
    assert 0.3 < time.monotonic() - started_at < 4


def test_a_half_sent_second_head_is_hung_up_on_too(port: int) -> None:
    answer = talk(port, b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET / HTTP/1.1\r\nx-half: ")
    assert answer.count(b"HTTP/1.1 200") == 1
