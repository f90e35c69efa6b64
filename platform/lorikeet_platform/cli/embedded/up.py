"""`lorikeet up`: everything on one machine with one command.

ports free? ─▶ model directory (child, once) + database schema ─▶ engine and gateway ─▶ demo ─▶ welcome ─▶ watch
"""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from lorikeet_platform.accounts.admin_token import load_admin_token
from lorikeet_platform.cli.api import Api
from lorikeet_platform.cli.console import CommandFailed, ExitCode, say
from lorikeet_platform.cli.embedded.addresses import Listener, admin_listener, api_listener, health_listener
from lorikeet_platform.cli.embedded.demo import Seeder
from lorikeet_platform.cli.embedded.engine_child import write_engine_config
from lorikeet_platform.cli.embedded.model import prepared_model
from lorikeet_platform.cli.embedded.supervise import Supervisor
from lorikeet_platform.cli.embedded.welcome import Demo, demo_welcome, new_owner_token, plain_welcome
from lorikeet_platform.db.migrate import upgrade
from lorikeet_platform.settings import Settings

# A Unix socket's address has 107 bytes; the folder's random part and the file's name take 25 of them.
LONGEST_FOLDER = 80
GATEWAY_COMMAND = (sys.executable, "-m", "lorikeet_platform.cli", "gateway")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Addresses:
    """The three ports of one machine's installation, all known and free when made."""

    api: Listener
    admin: Listener
    health: Listener

    @classmethod
    def of(cls, settings: Settings) -> Addresses:
        return cls(*(make(settings).settled() for make in (api_listener, admin_listener, health_listener)))


def up(settings: Settings, *, demo: bool) -> None:
    """Run until SIGINT or SIGTERM; raises CommandFailed."""
    asyncio.run(_run_until_signal(settings, demo=demo))


async def _run_until_signal(settings: Settings, *, demo: bool) -> None:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    running = asyncio.ensure_future(_run(settings, demo=demo))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if stop.is_set():
        say("\nStopping …")
        running.cancel()
        await asyncio.wait({running})
        return
    stopping.cancel()
    running.result()


async def _run(settings: Settings, *, demo: bool) -> None:
    addresses = Addresses.of(settings)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    say(f"Preparing the model {settings.model} …")
    model_dir, _ = await asyncio.gather(
        prepared_model(settings), asyncio.to_thread(upgrade, settings.resolved_database_url)
    )
    with tempfile.TemporaryDirectory(prefix="lorikeet-") as folder:
        endpoint = settings.engine_endpoint or _socket_in(Path(folder))
        supervisor = Supervisor(
            engine_command=write_engine_config(
                _with_health_port(settings, addresses.health.port),
                model_dir=model_dir,
                endpoint=endpoint,
                path=Path(folder) / "engine.json",
            ),
            gateway_command=GATEWAY_COMMAND,
            gateway_environment=_gateway_environment(settings, addresses, model_dir, endpoint),
            ready_url=f"{addresses.api.url}/readyz",
        )
        say("Starting the engine and the gateway …")
        try:
            await supervisor.start()
            say(await _in_daemon_thread(lambda: _welcome(settings, addresses, demo=demo)))
            await supervisor.watch()
        finally:
            await supervisor.stop()


def _socket_in(folder: Path) -> str:
    if len(str(folder)) > LONGEST_FOLDER:
        raise CommandFailed(ExitCode.FAILED, f"{folder} is too long for a socket; set TMPDIR to a shorter folder")
    return f"ipc://{folder}/engine.sock"


def _with_health_port(settings: Settings, port: int) -> Settings:
    return settings.model_copy(update={"engine": settings.engine.model_copy(update={"health_port": port})})


def _gateway_environment(settings: Settings, addresses: Addresses, model_dir: Path, endpoint: str) -> dict[str, str]:
    """What was decided here; everything else the gateway reads from the same environment as we did."""
    return {
        "LORIKEET_API_PORT": str(addresses.api.port),
        "LORIKEET_ADMIN_PORT": str(addresses.admin.port),
        "LORIKEET_MODEL": str(model_dir),
        "LORIKEET_MODEL_NAME": settings.model_name,
        "LORIKEET_ENGINE_ENDPOINT": endpoint,
    }


def _welcome(settings: Settings, addresses: Addresses, *, demo: bool) -> str:
    api, admin_url = addresses.api.url, addresses.admin.url
    owner_token = new_owner_token(settings)
    if not demo:
        return plain_welcome(api, admin_url, owner_token)
    demo_file = settings.data_dir / "demo.json"
    with Api(admin_url, load_admin_token(settings.data_dir)) as admin:
        tenants = Seeder(api_url=api, admin=admin, demo_file=demo_file).seed()
    facts = Demo(api, admin_url, owner_token, settings.model_name, tenants)
    facts.write(demo_file)
    return demo_welcome(facts)


async def _in_daemon_thread(work: Callable[[], T]) -> T:
    """Like asyncio.to_thread, but the process may end without waiting for `work`: Ctrl-C must not hang on HTTP."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(outcome: T | None, error: Exception | None) -> None:
        if not result.done():
            result.set_exception(error) if error is not None else result.set_result(outcome)  # type: ignore[arg-type]

    def run() -> None:
        try:
            outcome = work()
        except Exception as error:
            loop.call_soon_threadsafe(settle, None, error)
        else:
            loop.call_soon_threadsafe(settle, outcome, None)

    threading.Thread(target=run, name="welcome", daemon=True).start()
    return await result
