"""From an Authorization header to a principal, or one 401 that does not say why.

    1. shape: one Bearer header, ASCII, pattern, checksum: no look-up for anything else
    2. process-local cache by SHA-256 of the whole key: 5 s for a good answer, 1 s for a bad one
    3. one statement on `public_id`, HMAC compared in constant time; a missing row takes the same path
    4. on every request, hits included: expiry and the tenant's status

Nothing of the header reaches SQL text, a log line or a message.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import threading
from dataclasses import dataclass
from ipaddress import ip_network

import structlog
from sqlalchemy import select, update
from sqlalchemy.exc import SQLAlchemyError

from lorikeet_platform.auth.key_format import is_well_formed, public_id_of
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.auth.ttl_cache import TtlCache
from lorikeet_platform.clock import MINUTE, SECOND, Clock, now_us
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import ApiKey, Tenant
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.limits.effective import EffectiveLimits
from lorikeet_platform.limits.stored import limits_of_key

log = structlog.get_logger(__name__)

MAX_HEADER_BYTES = 128
GOOD_CAPACITY, GOOD_TTL_US = 10_000, 5 * SECOND
BAD_CAPACITY, BAD_TTL_US = 2_000, 1 * SECOND  # apart, so that junk cannot push good keys out
N_LOCKS = 64
CHALLENGE = {"WWW-Authenticate": "Bearer"}
_NO_ROW_MAC = bytes(32)


@dataclass(frozen=True, slots=True)
class _Refused:
    """Remembered for a moment, so that a wrong key in a loop does not become a query in a loop."""


class Authenticator:
    """Verifies API keys; one per process, shared by both listeners so that a revocation drops the cached answer."""

    def __init__(self, db: Database, pepper: Pepper, *, clock: Clock = now_us) -> None:
        self._db, self._pepper, self._clock = db, pepper, clock
        self._good: TtlCache[Principal] = TtlCache(capacity=GOOD_CAPACITY, ttl_us=GOOD_TTL_US, clock=clock)
        self._bad: TtlCache[_Refused] = TtlCache(capacity=BAD_CAPACITY, ttl_us=BAD_TTL_US, clock=clock)
        self._cache_lock = threading.Lock()  # for the next two, and for filling `_good`
        self._digests: dict[str, set[bytes]] = {}  # cached digests by key id, for `forget`
        self._n_forgotten = 0  # tells a look-up that a key was revoked since it began
        self._locks = [threading.Lock() for _ in range(N_LOCKS)]
        self._used_lock = threading.Lock()
        self._last_used: dict[tuple[str, str], int] = {}

    def authenticate(self, header: str | None) -> Principal:
        """The caller behind one Authorization header.

        Raises:
            PlatformError: missing_api_key, invalid_api_key, tenant_suspended, auth_unavailable.
        """
        key = self._key_in(header)
        digest = hashlib.sha256(key.encode("ascii")).digest()
        principal = self._good.find(digest)
        if principal is None:
            principal = self._look_up_once(key, digest)
        return self._admit(principal)

    async def authenticate_async(self, header: str | None) -> Principal:
        """The same from the event loop: a cached answer stays on it, a query goes to a thread."""
        key = self._key_in(header)
        principal = self._good.find(hashlib.sha256(key.encode("ascii")).digest())
        if principal is not None:
            return self._admit(principal)
        return await asyncio.to_thread(self.authenticate, header)

    def forget(self, key_id: str) -> None:
        """Drop what is cached for a key; called after its revocation has been committed."""
        with self._cache_lock:
            self._n_forgotten += 1
            for digest in self._digests.pop(key_id, set()):
                self._good.drop(digest)

    def flush_last_used(self) -> int:
        """Write the collected times of last use; returns how many keys were touched."""
        with self._used_lock:
            used, self._last_used = self._last_used, {}
        if used:
            with self._db.platform.unit_of_work() as work:
                for (tenant_id, key_id), at in used.items():
                    mine = update(ApiKey).where(ApiKey.tenant_id == tenant_id, ApiKey.id == key_id)
                    work.execute(mine.values(last_used_at=at), execution_options={"synchronize_session": False})
        return len(used)

    def _key_in(self, header: str | None) -> str:
        if header is None:
            raise PlatformError("missing_api_key", headers=CHALLENGE)
        scheme, _, key = header.partition(" ")
        if len(header) > MAX_HEADER_BYTES or scheme.lower() != "bearer" or not is_well_formed(key):
            raise invalid_api_key()
        return key

    def _look_up_once(self, key: str, digest: bytes) -> Principal:
        with self._locks[digest[0] % N_LOCKS]:  # many requests with one new key make one query
            principal = self._good.find(digest)
            if principal is not None:
                return principal
            if self._bad.find(digest) is not None:
                raise invalid_api_key()
            n_forgotten = self._n_forgotten
            found = self._look_up(key)
            if found is None:
                self._bad.put(digest, _Refused())
                raise invalid_api_key()
            with self._cache_lock:
                if n_forgotten == self._n_forgotten:  # else the row may be older than the revocation
                    self._digests.setdefault(found.key_id, set()).add(digest)
                    self._good.put(digest, found)
            return found

    def _look_up(self, key: str) -> Principal | None:
        statement = (
            select(ApiKey, Tenant)
            .join(Tenant, Tenant.id == ApiKey.tenant_id)
            .where(ApiKey.public_id == public_id_of(key))
        )
        limits: EffectiveLimits | None = None
        try:
            with self._db.platform.read() as session:
                row = session.execute(statement).one_or_none()
                if row is not None:
                    limits = limits_of_key(session, row.Tenant, row.ApiKey.subject_id)
        except SQLAlchemyError as error:
            log.error("keys cannot be checked", exc_info=error)
            raise PlatformError("auth_unavailable") from error
        stored = row.ApiKey.secret_mac if row else _NO_ROW_MAC
        version = row.ApiKey.pepper_version if row else self._pepper.current
        matches = hmac.compare_digest(self._pepper.mac(key, version), stored)
        if row is None or limits is None or not matches or row.ApiKey.status != "active":
            return None
        return Principal(
            tenant_id=row.Tenant.id,
            tenant_slug=row.Tenant.slug,
            tenant_status=row.Tenant.status,
            key_id=row.ApiKey.id,
            subject_id=row.ApiKey.subject_id,
            scopes=frozenset(row.ApiKey.scopes),
            allowed_adapters=None if row.ApiKey.allowed_adapters is None else frozenset(row.ApiKey.allowed_adapters),
            networks=tuple(ip_network(text) for text in row.ApiKey.ip_allowlist or ()),
            limits=limits,
            expires_at=row.ApiKey.expires_at,
            weight=row.Tenant.weight,
            cache_salt=row.Tenant.cache_salt,
        )

    def _admit(self, principal: Principal) -> Principal:
        now = self._clock()
        if principal.expires_at is not None and principal.expires_at <= now:
            raise invalid_api_key()
        if principal.tenant_status != "active":
            raise PlatformError("tenant_suspended")
        with self._used_lock:
            self._last_used[principal.tenant_id, principal.key_id] = now - now % MINUTE
        return principal


def invalid_api_key() -> PlatformError:
    """The same for every reason: malformed, unknown, wrong secret, revoked, expired, sent twice."""
    return PlatformError("invalid_api_key", headers=CHALLENGE)
