"""Open uploads as a list, for a client that has lost their addresses."""

from __future__ import annotations

from pydantic import BaseModel

from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.db.tables import Upload as UploadRow
from lorikeet_platform.web.listing import Listing


class Upload(BaseModel):
    """One file on its way; `{prefix}/uploads/{id}` is its address."""

    id: str
    adapter: str
    filename: str
    sha256: str
    length: int
    received: int
    expires_at: int

    @classmethod
    def of(cls, upload: UploadRow) -> Upload:
        return cls(
            id=upload.id,
            adapter=upload.adapter_name,
            filename=upload.filename,
            sha256=upload.sha256,
            length=upload.length,
            received=upload.received,
            expires_at=unix_seconds(upload.expires_at),
        )


class UploadList(Listing[Upload]):
    pass
