"""The routes of a tenant's adapters on one of the two ports, as a test calls them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx2
from fastapi.testclient import TestClient


@dataclass(frozen=True)
class Port:
    """One tenant's adapters, by its key or by an administrator."""

    client: TestClient
    prefix: str
    auth: Mapping[str, str]
    actor: str

    def call(self, method: str, path: str, body: object = None, **headers: str) -> httpx2.Response:
        sent = {**self.auth, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return self.client.request(method, self.prefix + path, json=body, headers=sent)

    def get(self, path: str) -> Any:
        response = self.call("GET", path)
        assert response.status_code == 200, response.text
        return response.json()

    def put_alias(
        self,
        alias: str,
        *targets: int | tuple[int, int],
        adapter: str = "pirate",
        if_match: int | None = None,
        **fields: Any,
    ) -> httpx2.Response:
        """Point an alias at versions: each a number, or a number and a weight."""
        pairs = [target if isinstance(target, tuple) else (target, 100) for target in targets]
        body = {"targets": [{"version": number, "weight": weight} for number, weight in pairs], **fields}
        headers = {} if if_match is None else {"if_match": f'"{if_match}"'}
        return self.call("PUT", f"/adapters/{adapter}/aliases/{alias}", body, **headers)

    def targets(self, alias: str = "live", *, adapter: str = "pirate") -> dict[int, int] | None:
        """Where an alias points: weights by number; None when there is no such alias."""
        response = self.call("GET", f"/adapters/{adapter}/aliases/{alias}")
        if response.status_code == 404:
            return None
        return {target["version"]: target["weight"] for target in response.json()["targets"]}

    def state(self, number: int, *, adapter: str = "pirate") -> str:
        state: str = self.get(f"/adapters/{adapter}/versions/{number}")["state"]
        return state

    def act(self, number: int, action: str, body: object = None, *, adapter: str = "pirate") -> httpx2.Response:
        wants_body = action in ("retire", "quarantine")
        return self.call(
            "POST", f"/adapters/{adapter}/versions/{number}/{action}", body or ({} if wants_body else None)
        )


def refusal(response: httpx2.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]
