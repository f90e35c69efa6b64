"""Where a key may be used from, and whom to believe about that (N-69)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.requests import Request

from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.auth.addresses import neighbourhood_of, parse_address, parse_network
from lorikeet_platform.auth.scopes import DEFAULT_SCOPES
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.db.tables import ApiKey
from lorikeet_platform.web.addresses import client_address
from tests.support.keys import a_key
from tests.support.platform_parts import Tenant

PROXIES = tuple(ip_network(text) for text in ("10.0.0.0/8", "fd00::/8"))
LISTED = ["192.0.2.0/24", "2001:db8::/32", "198.51.100.7"]


def asked(peer: str | None, *forwarded: str) -> Request:
    headers = [(b"x-forwarded-for", line.encode()) for line in forwarded]
    return Request({"type": "http", "client": (peer, 1) if peer else None, "headers": headers})


@contextmanager
def calling_from(context: PlatformContext, peer: str) -> Iterator[TestClient]:
    app = create_tenant_app(context)
    with TestClient(app, client=(peer, 1), raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [
        ("203.0.113.9", ["192.0.2.1"], "203.0.113.9"),  # nobody we trust: the header is a claim
        ("203.0.113.9", ["10.0.0.1"], "203.0.113.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.1, 203.0.113.9"], "203.0.113.9"),  # the caller's own claim is on the left
        ("10.0.0.1", ["192.0.2.1", "203.0.113.9"], "203.0.113.9"),
        ("10.0.0.1", ["203.0.113.9, 10.0.0.2 ,10.0.0.3"], "203.0.113.9"),
        ("10.0.0.1", ["192.0.2.1, unknown"], None),
        ("10.0.0.1", ["192.0.2.1, "], None),
        ("10.0.0.1", ["192.0.2.1, 10.0.0.999"], None),
        ("10.0.0.1", ["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["192.0.2.1:4711"], "192.0.2.1"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", ["::ffff:192.0.2.1"], "192.0.2.1"),
        ("::ffff:10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("fd00::1", ["2001:db8::1"], "2001:db8::1"),
        ("testclient", ["192.0.2.1"], None),
        (None, ["192.0.2.1"], None),
    ],
)
def test_n69_the_caller_is_the_nearest_address_that_no_trusted_proxy_has(
    peer: str | None, forwarded: Sequence[str], address: str | None
) -> None:
    found = client_address(asked(peer, *forwarded), PROXIES)
    assert (None if found is None else str(found)) == address


def test_n69_without_trusted_proxies_the_header_means_nothing() -> None:
    assert str(client_address(asked("10.0.0.1", "192.0.2.1"), ())) == "10.0.0.1"


@pytest.mark.parametrize(
    ("text", "network"),
    [
        ("192.0.2.1", "192.0.2.1/32"),
        ("2001:db8::1", "2001:db8::1/128"),
        ("::ffff:192.0.2.0/120", "192.0.2.0/24"),
        ("::ffff:192.0.2.1", "192.0.2.1/32"),
        ("::/0", "::/0"),
    ],
)
def test_a_mapped_network_is_the_ipv4_network_that_it_maps(text: str, network: str) -> None:
    assert str(parse_network(text)) == network


@pytest.mark.parametrize(
    ("address", "neighbourhood"),
    [
        ("192.0.2.77", "192.0.2.0/24"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.77", "192.0.2.0/24"),
    ],
)
def test_of_a_callers_address_only_its_neighbourhood_is_kept(address: str, neighbourhood: str) -> None:
    parsed = parse_address(address)
    assert parsed is not None
    assert neighbourhood_of(parsed) == neighbourhood


@pytest.mark.parametrize(
    ("peer", "is_allowed"),
    [
        ("192.0.2.1", True),
        ("192.0.3.1", False),
        ("::ffff:192.0.2.1", True),
        ("::ffff:192.0.3.1", False),
        ("2001:db8::5", True),
        ("2001:db9::5", False),
        ("198.51.100.7", True),
        ("198.51.100.8", False),
        ("::1", False),
        ("testclient", False),  # no address, as behind a socket file
    ],
)
def test_n69_a_key_works_from_its_networks_alone(
    context: PlatformContext, harbour: Tenant, peer: str, is_allowed: bool
) -> None:
    key = a_key(context, harbour, *DEFAULT_SCOPES, ip_allowlist=LISTED)
    spoofed = {"x-forwarded-for": "192.0.2.1", "x-forwarded-host": "192.0.2.1", "forwarded": "for=192.0.2.1"}
    with calling_from(context, peer) as client:
        answer = client.get("/v1/models", headers=key.auth | spoofed)
        assert answer.status_code == (200 if is_allowed else 403), answer.text
        if not is_allowed:
            assert answer.json()["error"]["code"] == "ip_not_allowed"
        assert client.get("/v1/models", headers=harbour.auth).status_code == 200  # a key without networks


def test_n69_a_trusted_proxys_word_decides(context: PlatformContext, harbour: Tenant) -> None:
    settings = context.settings.model_copy(update={"trusted_proxies": PROXIES})
    behind = replace(context, settings=settings)
    key = a_key(context, harbour, *DEFAULT_SCOPES, ip_allowlist=LISTED)

    def status(client: TestClient, forwarded: str) -> int:
        headers: dict[str, Any] = key.auth | {"x-forwarded-for": forwarded}
        return client.get("/v1/models", headers=headers).status_code

    with calling_from(behind, "10.0.0.1") as client:
        assert status(client, "192.0.2.1") == 200
        assert status(client, "192.0.2.1, 203.0.113.9") == 403
        assert client.get("/v1/models", headers=key.auth).status_code == 403
        lines = [*key.auth.items(), ("x-forwarded-for", "192.0.2.1"), ("x-forwarded-for", "203.0.113.9")]
        assert client.get("/v1/models", headers=lines).status_code == 403
    with calling_from(behind, "203.0.113.9") as client:
        assert status(client, "192.0.2.1") == 403


def test_the_neighbourhood_of_the_last_use_is_written(context: PlatformContext, harbour: Tenant) -> None:
    with calling_from(context, "192.0.2.77") as client:
        assert client.get("/v1/models", headers=harbour.auth).status_code == 200
        context.authenticator.flush_last_used()
    with context.db.platform.read() as work:
        assert work.get_one(ApiKey, (harbour.id, harbour.key_id)).last_used_network == "192.0.2.0/24"
