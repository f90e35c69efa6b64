"""Whose things a command is about: the tenant of your API key, or one that an administrator names.

Both ports have the same routes for a tenant's things, under `/v1` and under `/admin/v1/tenants/SLUG`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lorikeet_platform.cli.api import Api, admin_api, tenant_api
from lorikeet_platform.cli.console import segment

PAGE = 100  # entries that one answer holds


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two interfaces, at one tenant's things."""

    api: Api
    prefix: str

    def get(self, path: str, **params: str | int) -> Any:
        return self.api.get(self.prefix + path, **params)

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        return self.api.post(self.prefix + path, body)

    def put(self, path: str, body: Mapping[str, object]) -> Any:
        return self.api.put(self.prefix + path, body)

    def patch(self, path: str, body: Mapping[str, object]) -> Any:
        return self.api.patch(self.prefix + path, body)

    def pages(self, path: str, *, limit: int, **params: str | int) -> list[Any]:
        """Up to `limit` entries of a list that is told in pages."""
        entries: list[Any] = []
        while len(entries) < limit:
            answer = self.get(path, limit=min(PAGE, limit - len(entries)), **params)
            entries += answer["data"]
            if not answer["next"]:
                break
            params["after"] = answer["next"]
        return entries


@contextmanager
def side_of(tenant: str | None, *, api_url: str, admin_url: str) -> Iterator[Side]:
    """`tenant` None: the tenant of your key."""
    if tenant is None:
        with tenant_api(api_url) as api:
            yield Side(api, "/v1")
    else:
        with admin_api(admin_url) as api:
            yield Side(api, f"/admin/v1/tenants/{segment(tenant)}")
