"""A tenant's usage records one by one, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import Adapter, AdapterVersion, ApiKey, UsageCost, UsageRecord
from lorikeet_platform.usage.ledger.costs import is_cost_of_record


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """A record with the names of what its ids stand for, and its cost where that is known."""

    record: UsageRecord
    key_name: str
    model: str
    cost: UsageCost | None


def newest(work: Session, tenant_id: str, *, behind: tuple[int, str] | None, limit: int) -> Sequence[RecordEntry]:
    """Up to `limit` records that are older than the one admitted at that time with that id."""
    record = UsageRecord
    statement = (
        select(record, ApiKey.name, Adapter.name, AdapterVersion.number, UsageCost)
        .join(ApiKey, and_(ApiKey.tenant_id == record.tenant_id, ApiKey.id == record.key_id))
        .outerjoin(
            AdapterVersion,
            and_(AdapterVersion.tenant_id == record.tenant_id, AdapterVersion.id == record.version_id),
        )
        .outerjoin(Adapter, and_(Adapter.tenant_id == record.tenant_id, Adapter.id == record.adapter_id))
        .outerjoin(UsageCost, is_cost_of_record())
        .where(record.tenant_id == tenant_id)
        .order_by(record.admitted_at.desc(), record.request_id.desc())
        .limit(limit)
    )
    if behind is not None:
        at, request_id = behind
        same_moment = and_(record.admitted_at == at, record.request_id < request_id)
        statement = statement.where(or_(record.admitted_at < at, same_moment))
    return [
        RecordEntry(row[0], row[1], row[0].base_model if row[3] is None else f"{row[2]}:{row[3]}", row[4])
        for row in work.execute(statement)
    ]
