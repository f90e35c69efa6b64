"""Where the parts of one installation listen: ports checked before anything starts, sockets opened in one place."""

from __future__ import annotations

import errno
import random
import socket
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from lorikeet_platform.cli.console import CommandFailed, ExitCode
from lorikeet_platform.settings import Settings

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
BACKLOG = 2048
PORTS_TO_CHOOSE_FROM: Final = range(20_000, 32_768)  # outgoing connections get those from 32768 on, on Linux
TRIES: Final = 50


@dataclass(frozen=True, slots=True)
class Listener:
    """One address and the setting that names its port."""

    host: str
    port: int
    setting: str

    @property
    def url(self) -> str:
        """The address for this machine's own use."""
        host = ANY_ADDRESS.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def open(self) -> socket.socket:
        """A bound socket; raises CommandFailed with one line that names the setting."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # The protocol by name: asyncio sends small pieces at once on sockets that say they are TCP, and on no others.
        bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((self.host, self.port))
            bound.listen(BACKLOG)
        except OSError as error:
            bound.close()
            raise CommandFailed(ExitCode.FAILED, self._explain(error)) from None
        return bound

    def settled(self) -> Listener:
        """This listener with its port known to be free; port 0 becomes one that is.

        Not one of those that the system gives to outgoing connections: one of these could have it by the time that
        the part which shall listen there has started.
        """
        if self.port:
            with self.open():
                return self
        for port in random.sample(PORTS_TO_CHOOSE_FROM, TRIES):
            chosen = replace(self, port=port)
            with suppress(CommandFailed), chosen.open():
                return chosen
        raise CommandFailed(ExitCode.FAILED, f"no free port was found; choose one with {self.setting}")

    def _explain(self, error: OSError) -> str:
        address = f"{self.host}:{self.port}"
        if error.errno == errno.EADDRINUSE:
            return f"{address} is taken by another program; choose another port with {self.setting}"
        return f"cannot listen on {address} ({error.strerror}); see {self.setting}"


def api_listener(settings: Settings) -> Listener:
    return Listener(settings.api_host, settings.api_port, "LORIKEET_API_PORT")


def admin_listener(settings: Settings) -> Listener:
    return Listener(settings.admin_host, settings.admin_port, "LORIKEET_ADMIN_PORT")


def health_listener(settings: Settings) -> Listener:
    return Listener(settings.engine.health_host, settings.engine.health_port, "LORIKEET_ENGINE__HEALTH_PORT")
