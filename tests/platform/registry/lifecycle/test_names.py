"""N-12: names that are none, wherever a name can be said, on both ports."""

from __future__ import annotations

from urllib.parse import quote

from fastapi.testclient import TestClient

from lorikeet_platform.context import PlatformContext
from tests.support.platform_parts import BASE, CONFIG, TUS, WEIGHTS, Tenant, encode_metadata
from tests.support.registry_port import Port, refusal

NAMES = [
    "../x", "x/../../y", "%2e%2e%2f", "%252e", "..", ".", "a..b", "x\\y", "x\x00y", "a" * 65, "a" * 256,
    "\u0430dmin", "\uff41dmin", "\u202eevil", "a\u200db", "a.", "a ", " a", "-a", "a-", "Name", "", "a\n", "a\tb",
    "a@b", "a:1", "<script>", "=cmd()", "\x1b[31m",
]  # fmt: skip
NOWHERE = ("", ".", "..")  # a client takes those for another address
REFUSED = (400, 404, 405)  # with a slash in it the address is another one, which may know other methods
RESERVED = ["base", "default", "admin", "internal", BASE]


def metadata(name: str) -> dict[str, str]:
    return {"adapter": name, "filename": CONFIG, "sha256": "a" * 64}


def test_n_12_nothing_is_created_under_a_name_that_is_none(port: Port, context: PlatformContext) -> None:
    for name in (*NAMES, *RESERVED):
        upload = {**TUS, "upload-length": "2", "upload-metadata": encode_metadata(metadata(name))}
        created = port.client.post(f"{port.prefix}/uploads", headers={**port.auth, **upload})
        assert created.status_code == 400, name
        files = {"files": {CONFIG: "upl_1", WEIGHTS: "upl_2"}}
        sealed = port.call("POST", f"/adapters/{quote(name, safe='')}/versions", files)
        assert sealed.status_code in REFUSED, name
    assert port.get("/adapters")["data"] == []
    assert list(context.store.entries("")) == []


def test_n_12_nothing_is_found_under_a_name_that_is_none(port: Port, pirate: list[str]) -> None:
    for name in NAMES:
        said = quote(name, safe="")
        for path in (f"{said}/versions/1", f"{said}/aliases", f"pirate/aliases/{said}/history"):
            assert port.call("GET", f"/adapters/{path}").status_code in REFUSED, name
        if name not in NOWHERE:
            assert port.call("DELETE", f"/adapters/{said}").status_code in REFUSED, name
            assert port.call("GET", f"/adapters/pirate/versions/1/files/{said}").status_code in REFUSED, name
            refused = port.call("PUT", f"/adapters/pirate/aliases/{said}", {"targets": [{"version": 1}]})
            assert refused.status_code in REFUSED, name
    assert [alias["alias"] for alias in port.get("/adapters/pirate/aliases")["data"]] == ["live"]


def test_n_12_an_alias_is_refused_by_what_it_is_called(port: Port, pirate: list[str]) -> None:
    for name in NAMES:
        if "/" in name or "%2f" in name or name in NOWHERE:
            continue
        response = port.call("PUT", f"/adapters/pirate/aliases/{quote(name, safe='')}", {"targets": [{"version": 1}]})
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "invalid_value"), name
        assert error["param"] == ("path" if "\x00" in name else "alias")
        assert error["message"].isascii()
        assert error["message"].isprintable()


def test_n_12_a_model_of_such_a_name_is_not_found(api: TestClient, harbour: Tenant, pirate: list[str]) -> None:
    for name in NAMES:
        for model in (name, f"pirate@{name}", f"pirate:{name}"):
            body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
            response = api.post("/v1/chat/completions", json=body, headers=harbour.auth)
            can_be = 1 <= len(model) <= 256
            expected = (404, "model_not_found", "model") if can_be else (400, "invalid_value", "model")
            assert refusal(response) == expected, model


def test_a_version_that_cannot_be_is_not_found(port: Port, pirate: list[str]) -> None:
    for number in (
        "0",
        "-1",
        "+1",
        "x",
        "1.5",
        "1.0",
        "01",
        "2147483648",
        "9" * 40,
        "1%00",
        "%201",
        "1%20",
        "true",
        "1e0",
    ):
        for method, rest in [("GET", ""), ("DELETE", ""), ("GET", "/files"), ("POST", "/restore"), ("POST", "/retry")]:
            response = port.call(method, f"/adapters/pirate/versions/{number}{rest}")
            assert response.status_code == (400 if "%00" in number else 404), (method, number, rest)
