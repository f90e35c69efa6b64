"""Usage over HTTP: sums equal the records, on both ports, for one's own tenant only."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from random import Random
from typing import Any, cast

import httpx2
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import QueuePool

from lorikeet_engine.cost_vector import COSTS
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import UsageRecord
from lorikeet_platform.usage import export, routes
from lorikeet_platform.usage.work.rollups import RollUps
from tests.platform.usage.conftest import get
from tests.support.ledger import DAY_US, NOON, NOON_S, AsPayer, a_payer, opened, use
from tests.support.platform_parts import BASE, Tenant, a_version

HOUR, DAY = 3_600, 86_400
FIGURES = ("requests", "errors", "prompt_tokens", "cached_tokens", "completion_tokens")
GROUPS = ["", "key", "model", "adapter", "version", "key,version", "adapter,model"]


def recomputed(db: Database, tenant_id: str | None, length: int, start: int, end: int, group: str) -> Any:
    """The same sums by the simplest way, times in seconds."""
    wanted = {"key": "key_id", "model": "base_model", "adapter": "adapter_id", "version": "version_id"}
    sums: dict[Any, list[int]] = defaultdict(lambda: [0] * len(FIGURES))
    with db.platform.read() as work:
        for record in work.query(UsageRecord).filter_by(state="settled"):
            at = record.admitted_at // 1_000_000
            if not start <= at < end or tenant_id not in (None, record.tenant_id):
                continue
            names = group.split(",") if group else []
            ids = tuple(record.tenant_id if each == "tenant" else getattr(record, wanted[each]) for each in names)
            figures = (1, record.outcome != "ok", record.prompt_tokens, record.cached_tokens, record.completion_tokens)
            row = sums[(at - at % length, *ids)]
            row[:] = [total + one for total, one in zip(row, figures, strict=True)]
    return {key: tuple(row) for key, row in sums.items()}


def answered(response: httpx2.Response, group: str) -> Any:
    assert response.status_code == 200, response.text
    ids = {"key": "key", "model": "model", "adapter": "adapter_id", "version": "version_id", "tenant": "tenant"}
    names = [ids[each] for each in group.split(",")] if group else []
    rows = response.json()["data"]
    found = {
        (row["bucket_start"], *(row[name] for name in names)): tuple(row[name] for name in FIGURES) for row in rows
    }
    assert len(found) == len(rows)
    return found


@pytest.fixture
def much(place: PlatformContext, mine: Tenant, foreign: Tenant) -> PlatformContext:
    """Three days of requests for the base model and three versions, a part of them not rolled up yet."""
    random = Random(6)
    with place.db.platform.unit_of_work() as work:
        versions = {
            tenant.id: [
                None,
                a_version(work, tenant, name="pirate"),
                a_version(work, tenant, name="pirate", number=2),
                a_version(work, tenant, name="haiku"),
            ]
            for tenant in (mine, foreign)
        }
    for number in range(60):
        tenant = mine if number % 3 else foreign
        use(
            place.db,
            tenant,
            at=NOON + random.randrange(-DAY_US, 2 * DAY_US),
            version=random.choice(versions[tenant.id]),
            figures=(random.randrange(20, 50), random.randrange(20), random.randrange(9)),
            outcome=random.choice(("ok", "ok", "shed")),
        )
        if number == 40:
            RollUps(place.db).run()
    return place


@pytest.mark.parametrize("bucket", ["1h", "1d"])
def test_sums_equal_the_records_for_every_group_and_bucket(
    much: PlatformContext, tenant_port: TestClient, mine: Tenant, bucket: str
) -> None:
    start, end, length = NOON_S - DAY - 12 * HOUR, NOON_S + 2 * DAY + 12 * HOUR, {"1h": HOUR, "1d": DAY}[bucket]
    for group in GROUPS:
        response = get(tenant_port, mine, start=start, end=end, bucket=bucket, group_by=group)
        assert answered(response, group) == recomputed(much.db, mine.id, length, start, end, group)


def test_minutes_equal_the_records(much: PlatformContext, tenant_port: TestClient, mine: Tenant) -> None:
    start = NOON_S - NOON_S % DAY
    response = get(tenant_port, mine, start=start, end=start + DAY, bucket="1m", group_by="version")
    assert answered(response, "version") == recomputed(much.db, mine.id, 60, start, start + DAY, "version")


@pytest.mark.parametrize("bucket", ["1h", "1d"])
def test_sums_are_the_same_before_and_after_the_roll_ups(
    much: PlatformContext, tenant_port: TestClient, mine: Tenant, bucket: str
) -> None:
    asked: dict[str, Any] = {
        "start": NOON_S - 2 * DAY,
        "end": NOON_S + 3 * DAY,
        "bucket": bucket,
        "group_by": "key,version",
    }
    before = get(tenant_port, mine, **asked).json()
    RollUps(much.db).run()
    assert get(tenant_port, mine, **asked).json() == before


def test_an_administrator_sees_one_tenant_as_it_sees_itself(
    much: PlatformContext, tenant_port: TestClient, admin_port: TestClient, mine: Tenant
) -> None:
    asked: dict[str, Any] = {"start": NOON_S - 2 * DAY, "end": NOON_S + 3 * DAY, "bucket": "1d", "group_by": "version"}
    theirs = admin_port.get("/admin/v1/tenants/harbour/usage", params=asked)
    assert theirs.json() == get(tenant_port, mine, **asked).json()
    assert theirs.json()["data"] != []
    assert much.db.is_reachable()


def test_an_administrator_sees_all_tenants_by_name(
    much: PlatformContext, admin_port: TestClient, mine: Tenant, foreign: Tenant
) -> None:
    start, end = NOON_S - DAY - 12 * HOUR, NOON_S + 2 * DAY + 12 * HOUR
    asked: dict[str, Any] = {"start": start, "end": end, "bucket": "1d"}
    response = admin_port.get("/admin/v1/usage", params=asked | {"group_by": "tenant"})
    slugs = {mine.id: "harbour", foreign.id: "orchard"}
    expected = recomputed(much.db, None, DAY, start, end, "tenant")
    assert answered(response, "tenant") == {(at, slugs[who]): row for (at, who), row in expected.items()}
    everything = admin_port.get("/admin/v1/usage", params=asked)
    assert answered(everything, "") == recomputed(much.db, None, DAY, start, end, "")


def test_groups_have_the_names_that_people_know(place: PlatformContext, tenant_port: TestClient, mine: Tenant) -> None:
    with place.db.platform.unit_of_work() as work:
        version = a_version(work, mine, name="pirate", number=3)
    use(place.db, mine, version=version)
    use(place.db, mine)
    asked: dict[str, Any] = {"start": NOON_S, "end": NOON_S + 1, "group_by": "key,model,adapter,version"}
    report = get(tenant_port, mine, **asked).json()
    base, adapter = report["data"]
    assert {name: report[name] for name in ("object", "bucket", "start", "end", "group_by")} == {
        "object": "usage",
        "bucket": "1h",
        "start": NOON_S,
        "end": NOON_S + HOUR,
        "group_by": ["key", "model", "adapter", "version"],
    }
    assert adapter == {
        "bucket_start": NOON_S,
        "key": mine.key_id,
        "key_name": "first",
        "model": BASE,
        "adapter": "pirate",
        "adapter_id": version.adapter_id,
        "version": "pirate:3",
        "version_id": version.id,
        "requests": 1,
        "errors": 0,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "completion_tokens": 5,
        "requests_without_cost": 1,
        "costs": dict.fromkeys(COSTS, 0.0),
    }
    assert (base["adapter"], base["adapter_id"], base["version"], base["version_id"]) == (None, None, None, None)


def test_without_parameters_the_last_day_is_told_by_hours(
    place: PlatformContext, tenant_port: TestClient, mine: Tenant
) -> None:
    use(place.db, mine, at=place.clock())
    use(place.db, mine, at=place.clock() - 2 * DAY_US)
    report = get(tenant_port, mine).json()
    assert [row["requests"] for row in report["data"]] == [1]
    assert report["end"] - report["start"] in (24 * HOUR, 25 * HOUR)


def test_what_runs_is_not_summed_up_yet(place: PlatformContext, tenant_port: TestClient, mine: Tenant) -> None:
    opened(place.db, AsPayer(mine))
    assert get(tenant_port, mine, start=NOON_S, end=NOON_S + HOUR).json()["data"] == []


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"start": NOON_S, "end": NOON_S}, "end"),
        ({"start": NOON_S, "end": NOON_S - 1}, "end"),
        ({"start": -1}, "start"),
        ({"start": "yesterday"}, "start"),
        ({"end": 10**13}, "end"),
        ({"bucket": "5m"}, "bucket"),
        ({"bucket": "1m", "start": NOON_S, "end": NOON_S + DAY + 1}, "start"),
        ({"bucket": "1h", "start": NOON_S, "end": NOON_S + 93 * DAY}, "start"),
        ({"group_by": "tenant"}, "group_by"),
        ({"group_by": "key,key"}, "group_by"),
        ({"group_by": "key,"}, "group_by"),
        ({"group_by": "colour"}, "group_by"),
        ({"format": "xml"}, "format"),
    ],
)
def test_what_cannot_be_answered_exactly_is_refused_by_name(
    tenant_port: TestClient, mine: Tenant, params: dict[str, Any], param: str
) -> None:
    response = get(tenant_port, mine, **params)
    assert response.status_code == 400
    assert (response.json()["error"]["code"], response.json()["error"]["param"]) == ("invalid_value", param)


def test_n11_no_parameter_reaches_another_tenants_usage(
    place: PlatformContext, tenant_port: TestClient, mine: Tenant, foreign: Tenant
) -> None:
    use(place.db, foreign)
    asked: dict[str, Any] = {"start": NOON_S, "end": NOON_S + HOUR}
    assert get(tenant_port, mine, **asked).json()["data"] == []
    assert get(tenant_port, mine, "/v1/usage/records").json()["data"] == []
    for name in ("slug", "tenant_id", "key_id"):
        response = get(tenant_port, mine, **asked, **{name: foreign.id})
        assert (response.status_code, response.json()["error"]["code"]) == (400, "unknown_parameter")


def test_lines_of_json_say_the_same_as_json(much: PlatformContext, tenant_port: TestClient, mine: Tenant) -> None:
    asked: dict[str, Any] = {"start": NOON_S - 2 * DAY, "end": NOON_S + 3 * DAY, "group_by": "key,adapter"}
    lines = get(tenant_port, mine, **asked, format="jsonl")
    assert lines.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in lines.text.splitlines()] == get(tenant_port, mine, **asked).json()["data"]
    assert much.db.is_reachable()


def test_csv_says_the_same_as_json(much: PlatformContext, tenant_port: TestClient, mine: Tenant) -> None:
    asked: dict[str, Any] = {"start": NOON_S - 2 * DAY, "end": NOON_S + 3 * DAY, "group_by": "key,adapter"}
    answer = get(tenant_port, mine, **asked, format="csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="usage.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    flat = [row | row.pop("costs") for row in get(tenant_port, mine, **asked).json()["data"]]
    shown = [{name: "" if value is None else str(value) for name, value in row.items()} for row in flat]
    assert rows == shown
    assert much.db.is_reachable()


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", '=HYPERLINK("http://x","y")', "=a,\nb", "\t=1"])
def test_n26_a_name_that_a_spreadsheet_would_run_is_quoted_in_csv_only(
    place: PlatformContext, tenant_port: TestClient, mine: Tenant, name: str
) -> None:
    with place.db.platform.unit_of_work() as work:
        version = a_version(work, mine, name=name)
    use(place.db, mine, version=version)
    asked: dict[str, Any] = {"start": NOON_S, "end": NOON_S + 1, "group_by": "adapter,version"}
    [row] = csv.DictReader(io.StringIO(get(tenant_port, mine, **asked, format="csv").text, newline=""))
    assert (row["adapter"], row["version"]) == (f"'{name}", f"'{name}:1")
    assert get(tenant_port, mine, **asked).json()["data"][0]["adapter"] == name


def test_a_large_answer_goes_through_a_file_and_one_that_is_too_large_is_refused(
    much: PlatformContext, tenant_port: TestClient, mine: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {"start": NOON_S - 2 * DAY, "end": NOON_S + 3 * DAY, "group_by": "version"}
    whole = get(tenant_port, mine, **asked).json()
    monkeypatch.setattr(export, "IN_MEMORY", 100)
    monkeypatch.setattr(export, "PIECE", 7)
    assert get(tenant_port, mine, **asked).json() == whole
    monkeypatch.setattr(export, "MAX_ROWS", len(whole["data"]) - 1)
    response = get(tenant_port, mine, **asked)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_value")
    assert list(much.settings.temporary_dir.iterdir()) == []


def test_strangers_learn_nothing(tenant_port: TestClient, admin_port: TestClient) -> None:
    for path in ("/v1/usage", "/v1/usage/records"):
        assert tenant_port.get(path, params={"colour": "red"}).status_code == 401
    for path in ("/admin/v1/usage", "/admin/v1/tenants/harbour/usage"):
        response = admin_port.get(path, params={"colour": "red"}, headers={"authorization": "Bearer x"})
        assert response.status_code == 401
    assert admin_port.get("/admin/v1/tenants/nowhere/usage").status_code == 404


def test_a_tenant_without_requests_has_an_empty_report(database: Database, admin_port: TestClient) -> None:
    a_payer(database, "empty")
    report = admin_port.get("/admin/v1/tenants/empty/usage").json()
    assert (report["data"], report["requests_without_cost"], set(report["costs"].values())) == ([], 0, {0})
    answer = admin_port.get("/admin/v1/tenants/empty/usage", params={"format": "csv"}).text
    assert answer == f"{','.join(('bucket_start', *FIGURES, 'requests_without_cost', *COSTS))}\r\n"


@pytest.mark.parametrize(("held_rows", "n_connections"), [(5_000, 0), (1, 1)])
def test_a_report_is_written_without_the_database_unless_it_is_too_large_to_hold(
    much: PlatformContext,
    tenant_port: TestClient,
    mine: Tenant,
    monkeypatch: pytest.MonkeyPatch,
    held_rows: int,
    n_connections: int,
) -> None:
    in_use: list[int] = []

    def watched(*arguments: Any) -> Any:
        in_use.append(cast(QueuePool, much.db.engine.pool).checkedout())
        return export.exported(*arguments)

    params: dict[str, str | int] = {"start": NOON_S - 10 * DAY, "end": NOON_S + 10 * DAY, "group_by": "key"}
    whole = tenant_port.get("/v1/usage", params=params, headers=mine.auth).json()
    monkeypatch.setattr(routes, "exported", watched)
    monkeypatch.setattr(routes, "HELD_ROWS", held_rows)
    assert tenant_port.get("/v1/usage", params=params, headers=mine.auth).json() == whole
    assert len(whole["data"]) > 1
    assert in_use == [n_connections]
