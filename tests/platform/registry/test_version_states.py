"""Versions change state by compare and set; a purged version never changes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import AdapterVersion
from lorikeet_platform.registry.versions.states import TRANSITIONS, IllegalTransition, State, StateMoved, transition
from tests.support.platform_parts import FakeClock, Tenant, a_tenant, a_version, make_context
from tests.support.tables import make_tables

VALUES: dict[State, dict[str, object]] = {
    "validating": {},
    "ready": {"digest": "d" * 64, "ready_at": 1},
    "rejected": {"reject_code": "config_invalid"},
    "failed_internal": {},
    "retired": {"retired_at": 1},
    "quarantined": {"retired_at": 1},
    "purged": {},
}


def test_of_two_verdicts_on_one_version_the_second_is_told(context: PlatformContext, harbour: Tenant) -> None:
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, harbour, name="pirate", state="validating")
    with context.db.platform.unit_of_work() as work:
        mine = work.get_one(AdapterVersion, (harbour.id, version.id))
        transition(work, mine, "ready", **VALUES["ready"])
        assert (mine.state, mine.state_rev) == ("ready", 1)
    with context.db.platform.unit_of_work() as work, pytest.raises(StateMoved):
        transition(work, version, "rejected", **VALUES["rejected"])


@pytest.mark.parametrize("before", VALUES)
@pytest.mark.parametrize("after", VALUES)
def test_only_the_pictures_arrows_can_be_taken(
    context: PlatformContext, harbour: Tenant, before: State, after: State
) -> None:
    arrows = {
        ("validating", "ready"), ("validating", "rejected"), ("validating", "failed_internal"),
        ("failed_internal", "validating"), ("failed_internal", "purged"), ("rejected", "purged"),
        ("ready", "retired"), ("ready", "quarantined"),
        ("retired", "ready"), ("retired", "quarantined"), ("retired", "purged"),
        ("quarantined", "ready"), ("quarantined", "purged"),
    }  # fmt: skip
    with context.db.platform.unit_of_work() as work:
        version = a_version(work, harbour, name="pirate", state=before, live=False)
        if (before, after) in arrows:
            transition(work, version, after, **VALUES[after])
            assert (version.state, version.state_rev) == (after, 1)
        else:
            with pytest.raises(IllegalTransition):
                transition(work, version, after, **VALUES[after])
            assert (version.state, version.state_rev) == (before, 0)


class VersionStates(RuleBasedStateMachine):
    """Many read a version and later write a state; who read it before another wrote is told, and changes nothing."""

    reads = Bundle("reads")

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.db = Database(f"sqlite:///{Path(self.folder.name) / 'lorikeet.db'}")
        make_tables(self.db)
        context = make_context(Path(self.folder.name), self.db, FakeClock())
        with self.db.platform.unit_of_work() as work:
            version = a_version(work, a_tenant(context, "harbour"), name="pirate", state="validating")
        self.key = (version.tenant_id, version.id)
        self.state: State = "validating"
        self.rev = 0

    @rule(target=reads)
    def read(self) -> AdapterVersion:
        with self.db.platform.read() as work:
            return work.get_one(AdapterVersion, self.key)

    @rule(version=consumes(reads), after=st.sampled_from(list(VALUES)))
    def write(self, version: AdapterVersion, after: State) -> None:
        before: State = version.state  # type: ignore[assignment]
        is_fresh = version.state_rev == self.rev
        try:
            with self.db.platform.unit_of_work() as work:
                transition(work, work.merge(version, load=False), after, **VALUES[after])
        except IllegalTransition:
            assert after not in TRANSITIONS[before]
        except StateMoved:
            assert not is_fresh
        else:
            assert is_fresh
            self.state, self.rev = after, self.rev + 1

    @invariant()
    def the_row_is_what_the_accepted_writes_made_it(self) -> None:
        row = self.read_row()
        assert (row.state, row.state_rev) == (self.state, self.rev)

    def read_row(self) -> AdapterVersion:
        with self.db.platform.read() as work:
            return work.get_one(AdapterVersion, self.key)

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
            self.folder.cleanup()


TestVersionStates = VersionStates.TestCase
TestVersionStates.settings = settings(max_examples=8, stateful_step_count=10, deadline=None)
