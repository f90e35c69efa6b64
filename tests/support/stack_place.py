"""Where the tenancy tests run: the same bodies against one gateway on SQLite in this process, and against the stack."""

from __future__ import annotations

import asyncio
import io
import itertools
import logging
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import structlog
import uvicorn

from lorikeet_adapters.store.local import LocalBlobStore
from lorikeet_engine.client import EngineClient
from lorikeet_engine.server import CLIENT_TIMEOUT_S
from lorikeet_platform.app import build_context, create_admin_app, create_tenant_app
from lorikeet_platform.auth.scopes import SCOPES
from lorikeet_platform.clock import Clock, now_us
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.migrate import upgrade
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Plan, PlanLimit
from lorikeet_platform.db.tables import Tenant as TenantRow
from lorikeet_platform.limits.standard import STANDARD
from lorikeet_platform.settings import Settings
from lorikeet_platform.telemetry.logs import configure_logging
from lorikeet_platform.usage.service import UsageService
from lorikeet_platform.web.server import uvicorn_server
from tests.support.engine_process import EngineControls, ScriptedEngineProcess
from tests.support.platform_parts import Tenant
from tests.support.served_model import ServedModel
from tests.support.stack import MODEL, Stack, wait_until

JSON = dict[str, Any]
PLENTY = "plenty"
_numbers = itertools.count(1)


@dataclass
class Place:
    """An installation and the hands that tests need on it.

    Attributes:
        apis, admins: addresses of the gateways' two ports.
        db: all tenants' rows.
        logs: everything that its processes have logged so far.
        stack: its processes, where it has some.
    """

    apis: tuple[str, ...]
    admins: tuple[str, ...]
    admin: httpx.Client
    db: Database
    engine: EngineControls
    logs: Callable[[], str]
    blobs: Path
    stack: Stack | None = None

    def tenant(self, **fields: Any) -> Tenant:
        """A new tenant with one key that may do everything a key may."""
        slug = f"tenant-{next(_numbers)}"
        made = self.ask_admin("POST", "/admin/v1/tenants", json={"slug": slug, **fields})
        self.ask_admin("PATCH", f"/admin/v1/tenants/{slug}", json={"keys_make_keys": True})
        key = self.key(slug, scopes=SCOPES)
        return Tenant(made["id"], slug, key["id"], key["secret"])

    def key(self, slug: str, **fields: Any) -> JSON:
        return self.ask_admin("POST", f"/admin/v1/tenants/{slug}/keys", json={"name": f"k{next(_numbers)}", **fields})

    def limit(self, tenant: Tenant, **limits: int | tuple[int, int] | None) -> None:
        """Limits of the tenant's own: a value, or a value and a burst."""
        self.ask_admin("PUT", f"/admin/v1/tenants/{tenant.slug}/limits", json={"limits": as_limits(limits)})

    def plenty(self, tenant: Tenant) -> None:
        """Limits that no test reaches, for a tenant whose key has not been used yet."""
        with self.db.platform.unit_of_work() as work:
            if work.get(Plan, PLENTY) is None:
                work.add(Plan(id=PLENTY, display_name="Plenty", created_at=0))
                work.flush()
                for dimension, (value, _) in STANDARD.items():
                    work.add(
                        PlanLimit(
                            plan_id=PLENTY, dimension=dimension, value=value * 1000, updated_by="tests", updated_at=0
                        )
                    )
            work.get_one(TenantRow, tenant.id).plan_id = PLENTY

    def ask_admin(self, method: str, path: str, **options: Any) -> JSON:
        answer = self.admin.request(method, path, **options)
        assert answer.is_success, (method, path, answer.status_code, answer.text)
        return dict(answer.json()) if answer.content else {}

    def client(self, key: str | None = None, *, gateway: int = 0, **options: Any) -> httpx.Client:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.apis[gateway], headers=headers, timeout=30, trust_env=False, **options)

    def chat(self, key: str, *, gateway: int = 0, content: str = "hello", **fields: Any) -> httpx.Response:
        with self.client(key, gateway=gateway) as client:
            return client.post("/v1/chat/completions", json=chat_body(content, **fields))


def as_limits(limits: dict[str, int | tuple[int, int] | None]) -> JSON:
    told: JSON = {}
    for dimension, figures in limits.items():
        value, burst = figures if isinstance(figures, tuple) else (figures, None)
        told[dimension] = None if value is None else {"value": value, **({} if burst is None else {"burst": burst})}
    return told


def chat_body(content: str = "hello", **fields: Any) -> JSON:
    """A prompt of as many tokens as it has characters."""
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "temperature": 0, **fields}


