"""How the engine names an adapter: by content, per tenant."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class AdapterKey:
    """Identity of an adapter in the engine. Two tenants' equal files are two adapters: sharing would tell who holds what."""

    tenant: str
    digest: str
