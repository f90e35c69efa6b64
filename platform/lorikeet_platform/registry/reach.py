"""Which adapters a transaction may touch: what the key that asked for it is limited to.

The limit lies with the transaction, like its tenant, so that whatever finds an adapter in it heeds the limit. It knows
nothing of how a caller is found out.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Final, cast

from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import Adapter
from lorikeet_platform.errors import PlatformError

_REACH: Final = "allowed_adapters"


def limit_reach(work: Session, allowed_adapters: Iterable[str] | None) -> None:
    """From here on `work` reaches these adapters (ids) only; None = all of the tenant's."""
    work.info[_REACH] = None if allowed_adapters is None else frozenset(allowed_adapters)


def reach_of(work: Session) -> Set[str] | None:
    """Ids, or None for all of the tenant's adapters."""
    return cast("frozenset[str] | None", work.info.get(_REACH))


def check_reach(work: Session, adapter_id: str) -> None:
    """For an adapter that the tenant has. Raises PlatformError(adapter_not_allowed_for_key)."""
    reach = reach_of(work)
    if reach is not None and adapter_id not in reach:
        raise out_of_reach()


def check_reach_of_name(work: Session, tenant_id: str, name: str) -> None:
    """For what belongs to an adapter that may not exist yet: a limited key makes no new ones.

    Raises:
        PlatformError: adapter_not_allowed_for_key.
    """
    names = names_in_reach(work, tenant_id)
    if names is not None and name not in names:
        raise out_of_reach()


def names_in_reach(work: Session, tenant_id: str) -> Set[str] | None:
    """Names of the adapters that `work` reaches; None = all there are and will be."""
    reach = reach_of(work)
    if reach is None:
        return None
    mine = select(Adapter.name).where(
        Adapter.tenant_id == tenant_id, Adapter.status == "active", Adapter.id.in_(sorted(reach))
    )
    return frozenset(work.scalars(mine))


def out_of_reach() -> PlatformError:
    return PlatformError("adapter_not_allowed_for_key", "The API key may not use this adapter.")
