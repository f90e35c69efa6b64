"""Aliases over HTTP, on both ports: where they point, what is refused by name, and the history that outlives them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import update

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import AdapterVersion
from tests.support.platform_parts import FakeClock, Tenant, a_version
from tests.support.registry_port import Port, refusal

PIRATE = "/adapters/pirate"


def history(port: Port, alias: str = "live") -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = port.get(f"{PIRATE}/aliases/{alias}/history")["data"]
    return lines


def test_an_alias_is_made_moved_and_shown_with_its_revision(port: Port, pirate: list[str], clock: FakeClock) -> None:
    made = port.put_alias("best", 2, reason="sounds better")
    assert made.status_code == 200, made.text
    assert made.json() == {
        "alias": "best",
        "revision": 1,
        "targets": [{"version": 2, "weight": 100}],
        "sticky": "none",
        "guard": None,
        "updated_by": port.actor,
        "updated_at": clock.now // 1_000_000,
    }
    assert made.headers["etag"] == '"1"'
    moved = port.put_alias("best", (3, 10), (2, 90), sticky="user", guard={"max_error_rate": 0.1}, if_match=1)
    assert (moved.json()["revision"], moved.headers["etag"]) == (2, '"2"')
    assert moved.json()["targets"] == [{"version": 2, "weight": 90}, {"version": 3, "weight": 10}]
    assert moved.json()["guard"] == {"max_error_rate": 0.1, "max_ttft_ratio": None, "min_requests": 200}
    shown = port.call("GET", f"{PIRATE}/aliases/best")
    assert (shown.json(), shown.headers["etag"]) == (moved.json(), '"2"')
    assert [alias["alias"] for alias in port.get(f"{PIRATE}/aliases")["data"]] == ["best", "live"]
    assert port.get(PIRATE)["aliases"][0] == moved.json()


def test_every_revision_is_kept_with_its_actor_and_reason(port: Port, pirate: list[str]) -> None:
    port.put_alias("live", 2, reason="canary went well")
    port.put_alias("live", 3)
    lines = history(port)
    assert [(line["revision"], line["actor"], line["reason"]) for line in lines] == [
        (3, port.actor, None),
        (2, port.actor, "canary went well"),
        (1, "system", None),
    ]
    assert [line["targets"][0]["version"] for line in lines] == [3, 2, 1]


def test_what_an_alias_says_already_makes_no_revision(port: Port, pirate: list[str]) -> None:
    first, again = (port.put_alias("best", (1, 50), (2, 50), sticky="user") for _ in range(2))
    assert (again.status_code, again.json()) == (200, first.json())
    assert port.put_alias("best", (1, 50), (2, 50)).json()["revision"] == 2  # it is sticky no longer


def test_a_change_decided_on_another_revision_is_told(port: Port, pirate: list[str]) -> None:
    assert port.put_alias("live", 2, if_match=1).json()["revision"] == 2
    for late in (
        port.put_alias("live", 3, if_match=1),
        port.call("DELETE", f"{PIRATE}/aliases/live", if_match='"1"'),
        port.call("POST", f"{PIRATE}/aliases/live/rollback", {}, if_match='"1"'),
        port.call("PUT", f"{PIRATE}/aliases/live", {"targets": [{"version": 3}]}, if_none_match="*"),
        port.put_alias("new", 3, if_match=1),
    ):
        assert refusal(late) == (409, "revision_conflict", "If-Match")
        assert late.headers["x-should-retry"] == "false"
    assert port.targets() == {2: 100}
    fresh = port.call("PUT", f"{PIRATE}/aliases/new", {"targets": [{"version": 3}]}, if_none_match="*")
    assert fresh.json()["revision"] == 1


MEANINGLESS = [
    ("if_match", "1"),
    ("if_match", '"0"'),
    ("if_match", '"x"'),
    ("if_match", "*"),
    ("if_match", 'W/"1"'),
    ("if_match", '"1", "2"'),
    ("if_match", '"99999999999999999999"'),
    ("if_none_match", '"1"'),
]


def test_a_precondition_that_means_nothing_is_refused(port: Port, pirate: list[str]) -> None:
    for header, value in MEANINGLESS:
        response = port.call("PUT", f"{PIRATE}/aliases/live", {"targets": [{"version": 2}]}, **{header: value})
        param = {"if_match": "If-Match", "if_none_match": "If-None-Match"}[header]
        assert refusal(response) == (400, "invalid_value", param), value
    assert port.targets() == {1: 100}


def test_of_two_changes_at_once_on_one_revision_the_second_is_told(port: Port, pirate: list[str]) -> None:
    with ThreadPoolExecutor(2) as both:
        answers = list(both.map(lambda number: port.put_alias("live", number, if_match=1), (2, 3)))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    [won] = [answer.json() for answer in answers if answer.status_code == 200]
    assert port.get(f"{PIRATE}/aliases/live") == won
    assert [line["revision"] for line in history(port)] == [2, 1]


def test_many_unconditional_changes_at_once_are_all_kept(port: Port, pirate: list[str]) -> None:
    with ThreadPoolExecutor(4) as several:
        answers = list(several.map(lambda n: port.put_alias("live", (1, n), (2, 100 - n)), range(10, 18)))
    assert {answer.status_code for answer in answers} == {200}
    assert [line["revision"] for line in history(port)] == list(range(9, 0, -1))
    assert sum((port.targets() or {}).values()) == 100


A = {"version": 1, "weight": 100}
HALVES = [{"version": 1, "weight": 50}, {"version": 2, "weight": 50}]


WRONG: list[tuple[object, str, str]] = [
    ({}, "missing_parameter", "targets"),
    ({"targets": []}, "invalid_value", "targets"),
    ({"targets": [{"version": n, "weight": 20} for n in (1, 2, 3, 4, 5, 6)]}, "invalid_value", "targets"),
    ({"targets": {"1": 100}}, "invalid_value", "targets"),
    ({"targets": [{"version": 1, "weight": 99}]}, "invalid_value", "targets"),
    ({"targets": [{"version": 1, "weight": 60}, {"version": 2, "weight": 60}]}, "invalid_value", "targets"),
    ({"targets": [{"version": 1, "weight": 50}, {"version": 1, "weight": 50}]}, "invalid_value", "targets"),
    ({"targets": [{"version": 1, "weight": 0}]}, "invalid_value", "targets.0.weight"),
    ({"targets": [{"version": 1, "weight": 101}]}, "invalid_value", "targets.0.weight"),
    ({"targets": [{"version": 1, "weight": 99.5}]}, "invalid_value", "targets.0.weight"),
    ({"targets": [{"version": 1, "weight": "100"}]}, "invalid_value", "targets.0.weight"),
    ({"targets": [{"version": True}]}, "invalid_value", "targets.0.version"),
    ({"targets": [{"version": "1"}]}, "invalid_value", "targets.0.version"),
    ({"targets": [{"version": 0}]}, "invalid_value", "targets.0.version"),
    ({"targets": [{"version": 2**31}]}, "invalid_value", "targets.0.version"),
    ({"targets": [{"weight": 100}]}, "missing_parameter", "targets.0.version"),
    ({"targets": [{"version": 1, "colour": 1}]}, "unknown_parameter", "targets.0.colour"),
    ({"targets": [{"version_id": "ver_1"}]}, "missing_parameter", "targets.0.version"),
    ({"targets": [A], "sticky": "always"}, "invalid_value", "sticky"),
    ({"targets": [A], "sticky": True}, "invalid_value", "sticky"),
    ({"targets": [A], "guard": {"max_error_rate": 0.1}}, "invalid_value", "guard"),
    ({"targets": [A], "guard": {"max_error_rate": 0}}, "invalid_value", "guard.max_error_rate"),
    ({"targets": [A], "guard": {"max_error_rate": 1.5}}, "invalid_value", "guard.max_error_rate"),
    ({"targets": [A], "guard": {"max_ttft_ratio": 1}}, "invalid_value", "guard.max_ttft_ratio"),
    ({"targets": [A], "guard": {"min_requests": 1}}, "invalid_value", "guard.min_requests"),
    ({"targets": [A], "guard": {"wait": 1}}, "unknown_parameter", "guard.wait"),
    ({"targets": HALVES, "guard": {}}, "invalid_value", "guard"),
    ({"targets": HALVES, "guard": {"min_requests": 50, "max_error_rate": None}}, "invalid_value", "guard"),
    ({"targets": [A], "reason": "x" * 501}, "invalid_value", "reason"),
    ({"targets": [A], "reason": "\x00"}, "invalid_value", "reason"),
    ({"targets": [A], "revision": 1}, "unknown_parameter", "revision"),
]


def test_a_body_that_is_not_exactly_right_is_refused_by_field(port: Port, pirate: list[str]) -> None:
    for body, code, param in WRONG:
        assert refusal(port.call("PUT", f"{PIRATE}/aliases/live", body)) == (400, code, param), body
    assert (port.targets(), len(history(port))) == ({1: 100}, 1)


@pytest.mark.parametrize("state", ["validating", "rejected", "failed_internal", "retired", "quarantined", "purged"])
def test_an_alias_points_at_nothing_that_is_not_ready(
    port: Port, pirate: list[str], context: PlatformContext, harbour: Tenant, state: str
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate", number=4, state=state)
    response = port.put_alias("live", (1, 50), (4, 50))
    assert refusal(response) == (409, "state_conflict", "targets")
    assert "4" in response.json()["error"]["message"]
    assert port.targets() == {1: 100}


def test_an_alias_points_at_versions_of_its_own_adapter_only(
    port: Port, pirate: list[str], context: PlatformContext, harbour: Tenant
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="haiku", number=4)
    assert refusal(port.put_alias("live", 4)) == (404, "not_found", "targets")
    assert refusal(port.put_alias("live", 1, adapter="nobody")) == (404, "not_found", None)


def test_a_rollback_says_again_what_was_said_before(port: Port, pirate: list[str]) -> None:
    port.put_alias("live", (1, 90), (2, 10), sticky="user", guard={"max_ttft_ratio": 2.0})
    port.put_alias("live", 3)
    back = port.call("POST", f"{PIRATE}/aliases/live/rollback", {"reason": "worse"})
    assert (back.status_code, back.json()["revision"], back.headers["etag"]) == (200, 4, '"4"')
    assert (port.targets(), back.json()["sticky"], back.json()["guard"]["max_ttft_ratio"]) == (
        {1: 90, 2: 10},
        "user",
        2.0,
    )
    assert history(port)[0]["reason"] == "worse"
    first = port.call("POST", f"{PIRATE}/aliases/live/rollback", {"to_revision": 1}, if_match='"4"')
    assert (first.json()["revision"], port.targets()) == (5, {1: 100})


def test_rollbacks_one_after_the_other_lead_further_and_further_back(port: Port, pirate: list[str]) -> None:
    rollback = f"{PIRATE}/aliases/live/rollback"
    port.put_alias("live", 2)
    port.put_alias("live", 3)
    for expected in ({2: 100}, {1: 100}):
        assert port.call("POST", rollback, {}).status_code == 200
        assert port.targets() == expected
    assert refusal(port.call("POST", rollback, {})) == (409, "state_conflict", None)
    port.put_alias("live", 3)
    assert port.call("POST", rollback, {}).json()["targets"] == [{"version": 1, "weight": 100}], "2 had been left"
    assert port.call("POST", rollback, {"to_revision": 2}).json()["targets"] == [{"version": 2, "weight": 100}]
    assert port.call("POST", rollback, {}).json()["targets"] == [{"version": 1, "weight": 100}]
    assert [line["revision"] for line in history(port)] == list(range(9, 0, -1))


def test_a_rollback_says_something_else_than_the_alias_says_now(port: Port, pirate: list[str]) -> None:
    port.put_alias("live", 2)
    port.call("DELETE", f"{PIRATE}/aliases/live")
    port.put_alias("live", 2)
    assert port.call("POST", f"{PIRATE}/aliases/live/rollback", {}).json()["targets"] == [{"version": 1, "weight": 100}]


def test_there_must_be_something_to_roll_back_to(port: Port, pirate: list[str], context: PlatformContext) -> None:
    rollback = f"{PIRATE}/aliases/live/rollback"
    assert refusal(port.call("POST", rollback, {})) == (409, "state_conflict", None)
    assert refusal(port.call("POST", rollback, {"to_revision": 7})) == (404, "not_found", "to_revision")
    assert refusal(port.call("POST", f"{PIRATE}/aliases/best/rollback", {})) == (404, "not_found", None)
    for wrong in (0, -1, "1", 1.5, 2**31, True):
        status, code, param = refusal(port.call("POST", rollback, {"to_revision": wrong}))
        assert (status, code, param) == (400, "invalid_value", "to_revision"), wrong
    port.put_alias("live", (2, 50), (3, 50))
    port.put_alias("live", 1)
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).where(AdapterVersion.number == 3).values(state="retired"))
    unhealthy = port.call("POST", rollback, {})
    assert refusal(unhealthy) == (409, "state_conflict", "targets")
    assert unhealthy.json()["error"]["message"] == "Not ready: version 3."
    assert port.targets() == {1: 100}


def test_an_alias_that_is_removed_keeps_its_history_and_goes_on_counting(port: Port, pirate: list[str]) -> None:
    assert port.call("DELETE", f"{PIRATE}/aliases/live").status_code == 204
    assert port.targets() is None
    assert refusal(port.call("DELETE", f"{PIRATE}/aliases/live")) == (404, "not_found", None)
    assert port.put_alias("live", 2).json()["revision"] == 3
    assert [(line["revision"], line["targets"]) for line in history(port)] == [
        (3, [{"version": 2, "weight": 100}]),
        (2, []),
        (1, [{"version": 1, "weight": 100}]),
    ]
    gone = port.call("POST", f"{PIRATE}/aliases/live/rollback", {"to_revision": 2})
    assert refusal(gone) == (409, "state_conflict", "to_revision")
    assert port.call("POST", f"{PIRATE}/aliases/live/rollback", {}).json()["targets"] == [{"version": 1, "weight": 100}]
    assert refusal(port.call("GET", f"{PIRATE}/aliases/never/history")) == (404, "not_found", None)
