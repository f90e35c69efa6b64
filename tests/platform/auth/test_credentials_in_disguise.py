"""Headers that try to be more, or other, than one key (N-14), and where a key's text may never turn up (N-19)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event, text
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from lorikeet_platform.auth.key_format import checksum, new_key
from lorikeet_platform.auth.pepper import Pepper
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.errors import PlatformError
from tests.support.platform_parts import Tenant

ROUTE = "/v1/adapters"


@dataclass
class Recorder:
    """Every statement that reaches the database, and every value beside it."""

    statements: list[str] = field(default_factory=list)
    parameters: list[str] = field(default_factory=list)

    @property
    def look_ups(self) -> list[str]:
        return [statement for statement in self.statements if "api_keys" in statement]


@contextmanager
def recorded(db: Database) -> Iterator[Recorder]:
    recorder = Recorder()

    def record(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
        recorder.statements.append(statement)
        recorder.parameters.append(repr(parameters))

    event.listen(db.engine, "before_cursor_execute", record)
    yield recorder
    event.remove(db.engine, "before_cursor_execute", record)


def with_new_checksum(body: str) -> str:
    return body + checksum(body)


def disguises(tenant: Tenant) -> dict[str, list[tuple[bytes, bytes]]]:
    secret, other = tenant.secret, new_key().text

    def bearer(value: str | bytes, scheme: bytes = b"Bearer ") -> list[tuple[bytes, bytes]]:
        return [(b"authorization", scheme + (value if isinstance(value, bytes) else value.encode()))]

    flipped = secret[:20] + ("A" if secret[20] != "A" else "B") + secret[21:]
    return {
        "two headers": bearer(secret) * 2,
        "two headers, one wrong": bearer(other) + bearer(secret),
        "two keys": bearer(f"{secret} {other}"),
        "two keys after two spaces": bearer(f" {secret} {secret}"),
        "two keys and a comma": bearer(f"{secret},{secret}"),
        "a megabyte": bearer("A" * (1 << 20)),
        "a key and much after it": bearer(secret + "A" * 500),
        "SQL": bearer("' OR 1=1 --"),
        "SQL in the shape of a key": bearer("lk_' OR '1'='1_" + "A" * 38),
        "a wildcard in the shape of a key": bearer("lk_%%%%%%%%%%%%_" + "A" * 38),
        "percent signs": bearer(secret.replace("_", "%5F")),
        "UTF-16": bearer(secret.encode("utf-16-le")),
        "UTF-16 with its mark": bearer(secret.encode("utf-16")),
        "full-width letters": bearer("".join(chr(ord(c) + 0xFEE0) for c in secret)),
        "a NUL in it": bearer(secret.encode() + b"\x00"),
        "a line after it": bearer(secret.encode() + b"\n"),
        "a tab for the space": bearer(secret, b"Bearer\t"),
        "no space": bearer(secret, b"Bearer"),
        "quotes": bearer(f'"{secret}"'),
        "another scheme": bearer(secret, b"Basic "),
        "one flipped character": bearer(flipped),
        "right id, wrong secret": bearer(with_new_checksum(secret[:16] + other[16:48])),
        "wrong id, right secret": bearer(with_new_checksum(other[:16] + secret[16:48])),
        "unknown key": bearer(other),
    }


@pytest.mark.parametrize("name", sorted(disguises(Tenant("", "", "", new_key().text))))
def test_n14_a_header_that_is_not_one_key_of_ours_is_401_after_one_look_up_at_most(
    api: TestClient, context: PlatformContext, harbour: Tenant, name: str
) -> None:
    sent = disguises(harbour)[name]
    with recorded(context.db) as recorder, capture_logs([merge_contextvars]) as lines:
        refused = api.get(ROUTE, headers=sent)
    if name in ("a megabyte",):  # more than all headers may have together
        assert refused.status_code == 431
    else:
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert len(recorder.look_ups) <= (1 if "right" in name or "unknown" in name else 0)
    for value in {value.split()[-1] for _, value in sent if b" " in value}:
        shown = value.decode("latin-1")
        assert not any(shown in statement for statement in recorder.statements)
        assert not any(shown in parameter for parameter in recorder.parameters)
        assert shown not in repr(lines)
        assert shown not in refused.text


def test_n14_the_scheme_may_be_written_in_lower_case(api: TestClient, harbour: Tenant) -> None:
    assert api.get(ROUTE, headers={"authorization": f"bearer {harbour.secret}"}).status_code == 200


def test_n14_a_statement_that_finds_a_key_has_only_bound_values_and_never_its_secret(
    context: PlatformContext, harbour: Tenant
) -> None:
    with recorded(context.db) as recorder:
        asyncio.run(context.authenticator.authenticate(harbour.auth["authorization"]))
    [statement] = recorder.look_ups
    assert harbour.secret[3:15] not in statement
    assert any(harbour.secret[3:15] in parameter for parameter in recorder.parameters)
    assert not any(harbour.secret[16:48] in parameter for parameter in recorder.parameters)


def test_n15_an_unknown_id_takes_the_path_of_a_wrong_secret(
    context: PlatformContext, harbour: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement with as many rows, and one keyed digest over the whole key, whichever it is."""
    wrong = with_new_checksum(harbour.secret[:16] + new_key().text[16:48])
    n_digests = 0
    mac = Pepper.mac

    def counted(self: Pepper, key: str, version: int) -> bytes:
        nonlocal n_digests
        n_digests += 1
        assert len(key) == len(wrong)
        return mac(self, key, version)

    monkeypatch.setattr(Pepper, "mac", counted)
    paths = []
    for key in (wrong, new_key().text):
        before = n_digests
        with recorded(context.db) as recorder, pytest.raises(PlatformError, match="invalid_api_key"):
            asyncio.run(context.authenticator.authenticate(f"Bearer {key}"))
        paths.append((recorder.statements, n_digests - before))
    assert paths[0] == paths[1]
    assert paths[0][1] == 1
    [statement] = [statement for statement in paths[0][0] if "api_keys" in statement]
    with context.db.engine.connect() as connection:
        found = [
            len(connection.exec_driver_sql(statement, (public_id, "standard")).all())
            for public_id in (wrong[3:15], "0" * 12)
        ]
    assert found[0] == found[1] > 0


