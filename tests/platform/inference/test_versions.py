"""Which version answers when adapters move while requests are on their way, and what is written down of it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_engine.client import Delta, Generation, GenerationRequest
from lorikeet_engine.errors import AdapterDamaged, AdapterRetired, AdapterUnavailable, EngineError
from lorikeet_platform.clock import now_us
from lorikeet_platform.db.tables import Adapter, AdapterVersion, AliasTarget, Job
from lorikeet_platform.ids import new_id
from lorikeet_platform.registry.aliasing.aliases import AliasKey, Change
from lorikeet_platform.registry.aliasing.changes import perform, plan_set
from lorikeet_platform.registry.versions import lifecycle
from lorikeet_platform.registry.versions.lifecycle import Step
from tests.platform.inference.conftest import CHAT, Gateway
from tests.support.scripted_engine import HELLO

RETIRED = AdapterRetired("the adapter is being taken out of service")
ASK = {**CHAT, "model": "pirate"}


def pirate(work: Session) -> Adapter:
    return work.scalars(select(Adapter).where(Adapter.name == "pirate")).one()


def versions(gateway: Gateway) -> dict[int, AdapterVersion]:
    with gateway.db.platform.read() as work:
        found = work.scalars(select(AdapterVersion).where(AdapterVersion.adapter_id == pirate(work).id))
        return {version.number: version for version in found}


def add_version(gateway: Gateway, number: int) -> None:
    with gateway.db.platform.unit_of_work() as work:
        adapter = pirate(work)
        work.add(
            AdapterVersion(
                tenant_id=adapter.tenant_id,
                id=new_id("ver"),
                adapter_id=adapter.id,
                number=number,
                state="ready",
                digest=str(number) * 64,
                bytes=1,
                created_by="key_x",
                created_at=now_us(),
                ready_at=now_us(),
            )
        )


def point(gateway: Gateway, *shares: tuple[int, int], sticky: str = "none") -> None:
    with gateway.db.platform.unit_of_work() as work:
        adapter = pirate(work)
        key = AliasKey(adapter.tenant_id, adapter.id, "live")
        change = Change(actor="system", now=now_us())
        perform(work, plan_set(work, key, shares, sticky=sticky, guard=None, change=change))


def retire(gateway: Gateway, number: int) -> None:
    with gateway.db.platform.unit_of_work() as work:
        tenant_id = pirate(work).tenant_id
        step = Step(tenant_id=tenant_id, adapter="pirate", number=number, actor="key_x", now=now_us())
        lifecycle.retire(work, step, keep_us=10**9)


def meanwhile(gateway: Gateway, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], None]) -> None:
    """`happens` after the first request was resolved; the engine then refuses it as retired."""
    generate, is_first = gateway.engine.generate, [True]

    async def first_this(request: GenerationRequest) -> Generation:
        if is_first:
            is_first.clear()
            happens()
            gateway.engine.scripts.insert(0, [RETIRED])
        return await generate(request)

    monkeypatch.setattr(gateway.engine, "generate", first_this)


def move_on(gateway: Gateway) -> None:
    point(gateway, (2, 100))
    retire(gateway, 1)


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_whose_alias_moved_on_the_way_is_answered_by_the_version_it_means_now(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    add_version(gateway, 2)
    meanwhile(gateway, monkeypatch, lambda: move_on(gateway))
    response = gateway.post({**ASK, "stream": stream, "n": 2})
    new = versions(gateway)[2]
    assert response.status_code == 200
    assert "Hello" in response.text
    assert response.headers["x-lorikeet-model-version"] == new.id
    assert [generation.request.adapter_digest for generation in gateway.engine.generations] == [
        versions(gateway)[1].digest,
        new.digest,
    ]
    assert [generation.n_closed for generation in gateway.engine.generations] == [1, 1]
    [record] = gateway.usage()
    assert (record.version_id, record.outcome, record.completion_tokens) == (new.id, "ok", 6)


def test_a_version_that_went_away_on_the_way_is_a_model_not_found(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_version(gateway, 2)
    meanwhile(gateway, monkeypatch, lambda: move_on(gateway))
    response = gateway.post({**ASK, "model": "pirate:1"})
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")
    assert "x-lorikeet-model-version" not in response.headers
    [record] = gateway.usage()
    assert (record.outcome, record.prompt_tokens, record.first_token_at) == ("shed", 0, None)


def test_an_engine_that_missed_a_restoration_is_told_and_asked_again(gateway: Gateway) -> None:
    gateway.engine.scripts += [[RETIRED], list(HELLO)]
    response = gateway.post(ASK)
    version = versions(gateway)[1]
    assert (response.status_code, response.headers["x-lorikeet-model-version"]) == (200, version.id)
    assert gateway.engine.warmed == [(version.tenant_id, version.digest)]


def test_a_request_is_not_asked_again_without_end(gateway: Gateway) -> None:
    gateway.engine.scripts += [[RETIRED]] * 9
    response = gateway.post(ASK)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "adapter_retired")
    assert response.headers["x-should-retry"] == "false"
    assert len(gateway.engine.generations) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_answered_in_part_is_not_answered_by_another_version(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    add_version(gateway, 2)
    meanwhile(gateway, monkeypatch, lambda: move_on(gateway))
    gateway.engine.scripts.append([Delta("Hel"), RETIRED])
    response = gateway.post({**ASK, "stream": stream})
    error = json.loads(response.text.split("data: ")[-1]) if stream else response.json()
    assert error["error"]["code"] == "adapter_retired"
    assert response.status_code == (200 if stream else 503)
    [record] = gateway.usage()
    assert (record.version_id, record.outcome, record.completion_tokens) == (versions(gateway)[2].id, "shed", 1)


def test_a_damaged_adapter_is_quarantined_by_the_request_that_meets_it(gateway: Gateway) -> None:
    script = [AdapterDamaged("image ab12 has another digest")]
    add_version(gateway, 2)
    point(gateway, (2, 100))
    gateway.engine.scripts += [script, script]
    for expected in ((503, "integrity_error"), (404, "model_not_found")):
        response = gateway.post({**ASK, "model": "pirate:2"})
        assert (response.status_code, response.json()["error"]["code"]) == expected
    assert "ab12" not in response.text
    found = versions(gateway)
    assert (found[1].state, found[2].state, found[2].retire_reason) == (
        "ready",
        "quarantined",
        "the stored adapter is damaged",
    )
    with gateway.db.platform.read() as work:
        assert work.scalars(select(AliasTarget.version_id).where(AliasTarget.alias == "live")).all().count(found[1].id)
        assert len(work.scalars(select(Job).where(Job.kind == "retire")).all()) == 1
    gateway.engine.scripts.clear()
    assert gateway.post(ASK).headers["x-lorikeet-model-version"] == found[1].id


def test_damage_is_not_retried_by_clients(gateway: Gateway) -> None:
    gateway.engine.scripts.append([AdapterDamaged("damaged")])
    response = gateway.post(ASK)
    assert (response.status_code, response.headers["x-should-retry"]) == (503, "false")
    assert "retry-after" not in response.headers
    assert [record.outcome for record in gateway.usage()] == ["server_error"]


def test_an_adapter_that_cannot_be_loaded_stays_in_service(gateway: Gateway) -> None:
    error: EngineError = AdapterUnavailable("the adapter could not be read; tried again in 2 s", retry_after_s=2.0)
    gateway.engine.scripts.append([error])
    response = gateway.post(ASK)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "adapter_unavailable")
    assert response.headers["retry-after"] == "2"
    assert versions(gateway)[1].state == "ready"


def test_the_first_tokens_time_is_written_down_and_only_where_there_was_one(gateway: Gateway) -> None:
    gateway.post(ASK)
    gateway.engine.scripts.append([AdapterUnavailable("no")])
    gateway.post(ASK)
    answered, refused = gateway.usage()
    assert answered.first_token_at is not None
    assert answered.settled_at is not None
    assert answered.admitted_at <= answered.first_token_at <= answered.settled_at
    assert refused.first_token_at is None


@pytest.mark.parametrize("field", ["user", "safety_identifier"])
def test_a_sticky_alias_goes_by_who_the_request_says_is_asking(gateway: Gateway, field: str) -> None:
    add_version(gateway, 2)
    point(gateway, (1, 50), (2, 50), sticky="user")
    seen: dict[str, set[str]] = {}
    for who in [f"user-{n}" for n in range(8)] * 2:
        headers = gateway.post({**ASK, field: who}).headers
        seen.setdefault(who, set()).add(headers["x-lorikeet-model-version"])
    assert all(len(of_one) == 1 for of_one in seen.values())
    assert len(set.union(*seen.values())) == 2


@pytest.mark.parametrize("field", ["user", "safety_identifier"])
@pytest.mark.parametrize("value", [7, True, ["a"], {"id": 1}, "x" * 513])
def test_who_is_asking_is_a_text(gateway: Gateway, field: str, value: object) -> None:
    response = gateway.post({**ASK, field: value})
    assert response.status_code == 400
    assert (response.json()["error"]["code"], response.json()["error"]["param"]) == ("invalid_value", field)


def test_models_show_weighted_aliases_and_hide_what_live_does_not_mean(gateway: Gateway) -> None:
    add_version(gateway, 2)
    point(gateway, (1, 20), (2, 80))
    [_, shown] = gateway.get("/v1/models").json()["data"]
    assert shown["lorikeet"]["aliases"] == {"live": [{"version": 1, "weight": 20}, {"version": 2, "weight": 80}]}
    assert shown["lorikeet"]["version_id"] == versions(gateway)[2].id
    with gateway.db.platform.unit_of_work() as work:
        adapter = pirate(work)
        lifecycle.delete_adapter(work, adapter.tenant_id, "pirate", actor="key_x", now=now_us())
    assert [model["id"] for model in gateway.get("/v1/models").json()["data"]] == ["tiny"]
    for name in ("pirate", "pirate:1", "pirate@live"):
        assert gateway.get(f"/v1/models/{name}").status_code == 404
        assert gateway.post({**CHAT, "model": name}).status_code == 404
