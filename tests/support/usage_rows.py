"""Usage records as tests need them, without a gateway that admits and settles."""

from __future__ import annotations

from typing import Any

from lorikeet_platform.db.tables import UsageRecord
from lorikeet_platform.ids import new_id
from lorikeet_platform.usage.periods import month_start
from tests.support.platform_parts import BASE, Tenant


def usage_record(tenant: Tenant, *, admitted_at: int, outcome: str | None = None, **columns: Any) -> UsageRecord:
    """A record of the tenant's first key: open, or settled when it has an outcome."""
    settled = {"state": "settled", "outcome": outcome, "settled_by": "gateway", "settled_at": admitted_at}
    values: dict[str, Any] = {
        "tenant_id": tenant.id,
        "request_id": new_id("req"),
        "key_id": tenant.key_id,
        "subject_id": tenant.key_id,
        "route": "/v1/chat/completions",
        "base_model": BASE,
        "stream": False,
        "period_start": month_start(admitted_at),
        "admitted_at": admitted_at,
    }
    return UsageRecord(**(values | (settled if outcome else {}) | columns))
