"""What one tenant holds of the engine's memory."""

from __future__ import annotations

from dataclasses import dataclass

from lorikeet_engine.client import EngineClient
from lorikeet_engine.errors import EngineUnavailable


@dataclass(frozen=True, slots=True)
class TenantMemory:
    """`adapter_bytes` of resident adapters, `kv_bytes` of running requests and of what is kept of prefixes."""

    adapter_bytes: int
    kv_bytes: int


async def memory_of_tenant(client: EngineClient, tenant_id: str) -> TenantMemory | None:
    """By the engine's ledgers; None while no engine answers."""
    try:
        stats = await client.stats()
    except EngineUnavailable:
        return None
    return TenantMemory(stats.arena.by_tenant.get(tenant_id, 0), stats.kv.by_tenant.get(tenant_id, 0))
