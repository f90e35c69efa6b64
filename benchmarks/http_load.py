"""HTTP without a library, for measuring a server whose work is shorter than a client library's own.

One keep-alive connection asks one thing after another; a closed loop of several is what `asked_by_many` runs.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

HEAD_END: Final = b"\r\n\r\n"
PIECE: Final = 1 << 16
TIMEOUT_S: Final = 60.0


@dataclass(slots=True)
class Answer:
    """One answer: when its pieces came, and what it said. `pieces_s` are those of a streamed body."""

    asked_s: float
    status: int = 0
    head: bytes = b""
    body: bytes = b""
    pieces_s: list[float] = field(default_factory=list)
    first_content_s: float = 0.0
    ended_s: float = 0.0


class Connection:
    """Raises OSError when the server hangs up."""

    def __init__(self, address: str, key: str) -> None:
        parts = urlsplit(address)
        self._host = parts.netloc
        self._headers = f"host: {self._host}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=TIMEOUT_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        content = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\n{self._headers}content-length: {len(content)}\r\n\r\n"
        answer = Answer(time.perf_counter())
        self._socket.sendall(head.encode() + content)
        received = b""
        while HEAD_END not in received:
            received += self._more()
        answer.head, _, received = received.partition(HEAD_END)
        answer.status = int(answer.head[9:12])
        if b"transfer-encoding: chunked" in answer.head.lower():
            self._read_chunks(answer, received)
        else:
            length = int(answer.head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            while len(received) < length:
                received += self._more()
            answer.body = received
        answer.ended_s = time.perf_counter()
        return answer

    def close(self) -> None:
        self._socket.close()

    def _read_chunks(self, answer: Answer, received: bytes) -> None:
        """Chunks are not taken apart: an event stream has no line that could be taken for their end."""
        pieces = [received]
        last = received
        while True:
            now = time.perf_counter()
            if last:
                answer.pieces_s.append(now)
            if not answer.first_content_s and has_content(last):
                answer.first_content_s = now
            if last.endswith(b"0\r\n\r\n"):
                break
            last = self._more()
            pieces.append(last)
        answer.body = b"".join(pieces)

    def _more(self) -> bytes:
        received = self._socket.recv(PIECE)
        if not received:
            raise ConnectionError("the server hung up")
        return received


def has_content(piece: bytes) -> bool:
    """Whether a piece of a chat's event stream has text of the answer."""
    return b'"content":"' in piece.replace(b'"content":""', b"")


def asked_by_many(
    connect: Callable[[int], Connection], ask: Callable[[Connection], Answer], *, connections: int, seconds: float
) -> list[Answer]:
    """What a closed loop of so many connections got, within so many seconds."""
    answers: list[list[Answer]] = [[] for _ in range(connections)]
    opened = [connect(index) for index in range(connections)]
    end_s = time.perf_counter() + seconds

    def run(index: int) -> None:
        while time.perf_counter() < end_s:
            answers[index].append(ask(opened[index]))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for connection in opened:
        connection.close()
    return [answer for own in answers for answer in own]
