"""One statement from a key's text to its principal, the same for a key that exists and for one that does not.

The row is found by the public part of the key; the secret part is compared as a keyed digest, in constant time. Where
there is no row, the statement answers with as many rows and the digest is computed all the same: how long it takes says
nothing about whether the public part exists.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any, Final, cast

from sqlalchemy import Row, Select, and_, func, literal, select

from lorikeet_platform.auth.key_format import public_id_of
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.auth.scopes import Scope
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import ApiKey, KeyLimit, PlanLimit, Tenant, TenantLimit
from lorikeet_platform.limits.effective import Dimension, Figures, effective_limits
from lorikeet_platform.limits.standard import STANDARD_PLAN

NO_MAC: Final = bytes(32)
NO_SCOPES: Final[frozenset[Scope]] = frozenset()


class StoredKeys:
    """Keys as the database has them."""

    def __init__(self, db: Database, pepper: Pepper) -> None:
        self._db, self._pepper = db, pepper

    def find(self, key: str) -> Principal | None:
        """Whose `key` is, be it expired or its tenant suspended; None when it is unknown, wrong or revoked.

        Raises:
            SQLAlchemyError: the database does not answer.
        """
        with self._db.platform.read() as session:
            rows = session.execute(_by_public_id(public_id_of(key))).all()
        first = rows[0]
        stored = NO_MAC if first.secret_mac is None else first.secret_mac
        version = self._pepper.current if first.pepper_version is None else first.pepper_version
        matches = hmac.compare_digest(self._pepper.mac(key, version), stored)
        return _principal(rows) if matches and first.status == "active" else None


def _by_public_id(public_id: str) -> Select[*tuple[Any, ...]]:
    """One row for each limit of the plan, with the tenant's and the key's own beside it."""
    asked = select(literal(public_id).label("public_id")).subquery()
    plan_id = func.coalesce(Tenant.plan_id, STANDARD_PLAN)
    of_tenant = and_(TenantLimit.tenant_id == ApiKey.tenant_id, TenantLimit.dimension == PlanLimit.dimension)
    of_key = and_(
        KeyLimit.tenant_id == ApiKey.tenant_id,
        KeyLimit.subject_id == ApiKey.subject_id,
        KeyLimit.dimension == PlanLimit.dimension,
    )
    return (
        select(
            ApiKey.tenant_id,
            ApiKey.id,
            ApiKey.subject_id,
            ApiKey.secret_mac,
            ApiKey.pepper_version,
            ApiKey.status,
            ApiKey.scopes,
            ApiKey.allowed_adapters,
            ApiKey.ip_allowlist,
            ApiKey.expires_at,
            Tenant.slug,
            Tenant.status.label("tenant_status"),
            Tenant.weight,
            Tenant.keys_make_keys,
            Tenant.cache_salt,
            PlanLimit.dimension,
            PlanLimit.value.label("plan_value"),
            PlanLimit.burst.label("plan_burst"),
            TenantLimit.value.label("tenant_value"),
            TenantLimit.burst.label("tenant_burst"),
            KeyLimit.value.label("key_value"),
            KeyLimit.burst.label("key_burst"),
        )
        .select_from(asked)
        .outerjoin(ApiKey, ApiKey.public_id == asked.c.public_id)
        .outerjoin(Tenant, Tenant.id == ApiKey.tenant_id)
        .join(PlanLimit, PlanLimit.plan_id == plan_id)
        .outerjoin(TenantLimit, of_tenant)
        .outerjoin(KeyLimit, of_key)
    )


def _principal(rows: Sequence[Row[*tuple[Any, ...]]]) -> Principal:
    first = rows[0]
    return Principal(
        tenant_id=first.tenant_id,
        tenant_slug=first.slug,
        tenant_status=first.tenant_status,
        key_id=first.id,
        subject_id=first.subject_id,
        scopes=frozenset(first.scopes) - (NO_SCOPES if first.keys_make_keys else {"keys:write"}),
        allowed_adapters=None if first.allowed_adapters is None else frozenset(first.allowed_adapters),
        networks=tuple(ip_network(text) for text in first.ip_allowlist or ()),
        limits=effective_limits(_figures(rows, "plan"), _figures(rows, "tenant"), _figures(rows, "key")),
        expires_at=first.expires_at,
        weight=first.weight,
        cache_salt=first.cache_salt,
    )


def _figures(rows: Sequence[Row[*tuple[Any, ...]]], of: str) -> Figures:
    value, burst = f"{of}_value", f"{of}_burst"
    return {
        cast(Dimension, row.dimension): (getattr(row, value), getattr(row, burst))
        for row in rows
        if getattr(row, value) is not None
    }
