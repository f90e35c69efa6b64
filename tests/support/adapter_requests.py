"""One request for each route that is about one adapter, as a given key would send it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import httpx2
from fastapi.testclient import TestClient

from tests.support.platform_parts import CONFIG, SLICE, TUS, WEIGHTS, Tenant, encode_metadata


@dataclass(frozen=True)
class Asking:
    """One key, and an open upload of each adapter by name."""

    api: TestClient
    key: Tenant
    uploads: dict[str, str]

    def ask(self, method: str, path: str, **request: Any) -> httpx2.Response:
        headers = {**self.key.auth, **request.pop("headers", {})}
        return self.api.request(method, f"/v1{path}", headers=headers, **request)

    def requests(self, adapter: str) -> dict[str, httpx2.Request]:
        """A request for each route that is about one adapter, by what it does; all would be carried out."""
        one, upload = f"/adapters/{adapter}", f"/uploads/{self.uploads[adapter]}"
        told = encode_metadata({"adapter": adapter, "filename": CONFIG, "sha256": "0" * 64})
        build = self.api.build_request
        auth, both = self.key.auth, self.key.auth | TUS
        targets = {"targets": [{"version": 2, "weight": 100}]}
        new = {"upload-length": "4", "upload-metadata": told}
        files = {"files": {CONFIG: "upl_1", WEIGHTS: "upl_2"}}
        slice_of = both | SLICE | {"upload-offset": "0"}
        return {
            "read": build("GET", f"/v1{one}", headers=auth),
            "read versions": build("GET", f"/v1{one}/versions", headers=auth),
            "read version": build("GET", f"/v1{one}/versions/1?wait=1", headers=auth),
            "read files": build("GET", f"/v1{one}/versions/1/files", headers=auth),
            "read file": build("GET", f"/v1{one}/versions/1/files/{WEIGHTS}", headers=auth),
            "read aliases": build("GET", f"/v1{one}/aliases", headers=auth),
            "read alias": build("GET", f"/v1{one}/aliases/live", headers=auth),
            "read history": build("GET", f"/v1{one}/aliases/live/history", headers=auth),
            "read upload": build("HEAD", f"/v1{upload}", headers=both),
            "create upload": build("POST", "/v1/uploads", headers=both | new),
            "append": build("PATCH", f"/v1{upload}", headers=slice_of, content=b"1234"),
            "seal": build("POST", f"/v1{one}/versions", headers=auth, json=files),
            "terminate": build("DELETE", f"/v1{upload}", headers=both),
            "set alias": build("PUT", f"/v1{one}/aliases/live", headers=auth, json=targets),
            "roll back": build("POST", f"/v1{one}/aliases/live/rollback", headers=auth, json={"to_revision": 1}),
            "retire": build("POST", f"/v1{one}/versions/2/retire", headers=auth, json={"force": True}),
            "restore": build("POST", f"/v1{one}/versions/2/restore", headers=auth),
            "retry": build("POST", f"/v1{one}/versions/2/retry", headers=auth),
            "delete version": build("DELETE", f"/v1{one}/versions/2", headers=auth),
            "delete alias": build("DELETE", f"/v1{one}/aliases/live", headers=auth),
            "delete": build("DELETE", f"/v1{one}", headers=auth),
        }

    def with_key(self, key: Tenant) -> Asking:
        return replace(self, key=key)
