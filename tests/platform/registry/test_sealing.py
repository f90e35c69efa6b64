"""Complete uploads become a version; the same content does not become two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select, update

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Adapter, AdapterVersion, Job
from lorikeet_platform.registry.names import is_adapter_name
from tests.support.platform_parts import (
    CONFIG,
    WEIGHTS,
    FakeClock,
    MeasuredEngine,
    Tenant,
    Uploader,
    a_version,
    limit_tenant,
)

INDEX, SHARD = "adapter_model.safetensors.index.json", "adapter_model-00001-of-00002.safetensors"
ONE, TWO = b'{"r": 4}', b"weights"


def counts(context: PlatformContext) -> tuple[int, ...]:
    with context.db.platform.read() as work:
        return tuple(work.scalar(select(func.count()).select_from(t)) or 0 for t in (Adapter, AdapterVersion, Job))


def error(response: Any) -> tuple[int, str, str | None]:
    body = response.json()["error"]
    return response.status_code, body["code"], body["param"]


def test_sealing_makes_adapter_version_and_job_at_once(context: PlatformContext, uploader: Uploader) -> None:
    response = uploader.seal(ONE, TWO, description="talks like a pirate")
    version = response.json()
    assert response.status_code == 202
    assert (version["adapter"], version["number"], version["state"]) == ("pirate", 1, "validating")
    assert (version["bytes"], version["digest"], version["description"]) == (15, None, "talks like a pirate")
    assert counts(context) == (1, 1, 1)
    shown = uploader.client.get("/v1/adapters/pirate", headers=uploader.tenant.auth).json()
    assert (shown["aliases"], shown["versions"]) == ([], [version])


def test_the_same_content_leads_to_the_same_ready_version(context: PlatformContext, uploader: Uploader) -> None:
    first = uploader.seal(ONE, TWO)
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).values(state="ready", digest="0" * 64, ready_at=context.clock()))
    again = uploader.seal(ONE, TWO)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    assert counts(context) == (1, 1, 1)
    assert len(list(context.store.entries("uploads/"))) == 2  # those of the first; the second's are deleted


def test_an_upload_does_not_share_the_verdict_on_another_ones_bytes(
    context: PlatformContext, uploader: Uploader
) -> None:
    first = uploader.seal(ONE, TWO)
    again = uploader.seal(ONE, TWO)
    assert (first.status_code, again.status_code) == (202, 202)
    assert [first.json()["number"], again.json()["number"]] == [1, 2]
    assert counts(context) == (1, 2, 2)


def test_a_seal_sent_again_gets_the_first_answer(uploader: Uploader) -> None:
    uploads = {CONFIG: uploader.whole(ONE, filename=CONFIG), WEIGHTS: uploader.whole(TWO)}
    first, again = uploader.seal_uploads(uploads), uploader.seal_uploads(uploads)
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json() == again.json()


def test_other_content_gets_the_next_number_and_the_same_content_elsewhere_its_own(uploader: Uploader) -> None:
    assert uploader.seal(ONE, TWO).json()["number"] == 1
    assert uploader.seal(ONE, TWO + b"!").json()["number"] == 2
    assert uploader.seal(ONE, TWO, adapter="haiku").json()["number"] == 1


def test_another_tenants_equal_content_is_its_own_version(api: TestClient, uploader: Uploader, orchard: Tenant) -> None:
    ours = uploader.seal(ONE, TWO)
    theirs = Uploader(api, orchard).seal(ONE, TWO)
    assert theirs.status_code == 202
    assert theirs.json()["id"] != ours.json()["id"]


def test_an_incomplete_upload_cannot_be_sealed(context: PlatformContext, uploader: Uploader) -> None:
    location = uploader.create(TWO).headers["location"]
    uploads = {CONFIG: uploader.whole(ONE, filename=CONFIG), WEIGHTS: location.rpartition("/")[2]}
    assert error(uploader.seal_uploads(uploads)) == (409, "upload_incomplete", f"files.{WEIGHTS}")
    assert counts(context) == (0, 0, 0)


def test_an_upload_belongs_to_one_version(uploader: Uploader) -> None:
    weights = uploader.whole(TWO)
    assert uploader.seal_uploads({CONFIG: uploader.whole(ONE, filename=CONFIG), WEIGHTS: weights}).status_code == 202
    other = uploader.seal_uploads({CONFIG: uploader.whole(b"{}", filename=CONFIG), WEIGHTS: weights})
    assert error(other) == (409, "upload_sealed", f"files.{WEIGHTS}")


def test_an_upload_is_of_one_file_and_for_one_adapter(uploader: Uploader) -> None:
    config, weights = uploader.whole(ONE, filename=CONFIG), uploader.whole(TWO)
    swapped = uploader.seal_uploads({CONFIG: weights, WEIGHTS: config})
    assert error(swapped) == (400, "invalid_value", f"files.{CONFIG}")
    elsewhere = uploader.seal_uploads({CONFIG: config, WEIGHTS: weights}, adapter="haiku")
    assert error(elsewhere) == (400, "invalid_value", f"files.{CONFIG}")


def test_an_expired_upload_cannot_be_sealed(uploader: Uploader, clock: FakeClock) -> None:
    uploads = {CONFIG: uploader.whole(ONE, filename=CONFIG), WEIGHTS: uploader.whole(TWO)}
    clock.advance(25 * 3600)
    assert uploader.seal_uploads(uploads).status_code == 404


def test_another_tenants_uploads_are_missing_like_none(api: TestClient, uploader: Uploader, orchard: Tenant) -> None:
    theirs = Uploader(api, orchard)
    uploads = {CONFIG: theirs.whole(ONE, filename=CONFIG), WEIGHTS: theirs.whole(TWO)}
    stolen = uploader.seal_uploads(uploads)
    missing = uploader.seal_uploads(dict.fromkeys(uploads, "upl_" + "0" * 26))
    assert error(stolen) == error(missing) == (404, "not_found", f"files.{CONFIG}")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, (400, "missing_parameter", "files")),
        ({"files": {}}, (400, "invalid_value", "files")),
        ({"files": {WEIGHTS: "b", INDEX: "a"}}, (400, "missing_parameter", f"files.{CONFIG}")),
        ({"files": {CONFIG: "a", INDEX: "b"}}, (400, "invalid_value", f"files.{INDEX}")),
        ({"files": {CONFIG: "a", SHARD: "b"}}, (400, "missing_parameter", f"files.{INDEX}")),
        ({"files": {CONFIG: "a", WEIGHTS: "b", SHARD: "c"}}, (400, "invalid_value", f"files.{WEIGHTS}")),
        ({"files": {CONFIG: "a", "../" + WEIGHTS: "b"}}, (400, "unknown_parameter", f"files.../{WEIGHTS}")),
        ({"files": {CONFIG: "a", WEIGHTS: "b", "x": "c"}}, (400, "unknown_parameter", "files.x")),
        ({"files": {CONFIG: "a", WEIGHTS: "b"}, "alias": "Best"}, (400, "invalid_value", "alias")),
        ({"files": {CONFIG: 7, WEIGHTS: "b"}}, (400, "invalid_value", f"files.{CONFIG}")),
        ({"files": {CONFIG: "a", WEIGHTS: "b"}, "wait": True}, (400, "unknown_parameter", "wait")),
    ],
)
def test_a_body_that_is_not_exactly_right_is_refused_by_field(
    api: TestClient, harbour: Tenant, body: object, expected: tuple[int, str, str]
) -> None:
    assert error(api.post("/v1/adapters/pirate/versions", json=body, headers=harbour.auth)) == expected


def test_adapters_of_another_tenant_do_not_exist(
    api: TestClient, context: PlatformContext, harbour: Tenant, orchard: Tenant
) -> None:
    with context.db.platform.unit_of_work() as work:
        a_version(work, harbour, name="pirate")
    assert api.get("/v1/adapters", headers=orchard.auth).json() == {"object": "list", "data": []}
    for path in ("/v1/adapters/{}", "/v1/adapters/{}/versions", "/v1/adapters/{}/versions/1"):
        theirs = api.get(path.format("pirate"), headers=orchard.auth)
        missing = api.get(path.format("nobody"), headers=orchard.auth)
        assert theirs.status_code == missing.status_code == 404
        assert theirs.json()["error"] == {
            **missing.json()["error"],
            "message": missing.json()["error"]["message"].replace("nobody", "pirate"),
        }
        assert api.get(path.format("pirate"), headers=harbour.auth).status_code == 200


@pytest.mark.parametrize("number", ["0", "-1", "x", "1.5", "2147483648", "99999999999999999999", "9" * 5000])
def test_a_number_that_no_version_can_have_is_not_found(uploader: Uploader, number: str) -> None:
    uploader.seal(ONE, TWO)
    response = uploader.client.get(f"/v1/adapters/pirate/versions/{number}", headers=uploader.tenant.auth)
    assert error(response) == (404, "not_found", None)


@pytest.mark.parametrize("name", ["a", "a1", "pirate-talk", "v1.2_x", "a" * 64])
def test_names_that_may_be_given(name: str) -> None:
    assert is_adapter_name(name)


@pytest.mark.parametrize("name", ["", "-a", "a-", ".a", "A", "a/b", "a@b", "a:1", "a..b", "a" * 65, "é", "a b", "a\n"])
def test_names_that_may_not(name: str) -> None:
    assert not is_adapter_name(name)


def test_shards_and_their_index_become_one_version(context: PlatformContext, uploader: Uploader) -> None:
    second = "adapter_model-00002-of-00002.safetensors"
    contents = {CONFIG: ONE, INDEX: b"{}", SHARD: TWO, second: TWO + b"!"}

    def push() -> Any:
        return uploader.seal_uploads(
            {name: uploader.whole(content, filename=name) for name, content in contents.items()}
        )

    first = push()
    assert (first.status_code, first.json()["bytes"]) == (202, sum(map(len, contents.values())))
    files = uploader.client.get("/v1/adapters/pirate/versions/1/files", headers=uploader.tenant.auth).json()["data"]
    assert [file["filename"] for file in files] == sorted(contents)
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).values(state="ready", digest="0" * 64, ready_at=context.clock()))
    assert (push().status_code, counts(context)) == (200, (1, 1, 1))
    contents[second] = b"other"
    assert push().json()["number"] == 2


def test_a_file_more_is_another_content(context: PlatformContext, uploader: Uploader) -> None:
    """What is a part of a ready version's files is not that version."""
    second = "adapter_model-00002-of-00002.safetensors"
    contents = {CONFIG: ONE, INDEX: b"{}", SHARD: TWO, second: TWO}
    uploader.seal_uploads({name: uploader.whole(content, filename=name) for name, content in contents.items()})
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).values(state="ready", digest="0" * 64, ready_at=context.clock()))
    only = "adapter_model-00001-of-00001.safetensors"
    fewer = {CONFIG: ONE, INDEX: b"{}", only: TWO}
    assert uploader.seal_uploads({n: uploader.whole(c, filename=n) for n, c in fewer.items()}).json()["number"] == 2


