"""Where the parts listen, decided before any of them starts."""

from __future__ import annotations

import asyncio
import socket

import pytest

from lorikeet_platform.cli.console import CommandFailed
from lorikeet_platform.cli.embedded.addresses import PORTS_TO_CHOOSE_FROM, Listener


def test_port_0_becomes_a_free_one_that_no_outgoing_connection_is_given() -> None:
    chosen = Listener("127.0.0.1", 0, "SETTING").settled()
    assert chosen.port in PORTS_TO_CHOOSE_FROM
    with chosen.open():
        pass


def test_a_port_that_is_named_stays_and_one_that_is_taken_is_refused_by_its_setting() -> None:
    free = Listener("127.0.0.1", 0, "SETTING").settled()
    assert free.settled() == free
    with socket.create_server(("127.0.0.1", free.port)), pytest.raises(CommandFailed) as refused:
        free.settled()
    assert "SETTING" in refused.value.message


def test_taken_ports_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    free = Listener("127.0.0.1", 0, "SETTING").settled()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = [taken.getsockname()[1], free.port]
        monkeypatch.setattr("random.sample", lambda _population, _k: ports)
        assert Listener("127.0.0.1", 0, "SETTING").settled() == free


def test_what_is_accepted_sends_small_pieces_at_once() -> None:
    """Or the second piece of every stream waits for the first one's acknowledgement, 40 ms and more."""

    async def accepted() -> int:
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            told.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        with Listener("127.0.0.1", 0, "SETTING").settled().open() as bound:
            async with await asyncio.start_server(serve, sock=bound):
                _, writer = await asyncio.open_connection(*bound.getsockname())
                writer.close()
                return await told

    assert asyncio.run(accepted())
