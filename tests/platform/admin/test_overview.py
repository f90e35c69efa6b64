"""The overview on the administration port: the engine's figures in people's words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lorikeet_engine.stats import PrefixStats, PrefixUse, TenantLoad
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Chore
from lorikeet_platform.overview.engine_view import SHOWN_ADAPTERS
from tests.support.engine_figures import A_POOL, resident
from tests.support.platform_parts import BASE, FakeClock, MeasuredEngine, Tenant, a_version


@pytest.fixture
def owner(admin: TestClient, as_admin: dict[str, str]) -> TestClient:
    admin.headers.update(as_admin)
    return admin


@pytest.fixture
def engine(context: PlatformContext) -> MeasuredEngine:
    client = context.engine_client
    assert isinstance(client, MeasuredEngine)
    return client


def shown(owner: TestClient) -> dict[str, Any]:
    response = owner.get("/admin/v1/overview")
    assert response.status_code == 200
    part: dict[str, Any] = response.json()["engine"]
    return part


def a_digest(context: PlatformContext, tenant: Tenant, name: str, number: int = 1) -> str:
    with context.db.platform.unit_of_work() as work:
        digest = a_version(work, tenant, name=name, number=number).digest
    assert digest is not None
    return digest


def test_the_overview_counts_what_the_platform_has(
    owner: TestClient, context: PlatformContext, harbour: Tenant, orchard: Tenant
) -> None:
    a_digest(context, harbour, "pirate")
    overview = owner.get("/admin/v1/overview").json()
    assert (overview["tenants"], overview["adapters_ready"], overview["jobs_open"]) == (2, 1, 0)


def test_the_overview_says_how_the_books_and_the_gateways_are(
    owner: TestClient, context: PlatformContext, clock: FakeClock
) -> None:
    overview = owner.get("/admin/v1/overview").json()
    assert (overview["books"], overview["gateways"], overview["rates_degraded"]) == (None, 0, False)
    context.presence.beat()
    context.metrics.limits.degraded.set(1)
    with context.db.platform.unit_of_work() as work:
        result = {"mismatches": 2, "budgets": 2, "rollups": 0}
        work.add(Chore(name="usage.check", due_at=clock.now, finished_at=clock.now, result=result))
    overview = owner.get("/admin/v1/overview").json()
    assert overview["books"] == {"checked_at": clock.now // 1_000_000, "mismatches": 2}
    assert (overview["gateways"], overview["rates_degraded"]) == (1, True)
    with context.db.platform.unit_of_work() as work:
        work.get_one(Chore, "usage.check").error = "OperationalError"
    assert owner.get("/admin/v1/overview").json()["books"]["mismatches"] is None


def test_the_engines_plain_figures_are_shown(owner: TestClient) -> None:
    engine = shown(owner)
    assert (engine["state"], engine["running"], engine["waiting"], engine["tokens_per_second"]) == ("ready", 2, 1, 3.5)
    assert (engine["swapped"], engine["seats"], engine["max_seats"]) == (3, 28, 32)
    assert engine["preemptions"] == {
        "swap": 2,
        "recompute": 1,
        "wait": 8,
        "recomputed_tokens": 33,
        "swap_out_bytes": 640,
        "swap_in_bytes": 320,
    }
    assert engine["refusals"] == {"by_reason": {"tenant_queue": 11, "ttft_engine": 12}, "expired": 13}
    assert engine["adapter_traffic"] == {
        "loads": {"disk": 5, "host": 6},
        "evictions": {"room": 4},
        "stall_s": 1.5,
        "longest_wait_s": 0.5,
    }


def test_all_four_ledgers_are_stacked_by_tenant_and_sum_to_capacity(
    owner: TestClient, engine: MeasuredEngine, harbour: Tenant
) -> None:
    pool = replace(A_POOL, by_tenant={harbour.id: 450, "ten_gone": 150})
    engine.figures = {name: replace(pool, name=name) for name in ("kv", "arena", "host", "swap")}
    for name in engine.figures:
        ledger = shown(owner)[name]
        assert ledger["name"] == name
        assert ledger["by_tenant"] == [{"tenant": "harbour", "bytes": 450}, {"tenant": "ten_gone", "bytes": 150}]
        held = sum(item["bytes"] for item in ledger["by_tenant"])
        assert held + ledger["free"] == ledger["capacity"]
        states = ("used", "reserved", "in_flight", "cached", "free")
        assert sum(ledger[state] for state in states) == ledger["capacity"]
        assert (ledger["shared"], ledger["fragmentation"], ledger["external_fragmentation"]) == (64, 7, 9)


def test_queues_are_shown_by_slug(owner: TestClient, engine: MeasuredEngine, harbour: Tenant, orchard: Tenant) -> None:
    engine.figures = {
        "tenants": [
            TenantLoad(tenant=orchard.id, waiting=5, running=0, service=10.0, weight=1.0),
            TenantLoad(tenant=harbour.id, waiting=0, running=4, service=12.0, weight=3.0),
        ]
    }
    assert shown(owner)["queues"] == [
        {"tenant": "harbour", "waiting": 0, "running": 4, "weight": 3.0, "service": 12.0},
        {"tenant": "orchard", "waiting": 5, "running": 0, "weight": 1.0, "service": 10.0},
    ]


def test_the_hit_rate_comes_with_its_parts_and_the_reasons_of_misses(
    owner: TestClient, engine: MeasuredEngine, context: PlatformContext, harbour: Tenant, orchard: Tenant
) -> None:
    digest = a_digest(context, harbour, "pirate", 7)
    uses = [
        PrefixUse(tenant=harbour.id, adapter="", queried_tokens=100, hit_tokens=60),
        PrefixUse(tenant=harbour.id, adapter=digest, queried_tokens=300, hit_tokens=0),
        PrefixUse(tenant=orchard.id, adapter="", queried_tokens=100, hit_tokens=40),
    ]
    engine.figures = {"prefix": PrefixStats(uses=uses, misses={"cold": 4, "salt": 1}, recomputed_hit_tokens=16)}
    prefix = shown(owner)["prefix"]
    assert (prefix["queried_tokens"], prefix["hit_tokens"], prefix["hit_rate"]) == (500, 100, 0.2)
    assert [(use["tenant"], use["queried_tokens"], use["hit_tokens"]) for use in prefix["by_tenant"]] == [
        ("harbour", 400, 60),
        ("orchard", 100, 40),
    ]
    assert [(use["tenant"], use["adapter"]) for use in prefix["by_adapter"]] == [
        ("harbour", "pirate:7"),
        ("harbour", "tiny"),
        ("orchard", "tiny"),
    ]
    assert (prefix["misses"], prefix["recomputed_hit_tokens"]) == ({"cold": 4, "salt": 1}, 16)


def test_before_the_first_request_there_is_no_hit_rate(owner: TestClient, engine: MeasuredEngine) -> None:
    engine.figures = {"prefix": PrefixStats(uses=[], misses={}, recomputed_hit_tokens=0)}
    assert shown(owner)["prefix"]["hit_rate"] is None


def test_every_ready_version_is_somewhere_between_cold_and_resident(
    owner: TestClient, engine: MeasuredEngine, context: PlatformContext, harbour: Tenant
) -> None:
    digests = [a_digest(context, harbour, f"adapter-{n}") for n in range(7)]
    states = ["cold", "loading", "placing", "host", "resident", "draining"]
    engine.figures = {
        "adapters": [resident(d, tenant=harbour.id, state=s) for d, s in zip(digests[1:], states, strict=True)]
    }
    assert shown(owner)["residency"] == {"cold": 2, "loading": 2, "host": 1, "resident": 1, "draining": 1}


def test_adapters_are_shown_by_name_the_busiest_first_and_not_without_end(
    owner: TestClient, engine: MeasuredEngine, context: PlatformContext, harbour: Tenant, orchard: Tenant
) -> None:
    digest = a_digest(context, harbour, "pirate", 7)
    idle = [resident(f"{n:064x}", tenant=harbour.id, state="host", n_bytes=1) for n in range(SHOWN_ADAPTERS)]
    engine.figures = {
        "adapters": [
            *idle,
            resident(digest, tenant=orchard.id, requests=1),
            resident(digest, tenant=harbour.id, requests=2, waiting=3, heat=4.5),
        ]
    }
    adapters = shown(owner)["adapters"]
    assert len(adapters) == SHOWN_ADAPTERS
    # The same digest of another tenant is not that tenant's adapter, so it has no name there.
    assert [(a["tenant"], a["adapter"], a["requests"], a["waiting"]) for a in adapters[:2]] == [
        ("harbour", "pirate:7", 2, 3),
        ("orchard", digest[:12], 1, 0),
    ]
    assert adapters[0]["heat"] == 4.5
    assert shown(owner)["residency"]["host"] == SHOWN_ADAPTERS


def test_the_overview_without_an_engine_still_shows_the_rest(owner: TestClient, engine: MeasuredEngine) -> None:
    engine.is_up = False
    part = shown(owner)
    assert (part["state"], part["model"]) == ("starting", BASE)
    empty = ("kv", "arena", "host", "swap", "prefix", "residency", "preemptions", "refusals", "adapter_traffic")
    assert [part[name] for name in empty] == [None] * len(empty)
    engine.is_up = True
    assert shown(owner)["state"] == "ready"
    engine.is_up = False
    assert shown(owner)["state"] == "unavailable"