@pytest.mark.parametrize("where", ["api_key={}", "access_token={}", "x={}", "{}", "{}=1", "x=%20{}"])
def test_a_key_in_the_address_is_refused_and_not_logged(api: TestClient, harbour: Tenant, where: str) -> None:
    with capture_logs([merge_contextvars]) as lines:
        refused = api.get(f"{ROUTE}?{where.format(harbour.secret)}", headers=harbour.auth)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "key_in_query")
    assert harbour.secret not in refused.text
    assert harbour.secret not in repr(lines)


def test_n19_the_text_of_a_key_turns_up_nowhere_but_in_the_answer_that_made_it(
    api: TestClient,
    admin: TestClient,
    as_admin: dict[str, str],
    context: PlatformContext,
    harbour: Tenant,
    capfd: pytest.CaptureFixture[str],
) -> None:
    keys = "/admin/v1/tenants/harbour/keys"
    answers = []
    with capture_logs([merge_contextvars]) as lines:
        made = admin.post(keys, json={"name": "made"}, headers=as_admin).json()
        secret = made["secret"]
        mine = {"authorization": f"Bearer {secret}"}
        answers += [
            api.get("/v1/keys/self", headers=mine),
            api.get("/v1/keys", headers=mine),
            api.get(f"{ROUTE}/{secret}", headers=mine),
            api.post("/v1/chat/completions", content=secret, headers=mine),
            api.post("/v1/chat/completions", json={"model": 1, "key": "x"}, headers=mine),
            api.get(ROUTE, headers={"authorization": f"Bearer {secret}x"}),
            api.get(f"{ROUTE}?key={secret}", headers=mine),
            admin.get(keys, headers=as_admin),
            admin.post(keys, json={"name": "made"}, headers=as_admin),
            admin.get("/admin/v1/tenants", headers=mine),
            admin.post("/admin/v1/leaked_keys", json={"key": secret + "x"}, headers=as_admin),
            admin.post("/admin/v1/leaked_keys", json={"key": [secret]}, headers=as_admin),
            admin.post("/admin/v1/leaked_keys", json={secret: 1}, headers=as_admin),
            admin.post("/admin/v1/leaked_keys", json={"key": secret}, headers=as_admin),
            api.get(ROUTE, headers=mine),
            admin.get("/metrics", headers=as_admin),
        ]
        context.authenticator.flush_last_used()
    with context.db.engine.connect() as connection:
        names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'table'")).scalars().all()
        dump = repr([connection.execute(text(f"SELECT * FROM {name}")).all() for name in names])
    part = secret[16:48]
    assert part not in repr(lines)
    assert part not in dump
    assert part.encode() not in b"".join(path.read_bytes() for path in context.settings.data_dir.glob("lorikeet.db*"))
    assert part not in "".join(capfd.readouterr())
    echoed = [answer.request.url.path for answer in answers if part in answer.text]
    assert echoed == [f"{ROUTE}/{secret}"] or echoed == []
    assert {answer.status_code for answer in answers} <= {200, 400, 401, 403, 404, 409, 415}
