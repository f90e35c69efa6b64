"""A change of an alias in two halves, because the engine is asked between them.

plan_set, plan_rollback   what the alias shall say, and which adapters the engine must have for it
perform                   makes it so, if the plan still holds
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from lorikeet_platform.db.tables import AdapterVersion, Alias
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.aliasing.aliases import (
    WHOLE,
    AliasKey,
    Change,
    Pointing,
    Target,
    check_expected,
    check_ready,
    earlier,
    find_alias,
    lock_adapter,
    point,
    pointing_of,
    targets_of,
)
from lorikeet_platform.registry.names import check_alias_name


@dataclass(frozen=True, slots=True)
class Planned:
    """A change that was decided on; `digests` are of the versions that the alias does not point at yet."""

    key: AliasKey
    pointing: Pointing
    change: Change
    digests: tuple[str, ...]


def plan_set(
    work: Session,
    key: AliasKey,
    shares: Sequence[tuple[int, int]],
    *,
    sticky: str,
    guard: Mapping[str, Any] | None,
    change: Change,
) -> Planned:
    """Let an alias point at versions by number, each with its share in percent.

    Raises:
        PlatformError: invalid_value, not_found for a version that is not there, state_conflict, revision_conflict.
    """
    check_alias_name(key.alias)
    numbers = [number for number, _ in shares]
    if len(set(numbers)) != len(numbers):
        raise PlatformError("invalid_value", "A version is named twice.", "targets")
    if sum(weight for _, weight in shares) != WHOLE:
        raise PlatformError("invalid_value", f"The weights must add up to {WHOLE}.", "targets")
    if guard is not None and len(shares) == 1:
        raise PlatformError("invalid_value", "A guard compares two targets; there is only one.", "guard")
    if guard is not None and guard.get("max_error_rate") is None and guard.get("max_ttft_ratio") is None:
        raise PlatformError("invalid_value", "A guard needs max_error_rate or max_ttft_ratio.", "guard")
    versions = _versions(work, key, numbers)
    targets = tuple(Target(versions[number].id, number, weight) for number, weight in sorted(shares))
    return _planned(work, key, Pointing(targets=targets, sticky=sticky, guard=guard), change)


def plan_rollback(work: Session, key: AliasKey, to_revision: int | None, change: Change) -> Planned:
    """Let an alias say what it said in an earlier revision.

    Without `to_revision` the plan holds for the revision the alias is at now, even if the caller named none: what is
    gone back to was chosen by it.

    Raises:
        PlatformError: not_found, state_conflict, revision_conflict.
    """
    check_expected(work, key, change.expected)
    said = earlier(work, key, to_revision)
    change = replace(change, in_place_of=said.revision, action="alias.rollback")
    if change.expected is None and to_revision is None:
        change = replace(change, expected=find_alias(work, key).revision)
    return _planned(work, key, pointing_of(said), change)


def perform(work: Session, planned: Planned) -> Alias:
    """The change itself; what it says already is left alone, so that a request sent again makes no second revision.

    Raises:
        PlatformError: state_conflict for a target that is not ready any more, revision_conflict.
    """
    key, wanted = planned.key, planned.pointing
    lock_adapter(work, key.tenant_id, key.adapter_id)
    check_expected(work, key, planned.change.expected)
    alias = work.get(Alias, (key.tenant_id, key.adapter_id, key.alias))
    if alias is not None and Pointing(targets=targets_of(work, key), sticky=alias.sticky, guard=alias.guard) == wanted:
        return alias
    return point(work, key, wanted, planned.change)


def _planned(work: Session, key: AliasKey, pointing: Pointing, change: Change) -> Planned:
    check_expected(work, key, change.expected)
    check_ready(work, key, pointing.targets)
    known = {target.version_id for target in targets_of(work, key)}
    numbers = [target.number for target in pointing.targets if target.version_id not in known]
    digests = (version.digest for version in _versions(work, key, numbers).values())
    return Planned(key, pointing, change, tuple(digest for digest in digests if digest is not None))


def _versions(work: Session, key: AliasKey, numbers: Sequence[int]) -> dict[int, AdapterVersion]:
    mine = select(AdapterVersion).where(
        AdapterVersion.tenant_id == key.tenant_id,
        AdapterVersion.adapter_id == key.adapter_id,
        AdapterVersion.number.in_(numbers),
    )
    found = {version.number: version for version in work.scalars(mine)}
    for number in numbers:
        if number not in found:
            raise PlatformError("not_found", f"There is no version {number} of this adapter.", "targets")
    return found
