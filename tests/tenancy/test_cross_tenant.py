"""What one tenant can learn of another, or do to it, by any way but the routes' addresses (those: `test_matrix`)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest
from sqlalchemy import select

from lorikeet_platform.db.tables import AdapterVersion, Upload
from tests.support.engine_process import letter_of
from tests.support.parallel import at_once
from tests.support.platform_parts import CONFIG, SLICE, TUS, WEIGHTS, Tenant, a_version, encode_metadata
from tests.support.raw_requests import raw
from tests.support.stack import MODEL
from tests.support.stack_place import Place, chat_body
from tests.support.tenant_things import open_upload

BAD_NAMES = (
    "../x",
    "x/../../y",
    "..",
    "%2e%2e%2f",
    "%252e",
    "a\\b",
    "a\x00b",
    "n" * 256,
    "аdmin",
    "ｎame",
    "\u202ename",
    "na\u200dme",
    "con.",
    "name ",
    " name",
    "Name",
)


def adapter(place: Place, tenant: Tenant, name: str, content: str = "") -> str:
    """A ready version that `live` means; its digest."""
    with place.db.platform.unit_of_work() as work:
        version = a_version(work, tenant, name=name)
        version.digest = hashlib.sha256(f"{tenant.id}{name}{content}".encode()).hexdigest()
        return version.digest


def two_digests_of_different_letters(place: Place, ours: Tenant, theirs: Tenant, name: str) -> tuple[str, str]:
    mine = adapter(place, ours, name)
    number = 0
    with place.db.platform.unit_of_work() as work:
        version = a_version(work, theirs, name=name)
        while version.digest is None or letter_of(version.digest) == letter_of(mine):
            number += 1
            version.digest = hashlib.sha256(f"{theirs.id}{number}".encode()).hexdigest()
        return mine, version.digest


def test_n_4_an_upload_of_another_tenant_takes_no_part_of_ours_and_is_neither_ended_nor_sealed_by_us(
    place: Place, ours: Tenant, theirs: Tenant
) -> None:
    content = b"the weights"
    upload = open_upload(place, theirs, "quayside", content)
    with place.client(ours.secret) as we, place.client(theirs.secret) as they:
        sent = we.patch(f"/v1/uploads/{upload}", headers={**TUS, **SLICE, "upload-offset": "0"}, content=content)
        ended = we.delete(f"/v1/uploads/{upload}", headers=TUS)
        sealed = we.post("/v1/adapters/mine/versions", json={"files": {CONFIG: upload, WEIGHTS: upload}})
        assert [answer.status_code for answer in (sent, ended, sealed)] == [404, 404, 404]
        assert they.head(f"/v1/uploads/{upload}", headers=TUS).headers["upload-offset"] == "0"
        assert they.patch(
            f"/v1/uploads/{upload}", headers={**TUS, **SLICE, "upload-offset": "0"}, content=content
        ).headers["upload-offset"] == str(len(content))
    with place.db.platform.read() as work:
        assert work.scalars(select(Upload.state).where(Upload.id == upload)).one() == "open"
        assert work.scalars(select(AdapterVersion).where(AdapterVersion.tenant_id == ours.id)).all() == []


def test_n_5_no_alias_and_no_key_of_ours_can_be_pointed_at_another_tenants_adapter(
    place: Place, ours: Tenant, theirs: Tenant
) -> None:
    adapter(place, theirs, "quayside")
    adapter(place, ours, "harbour")
    with place.client(ours.secret) as we:
        alias = we.put("/v1/adapters/quayside/aliases/live", json={"targets": [{"version": 1, "weight": 100}]})
    assert alias.status_code == 404
    assert alias.json()["error"]["code"] == "not_found"
    for name in ("quayside", "nobodys"):
        answer = place.admin.post(
            f"/admin/v1/tenants/{ours.slug}/keys", json={"name": "limited", "allowed_adapters": ["harbour", name]}
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_n_6_two_tenants_adapters_of_one_name_never_answer_for_each_other(
    place: Place, ours: Tenant, theirs: Tenant
) -> None:
    digests = dict(zip((ours, theirs), two_digests_of_different_letters(place, ours, theirs, "harbour"), strict=True))
    place.engine.script(tokens=0)

    def ask(index: int) -> tuple[str, str]:
        tenant = (ours, theirs)[index % 2]
        gateway = index // 2 % len(place.apis)
        answer = place.chat(tenant.secret, gateway=gateway, model="harbour", max_tokens=6, user=str(index))
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["message"]["content"], letter_of(digests[tenant]) * 6

    answers = [pair for _ in range(10) for pair in at_once(20, ask)]
    assert len(answers) == 200
    assert [said for said, _ in answers] == [golden for _, golden in answers]


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({"scopes": ["inference"]}, 403),
        ({"scopes": ["keys:write", "inference"]}, 403),
        ({"scopes": ["*"]}, 400),
        ({"scopes": ["/*"]}, 400),
        ({"scopes": ["adapters:everything"]}, 400),
        ({"scopes": ["adapters:write"], "limits": {"max_output_tokens": {"value": 61}}}, 403),
        ({"scopes": ["adapters:write"], "limits": {"max_context": {"value": 1_001}}}, 403),
        ({"scopes": ["adapters:write"], "limits": {"max_output_tokens": {"value": 60}}}, 201),
    ],
    ids=str,
)
def test_n_7_a_key_makes_no_key_that_may_more_than_itself(
    place: Place, ours: Tenant, wanted: dict[str, object], status: int
) -> None:
    place.ask_admin("PATCH", f"/admin/v1/tenants/{ours.slug}", json={"keys_make_keys": True})
    limits = {"max_output_tokens": {"value": 60}, "max_context": {"value": 1_000}}
    minter = place.key(ours.slug, scopes=["adapters:write", "keys:write", "keys:read"], limits=limits)
    with place.client(minter["secret"]) as client:
        answer = client.post("/v1/keys", json={"name": "minted", **wanted})
        assert answer.status_code == status, answer.text
        names = {key["name"] for key in client.get("/v1/keys").json()["data"]}
    assert ("minted" in names) == (status == 201)


def test_n_7_a_key_that_may_write_adapters_makes_no_keys_nor_does_any_where_the_tenant_does_not_let_it(
    place: Place, ours: Tenant
) -> None:
    place.ask_admin("PATCH", f"/admin/v1/tenants/{ours.slug}", json={"keys_make_keys": True})
    writer, minter = (
        place.key(ours.slug, scopes=scopes)["secret"]
        for scopes in (["adapters:write"], ["adapters:write", "keys:write"])
    )
    asked = {"name": "minted", "scopes": ["adapters:write"]}
    with place.client(writer) as client:
        assert client.post("/v1/keys", json=asked).json()["error"]["code"] == "insufficient_scope"
    place.ask_admin("PATCH", f"/admin/v1/tenants/{ours.slug}", json={"keys_make_keys": False})
    with place.client(minter) as client:
        assert client.post("/v1/keys", json=asked).json()["error"]["code"] == "insufficient_scope"


def test_n_10_models_are_the_base_and_ones_own_ready_adapters_and_of_those_what_the_key_may_use(
    place: Place, ours: Tenant, theirs: Tenant
) -> None:
    adapter(place, ours, "harbour")
    adapter(place, ours, "pier")
    adapter(place, theirs, "quayside")
    with place.db.platform.unit_of_work() as work:
        a_version(work, ours, name="unready", state="validating")
    limited = place.key(ours.slug, allowed_adapters=["pier"])["secret"]
    names = {key: {model["id"] for model in listed(place, key)} for key in (ours.secret, limited)}
    assert {MODEL, "harbour", "pier"} <= names[ours.secret]
    assert not any("quayside" in name or "unready" in name for name in names[ours.secret])
    assert {name.partition("@")[0].partition(":")[0] for name in names[limited]} == {"pier"}
    assert place.chat(limited, model="pier").status_code == 200
    for model in ("harbour", MODEL):
        assert place.chat(limited, model=model).json()["error"]["code"] == "adapter_not_allowed_for_key"
    assert place.chat(limited, model="quayside").json()["error"]["code"] == "model_not_found"


def listed(place: Place, key: str) -> list[dict[str, str]]:
    with place.client(key) as client:
        models: list[dict[str, str]] = client.get("/v1/models").raise_for_status().json()["data"]
        return models


@pytest.mark.parametrize("path", ["/v1/usage/records", "/v1/audit_events"])
def test_n_11_a_page_of_another_tenant_cannot_be_turned_and_no_filter_names_one(
    place: Place, ours: Tenant, theirs: Tenant, path: str
) -> None:
    for tenant in (ours, theirs):
        for number in range(3):
            assert place.chat(tenant.secret).status_code == 200
            place.key(tenant.slug, name=f"more-{number}")
    with place.client(ours.secret) as we, place.client(theirs.secret) as they:
        page = they.get(path, params={"limit": 1}).raise_for_status().json()
        forged = (page["next"], page["next"][:-2] + ("AA" if page["next"][-2:] != "AA" else "BB"), "MQ")
        for cursor in forged:
            answer = we.get(path, params={"limit": 1, "after": cursor})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_value")
        for name in ("tenant", "tenant_id"):
            assert we.get(path, params={name: theirs.slug}).json()["error"]["code"] == "unknown_parameter"
        mine = we.get(path, params={"limit": 100}).raise_for_status().text
    assert theirs.id not in mine
    assert theirs.key_id not in mine


def test_n_11_usage_is_ones_own_however_it_is_grouped(place: Place, ours: Tenant, theirs: Tenant) -> None:
    for tenant in (ours, theirs):
        assert place.chat(tenant.secret).status_code == 200
    with place.client(ours.secret) as we:
        for group in ("key", "model", "adapter", "version"):
            shown = we.get("/v1/usage", params={"bucket": "1h", "group_by": group}).raise_for_status().text
            assert theirs.key_id not in shown
        assert we.get("/v1/usage", params={"group_by": "tenant"}).status_code == 400


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_n_12_a_name_that_is_none_is_neither_made_nor_found(place: Place, ours: Tenant, name: str) -> None:
    told = {"adapter": name, "filename": WEIGHTS, "sha256": "0" * 64}
    with place.client(ours.secret) as client:
        headers = {**TUS, "upload-length": "4", "upload-metadata": encode_metadata(told)}
        made = client.post("/v1/uploads", headers=headers)
        assert (made.status_code, made.json()["error"]["code"]) == (400, "invalid_value")
        asked = client.post("/v1/chat/completions", json=chat_body(model=name))
        assert asked.status_code in (400, 404)
        assert asked.json()["error"]["code"] in ("model_not_found", "invalid_value")
        key = place.admin.post(f"/admin/v1/tenants/{ours.slug}/keys", json={"name": "k", "allowed_adapters": [name]})
        assert key.status_code in (400, 404)
    for target in (quote(name, safe=""), quote(quote(name, safe=""), safe="")):
        head = f"GET /v1/adapters/{target} HTTP/1.1\nhost: x\nauthorization: Bearer {ours.secret}"
        assert raw(place.apis[0], head).status in (400, 404)


@pytest.mark.parametrize("slug", ["..", "../x", "a/../b", "%2e%2e", "a\\b", "", ".", "a\x00b", "Upper", "x" * 64])
def test_n_13_a_tenant_that_would_be_a_path_is_refused_and_nothing_is_stored(place: Place, slug: str) -> None:
    before = stored(place.blobs)
    made = place.admin.post("/admin/v1/tenants", json={"slug": slug})
    assert (made.status_code, made.json()["error"]["code"]) == (400, "invalid_value")
    token = place.admin.headers["authorization"]
    for path in (f"/admin/v1/tenants/{quote(slug, safe='')}/adapters", f"/admin/v1/tenants/{quote(slug)}/uploads"):
        head = f"GET {path} HTTP/1.1\nhost: x\nauthorization: {token}"
        assert raw(place.admins[0], head).status in (400, 404, 405)
    assert stored(place.blobs) == before


def stored(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_the_matrix_of_a_key_is_that_of_its_tenant_on_every_gateway(place: Place, ours: Tenant) -> None:
    for gateway in range(len(place.apis)):
        answer: httpx.Response = place.chat(ours.secret, gateway=gateway)
        assert answer.status_code == 200
