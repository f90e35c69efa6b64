"""Warm before switch: an alias or a state moves after the engine has the adapter, and not at all when it cannot."""

from __future__ import annotations

import pytest

from lorikeet_engine.errors import AdapterDamaged, AdapterUnavailable, EngineFailure
from tests.support.platform_parts import Tenant
from tests.support.registry_port import Port, refusal
from tests.support.scripted_engine import ScriptedEngine


def test_only_what_an_alias_did_not_point_at_is_warmed_and_before_it_moves(
    port: Port, pirate: list[str], engine: ScriptedEngine, harbour: Tenant
) -> None:
    port.put_alias("live", (1, 90), (2, 10))
    assert engine.warmed == [(harbour.id, pirate[2])]
    port.put_alias("live", (1, 50), (2, 50))
    assert len(engine.warmed) == 1
    engine.is_up = False
    assert port.put_alias("live", (1, 40), (2, 60)).status_code == 200  # nothing has to be loaded for it
    engine.is_up = True
    port.call("POST", "/adapters/pirate/aliases/live/rollback", {"to_revision": 1})
    assert len(engine.warmed) == 1
    port.put_alias("live", 3)
    assert engine.warmed[1:] == [(harbour.id, pirate[3])]


def test_an_alias_stays_where_it_is_when_the_engine_cannot_load_the_version(
    port: Port, pirate: list[str], engine: ScriptedEngine
) -> None:
    engine.unloadable[pirate[2]] = AdapterUnavailable("too large for the arena", retry_after_s=4.0)
    refused = port.put_alias("live", (3, 50), (2, 50))
    assert refusal(refused) == (503, "adapter_unavailable", None)
    assert refused.headers["retry-after"] == "4"
    assert (port.targets(), port.state(2)) == ({1: 100}, "ready")


def test_an_alias_stays_where_it_is_when_no_engine_answers(
    port: Port, pirate: list[str], engine: ScriptedEngine
) -> None:
    engine.is_up = False
    refused = port.put_alias("live", 2)
    assert refusal(refused) == (503, "engine_unavailable", None)
    assert refused.headers["x-should-retry"] == "true"
    assert port.targets() == {1: 100}


def test_a_version_that_turns_out_damaged_is_quarantined_and_no_alias_moves(
    port: Port, pirate: list[str], engine: ScriptedEngine
) -> None:
    engine.unloadable[pirate[2]] = AdapterDamaged("another digest")
    refused = port.put_alias("live", 2)
    assert refusal(refused) == (503, "integrity_error", None)
    assert refused.headers["x-should-retry"] == "false"
    assert (port.targets(), port.state(2)) == ({1: 100}, "quarantined")
    assert refusal(port.put_alias("live", 2)) == (409, "state_conflict", "targets")


@pytest.mark.parametrize(("away", "back"), [("retire", "restore"), ("quarantine", "release")])
def test_a_version_comes_back_when_the_engine_has_it(
    operator: Port, pirate: list[str], engine: ScriptedEngine, harbour: Tenant, away: str, back: str
) -> None:
    operator.act(2, away)
    engine.is_up = False
    assert refusal(operator.act(2, back)) == (503, "engine_unavailable", None)
    engine.is_up = True
    engine.unloadable[pirate[2]] = AdapterUnavailable("missing")
    assert refusal(operator.act(2, back)) == (503, "adapter_unavailable", None)
    assert operator.state(2) != "ready"
    engine.unloadable.clear()
    assert operator.act(2, back).json()["state"] == "ready"
    # Before the commit, and after it: the end of its service may have come to the engine between the two.
    assert engine.warmed == [(harbour.id, pirate[2])] * 2


def test_an_engine_s_own_fault_is_an_error_of_ours_and_no_alias_moves(
    port: Port, pirate: list[str], engine: ScriptedEngine
) -> None:
    engine.unloadable[pirate[2]] = EngineFailure("a copy failed")
    refused = port.put_alias("live", 2)
    assert refusal(refused) == (500, "internal_error", None)
    assert "copy" not in refused.text
    assert (port.targets(), port.state(2)) == ({1: 100}, "ready")


def test_a_version_that_is_found_damaged_right_after_it_came_back_is_shown_as_it_is(
    operator: Port, pirate: list[str], engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.act(2, "retire")
    warm = engine.warm_adapter
    asked = 0

    async def damaged_the_second_time(tenant: str, digest: str, timeout_s: float) -> None:
        nonlocal asked
        asked += 1
        if asked == 2:
            engine.unloadable[digest] = AdapterDamaged("another digest")
        await warm(tenant, digest, timeout_s)

    monkeypatch.setattr(engine, "warm_adapter", damaged_the_second_time)
    assert operator.act(2, "restore").json()["state"] == "quarantined"
