"""Any steps in any order: what an alias says is ready, its history has no gap, versions move along arrows only."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Alias, AliasChange
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.aliasing.aliases import (
    AliasKey,
    Change,
    point_when_ready,
    pointing_of,
    remove,
    targets_of,
)
from lorikeet_platform.registry.aliasing.changes import perform, plan_rollback, plan_set
from lorikeet_platform.registry.resolve import resolve_model
from lorikeet_platform.registry.versions import lifecycle
from lorikeet_platform.registry.versions.lifecycle import Step
from lorikeet_platform.registry.versions.states import TRANSITIONS, State, transition
from tests.support.platform_parts import BASE, FakeClock, a_tenant, a_version, make_context
from tests.support.tables import make_tables

ALIASES = ("live", "best")
STATES: list[State] = ["validating", "ready", "rejected", "failed_internal"]
numbers, aliases = st.integers(1, 5), st.sampled_from(ALIASES)
VERDICTS: dict[State, dict[str, object]] = {
    "ready": {"digest": "d" * 64, "ready_at": 1},
    "rejected": {"reject_code": "config_invalid"},
    "failed_internal": {},
}


class Lifecycle(RuleBasedStateMachine):
    """One adapter; every step either happens or is a conflict, and then nothing has changed."""

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.db = Database(f"sqlite:///{Path(self.folder.name) / 'lorikeet.db'}")
        make_tables(self.db)
        self.clock = FakeClock()
        self.tenant = a_tenant(make_context(Path(self.folder.name), self.db, self.clock), "harbour")
        with self.db.platform.unit_of_work() as work:
            first = a_version(work, self.tenant, name="pirate", number=1)
        self.adapter_id = first.adapter_id
        self.states: dict[int, str] = {1: "ready"}

    @rule(state=st.sampled_from(STATES))
    def push(self, state: State) -> None:
        number = max(self.states) + 1
        if number <= 5:
            with self.db.platform.unit_of_work() as work:
                a_version(work, self.tenant, name="pirate", number=number, state=state, live=False)

    @rule(number=numbers, verdict=st.sampled_from(list(VERDICTS)), alias=st.sampled_from([None, *ALIASES]))
    def judge(self, number: int, verdict: State, alias: str | None) -> None:
        with self.db.platform.unit_of_work() as work:
            version = self.version(work, number)
            if version is not None and version.state == "validating":
                version.alias_when_ready = alias
                transition(work, version, verdict, **VERDICTS[verdict])
                if verdict == "ready":
                    point_when_ready(work, version, now=self.clock())

    @rule(number=numbers)
    def retire(self, number: int) -> None:
        self.attempt(lambda work: lifecycle.retire(work, self.step(number), keep_us=1_000_000))

    @rule(number=numbers)
    def delete(self, number: int) -> None:
        self.attempt(lambda work: lifecycle.delete(work, self.step(number)))

    @rule(number=numbers, is_release=st.booleans())
    def restore(self, number: int, is_release: bool) -> None:
        self.attempt(lambda work: lifecycle.restore(work, self.step(number), is_release=is_release))

    @rule(number=numbers)
    def quarantine(self, number: int) -> None:
        self.attempt(lambda work: lifecycle.quarantine(work, self.step(number)))

    @rule(number=numbers)
    def retry(self, number: int) -> None:
        self.attempt(lambda work: lifecycle.retry(work, self.step(number)))

    @rule(number=numbers)
    def purge(self, number: int) -> None:
        with self.db.platform.unit_of_work() as work:
            version = self.version(work, number)
            if version is not None and version.purge_after is not None and version.purge_after <= self.clock():
                transition(work, version, "purged")

    @rule(seconds=st.sampled_from([0.5, 2.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(alias=aliases, chosen=st.sets(numbers, min_size=1, max_size=3), sticky=st.sampled_from(["none", "user"]))
    def point(self, alias: str, chosen: set[int], sticky: str) -> None:
        first, *rest = sorted(chosen)
        shares = [(first, 100 - 10 * len(rest)), *((number, 10) for number in rest)]
        self.attempt(
            lambda work: perform(
                work, plan_set(work, self.key(alias), shares, sticky=sticky, guard=None, change=self.change())
            )
        )

    @rule(alias=aliases, to_revision=st.one_of(st.none(), st.integers(1, 12)))
    def roll_back(self, alias: str, to_revision: int | None) -> None:
        self.attempt(lambda work: perform(work, plan_rollback(work, self.key(alias), to_revision, self.change())))

    @rule(alias=aliases)
    def remove(self, alias: str) -> None:
        self.attempt(lambda work: remove(work, self.key(alias), self.change()))

    @invariant()
    def every_alias_is_whole_and_healthy(self) -> None:
        if not hasattr(self, "db"):
            return
        with self.db.platform.read() as work:
            ready = set(work.scalars(select(AdapterVersion.number).where(AdapterVersion.state == "ready")))
            there = {alias.alias: alias for alias in work.scalars(select(Alias))}
            for alias in ALIASES:
                lines = work.scalars(
                    select(AliasChange).where(AliasChange.alias == alias).order_by(AliasChange.revision)
                ).all()
                assert [line.revision for line in lines] == list(range(1, len(lines) + 1))
                said = pointing_of(lines[-1]).targets if lines else ()
                assert targets_of(work, self.key(alias)) == said
                assert (alias in there) == bool(said)
                if said:
                    assert there[alias].revision == len(lines)
                    assert sum(target.weight for target in said) == 100
                    assert {target.number for target in said} <= ready
                    assert resolve_model(work, self.tenant.id, f"pirate@{alias}", BASE).number in ready

    @invariant()
    def every_state_was_reached_by_an_arrow(self) -> None:
        if not hasattr(self, "db"):
            return
        with self.db.platform.read() as work:
            for version in work.scalars(select(AdapterVersion)):
                before = self.states.get(version.number, version.state)
                steps = {before} | set(TRANSITIONS[before])  # type: ignore[index]
                assert version.state in steps, f"{before} to {version.state}"
                self.states[version.number] = version.state

    def attempt(self, step: Callable[[Session], object]) -> None:
        before, refused = self.dump(), None
        try:
            with self.db.platform.unit_of_work() as work:
                step(work)
        except PlatformError as error:
            refused = error.code
        assert refused in (None, "state_conflict", "not_found")
        assert refused is None or self.dump() == before

    def dump(self) -> list[object]:
        with self.db.platform.read() as work:
            tables = (Adapter, AdapterVersion, Alias, AliasChange)
            return [
                tuple(getattr(row, column.key) for column in table.__mapper__.columns)
                for table in tables
                for row in work.scalars(select(table).order_by(*table.__mapper__.primary_key))
            ]

    def version(self, work: Session, number: int) -> AdapterVersion | None:
        return work.scalars(select(AdapterVersion).where(AdapterVersion.number == number)).one_or_none()

    def key(self, alias: str) -> AliasKey:
        return AliasKey(self.tenant.id, self.adapter_id, alias)

    def step(self, number: int) -> Step:
        return Step(tenant_id=self.tenant.id, adapter="pirate", number=number, actor="key_x", now=self.clock())

    def change(self) -> Change:
        return Change(actor="key_x", now=self.clock())

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
            self.folder.cleanup()


TestLifecycle = Lifecycle.TestCase
TestLifecycle.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
