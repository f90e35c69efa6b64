"""Keys, limits, usage, audit and jobs by command, for an administrator and with a tenant's own key."""

from __future__ import annotations

import csv
import io
import json
import sys

import pytest

from lorikeet_platform.cli.commands.limits import parse_limits
from lorikeet_platform.cli.console import CommandFailed
from tests.platform.cli.conftest import Commands, Installation

pytestmark = pytest.mark.usefixtures("installation")


def test_a_key_has_what_it_was_given_and_says_so_itself(lorikeet: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    made = lorikeet(
        *("keys", "create", "--tenant", "harbour", "--name", "reader", "--scope", "adapters:read"),
        *("--scope", "usage:read", "--network", "127.0.0.0/8", "--days", "30", "--limit", "rpm=60:10", "--json"),
    )
    assert made.code == 0, made.err
    key = json.loads(made.out)
    assert key["scopes"] == ["adapters:read", "usage:read"]
    monkeypatch.setenv("LORIKEET_API_KEY", key["secret"])
    own = lorikeet("keys", "self")
    assert own.code == 0, own.err
    assert "adapters:read usage:read" in own.out
    assert "127.0.0.0/8" in own.out
    assert lorikeet("adapters", "list").code == 0
    refused = lorikeet("chat", "hello")
    assert (refused.code, "insufficient_scope" in refused.err) == (3, True)
    shown = json.loads(lorikeet("limits", "show", "--tenant", "harbour", "--key", "reader", "--json").out)["limits"]
    assert (shown["rpm"]["value"], shown["rpm"]["burst"], shown["rpm"]["origin"]) == (60, 10, "key")
    assert shown["tpm"]["origin"] == "plan"


def test_a_rotated_key_works_on_beside_its_successor_until_it_does_not(
    lorikeet: Commands, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotated = lorikeet("keys", "rotate", "first", "--tenant", "harbour", "--overlap-hours", "1")
    assert rotated.code == 0, rotated.err
    new = rotated.out.strip()
    for secret in (installation.key, new):
        monkeypatch.setenv("LORIKEET_API_KEY", secret)
        assert lorikeet("adapters", "list").code == 0
    assert "replaced" in lorikeet("keys", "list", "--tenant", "harbour").out
    at_once = lorikeet("keys", "rotate", "first", "--tenant", "harbour", "--overlap-hours", "0")
    assert lorikeet("adapters", "list").code == 3
    monkeypatch.setenv("LORIKEET_API_KEY", at_once.out.strip())
    assert lorikeet("adapters", "list").code == 0


def test_a_leaked_key_is_revoked_from_standard_input(
    lorikeet: Commands, installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(installation.key + "\n"))
    ended = lorikeet("keys", "leaked")
    assert ended.code == 0, ended.err
    assert installation.key not in ended.out + ended.err
    assert lorikeet("adapters", "list").code == 3


def test_who_revokes_a_key_hears_of_the_keys_that_were_made_with_it(
    lorikeet: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lorikeet("tenants", "update", "harbour", "--keys-make-keys").code == 0
    made = lorikeet(
        *("keys", "create", "--tenant", "harbour", "--name", "maker", "--scope", "keys:read"),
        *("--scope", "keys:write", "--scope", "adapters:read"),
    )
    monkeypatch.setenv("LORIKEET_API_KEY", made.out.strip())
    child = lorikeet("keys", "create", "--name", "child", "--scope", "adapters:read")
    assert child.code == 0, child.err
    revoked = lorikeet("keys", "revoke", "maker", "--tenant", "harbour")
    assert revoked.code == 0, revoked.err
    assert "child" in revoked.err
    monkeypatch.setenv("LORIKEET_API_KEY", child.out.strip())
    assert lorikeet("adapters", "list").code == 0


def test_a_tenants_limit_counts_where_it_is_smaller_than_the_plans(lorikeet: Commands) -> None:
    assert lorikeet("plans", "create", "small", "rpm=100:20", "--name", "Small").code == 0
    assert lorikeet("tenants", "update", "harbour", "--plan", "small", "--weight", "2").code == 0
    ended = lorikeet("limits", "set", "rpm=50", "adapter_bytes=1GiB", "--tenant", "harbour", "--json")
    assert ended.code == 0, ended.err
    shown = json.loads(ended.out)["limits"]
    assert (shown["rpm"]["value"], shown["rpm"]["origin"]) == (50, "tenant")
    assert shown["adapter_bytes"]["value"] == 1 << 30
    assert lorikeet("limits", "set", "rpm=none", "--tenant", "harbour").code == 0
    own = lorikeet("limits", "show")
    assert "100, 20 at once" in own.out
    assert "small" in lorikeet("plans", "list").out
    assert "small" in lorikeet("tenants", "show", "harbour").out
    assert lorikeet("limits", "set", "rpm=50").code == 2
    assert lorikeet("limits", "set", "speed=50", "--tenant", "harbour").code == 2


def test_a_suspended_tenant_is_told_so_until_it_is_resumed(lorikeet: Commands) -> None:
    assert lorikeet("tenants", "suspend", "harbour", "--reason", "unpaid").code == 0
    refused = lorikeet("adapters", "list")
    assert (refused.code, "tenant_suspended" in refused.err) == (3, True)
    assert "suspended" in lorikeet("tenants", "list").out
    assert lorikeet("tenants", "resume", "harbour").code == 0
    assert lorikeet("adapters", "list").code == 0
    told = lorikeet("audit", "list", "--tenant", "harbour").out
    assert "tenant.suspend" in told
    assert "unpaid" in told
    assert "tenant.resume" in lorikeet("audit", "list", "--all").out
    assert "tenant.resume" in lorikeet("audit", "list").out


def test_usage_adds_up_as_a_table_and_as_csv(lorikeet: Commands) -> None:
    for _ in range(3):
        assert lorikeet("chat", "hello there").code == 0
    shown = lorikeet("usage", "show", "--by", "1m", "--since", "2h", "--group", "key")
    assert shown.code == 0, shown.err
    assert "first" in shown.out
    exported = lorikeet("usage", "show", "--tenant", "harbour", "--by", "1m", "--since", "2h", "--csv")
    rows = list(csv.DictReader(io.StringIO(exported.out)))
    assert sum(int(row["requests"]) for row in rows) == 3
    everybody = json.loads(
        lorikeet("usage", "show", "--all", "--by", "1m", "--group", "tenant", "--since", "2h", "--json").out
    )
    assert {row["tenant"] for row in everybody["data"]} == {"harbour"}
    costs = lorikeet("usage", "costs", "--by", "1m", "--since", "2h", "--group", "key")
    assert costs.code == 0, costs.err
    assert [word in costs.out for word in ("first", "PROMPTS", "KV MiB", "UNKNOWN")] == [True] * 4
    told = json.loads(lorikeet("usage", "costs", "--all", "--by", "1d", "--since", "2h", "--json").out)
    assert told["requests_without_cost"] == 3, "the scripted engine knows none"
    records = lorikeet("usage", "records", "--limit", "2")
    assert records.out.count("req_") == 2
    assert lorikeet("usage", "show", "--since", "yesterday").code == 2


def test_jobs_and_chores_are_listed(lorikeet: Commands) -> None:
    assert lorikeet("jobs", "list").code == 0
    assert lorikeet("jobs", "list", "--state", "failed", "--tenant", "harbour").code == 0
    assert lorikeet("jobs", "chores").code == 0
    assert lorikeet("jobs", "retry", "job_nowhere").code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rpm=60", {"value": 60, "burst": None}),
        ("rpm=60:5", {"value": 60, "burst": 5}),
        ("tpm=2M", {"value": 2_000_000, "burst": None}),
        ("adapter_bytes=20GiB", {"value": 20 << 30, "burst": None}),
        ("keys=0", {"value": 0, "burst": None}),
        ("rpm=none", None),
    ],
)
def test_a_limit_is_written_as_people_write_it(text: str, expected: object) -> None:
    assert list(parse_limits([text]).values()) == [expected]


@pytest.mark.parametrize("text", ["rpm", "=5", "rpm=", "rpm=-1", "rpm=1.5", "rpm=5X", "rpm=5:", "rpm=5GiBB", "rpm=5BI"])
def test_what_is_no_limit_is_refused_before_anybody_is_asked(text: str) -> None:
    with pytest.raises(CommandFailed):
        parse_limits([text])
