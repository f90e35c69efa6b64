"""Ports for processes that must be told one before they start."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

FIRST, A_SHARE, SHARES = 10_000, 100, 220


def free_port() -> int:
    """One that nobody takes between this and its use: below those that the kernel gives away, and of a share that
    only this process of the tests asks of, since those of one run have numbers that lie near each other."""
    return next(port for port in _ours if _is_free(port))


def _share() -> Iterator[int]:
    first = FIRST + os.getpid() % SHARES * A_SHARE
    while True:
        yield from range(first, first + A_SHARE)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


_ours = _share()
