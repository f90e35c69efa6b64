"""Commands against real servers in this process: both applications, with faults where a test puts them."""

from __future__ import annotations

import dataclasses
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import structlog
import uvicorn
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lorikeet_platform.app import create_admin_app, create_tenant_app
from lorikeet_platform.cli import main
from lorikeet_platform.clock import now_us
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.web.server import uvicorn_server
from tests.support.lora_files import write_files
from tests.support.platform_parts import a_tenant, make_context
from tests.support.worker_tools import job_runner

BROKEN_CONNECTION = 0


@dataclass
class Faults:
    """In front of an application: answers chosen requests itself, and remembers all.

    `planned` maps "METHOD /path-prefix" to the statuses of the next such requests; None lets one through.
    """

    app: ASGIApp
    planned: dict[str, list[int | None]] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    codes: dict[int, str] = field(default_factory=lambda: {507: "storage_full"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            request = f"{scope['method']} {scope['path']}"
            self.seen.append(request)
            status = self._next_fault(request)
            if status == BROKEN_CONNECTION:
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
                raise ConnectionResetError
            if status is not None:
                code = self.codes.get(status, "planned")
                error = {"message": f"planned {status}", "type": "server_error", "param": None, "code": code}
                await JSONResponse({"error": error}, status, {"retry-after": "0"})(scope, receive, send)
                return
        await self.app(scope, receive, send)

    def _next_fault(self, request: str) -> int | None:
        for prefix, statuses in self.planned.items():
            if request.startswith(prefix) and statuses:
                return statuses.pop(0)
        return None

    def count(self, prefix: str) -> int:
        return sum(request.startswith(prefix) for request in self.seen)


@dataclass
class Installation:
    """Two listeners and what tests need to reach them."""

    context: PlatformContext
    faults: Faults
    api_url: str
    admin_url: str
    key: str


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


class Commands:
    """Runs `lorikeet …` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: str | Path) -> Ended:
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "argv", ["lorikeet", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = self._capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)


@pytest.fixture
def lorikeet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(monkeypatch, capsys)


@pytest.fixture
def silent_servers() -> Iterator[None]:
    """The servers' log does not belong to the commands' output."""
    before = structlog.get_config()
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    yield
    structlog.configure(**before)


@pytest.fixture
def installation(
    tmp_path: Path, db: Database, monkeypatch: pytest.MonkeyPatch, silent_servers: None
) -> Iterator[Installation]:
    context = make_context(tmp_path, db, now_us)
    runner = job_runner(context)
    wake = threading.Thread
    context = dataclasses.replace(
        context, wake=lambda job_id: wake(target=runner.run, args=(job_id,), daemon=True).start()
    )
    faults = Faults(create_tenant_app(context))
    with serving(faults) as api_url, serving(create_admin_app(context)) as admin_url:
        key = a_tenant(context, "harbour").secret
        monkeypatch.setenv("LORIKEET_API_URL", api_url)
        monkeypatch.setenv("LORIKEET_ADMIN_URL", admin_url)
        monkeypatch.setenv("LORIKEET_ADMIN_TOKEN_FILE", str(tmp_path / "admin.token"))
        monkeypatch.setenv("LORIKEET_API_KEY", key)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        yield Installation(context, faults, api_url, admin_url, key)


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """A sound adapter for the base model of the tests."""
    write_files(tmp_path / "adapter")
    return tmp_path / "adapter"


class serving:  # noqa: N801 (used like a function)
    """`with serving(app) as url`: one listener in a thread."""

    def __init__(self, app: ASGIApp) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._server: uvicorn.Server = uvicorn_server(app, "127.0.0.1", 0)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), daemon=True)

    def __enter__(self) -> str:
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.01)
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
