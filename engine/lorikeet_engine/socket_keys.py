"""Who may talk to the engine between machines: CURVE keys in one small file that both sides hold.

The file has two lines, the engine's and the clients' secret key in Z85, as `lorikeet engine-key` writes them. The
engine answers only to that client key; a client talks only to that engine key. On one machine the socket is a file in
a private folder and needs no keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zmq
from zmq.auth.thread import ThreadAuthenticator

HEARTBEAT_MS = 5000


@dataclass(frozen=True, slots=True)
class SocketKeys:
    """Z85 secret keys of both sides; public keys follow from them."""

    engine_secret: bytes
    client_secret: bytes

    @staticmethod
    def generate() -> SocketKeys:
        return SocketKeys(zmq.curve_keypair()[1], zmq.curve_keypair()[1])

    @staticmethod
    def read(path: Path) -> SocketKeys:
        """Raises ValueError when the file does not hold two keys."""
        lines = path.read_bytes().split()
        if len(lines) != 2 or any(len(line) != 40 for line in lines):
            raise ValueError(f"{path} does not hold two Z85 keys of 40 characters, one a line")
        return SocketKeys(*lines)

    def text(self) -> str:
        return f"{self.engine_secret.decode()}\n{self.client_secret.decode()}\n"


def keys_for(endpoint: str, key_file: Path | None) -> SocketKeys | None:
    """The keys an endpoint needs: tcp must have them, ipc has none.

    Raises:
        ValueError: tcp without a key file, or another transport.
    """
    if endpoint.startswith("ipc://"):
        return None
    if not endpoint.startswith("tcp://"):
        raise ValueError(f"engine endpoint {endpoint!r}: only ipc:// and tcp:// are served")
    if key_file is None:
        raise ValueError(f"engine endpoint {endpoint!r} needs a socket key file (LORIKEET_ENGINE_KEY_FILE)")
    return SocketKeys.read(key_file)


def keep_alive(socket: zmq.Socket[Any]) -> None:
    """Notice a peer that is gone; ZeroMQ's own thread answers, so a long step is no silence."""
    socket.heartbeat_ivl = HEARTBEAT_MS
    socket.heartbeat_timeout = 3 * HEARTBEAT_MS


def secure_engine(socket: zmq.Socket[bytes], keys: SocketKeys) -> ThreadAuthenticator:
    """Let only holders of the client key connect; stop the returned authenticator with the socket."""
    client_public = zmq.curve_public(keys.client_secret)

    class OnlyOurClients:
        def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002 (pyzmq's signature)
            return key == client_public

    authenticator = ThreadAuthenticator(socket.context)
    authenticator.start()
    authenticator.configure_curve_callback(domain="*", credentials_provider=OnlyOurClients())
    socket.curve_server = True
    socket.curve_secretkey = keys.engine_secret
    socket.curve_publickey = zmq.curve_public(keys.engine_secret)
    return authenticator


def secure_client(socket: zmq.Socket[Any], keys: SocketKeys) -> None:
    socket.curve_secretkey = keys.client_secret
    socket.curve_publickey = zmq.curve_public(keys.client_secret)
    socket.curve_serverkey = zmq.curve_public(keys.engine_secret)
