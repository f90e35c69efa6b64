"""The doctor's rounds in a gateway: what /admin/v1/findings and /metrics say, and that findings do not flicker."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError

from lorikeet_engine.client import EngineDesign
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import Chore
from lorikeet_platform.doctor.catalogue import FOLLOWS, NAMES
from lorikeet_platform.doctor.rounds import StoredNames
from lorikeet_platform.doctor.schemas import Cost, Finding
from lorikeet_platform.doctor.steadiness import Steadiness
from tests.support.engine_figures import engine_design, resident
from tests.support.platform_parts import FakeClock, MeasuredEngine, Tenant, a_version
from tests.support.seen_engine import KNOBS, preempted, prefix, quiet_stats, times, traffic, use, work

ROOT = Path(__file__).parents[3]
UNWELL: dict[str, Any] = {
    "preemptions": preempted(recompute=9),
    "histograms": [times("queue", [0.1] * 20), times("e2e", [1.0] * 20)],
    "generated_tokens_total": 400,
    "prefix": prefix(600),
}

HEALED: dict[str, Any] = {
    "preemptions": preempted(),
    "histograms": [],
    "generated_tokens_total": 0,
    "prefix": prefix(),
}


@dataclass
class Ward:
    """A gateway whose engine a test makes unwell; `owner` is signed in."""

    context: PlatformContext
    engine: MeasuredEngine
    clock: FakeClock
    owner: TestClient
    uptime_s: float = 100.0
    figures: dict[str, Any] = field(default_factory=dict)

    def sample(self, n: int = 1, **figures: Any) -> list[str]:
        """So many samples later, each with the engine's figures as they are then: the rules that found something."""
        for _ in range(n):
            self.uptime_s += 5.0
            self.clock.advance(5.0)
            self.figures |= figures
            stats = quiet_stats(uptime_s=self.uptime_s, **self.figures)
            self.engine.figures = {name: getattr(stats, name) for name in stats.__struct_fields__}
            asyncio.run(self.context.watch.sample())
        return [finding["rule"] for finding in self.findings()["findings"]]

    def findings(self) -> dict[str, Any]:
        answer = self.owner.get("/admin/v1/findings")
        assert answer.status_code == 200
        found: dict[str, Any] = answer.json()
        return found

    def lit(self) -> dict[str, float]:
        text = self.owner.get("/metrics").text
        return {rule: float(value) for rule, value in re.findall(r'lorikeet_findings\{rule="(\w+)"\} (\S+)', text)}


class Described(MeasuredEngine):
    """The engine of the tests with every knob."""

    async def design(self) -> EngineDesign:
        self.info  # noqa: B018 (raises when the engine is down)
        return engine_design(knobs=dict(KNOBS))


@pytest.fixture
def ward(
    context: PlatformContext, clock: FakeClock, admin: TestClient, as_admin: dict[str, str], monkeypatch: Any
) -> Ward:
    engine = context.engine_client
    assert isinstance(engine, MeasuredEngine)
    monkeypatch.setattr(MeasuredEngine, "design", Described.design)
    admin.headers.update(as_admin)
    return Ward(context, engine, clock, admin)


def test_before_the_first_look_nothing_is_known(ward: Ward) -> None:
    assert ward.findings() == {"examined_s": None, "at": None, "findings": []}


def test_until_enough_was_seen_nothing_is_said_of_the_engine(ward: Ward) -> None:
    ward.sample()
    assert ward.sample(**UNWELL) == []
    assert ward.findings()["examined_s"] is None
    assert ward.findings()["at"] == ward.clock.now // 1_000_000


def test_a_finding_comes_with_evidence_cost_remedy_and_setting(ward: Ward) -> None:
    ward.sample()
    assert ward.sample(6, **UNWELL) == ["preemption"]
    told = ward.findings()
    assert told["examined_s"] == 30.0
    [finding] = told["findings"]
    assert set(finding) == {
        *("rule", "severity", "title", "explanation", "evidence", "cost", "remedy", "setting"),
    }
    assert finding["setting"].startswith("LORIKEET_ENGINE__MAX_NUM_SEQS=")
    assert {"label": "max_num_seqs", "value": "8"} in finding["evidence"]
    assert set(finding["cost"]) == {"text", "share"}


def test_what_is_wrong_lights_its_metric_and_every_rule_has_one(ward: Ward) -> None:
    ward.sample()
    assert ward.lit() == dict.fromkeys(NAMES, 0.0)
    ward.sample(6, **UNWELL)
    assert ward.lit() == dict.fromkeys(NAMES, 0.0) | {"preemption": 1.0}


def test_an_engine_that_is_away_is_the_only_thing_said(ward: Ward) -> None:
    ward.sample()
    assert ward.sample(6, **UNWELL) == ["preemption"]
    ward.engine.is_up = False
    assert ward.sample(2) == ["preemption"]  # a short gap says nothing yet
    assert ward.sample(3) == ["engine_away"]
    assert ward.findings()["examined_s"] is None
    assert ward.findings()["findings"][0]["severity"] == "critical"
    ward.engine.is_up, ward.uptime_s = True, 0.0
    assert ward.sample(7, **HEALED) == []