class GatewayInProcess:
    """Both applications behind real sockets, served by a thread.

    Args:
        clock: what time it is for the ledger; keys and limits go by the real one.
        changed: what else a test has otherwise than a gateway's process.
    """

    def __init__(
        self,
        settings: Settings,
        model: ServedModel,
        db: Database,
        clock: Clock = now_us,
        changed: Callable[[PlatformContext], PlatformContext] = lambda context: context,
    ) -> None:
        self._settings, self._model, self._db, self._clock, self._changed = settings, model, db, clock, changed
        self._sockets = [_listening(), _listening()]
        self.api, self.admin = (f"http://127.0.0.1:{bound.getsockname()[1]}" for bound in self._sockets)
        self._servers: list[uvicorn.Server] = []
        self.context: PlatformContext | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="gateway", daemon=True)

    def start(self) -> None:
        self._thread.start()
        wait_until(lambda: self.context is not None and self.context.engine_client.ready)
        wait_until(lambda: all(server.started for server in self._servers))

    def stop(self) -> None:
        for server in self._servers:
            server.should_exit = True
        self._thread.join(timeout=20)

    async def _serve(self) -> None:
        client = EngineClient(endpoint=self._settings.engine_endpoint, model_dir=self._model.folder)
        store = LocalBlobStore(self._settings.blob_dir)
        context = build_context(
            self._settings, db=self._db, store=store, engine_client=client, wake=lambda _job_id: None
        )
        usage = UsageService(self._db, gateway_id=context.gateway_id, clock=self._clock)
        context = self._changed(replace(context, usage=usage, clock=self._clock))
        apps = (create_tenant_app(context), create_admin_app(context))
        await client.start()
        self._servers = [_server(app, self._settings) for app in apps]
        self.context = context
        serving = [server.serve(sockets=[bound]) for server, bound in zip(self._servers, self._sockets, strict=True)]
        await asyncio.gather(*serving)
        await client.stop()


class _QuietServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _server(app: Any, settings: Settings) -> uvicorn.Server:
    return _QuietServer(uvicorn_server(app, "", 0, limits=settings.limits).config)


def _listening() -> socket.socket:
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.bind(("127.0.0.1", 0))
    bound.listen(256)
    return bound


@contextmanager
def in_process(folder: Path, model: ServedModel) -> Iterator[Place]:
    """One gateway and one scripted engine as threads, SQLite in a file, limits counted in this process."""
    with ExitStack() as ending:
        said = ending.enter_context(_logged())
        settings = settings_in(folder)
        upgrade(settings.resolved_database_url)
        controls = ending.enter_context(engine_in_process(settings, model))
        db = ending.enter_context(closing(Database(settings.resolved_database_url)))
        gateway = GatewayInProcess(settings, model, db)
        gateway.start()
        ending.callback(gateway.stop)
        assert gateway.context is not None
        admin = ending.enter_context(_admin(gateway.admin, gateway.context.admin_token))
        yield Place((gateway.api,), (gateway.admin,), admin, db, controls, said.getvalue, settings.blob_dir)


@contextmanager
def two_in_process(
    settings: Settings, model: ServedModel, databases: Sequence[Database], engine: EngineControls, clock: Clock
) -> Iterator[Place]:
    """Gateways that share a database and a clock that a test moves."""
    with ExitStack() as ending:
        said = ending.enter_context(_logged())
        gateways = [GatewayInProcess(settings, model, db, clock) for db in databases]
        for gateway in gateways:
            gateway.start()
            ending.callback(gateway.stop)
        assert gateways[0].context is not None
        admin = ending.enter_context(_admin(gateways[0].admin, gateways[0].context.admin_token))
        apis, admins = tuple(each.api for each in gateways), tuple(each.admin for each in gateways)
        yield Place(apis, admins, admin, databases[0], engine, said.getvalue, settings.blob_dir)


def settings_in(folder: Path, **fields: Any) -> Settings:
    return Settings(data_dir=folder, model_name=MODEL, engine_endpoint=f"ipc://{folder}/engine", **fields)


@contextmanager
def engine_in_process(settings: Settings, model: ServedModel) -> Iterator[EngineControls]:
    control = f"{settings.engine_endpoint}-control"
    # No gateway dies in here, and one whose loop is late, among all the threads of a test, is not dead.
    engine = ScriptedEngineProcess(settings.engine_endpoint, control, model.digest, client_timeout_s=CLIENT_TIMEOUT_S)
    thread = threading.Thread(target=engine.run, name="scripted engine", daemon=True)
    thread.start()
    with closing(EngineControls(control)) as controls:
        yield controls
    engine.stopping = True
    thread.join(10)


@contextmanager
def on_stack(stack: Stack) -> Iterator[Place]:
    apis, admins = zip(*((gateway.api, gateway.admin) for gateway in stack.gateways), strict=True)
    with _admin(admins[0], stack.admin_token) as admin:
        yield Place(apis, admins, admin, stack.db, stack.engine, stack.logs, stack.folder / "data" / "blobs", stack)


def _admin(address: str, token: str) -> httpx.Client:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.Client(base_url=address, headers=headers, timeout=30, trust_env=False)


@contextmanager
def _logged() -> Iterator[io.StringIO]:
    """The log as a gateway process writes it, into memory."""
    root, configured = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    said = io.StringIO()
    configure_logging(stream=said)
    try:
        yield said
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        structlog.configure(**configured)
