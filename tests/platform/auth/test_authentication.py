"""From a header to a principal, or one 401 that does not say why."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event, update
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from lorikeet_platform.api_keys.revoking import revoke_key
from lorikeet_platform.auth.actor import ADMINISTRATOR, Actor
from lorikeet_platform.auth.key_format import new_key
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import MINUTE
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import ApiKey
from lorikeet_platform.db.tables import Tenant as TenantRow
from lorikeet_platform.errors import PlatformError
from tests.support.platform_parts import FakeClock, Tenant

ROUTE = "/v1/adapters"


@contextmanager
def counted_statements(db: Database) -> Iterator[list[str]]:
    statements: list[str] = []

    def record(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        statements.append(statement)

    event.listen(db.engine, "before_cursor_execute", record)
    yield statements
    event.remove(db.engine, "before_cursor_execute", record)


def check(context: PlatformContext, header: str) -> Principal:
    return asyncio.run(context.authenticator.authenticate(header))


def refusal(client: TestClient, *headers: tuple[str, str]) -> dict[str, Any]:
    response = client.get(ROUTE, headers=list(headers))
    assert response.status_code == 401, response.text
    assert response.headers["www-authenticate"] == "Bearer"
    body: dict[str, Any] = response.json()
    body.pop("request_id")
    return body


def test_a_key_opens_its_own_tenant(api: TestClient, harbour: Tenant) -> None:
    assert api.get(ROUTE, headers=harbour.auth).status_code == 200


@pytest.mark.parametrize("scheme", ["bearer", "BEARER"])
def test_the_scheme_may_be_written_in_any_case(api: TestClient, harbour: Tenant, scheme: str) -> None:
    assert api.get(ROUTE, headers={"authorization": f"{scheme} {harbour.secret}"}).status_code == 200


def test_a_revoked_key_is_refused_like_a_malformed_one(
    api: TestClient, admin: TestClient, harbour: Tenant, as_admin: dict[str, str]
) -> None:
    malformed = refusal(api, ("authorization", "Bearer nonsense"))
    assert api.get(ROUTE, headers=harbour.auth).status_code == 200
    revoke = f"/admin/v1/tenants/harbour/keys/{harbour.key_id}/revoke"
    assert admin.post(revoke, json={}, headers=as_admin).status_code == 200
    assert refusal(api, *harbour.auth.items()) == malformed


def test_a_key_that_is_revoked_during_its_look_up_is_not_remembered(
    context: PlatformContext, harbour: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = context.authenticator._stored
    find = stored.find

    def find_slowly(key: str) -> Principal | None:
        found = find(key)
        with context.db.platform.unit_of_work() as work:
            revoke_key(work, harbour.key_id, actor=Actor(harbour.id, ADMINISTRATOR), now=context.clock())
        return found

    header = harbour.auth["authorization"]
    with monkeypatch.context() as patch:
        patch.setattr(stored, "find", find_slowly)
        check(context, header)  # began before the revocation
    with pytest.raises(PlatformError, match="invalid_api_key"):
        check(context, header)


def test_every_way_of_being_wrong_has_the_same_answer(
    api: TestClient, harbour: Tenant, context: PlatformContext
) -> None:
    with context.db.platform.unit_of_work() as work:
        work.execute(update(ApiKey).values(expires_at=context.clock() - 1))
    other = new_key().text
    wrong_secret = harbour.secret[:15] + other[15:-6]
    headers = [
        [("authorization", f"Bearer {other}")],
        [("authorization", f"Bearer {harbour.secret}")],  # expired
        [("authorization", f"Bearer {wrong_secret}")],
        [("authorization", f"Bearer {harbour.secret[:-1]}")],
        [("authorization", f"Bearer  {harbour.secret}")],
        [("authorization", f"Basic {harbour.secret}")],
        [("authorization", f"Bearer {harbour.secret}" + " " * 100)],
        [("authorization", harbour.secret)],
        [("authorization", "")],
        [("authorization", f"Bearer {harbour.secret}"), ("authorization", f"Bearer {harbour.secret}")],
        [("authorization", "Bearer lk_\x7f")],
    ]
    answers = [refusal(api, *pairs) for pairs in headers]
    assert answers == [answers[0]] * len(headers)
    assert answers[0]["error"]["code"] == "invalid_api_key"


def test_no_key_at_all_says_how_to_send_one(api: TestClient) -> None:
    assert refusal(api)["error"]["code"] == "missing_api_key"


def test_an_expired_key_stops_at_its_time_even_when_cached(
    context: PlatformContext, harbour: Tenant, clock: FakeClock
) -> None:
    with context.db.platform.unit_of_work() as work:
        work.execute(update(ApiKey).values(expires_at=clock.now + 1_000_000))
    header = harbour.auth["authorization"]
    check(context, header)
    clock.advance(1.1)
    with pytest.raises(PlatformError, match="invalid_api_key"):
        check(context, header)


def test_a_suspended_tenant_is_told_so(context: PlatformContext, harbour: Tenant) -> None:
    with context.db.platform.unit_of_work() as work:
        work.execute(update(TenantRow).values(status="suspended", suspended_at=1))
    with pytest.raises(PlatformError, match="tenant_suspended"):
        check(context, harbour.auth["authorization"])


def test_a_malformed_key_costs_no_query_and_a_known_one_costs_one_in_five_seconds(
    context: PlatformContext, harbour: Tenant, clock: FakeClock
) -> None:
    header = harbour.auth["authorization"]
    with counted_statements(context.db) as statements:
        with pytest.raises(PlatformError):
            check(context, header[:-1] + ("A" if header[-1] != "A" else "B"))
        assert statements == []
        for _ in range(3):
            check(context, header)
        n_first = len(statements)
        clock.advance(5.1)
        check(context, header)
    assert (n_first, len(statements)) == (2, 4)  # BEGIN and one SELECT each


def test_a_wrong_key_in_a_loop_is_not_a_query_in_a_loop(context: PlatformContext, clock: FakeClock) -> None:
    header = f"Bearer {new_key().text}"
    with counted_statements(context.db) as statements:
        for _ in range(5):
            with pytest.raises(PlatformError):
                check(context, header)
        assert len(statements) == 2
        clock.advance(1.1)
        with pytest.raises(PlatformError):
            check(context, header)
    assert len(statements) == 4


def test_a_key_is_looked_up_by_parameter_never_by_text(context: PlatformContext, harbour: Tenant) -> None:
    with counted_statements(context.db) as statements:
        check(context, harbour.auth["authorization"])
    assert not any(harbour.secret[3:15] in statement for statement in statements)


def test_a_database_that_does_not_answer_is_503_never_401(api: TestClient, context: PlatformContext) -> None:
    context.db.engine.dispose()
    with context.db.platform.unit_of_work() as work:
        work.connection().exec_driver_sql("ALTER TABLE api_keys RENAME TO gone")
    key = new_key().text
    with capture_logs([merge_contextvars]) as lines:
        response = api.get(ROUTE, headers={"authorization": f"Bearer {key}"})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "auth_unavailable")
    assert "retry-after" in response.headers
    [failure] = [line for line in lines if line["log_level"] == "error"]
    assert failure["request_id"] == response.headers["x-request-id"]
    assert all(part not in str(failure["exc_info"]) for part in (key, key[3:15]))


def test_only_a_keyed_digest_of_a_key_is_stored(context: PlatformContext, harbour: Tenant) -> None:
    with context.db.platform.read() as session:
        key = session.get_one(ApiKey, (harbour.id, harbour.key_id))
    assert key.secret_mac == context.pepper.mac(harbour.secret, key.pepper_version)
    assert harbour.secret not in repr(vars(key))


def test_last_use_is_written_in_one_go_to_the_minute(context: PlatformContext, harbour: Tenant) -> None:
    check(context, harbour.auth["authorization"])
    assert context.authenticator.flush_last_used() == 1
    assert context.authenticator.flush_last_used() == 0
    with context.db.platform.read() as session:
        at = session.get_one(ApiKey, (harbour.id, harbour.key_id)).last_used_at
    assert at is not None
    assert at % MINUTE == 0
    assert 0 <= context.clock() - at < MINUTE
