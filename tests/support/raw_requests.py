"""Requests byte for byte: what a client library would tidy up before it sends it."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class RawAnswer:
    """Status 0: the server hung up without an answer."""

    status: int
    head: str
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def raw(address: str, head: str | bytes, body: bytes = b"") -> RawAnswer:
    """Sends `head`, lines between "\\n", as it is, and reads to the end of the connection."""
    parts = urlsplit(address)
    lines = head.replace("\n", "\r\n").encode() if isinstance(head, str) else head
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20) as connection:
        received = b""
        try:
            connection.sendall(lines + b"\r\nconnection: close\r\n\r\n" + body)
            while piece := connection.recv(1 << 16):
                received += piece
        except ConnectionError:
            pass  # refused before everything was sent; what was answered counts
    top, _, rest = received.partition(b"\r\n\r\n")
    if not top:
        return RawAnswer(0, "", b"")
    return RawAnswer(int(top[9:12]), top.decode("latin-1"), rest)