@pytest.mark.parametrize("state", ["retired", "quarantined", "purged", "rejected"])
def test_content_of_a_version_out_of_service_becomes_a_new_number(
    context: PlatformContext, uploader: Uploader, state: str
) -> None:
    uploader.seal(ONE, TWO)
    values = {"state": state, "digest": "0" * 64, "reject_code": "config_invalid"}
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).values(**values))
    again = uploader.seal(ONE, TWO)
    assert (again.status_code, again.json()["number"], again.json()["state"]) == (202, 2, "validating")


def test_a_push_of_what_exists_moves_an_alias_once_the_engine_has_the_version(
    context: PlatformContext, uploader: Uploader
) -> None:
    engine = context.engine_client
    assert isinstance(engine, MeasuredEngine)
    uploader.seal(ONE, TWO)
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).values(state="ready", digest="0" * 64, ready_at=context.clock()))
    uploads = {CONFIG: uploader.whole(ONE, filename=CONFIG), WEIGHTS: uploader.whole(TWO)}
    engine.is_up = False
    assert error(uploader.seal_uploads(uploads, alias="best")) == (503, "engine_unavailable", None)
    engine.is_up = True
    moved = uploader.seal_uploads(uploads, alias="best")  # the same request again, as a client would
    assert (moved.status_code, moved.json()["number"]) == (200, 1)
    assert engine.warmed == [(uploader.tenant.id, "0" * 64)]
    shown = uploader.client.get("/v1/adapters/pirate/aliases/best", headers=uploader.tenant.auth).json()
    assert shown["targets"] == [{"version": 1, "weight": 100}]
    assert len(list(context.store.entries("uploads/"))) == 2


