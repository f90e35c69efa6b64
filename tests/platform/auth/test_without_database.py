"""Keys while the database does not answer, and many requests with one new key (R-10, R-11)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from lorikeet_platform.auth import api_keys
from lorikeet_platform.auth.key_format import new_key
from lorikeet_platform.auth.notices import Notice
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.auth.verifying import strangers
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.errors import PlatformError
from tests.support.keys import a_key
from tests.support.platform_parts import FakeClock, Tenant


class Stored:
    """The database's word on keys, which can be made to fail or to wait."""

    def __init__(self, context: PlatformContext, monkeypatch: pytest.MonkeyPatch) -> None:
        self._find = context.authenticator._stored.find
        self.is_down = False
        self.n_asked = 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        monkeypatch.setattr(context.authenticator._stored, "find", self.find)

    def find(self, key: str) -> Principal | None:
        self.n_asked += 1
        self.may_answer.wait()
        if self.is_down:
            raise OperationalError("SELECT", {}, Exception("connection refused"))
        return self._find(key)

    @contextmanager
    def stuck(self) -> Iterator[None]:
        self.may_answer.clear()
        try:
            yield
        finally:
            self.may_answer.set()


@pytest.fixture
def stored(context: PlatformContext, monkeypatch: pytest.MonkeyPatch) -> Stored:
    return Stored(context, monkeypatch)


async def outcome(context: PlatformContext, secret: str) -> str:
    try:
        await context.authenticator.authenticate(f"Bearer {secret}")
    except PlatformError as error:
        return error.code
    return "ok"


def test_a_checked_key_serves_a_minute_without_a_database_and_an_unknown_one_is_503(
    context: PlatformContext, harbour: Tenant, clock: FakeClock, stored: Stored
) -> None:
    async def outage() -> None:
        assert await outcome(context, harbour.secret) == "ok"
        stored.is_down = True
        clock.advance(5.1)
        unknown = new_key().text
        with capture_logs() as lines:
            for _ in range(50):
                assert await outcome(context, harbour.secret) == "ok"
                assert await outcome(context, unknown) == "auth_unavailable"
                clock.advance(1)
            clock.advance(4.8)  # 59.9 s since it was read
            assert await outcome(context, harbour.secret) == "ok"
            clock.advance(0.2)
            assert await outcome(context, harbour.secret) == "auth_unavailable"
        assert len(lines) == 1  # of an outage, not of each request
        assert stored.n_asked <= 60  # one question each second, not one for each request
        stored.is_down = False
        clock.advance(1)
        assert await outcome(context, harbour.secret) == "ok"
        assert await outcome(context, unknown) == "invalid_api_key"

    asyncio.run(outage())


def test_without_a_database_expiry_and_revocations_that_were_heard_of_still_hold(
    context: PlatformContext, harbour: Tenant, clock: FakeClock, stored: Stored
) -> None:
    brief = a_key(context, harbour, "inference", name="brief", expires_at=clock() + 10_000_000)

    async def outage() -> None:
        for secret in (brief.secret, harbour.secret):
            assert await outcome(context, secret) == "ok"
        stored.is_down = True
        clock.advance(6)
        assert await outcome(context, brief.secret) == "ok"
        clock.advance(5)
        assert await outcome(context, brief.secret) == "invalid_api_key"
        context.authenticator.forget_all()
        assert await outcome(context, harbour.secret) == "auth_unavailable"

    asyncio.run(outage())


def test_nobody_waits_for_a_database_that_hangs_but_the_first(
    context: PlatformContext, harbour: Tenant, clock: FakeClock, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "ANSWER_WITHIN_S", 0.2)
    monkeypatch.setattr(api_keys, "PROBE_WITHIN_S", 0.05)

    async def hang() -> None:
        assert await outcome(context, harbour.secret) == "ok"
        clock.advance(6)
        with stored.stuck():
            asked = [outcome(context, new_key().text) for _ in range(5)]
            assert await asyncio.gather(*asked) == ["auth_unavailable"] * 5
            n_asked = stored.n_asked
            for _ in range(20):
                clock.advance(1)
                assert await asyncio.wait_for(outcome(context, harbour.secret), 0.04) == "ok"
            assert stored.n_asked == n_asked  # those on their way are enough
        for _ in range(100):
            clock.advance(1)
            if await outcome(context, new_key().text) == "invalid_api_key":
                break
            await asyncio.sleep(0.01)
        else:
            pytest.fail("the database is back and is not asked")

    asyncio.run(hang())


def test_many_requests_with_one_new_key_are_one_look_up(
    context: PlatformContext, harbour: Tenant, stored: Stored
) -> None:
    async def burst() -> None:
        with stored.stuck():
            asking = [asyncio.ensure_future(outcome(context, harbour.secret)) for _ in range(200)]
            await asyncio.sleep(0.05)
            asking[0].cancel()  # a caller that leaves takes no one else along
        assert await asyncio.gather(*asking[1:]) == ["ok"] * 199
        assert stored.n_asked == 1

    asyncio.run(burst())


