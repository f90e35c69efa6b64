"""Each step can be taken with data, and back; what was recorded keeps its meaning."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from sqlalchemy import func, inspect, select, text
from sqlalchemy.exc import IntegrityError

from lorikeet_platform.auth.scopes import SCOPES
from lorikeet_platform.db.migrate import downgrade, upgrade
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import (
    Alias,
    AliasTarget,
    ApiKey,
    BudgetCounter,
    DirtyBucket,
    Plan,
    PlanLimit,
    Table,
    Tenant,
    UsageRecord,
)
from lorikeet_platform.db.tables.limit import DIMENSIONS
from lorikeet_platform.limits.standard import STANDARD
from lorikeet_platform.usage.work.reaper import Reaper
from tests.platform.db.schema.conftest import DAY, Place, as_before
from tests.support.ledger import CountingEngine, books
from tests.support.old_rows import DECEMBER, HOUR, NOVEMBER, ROWS, insert_rows
from tests.support.platform_parts import FakeClock


def test_up_down_up_ends_where_up_ends(place: Place) -> None:
    upgrade(place.url)
    first = place.dump()
    downgrade(place.url, "base")
    assert set(inspect(place.engine).get_table_names()) <= {"alembic_version"}
    upgrade(place.url)
    assert set(inspect(place.engine).get_table_names()) == {*Table.metadata.tables, "alembic_version"}
    again = place.dump()
    assert {table: len(rows) for table, rows in again.items()} == {table: len(rows) for table, rows in first.items()}


def test_each_single_step_can_be_taken_back_and_again(place: Place) -> None:
    upgrade(place.url, "0001")
    with place.engine.begin() as work:
        insert_rows(work, ROWS["0001"])
    for earlier, later in pairwise(("0001", "0002", "0003", "0004", "0005", "0006", "0007")):
        before = place.dump()
        upgrade(place.url, later)
        downgrade(place.url, earlier)
        assert as_before(place.dump()) == as_before(before)
        upgrade(place.url, later)


@pytest.mark.parametrize("revision", sorted(ROWS))
def test_rows_of_each_earlier_schema_survive_the_way_to_the_newest_and_back(place: Place, revision: str) -> None:
    upgrade(place.url, revision)
    with place.engine.begin() as work:
        insert_rows(work, ROWS[revision])
    before = place.dump()
    upgrade(place.url)
    after = place.dump()
    for table, rows in before.items():
        assert len(after[table]) == len(rows), table
    downgrade(place.url, revision)
    assert as_before(place.dump()) == as_before(before)


@pytest.mark.parametrize("revision", sorted(ROWS))
def test_what_was_recorded_keeps_its_meaning(place: Place, revision: str) -> None:
    upgrade(place.url, revision)
    with place.engine.begin() as work:
        insert_rows(work, ROWS[revision])
    upgrade(place.url)
    database = Database(place.engine.url.render_as_string(hide_password=False))
    with database.platform.read() as work:
        for mapper in Table.registry.mappers:
            # The platform's role sees every row that there is.
            [n_rows] = place.rows(f"SELECT count(*) FROM {mapper.local_table.name}")[0]  # type: ignore[attr-defined]
            assert work.scalar(select(func.count()).select_from(mapper.class_)) == n_rows
        tenants = work.scalars(select(Tenant).order_by(Tenant.id)).all()
        assert [(row.plan_id, row.keys_make_keys, row.suspended_at) for row in tenants] == [
            ("standard", False, None),
            ("standard", False, 2),
        ]
        assert {row.weight for row in tenants} == {1.0 if revision == "0001" else 2.5}
        keys = work.scalars(select(ApiKey).order_by(ApiKey.id)).all()
        assert [(row.status, row.revoked_at) for row in keys] == [("active", None), ("revoked", 12), ("revoked", 77)]
        for key in keys:
            assert (key.subject_id, key.rotated_from, key.replaced_at) == (key.id, None, None)
            assert (key.allowed_adapters, key.ip_allowlist, key.created_by) == (None, None, "administrator")
            assert set(key.scopes) == set(SCOPES) - {"keys:read", "keys:write"}
        records = work.scalars(select(UsageRecord).order_by(UsageRecord.request_id)).all()
        assert [row.period_start for row in records] == [NOVEMBER, NOVEMBER, *[DECEMBER] * 4, NOVEMBER]
        assert [row.settled_by for row in records] == [*["gateway"] * 5, None, None]
        assert {(row.subject_id == row.key_id, row.n, row.est_tokens, row.gateway_id) for row in records} == {
            (True, 1, 0, None)
        }
        assert work.scalars(select(AliasTarget.version_id)).all() == ["ver_1"]
        assert work.scalars(select(Alias.revision)).all() == [4]
    database.close()


def test_what_was_settled_is_in_its_months_budgets_and_its_buckets_are_to_be_rolled_up(place: Place) -> None:
    upgrade(place.url, "0003")
    with place.engine.begin() as work:
        insert_rows(work, ROWS["0003"])
    upgrade(place.url)
    database = Database(place.engine.url.render_as_string(hide_password=False))
    with database.platform.read() as work:
        counters = work.scalars(select(BudgetCounter)).all()
        buckets = work.scalars(select(DirtyBucket)).all()
    assert {(row.tenant_id, row.subject_id, row.period_start): (row.reserved, row.settled) for row in counters} == {
        ("ten_1", "ten_1", NOVEMBER): (0, 55),
        ("ten_1", "key_1", NOVEMBER): (0, 55),
        ("ten_1", "ten_1", DECEMBER): (0, 118),
        ("ten_1", "key_1", DECEMBER): (0, 111),
        ("ten_1", "key_2", DECEMBER): (0, 7),
        ("ten_2", "ten_2", DECEMBER): (0, 2),
        ("ten_2", "key_3", DECEMBER): (0, 2),
        ("ten_2", "ten_2", NOVEMBER): (0, 0),
        ("ten_2", "key_3", NOVEMBER): (0, 0),
    }
    assert {(row.tenant_id, row.granularity, row.bucket_start) for row in buckets} == {
        ("ten_1", "hour", NOVEMBER),
        ("ten_1", "hour", DECEMBER - HOUR),
        ("ten_1", "hour", DECEMBER),
        ("ten_1", "hour", DECEMBER + HOUR),
        ("ten_2", "hour", DECEMBER + HOUR),
        ("ten_1", "day", NOVEMBER),
        ("ten_1", "day", DECEMBER - DAY),
        ("ten_1", "day", DECEMBER),
        ("ten_2", "day", DECEMBER),
    }
    database.close()


def test_what_a_dead_gateway_left_open_can_be_settled(place: Place) -> None:
    upgrade(place.url, "0003")
    with place.engine.begin() as work:
        insert_rows(work, ROWS["0003"])
    upgrade(place.url)
    database = Database(place.engine.url.render_as_string(hide_password=False))
    figures = Reaper(database, CountingEngine(), FakeClock(DECEMBER + 3 * HOUR)).run()
    assert (figures["reaped"], figures["failed"]) == (2, 0)
    assert books(database).agree
    database.close()


def test_the_standard_plan_has_every_limit(place: Place) -> None:
    upgrade(place.url)
    database = Database(place.engine.url.render_as_string(hide_password=False))
    with database.platform.read() as work:
        assert work.scalars(select(Plan.id)).all() == ["standard"]
        limits = {row.dimension: (row.value, row.burst) for row in work.scalars(select(PlanLimit))}
    assert limits == dict(STANDARD)
    assert set(limits) == set(DIMENSIONS)
    database.close()


def test_what_only_the_newest_schema_can_say_does_not_keep_it_from_going_back(place: Place) -> None:
    upgrade(place.url, "0003")
    with place.engine.begin() as work:
        insert_rows(work, ROWS["0003"])
    upgrade(place.url)
    place.run(
        "INSERT INTO plans VALUES ('gold', 'Gold', 1)",
        "INSERT INTO plan_limits VALUES ('gold', 'rpm', 9, NULL, 'administrator', 1)",
        "UPDATE tenants SET plan_id = 'gold' WHERE id = 'ten_1'",
        "INSERT INTO tenant_limits VALUES ('ten_1', 'rpm', 5, 2, 'administrator', 1)",
        "INSERT INTO key_limits VALUES ('ten_1', 'key_1', 'rpm', 4, NULL, 'administrator', 1)",
        "UPDATE api_keys SET replaced_at = 20 WHERE id = 'key_1'",
        "INSERT INTO api_keys (tenant_id, id, public_id, secret_mac, pepper_version, name, hint, status, created_at,"
        " scopes, subject_id, rotated_from, created_by) SELECT tenant_id, 'key_9', 'public9', secret_mac, 1, name,"
        " hint, 'active', 20, scopes, 'key_1', 'key_1', 'administrator' FROM api_keys WHERE id = 'key_1'",
        "INSERT INTO audit_events VALUES ('evt_1', 'ten_1', 5, 'key', 'key_1', 'req_1', 'alias.set', 'live', '{}')",
        "INSERT INTO gateways VALUES ('gwy_1', 1, 2)",
        "INSERT INTO chores (name, due_at) VALUES ('usage.check', 5)",
        "UPDATE usage_records SET gateway_id = 'gwy_1', est_tokens = 40 WHERE state = 'open'",
        "UPDATE usage_records SET settled_by = 'reaper', n = 2 WHERE request_id = 'req_1'",
        "UPDATE budget_counters SET reserved = 40 WHERE subject_id = 'key_1'",
    )
    records = place.rows("SELECT request_id, state, prompt_tokens, completion_tokens FROM usage_records ORDER BY 1")
    downgrade(place.url, "0003")
    assert (
        place.rows("SELECT request_id, state, prompt_tokens, completion_tokens FROM usage_records ORDER BY 1")
        == records
    )
    assert place.rows("SELECT id, name FROM api_keys WHERE status = 'active' ORDER BY id") == [
        ("key_1", "key_1"),
        ("key_9", "first"),
    ]
    upgrade(place.url)
    assert place.rows("SELECT DISTINCT plan_id FROM tenants") == [("standard",)]
    assert place.rows("SELECT sum(settled), sum(reserved) FROM budget_counters WHERE subject_id = 'key_1'") == [
        (166, 0)
    ]


@pytest.mark.parametrize(
    "narrowed",
    [
        """UPDATE api_keys SET scopes = '["inference", "keys:read", "keys:write"]' WHERE id = 'key_1'""",
        """UPDATE api_keys SET scopes = '[]' WHERE id = 'key_1'""",
        """UPDATE api_keys SET allowed_adapters = '["adp_1"]' WHERE id = 'key_1'""",
        """UPDATE api_keys SET allowed_adapters = '[]' WHERE id = 'key_1'""",
        """UPDATE api_keys SET ip_allowlist = '["10.0.0.0/8"]' WHERE id = 'key_1'""",
        "INSERT INTO key_limits VALUES ('ten_1', 'key_1', 'rpm', 0, NULL, 'administrator', 1)",
    ],
)
def test_a_key_that_may_do_less_than_an_older_schema_can_say_is_revoked_on_the_way_back(
    place: Place, narrowed: str
) -> None:
    upgrade(place.url, "0003")
    with place.engine.begin() as work:
        insert_rows(work, ROWS["0003"])
    upgrade(place.url)
    place.run(
        "INSERT INTO api_keys (tenant_id, id, public_id, secret_mac, pepper_version, name, hint, status, created_at,"
        " scopes, subject_id, created_by) SELECT tenant_id, 'key_9', 'public9', secret_mac, 1, 'able', hint,"
        " 'active', 20, scopes, 'key_9', 'administrator' FROM api_keys WHERE id = 'key_1'",
        narrowed,
    )
    downgrade(place.url, "0003")
    keys = "SELECT id, status, revoked_at IS NULL FROM api_keys WHERE tenant_id = 'ten_1' ORDER BY id"
    expected = [("key_1", "revoked", False), ("key_2", "revoked", False), ("key_9", "active", True)]
    assert [(key, status, bool(never)) for key, status, never in place.rows(keys)] == expected


def test_a_step_that_fails_leaves_everything_as_it_was(place: Place) -> None:
    upgrade(place.url, "0003")
    with place.engine.begin() as work:
        insert_rows(work, ROWS["0003"])
        # The index that the next step drops first.
        work.execute(text("DROP INDEX uq_api_keys_active_name"))
    before = place.dump()
    with pytest.raises(Exception, match="uq_api_keys_active_name"):
        upgrade(place.url)
    assert place.dump() == before
    assert place.rows("SELECT version_num FROM alembic_version") == [("0003",)]


def test_weights_that_make_no_sense_are_refused_since_there_are_weights(place: Place) -> None:
    upgrade(place.url, "0002")
    with place.engine.begin() as work:
        insert_rows(work, {"tenants": ROWS["0002"]["tenants"]})
    with pytest.raises(IntegrityError):
        place.run("UPDATE tenants SET weight = 0")


def test_a_version_that_was_to_be_live_is_asked_to_be_so_and_back(place: Place) -> None:
    upgrade(place.url, "0002")
    with place.engine.begin() as work:
        insert_rows(work, ROWS["0002"])
    upgrade(place.url, "0003")
    asked = "SELECT id, alias_when_ready FROM adapter_versions ORDER BY id"
    assert place.rows(asked) == [("ver_1", None), ("ver_2", "live")]
    assert place.rows("SELECT sticky, guard, updated_by FROM aliases") == [("none", None, "system")]
    [(revision, actor, at, targets)] = place.rows("SELECT revision, actor, at, targets FROM alias_history")
    assert (revision, actor, at) == (4, "system", 5)
    assert (json.loads(targets) if isinstance(targets, str) else targets) == [
        {"version_id": "ver_1", "number": 1, "weight": 100}
    ]
    place.run(*OF_THE_THIRD)
    downgrade(place.url, "0002")
    assert place.rows("SELECT id FROM adapter_versions WHERE live_when_ready") == [("ver_2",)]
    assert place.rows("SELECT id, name FROM adapters WHERE id = 'adp_0'") == [("adp_0", "adp_0")]
    assert place.rows("SELECT state FROM adapter_versions WHERE id = 'ver_3'") == [("failed_internal",)]
    assert place.rows("SELECT id FROM jobs") == [("job_1",)]


# What the third schema can say and the second cannot.
OF_THE_THIRD = (
    "UPDATE adapter_versions SET certificate = '{}' WHERE id = 'ver_1'",
    "INSERT INTO adapters (tenant_id, id, name, base_model, next_version, status, created_at, deleted_at)"
    " VALUES ('ten_1', 'adp_0', 'pirate', 'tiny', 2, 'deleted', 1, 2)",
    "INSERT INTO adapter_versions (tenant_id, id, adapter_id, number, state, state_rev, bytes, target_modules,"
    " warnings, created_by, created_at) VALUES ('ten_1', 'ver_3', 'adp_0', 1, 'purged', 3, 10, '[]', '[]', 'key_1', 1)",
    "INSERT INTO alias_history (tenant_id, adapter_id, alias, revision, targets, sticky, actor, at)"
    " VALUES ('ten_1', 'adp_0', 'live', 2, '[]', 'none', 'key_1', 6)",
    "INSERT INTO uploads (tenant_id, id, adapter_name, filename, sha256, length, received, state, created_by,"
    " created_at, expires_at)"
    " VALUES ('ten_1', 'upl_2', 'pirate', 'adapter_model.safetensors.index.json', 'b', 1, 1, 'open', 'key_1', 1, 9)",
    "INSERT INTO jobs (tenant_id, id, kind, version_id, state, attempt, max_attempts, run_after, wake_at, created_at)"
    " VALUES ('ten_1', 'job_2', 'purge', 'ver_3', 'queued', 0, 5, 1, 1, 1)",
)


def test_an_upgrade_of_the_newest_database_changes_nothing(place: Place) -> None:
    upgrade(place.url)
    before = place.dump()
    upgrade(place.url)
    assert place.dump() == before