def test_an_alias_asked_for_by_a_push_is_kept_until_the_verdict(context: PlatformContext, uploader: Uploader) -> None:
    uploads = {CONFIG: uploader.whole(ONE, filename=CONFIG), WEIGHTS: uploader.whole(TWO)}
    uploader.seal_uploads(uploads)
    uploader.seal_uploads(uploads, alias="best")  # thought of later
    with context.db.platform.read() as work:
        assert work.scalars(select(AdapterVersion.alias_when_ready)).all() == ["best"]


@pytest.fixture
def narrowed(db: Database, uploader: Uploader) -> Callable[[], AbstractContextManager[None]]:
    """While the tenant seals, two adapters and 30 bytes are its limits; what it sends is let in before."""

    @contextmanager
    def narrow() -> Iterator[None]:
        limit_tenant(db, uploader.tenant.id, adapters=2, adapter_bytes=30)
        yield
        limit_tenant(db, uploader.tenant.id, adapters=100, adapter_bytes=10_000)

    return narrow


def test_n_43_a_tenants_adapters_and_bytes_are_limited_when_they_are_sealed(
    context: PlatformContext, uploader: Uploader, narrowed: Callable[[], AbstractContextManager[None]]
) -> None:
    def seal(adapter: str, config: bytes, weights: bytes) -> Any:
        uploads = {
            CONFIG: uploader.whole(config, filename=CONFIG, adapter=adapter),
            WEIGHTS: uploader.whole(weights, adapter=adapter),
        }
        with narrowed():
            return uploader.seal_uploads(uploads, adapter=adapter)

    assert seal("a", ONE, TWO).status_code == 202
    assert seal("b", ONE, b"w").status_code == 202
    assert error(seal("c", b"{}", b"w")) == (403, "adapter_quota_exceeded", None)
    too_much = seal("a", ONE, TWO)
    assert error(too_much) == (403, "adapter_quota_exceeded", None)
    assert "30 bytes" in too_much.json()["error"]["message"]
    assert counts(context) == (2, 2, 2)
    with context.db.platform.unit_of_work() as work:
        work.execute(update(AdapterVersion).where(AdapterVersion.bytes == 15).values(state="purged"))
    assert seal("a", ONE, TWO).status_code == 202


def test_n_43_of_two_that_fill_the_quota_at_once_exactly_one_is_made(
    context: PlatformContext, uploader: Uploader, narrowed: Callable[[], AbstractContextManager[None]]
) -> None:
    uploader.seal(b"{}", b"w", adapter="a")
    sent = {
        name: {CONFIG: uploader.whole(ONE, filename=CONFIG, adapter=name), WEIGHTS: uploader.whole(b"w", adapter=name)}
        for name in ("b", "c")
    }
    with narrowed(), ThreadPoolExecutor(2) as both:
        answers = list(both.map(lambda name: uploader.seal_uploads(sent[name], adapter=name), sent))
    assert sorted(answer.status_code for answer in answers) == [202, 403]
    assert counts(context)[0] == 2