def test_of_an_engine_that_was_started_anew_nothing_old_is_said(ward: Ward) -> None:
    ward.sample()
    assert ward.sample(6, **UNWELL) == ["preemption"]
    ward.uptime_s = 0.0
    assert ward.sample(1, **HEALED) == []
    assert ward.sample(5) == []


def test_a_burst_of_failed_steps_is_told_for_a_quarter_of_an_hour_after_it_was_last_seen(ward: Ward) -> None:
    ward.sample(6, steps_total=100)
    assert ward.sample(2, steps_total=110, steps_by_kind={"failed": 3}) == ["failed_steps"]
    seen_s = 120  # as long as the burst is in what is looked at
    assert ward.sample((seen_s + 880) // 5) == ["failed_steps"]
    assert ward.sample(6) == []


def test_what_surrounds_the_engine_is_looked_at_too(ward: Ward) -> None:
    with ward.context.db.platform.unit_of_work() as work:
        result = {"mismatches": 2, "budgets": 2, "rollups": 0}
        work.add(Chore(name="usage.check", due_at=ward.clock.now, finished_at=ward.clock.now, result=result))
    ward.context.metrics.limits.degraded.set(1)
    assert ward.sample(2) == ["books_disagree", "rates_degraded"]


def test_findings_name_adapters_as_people_do(ward: Ward, harbour: Tenant) -> None:
    with ward.context.db.platform.unit_of_work() as work:
        digest = a_version(work, harbour, name="pirate", number=3).digest
    assert digest is not None
    adapters = [resident(digest, tenant=harbour.id, n_bytes=900, heat=2.0), resident("cd", n_bytes=900, heat=2.0)]
    ward.sample()
    uses = [use(digest, tenant=harbour.id, loads=20)]
    rotating = {"adapters": adapters, "adapter_uses": uses, "adapter_traffic": traffic(host=20, room=20)}
    assert ward.sample(6, **rotating) == ["adapter_thrash"]
    [finding] = ward.findings()["findings"]
    assert {"label": "loads of harbour/pirate:3", "value": "20"} in finding["evidence"]


def test_ranks_are_those_of_the_registry(ward: Ward, harbour: Tenant) -> None:
    with ward.context.db.platform.unit_of_work() as unit:
        digests = {}
        for name, rank in {"huge": 512, "small": 64}.items():
            version = a_version(unit, harbour, name=name)
            version.rank, digests[name] = rank, version.digest or ""
        a_version(unit, harbour, name="rejected", state="rejected").rank = 999
    sizes = {"huge": 8000, "small": 1000}
    dear = {
        "adapters": [resident(digests[name], tenant=harbour.id, n_bytes=n) for name, n in sizes.items()],
        "adapter_uses": [use(digests["huge"], tenant=harbour.id, tokens=10, read_bytes=400.0)],
        "work_by_kind": {"decode": work(1000.0)},
        "generated_tokens_total": 1000,
    }
    ward.sample()
    assert ward.sample(6, **dear) == ["huge_rank"]
    [finding] = ward.findings()["findings"]
    assert finding["setting"] == "LORIKEET_MAX_RANK=64"
    assert {"label": "its rank", "value": "512"} in finding["evidence"]


def test_without_the_database_an_engine_is_examined_all_the_same(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("the database is away"))

    ward.sample()
    monkeypatch.setattr("lorikeet_platform.doctor.rounds.books_checked", away)
    monkeypatch.setattr("lorikeet_platform.doctor.rounds.names_by_digest", away)
    assert ward.sample(6, **UNWELL) == ["preemption"]
    assert StoredNames(ward.context.db).adapter("ten_x", "ab" * 32) == "ten_x/abababababab"


def a_finding(rule: str) -> Finding:
    return Finding(
        rule=rule, severity="warning", title="", explanation="", evidence=[], cost=Cost(text="", share=None),
        remedy="", setting=None,
    )  # fmt: skip


def test_a_finding_has_to_be_made_twice_and_to_stay_away_six_times() -> None:
    steadiness, found = Steadiness(), a_finding("overload")
    history = [found, None, found, found, None, None, None, None, None, found, *[None] * 6]
    shown = [bool(steadiness.take({"overload": each})) for each in history]
    assert shown == [False, False, False, *[True] * 12, False]


def test_what_could_not_be_asked_stays_as_it_was_until_it_is_forgotten() -> None:
    steadiness, found = Steadiness(), a_finding("overload")
    steadiness.take({"overload": found})
    steadiness.take({"overload": found})
    for _ in range(10):
        assert steadiness.take({"engine_away": None}) == [found]
    steadiness.forget(["overload"])
    assert steadiness.take({"overload": found}) == []


def test_every_rule_is_documented_and_every_documented_one_exists() -> None:
    lines = (ROOT / "docs" / "doctor.md").read_text().splitlines()
    documented = [match[1] for line in lines if (match := re.match(r"\| `(\w+)` \|", line))]
    assert documented == list(NAMES)


def test_what_follows_from_something_names_rules_that_exist() -> None:
    assert {*FOLLOWS, *(cause for causes in FOLLOWS.values() for cause in causes)} <= set(NAMES)


def test_findings_are_for_administrators(admin: TestClient) -> None:
    for path in ("/admin/v1/findings", "/admin/v1/engine"):
        assert admin.get(path, headers={"authorization": ""}).status_code == 401
