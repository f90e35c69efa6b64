"""The states of a version and the only way between them: compare and set.

    validating ─▶ ready ⇄ retired        taken out of service, and back within the time it is kept
        │  │        └──▶ quarantined ◀─── retired; released by an administrator alone, back to ready
        │  └────▶ rejected               the content can't be served; the same files will never be accepted
        └───────▶ failed_internal        our fault, attempts used up; validated again on request

What is rejected, failed, retired or quarantined can be purged: its bytes are gone, its row stays and never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from sqlalchemy import update
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import AdapterVersion

State = Literal["validating", "ready", "rejected", "failed_internal", "retired", "quarantined", "purged"]

TRANSITIONS: Mapping[State, frozenset[State]] = {
    "validating": frozenset({"ready", "rejected", "failed_internal"}),
    "ready": frozenset({"retired", "quarantined"}),
    "rejected": frozenset({"purged"}),
    "failed_internal": frozenset({"validating", "purged"}),
    "retired": frozenset({"ready", "quarantined", "purged"}),
    "quarantined": frozenset({"ready", "purged"}),
    "purged": frozenset(),
}


class IllegalTransition(Exception):
    """The picture above has no such arrow."""

    def __init__(self, before: str, after: str) -> None:
        super().__init__(f"no transition from {before} to {after}")


class StateMoved(Exception):
    """Somebody else changed the version since it was read; read it again."""

    def __init__(self, version_id: str) -> None:
        super().__init__(f"version {version_id} is no longer in the state it was read in")


def transition(work: Session, version: AdapterVersion, after: State, **values: Any) -> None:
    """Move `version` and write `values` with it.

    Raises:
        IllegalTransition, StateMoved: and nothing is changed.
    """
    before: State = version.state  # type: ignore[assignment]
    if after not in TRANSITIONS[before]:
        raise IllegalTransition(before, after)
    moved = work.execute(
        update(AdapterVersion)
        .where(
            AdapterVersion.tenant_id == version.tenant_id,
            AdapterVersion.id == version.id,
            AdapterVersion.state == before,
            AdapterVersion.state_rev == version.state_rev,
        )
        .values(state=after, state_rev=version.state_rev + 1, **values)
        .returning(AdapterVersion.id),
        execution_options={"synchronize_session": False},
    ).one_or_none()
    if moved is None:
        raise StateMoved(version.id)
    work.refresh(version)
