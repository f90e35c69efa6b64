"""What tests look at after an upload: the bytes in the store, and the refusals of tus."""

from __future__ import annotations

from typing import Any

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.registry.uploads.service import list_slices, slice_key
from tests.support.platform_parts import Tenant


def stored(context: PlatformContext, tenant: Tenant, location: str) -> bytes:
    """The bytes of an upload as the store has them, in the order of the rows."""
    upload_id = location.rpartition("/")[2]
    with context.db.platform.read() as work:
        pieces = list_slices(work, tenant.id, upload_id)
    return b"".join(context.store.read(slice_key(tenant.id, upload_id, piece.slice_id)) for piece in pieces)


def code(response: Any) -> tuple[int, str]:
    """Status and code of a refusal, which carries the protocol's version like every answer."""
    assert response.headers["tus-resumable"] == "1.0.0"
    return response.status_code, response.json()["error"]["code"]
