"""The step that adds costs tells what it knows of requests before, at once."""

from __future__ import annotations

from typing import Any

from lorikeet_platform.db.migrate import downgrade, upgrade
from lorikeet_platform.db.session import Database
from lorikeet_platform.usage.work.rollups import RollUps
from tests.platform.db.schema.conftest import DAY, Place, as_before
from tests.support.old_rows import DECEMBER, HOUR, NOVEMBER, ROWS, insert_rows
from tests.support.platform_parts import FakeClock

# As the sixth schema's worker added up: hours out of records, days out of hours.
ROLLED_UP = (
    "INSERT INTO usage_rollups (tenant_id, granularity, bucket_start, key_id, base_model, version_id, adapter_id,"
    " requests, errors, prompt_tokens, cached_tokens, completion_tokens, computed_at)"
    f" SELECT tenant_id, 'hour', admitted_at - admitted_at % {HOUR}, key_id, base_model, coalesce(version_id, ''),"
    " coalesce(adapter_id, ''), count(*), sum(CASE WHEN outcome = 'ok' THEN 0 ELSE 1 END), sum(prompt_tokens),"
    " sum(cached_tokens), sum(completion_tokens), 1 FROM usage_records WHERE state = 'settled'"
    f" GROUP BY tenant_id, admitted_at - admitted_at % {HOUR}, key_id, base_model, version_id, adapter_id",
    "INSERT INTO usage_rollups (tenant_id, granularity, bucket_start, key_id, base_model, version_id, adapter_id,"
    " requests, errors, prompt_tokens, cached_tokens, completion_tokens, computed_at)"
    f" SELECT tenant_id, 'day', bucket_start - bucket_start % {DAY}, key_id, base_model, version_id, adapter_id,"
    " sum(requests), sum(errors), sum(prompt_tokens), sum(cached_tokens), sum(completion_tokens), 1"
    " FROM usage_rollups"
    f" GROUP BY tenant_id, bucket_start - bucket_start % {DAY}, key_id, base_model, version_id, adapter_id",
)


def more_usage() -> dict[str, Any]:
    """Several requests of one key and version in an hour, a day, some of which used nothing; and of the base model."""
    rows = ROWS["0003"]
    settled, running = rows["usage_records"][0], rows["usage_records"][5]
    more = [
        {**settled, "request_id": "req_10", "admitted_at": NOVEMBER + 7},
        {**settled, "request_id": "req_11", "admitted_at": NOVEMBER + 8, "completion_tokens": 0},
        {**settled, "request_id": "req_12", "admitted_at": NOVEMBER + HOUR - 1, "outcome": "deadline"},
        {**settled, "request_id": "req_13", "admitted_at": NOVEMBER + HOUR},
        {**settled, "request_id": "req_14", "admitted_at": NOVEMBER + DAY - 1},
        {**settled, "request_id": "req_15", "admitted_at": NOVEMBER + 9, "adapter_id": None, "version_id": None},
        {**running, "request_id": "req_16", "admitted_at": NOVEMBER + 9, "completion_tokens": 3},
    ]
    return {**rows, "usage_records": [*rows["usage_records"], *more]}


def test_requests_before_there_were_costs_are_counted_in_roll_ups_and_nothing_is_marked_for_it(place: Place) -> None:
    upgrade(place.url, "0003")
    with place.engine.begin() as work:
        insert_rows(work, more_usage())
    upgrade(place.url, "0006")
    place.run(*ROLLED_UP, "DELETE FROM usage_dirty WHERE tenant_id = 'ten_1' OR granularity = 'day'")
    before = place.dump()
    assert len(before["usage_dirty"]) == 1
    for _ in range(2):
        upgrade(place.url)
        after = place.dump()
        assert after["usage_dirty"] == before["usage_dirty"], "what was marked is, and nothing else"
        downgrade(place.url, "0006")
        assert as_before(place.dump()) == as_before(before)
    counted = {bucket_of(row): row["requests_without_cost"] for row in after["usage_rollups"]}
    assert counted["ten_1", "hour", NOVEMBER, "key_1", "ver_1"] == 3
    assert counted["ten_1", "day", NOVEMBER, "key_1", "ver_1"] == 5
    assert counted["ten_1", "day", NOVEMBER, "key_1", ""] == 1
    assert counted["ten_1", "day", DECEMBER, "key_2", "ver_1"] == 0
    upgrade(place.url)
    place.run(
        "DELETE FROM usage_dirty",
        "INSERT INTO usage_dirty SELECT DISTINCT tenant_id, granularity, bucket_start, 1 FROM usage_rollups",
    )
    database = Database(place.engine.url.render_as_string(hide_password=False))
    RollUps(database, FakeClock(1)).run()
    database.close()
    assert place.dump()["usage_rollups"] == after["usage_rollups"], "computed anew they say the same"


def bucket_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("tenant_id", "granularity", "bucket_start", "key_id", "version_id"))