def test_who_comes_after_a_revocation_does_not_wait_for_a_look_up_from_before(
    context: PlatformContext, harbour: Tenant, stored: Stored
) -> None:
    async def race() -> None:
        with stored.stuck():
            early = asyncio.ensure_future(outcome(context, harbour.secret))
            await asyncio.sleep(0.05)
            context.authenticator.forget_all()
            late = asyncio.ensure_future(outcome(context, harbour.secret))
            await asyncio.sleep(0.05)
            assert stored.n_asked == 2
        assert [await early, await late] == ["ok", "ok"]

    asyncio.run(race())


def test_a_bug_is_a_500_and_not_an_outage(api: TestClient, context: PlatformContext, harbour: Tenant) -> None:
    def broken(_key: str) -> None:
        raise RuntimeError("a bug")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context.authenticator._stored, "find", broken)
        assert api.get("/v1/models", headers=harbour.auth).status_code == 500
    assert api.get("/v1/models", headers=harbour.auth).status_code == 200


def test_junk_keys_wait_in_a_queue_of_their_own_and_lose_no_database(
    context: PlatformContext, harbour: Tenant, stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "ANSWER_WITHIN_S", 0.2)
    monkeypatch.setattr(strangers, "ASKING_AT_ONCE", 10_000)

    async def flood() -> None:
        assert await outcome(context, harbour.secret) == "ok"
        with stored.stuck():
            junk = [asyncio.ensure_future(outcome(context, new_key().text)) for _ in range(2_000)]
            await asyncio.sleep(0.05)
            # Beyond the queue nobody waits, and the threads of everybody else are free.
            assert sum(task.done() for task in junk) == 2_000 - api_keys.MAX_UNDER_WAY
            assert await asyncio.wait_for(asyncio.to_thread(lambda: 1), 1) == 1
            assert stored.n_asked == 1 + api_keys.THREADS
            assert not context.authenticator._is_lost
        ends = Counter(await asyncio.gather(*junk))
        assert ends["auth_unavailable"] >= 2_000 - api_keys.MAX_UNDER_WAY
        assert ends["auth_unavailable"] + ends["invalid_api_key"] == 2_000

    asyncio.run(flood())


def test_who_waits_for_a_thread_of_ours_does_not_take_the_database_for_lost(
    context: PlatformContext, harbour: Tenant, stored: Stored, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_keys, "ANSWER_WITHIN_S", 0.3)

    async def wait() -> None:
        assert await outcome(context, harbour.secret) == "ok"
        clock.advance(6)
        busy = threading.Event()
        held = [context.authenticator._threads.submit(busy.wait) for _ in range(api_keys.THREADS)]
        assert await outcome(context, new_key().text) == "auth_unavailable"
        assert await outcome(context, harbour.secret) == "ok"  # checked within the last minute
        assert not context.authenticator._is_lost
        busy.set()
        assert all(future.result(1) for future in held)
        assert await outcome(context, new_key().text) == "invalid_api_key"

    asyncio.run(wait())


def test_an_address_with_wrong_keys_is_told_to_wait_and_others_are_not(
    context: PlatformContext, harbour: Tenant, orchard: Tenant, stored: Stored
) -> None:
    now = [0]
    context.authenticator._strangers = strangers.Strangers(lambda: now[0])
    guesser, neighbour, elsewhere = (ip_address(text) for text in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"))

    async def guess() -> None:
        authenticate = context.authenticator.authenticate
        assert await authenticate(f"Bearer {harbour.secret}", guesser)
        for _ in range(strangers.WRONG_AT_ONCE):
            with pytest.raises(PlatformError, match="invalid_api_key"):
                await authenticate(f"Bearer {new_key().text}", guesser)
        n_asked = stored.n_asked
        for address in (guesser, neighbour):
            with pytest.raises(PlatformError, match="rate_limit_exceeded") as refused:
                await authenticate(f"Bearer {orchard.secret}", address)
            assert refused.value.retry_after_ms == 200
        assert stored.n_asked == n_asked
        assert await authenticate(f"Bearer {harbour.secret}", guesser)  # was seen to be good
        with pytest.raises(PlatformError, match="invalid_api_key"):
            await authenticate(f"Bearer {new_key().text}", elsewhere)
        now[0] += 200_000
        assert await authenticate(f"Bearer {orchard.secret}", guesser)

    asyncio.run(guess())


def test_a_notice_of_one_tenant_leaves_what_is_found_out_about_another(
    context: PlatformContext, harbour: Tenant, orchard: Tenant, stored: Stored
) -> None:
    async def race() -> None:
        with stored.stuck():
            asking = [asyncio.ensure_future(outcome(context, one.secret)) for one in (harbour, orchard)]
            await asyncio.sleep(0.05)
            context.authenticator.heed(Notice(harbour.id, None, "changed"))
        assert [await each for each in asking] == ["ok", "ok"]
        assert stored.n_asked == 2
        assert await outcome(context, orchard.secret) == "ok"
        assert stored.n_asked == 2
        assert await outcome(context, harbour.secret) == "ok"
        assert stored.n_asked == 3

    asyncio.run(race())
