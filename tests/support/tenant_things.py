"""One thing of each kind that a tenant can have, and the request that each route would make of it."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import Table
from lorikeet_platform.ids import new_id
from tests.support.platform_parts import SLICE, TUS, WEIGHTS, Tenant, a_version, encode_metadata
from tests.support.route_table import Route
from tests.support.stack_place import Place, chat_body

PARAMETER = re.compile(r"{(\w+)(?::\w+)?}")
NOT_COMPARED = {"gateways", "chores", "sessions", "usage_dirty", "usage_rollups"}  # what moves by itself
LAST_USE = "last_used_"


@dataclass(frozen=True)
class Things:
    """Values of every path parameter that any route has: one tenant's, or nobody's."""

    slug: str
    name: str
    upload_id: str
    key_id: str
    number: str = "1"
    alias: str = "live"
    filename: str = WEIGHTS
    others: dict[str, str] = field(default_factory=lambda: {"job_id": new_id("job")})

    def value(self, parameter: str) -> str:
        known = {"model": self.name, "adapter": self.name, "id": self.key_id, **self.others}
        found = known.get(parameter) or getattr(self, parameter, None)
        assert found, f"no test knows a value for the parameter {parameter}"
        return str(found)

    def path(self, route: Route) -> str:
        whole = route.path.replace("/plans/{id}", "/plans/standard")
        return PARAMETER.sub(lambda found: self.value(found[1]), whole)

    @property
    def words(self) -> set[str]:
        """What nobody else may ever see of it."""
        return {self.slug, self.name, self.upload_id, self.key_id}


def things_of(place: Place, tenant: Tenant, name: str) -> Things:
    """Makes an adapter with a ready version and an alias, and an open upload; the key is there."""
    with place.db.platform.unit_of_work() as work:
        a_version(work, tenant, name=name)
    return Things(tenant.slug, name, open_upload(place, tenant, name), tenant.key_id)


def nobodys(like: Things) -> Things:
    """The same shapes and lengths, and nothing behind them."""
    return Things(
        slug=f"{like.slug[:-1]}x",
        name="n" * len(like.name),
        upload_id=new_id("upl"),
        key_id=new_id("key"),
        number=like.number,
        alias=like.alias,
        filename=like.filename,
    )


def open_upload(place: Place, tenant: Tenant, adapter: str, content: bytes = b"12345678") -> str:
    """The id of an upload of which nothing has arrived yet."""
    told = {"adapter": adapter, "filename": WEIGHTS, "sha256": hashlib.sha256(content).hexdigest()}
    with place.client(tenant.secret) as client:
        headers = {**TUS, "upload-length": str(len(content)), "upload-metadata": encode_metadata(told)}
        made = client.post("/v1/uploads", headers=headers)
    assert made.status_code == 201, made.text
    return str(made.headers["location"]).rpartition("/")[2]


def request_of(route: Route, things: Things) -> dict[str, Any]:
    """Arguments of a request that the route would carry out for whoever owns `things`.

    A route that takes a body and is not known here is an error: then a test would only see how its body is refused.
    """
    asked: dict[str, Any] = {"method": route.method, "url": things.path(route)}
    if "/uploads" in route.path:
        return asked | _upload_request(route, things)
    if route.method in ("GET", "HEAD", "OPTIONS", "DELETE"):
        return asked
    for ending, body in _bodies(things).items():
        method, _, path = ending.partition(" ")
        if route.method == method and route.path.endswith(path):
            return asked if body is None else asked | {"json": body}
    raise AssertionError(f"no test knows a body for {route}")


def _upload_request(route: Route, things: Things) -> dict[str, Any]:
    headers: dict[str, str] = dict(TUS)
    if route.method == "PATCH":
        return {"headers": {**headers, **SLICE, "upload-offset": "0"}, "content": b"1234"}
    if route.method == "POST":
        told = {"adapter": things.name, "filename": WEIGHTS, "sha256": "0" * 64}
        headers |= {"upload-length": "4", "upload-metadata": encode_metadata(told)}
    return {"headers": headers}


def _bodies(things: Things) -> dict[str, Any]:
    """By method and the end of the address."""
    return {
        "POST /chat/completions": chat_body() | {"model": things.name},
        "POST /completions": {"model": things.name, "prompt": "hello"},
        "POST /versions": {"files": {"adapter_config.json": things.upload_id, WEIGHTS: things.upload_id}},
        "POST /retire": {},
        "POST /restore": None,
        "POST /retry": None,
        "POST /quarantine": {},
        "POST /release": None,
        "POST /rollback": {},
        "PUT /aliases/{alias}": {"targets": [{"version": 1, "weight": 100}]},
        "POST /keys": {"name": "another"},
        "PATCH /keys/{id}": {"name": "renamed"},
        "POST /rotate": {"overlap_hours": 1},
        "POST /revoke": {},
        "PUT /limits": {"limits": {"rpm": {"value": 10}}},
        "POST /leaked_keys": {"key": "lk_" + "0" * 12 + "_" + "0" * 38},
        "POST /tenants": {"slug": "brand-new"},
        "PATCH /tenants/{slug}": {"display_name": "renamed"},
        "POST /suspend": {},
        "POST /resume": None,
        "POST /plans": {"id": "brand-new", "display_name": "New", "limits": {}},
        "PUT /plans/{id}": {"limits": {}},
        "POST /plan": {
            "model": "qwen3-8b",
            "device": "h200",
            "prompt_tokens": 64,
            "output_tokens": 8,
            "concurrency": 2,
        },
        "POST /bootstrap": {"token": "none"},
        "POST /logout": None,
    }


def dump(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table, but for what regular work and times of use change."""
    found: dict[str, list[tuple[Any, ...]]] = {}
    with db.platform.read() as work:
        for name, table in sorted(Table.metadata.tables.items()):
            if name not in NOT_COMPARED:
                columns = [column for column in table.columns if not column.name.startswith(LAST_USE)]
                found[name] = sorted(tuple(map(repr, row)) for row in work.execute(select(*columns)))
    return found
