"""From an Authorization header to a principal, or one 401 that does not say why.

    1. shape: one Bearer header, ASCII, pattern, checksum: no look-up for anything else
    2. memory of this process, by SHA-256 of the whole key: 5 s for a good answer, 1 s for a bad one
    3. one statement, in threads of its own, of which few wait: many requests with one new key wait for the same one,
       and an address that comes with wrong keys again and again is told to wait (`verifying.strangers`)
    4. on every request, remembered or not: expiry, the caller's address, the tenant's status

What a key may do is the asked route's to say (`web.access`). Nothing of the header reaches SQL text, a log line or a
message.

Without its database a process goes on with the keys that it checked within the last minute, and knows no others: they
are told that keys cannot be checked, never that they are wrong. One question each second finds out whether it is back,
and nobody waits for it.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Literal, cast

import structlog
from sqlalchemy.exc import SQLAlchemyError

from lorikeet_platform.auth.addresses import Address, is_within
from lorikeet_platform.auth.key_format import is_well_formed
from lorikeet_platform.auth.notices import Notice, NoticeBoard
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.auth.verifying.last_use import LastUse
from lorikeet_platform.auth.verifying.remembered import Remembered
from lorikeet_platform.auth.verifying.stored import StoredKeys
from lorikeet_platform.auth.verifying.strangers import Strangers
from lorikeet_platform.clock import SECOND, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.errors import PlatformError

log = structlog.get_logger(__name__)

MAX_HEADER_BYTES: Final = 128
GOOD_CAPACITY: Final = 10_000
BAD_CAPACITY: Final = 2_000  # apart, so that junk cannot push good keys out
GOOD_US: Final = 5 * SECOND
BAD_US: Final = 1 * SECOND
UNCHECKED_US: Final = 60 * SECOND  # since it was read: how long a key serves that cannot be checked again
ASK_AGAIN_US: Final = 1 * SECOND  # a database that did not answer
ANSWER_WITHIN_S: Final = 2.0  # else the database counts as one that does not
PROBE_WITHIN_S: Final = 0.25  # once it does: what the request waits that asks again
THREADS: Final = 4  # that ask
MAX_UNDER_WAY: Final = 256  # questions of keys that were not seen to be good; what comes beyond is refused at once
CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}


@dataclass(slots=True, eq=False)
class _Flight:
    """A look-up on its way; `begun_at` is when a thread began to ask, and not when it was to."""

    answer: asyncio.Future[Principal | None] | None = None
    begun_at: float | None = None


class Authenticator:
    """Verifies API keys; one per process, for one event loop. Notices may come in any thread."""

    def __init__(self, db: Database, pepper: Pepper, notices: NoticeBoard, *, clock: Clock = now_us) -> None:
        self._stored, self._last_use, self._clock = StoredKeys(db, pepper), LastUse(db), clock
        self._good: Remembered[Principal] = Remembered(GOOD_CAPACITY)
        self._bad: Remembered[Literal[True]] = Remembered(BAD_CAPACITY)
        self._strangers = Strangers()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="keys")
        self._flights: dict[tuple[int, bytes], _Flight] = {}
        self._is_lost = False  # the database
        self._ask_again_at = 0
        notices.subscribe(self.heed, on_gap=self.forget_all)

    async def authenticate(self, header: str | None, address: Address | None = None) -> Principal:
        """The caller behind one Authorization header, who calls from `address` as far as that is known.

        Raises:
            PlatformError: missing_api_key, invalid_api_key, ip_not_allowed, tenant_suspended, auth_unavailable,
                rate_limit_exceeded for an address with too many wrong keys.
        """
        key, now = _key_in(header), self._clock()
        digest = hashlib.sha256(key.encode("ascii")).digest()
        principal = self._good.find(digest, now - GOOD_US)
        if principal is None:
            principal = await self._look_up(key, digest, address)
        return self._admit(principal, address)

    def heed(self, notice: Notice) -> None:
        """Forget whom the notice is about; a lineage's first key stands for all of it."""
        self._good.forget(notice.tenant_id, notice.key_id or notice.tenant_id)

    def forget_all(self) -> None:
        self._good.forget_all()

    def flush_last_used(self) -> int:
        """Write the collected times of last use; returns how many keys were touched."""
        return self._last_use.flush()

    async def _look_up(self, key: str, digest: bytes, address: Address | None) -> Principal:
        if self._bad.find(digest, self._clock() - BAD_US) is not None:
            raise invalid_api_key()
        flight = self._flight_for(key, digest, address)
        if flight is not None:
            answer = await self._answer_of(flight)
            if answer.done() and not answer.cancelled():
                error = answer.exception()
                if error is None:
                    return _known(answer.result())
                if not isinstance(error, SQLAlchemyError):
                    raise error
                self._lose(error)
            elif flight.begun_at is not None:  # who waited for a thread of ours learned nothing of the database
                self._lose(TimeoutError())
        unchecked = self._good.find(digest, self._clock() - UNCHECKED_US)
        if unchecked is None:
            raise PlatformError("auth_unavailable")
        return unchecked

    async def _answer_of(self, flight: _Flight) -> asyncio.Future[Principal | None]:
        """The answer, if it comes in time: in as much as one may take, from when the question is asked."""
        answer, within = cast(asyncio.Future[Principal | None], flight.answer), self._patience()
        # Not `wait_for`: a caller that leaves must not end what others wait for.
        await asyncio.wait({answer}, timeout=within)
        if not answer.done() and flight.begun_at is not None:
            rest = flight.begun_at + within - time.monotonic()
            await asyncio.wait({answer}, timeout=max(0.0, rest))
        return answer

    def _patience(self) -> float:
        return PROBE_WITHIN_S if self._is_lost else ANSWER_WITHIN_S

    def _flight_for(self, key: str, digest: bytes, address: Address | None) -> _Flight | None:
        """The look-up to wait for. None while the database is lost, but for one question each second."""
        name = (self._good.n_forgotten, digest)  # what began before something changed answers nobody who came after
        flight = self._flights.get(name)
        if self._is_lost and (len(self._flights) >= THREADS or self._clock() < self._ask_again_at):
            return None
        if flight is None:
            is_stranger = self._good.find(digest, self._clock() - UNCHECKED_US) is None
            if is_stranger:
                if len(self._flights) >= MAX_UNDER_WAY:
                    raise PlatformError("auth_unavailable")
                self._strangers.begin(address)
            self._ask_again_at = self._clock() + ASK_AGAIN_US
            flight = self._flights[name] = _Flight()
            flight.answer = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, flight, key, digest)
            flight.answer.add_done_callback(lambda done: self._land(name, done))
            if is_stranger:
                flight.answer.add_done_callback(lambda done: self._strangers.end(address, is_wrong=_is_wrong(done)))
        return flight

    def _ask(self, flight: _Flight, key: str, digest: bytes) -> Principal | None:
        flight.begun_at = time.monotonic()
        n_forgotten, now = self._good.n_forgotten, self._clock()
        found = self._stored.find(key)
        if found is None:
            self._bad.put(digest, True, now, 0)
        else:
            marks = (found.tenant_id, *{found.key_id, found.subject_id})
            self._good.put(digest, found, now, n_forgotten, owner=found.tenant_id, marks=marks)
        return found

    def _land(self, name: tuple[int, bytes], answer: asyncio.Future[Principal | None]) -> None:
        del self._flights[name]
        if not answer.cancelled() and answer.exception() is None:
            self._is_lost = False

    def _lose(self, error: BaseException) -> None:
        if not self._is_lost:
            log.error("keys cannot be checked", exc_info=error)
        self._is_lost, self._ask_again_at = True, self._clock() + ASK_AGAIN_US
        for flight in tuple(self._flights.values()):
            if flight.begun_at is None and flight.answer is not None:
                flight.answer.cancel()  # else all that wait for a thread would be asked when there is hope again

    def _admit(self, principal: Principal, address: Address | None) -> Principal:
        now = self._clock()
        if principal.expires_at is not None and principal.expires_at <= now:
            raise invalid_api_key()
        if principal.networks and (address is None or not is_within(address, principal.networks)):
            raise PlatformError("ip_not_allowed")
        if principal.tenant_status != "active":
            raise PlatformError("tenant_suspended")
        self._last_use.note(principal, address, now)
        return principal


def invalid_api_key() -> PlatformError:
    """The same for every reason: malformed, unknown, wrong secret, revoked, expired, sent twice."""
    return PlatformError("invalid_api_key", headers=CHALLENGE)


def _is_wrong(answer: asyncio.Future[Principal | None]) -> bool:
    return not answer.cancelled() and answer.exception() is None and answer.result() is None


def _known(principal: Principal | None) -> Principal:
    if principal is None:
        raise invalid_api_key()
    return principal


def _key_in(header: str | None) -> str:
    if header is None:
        raise PlatformError("missing_api_key", headers=CHALLENGE)
    scheme, _, key = header.partition(" ")
    if len(header) > MAX_HEADER_BYTES or scheme.lower() != "bearer" or not is_well_formed(key):
        raise invalid_api_key()
    return key
