"""All tables; importing this package fills `Table.metadata`."""

from lorikeet_platform.db.tables.account import OwnerToken, Session
from lorikeet_platform.db.tables.adapter import (
    Adapter,
    AdapterVersion,
    Alias,
    AliasChange,
    AliasTarget,
    VersionFile,
)
from lorikeet_platform.db.tables.api_key import ApiKey
from lorikeet_platform.db.tables.deletion import BlobDeletion
from lorikeet_platform.db.tables.job import Job
from lorikeet_platform.db.tables.metadata import Table
from lorikeet_platform.db.tables.tenant import Tenant
from lorikeet_platform.db.tables.upload import Upload, UploadSlice
from lorikeet_platform.db.tables.usage import UsageRecord

__all__ = [
    "Adapter",
    "AdapterVersion",
    "Alias",
    "AliasChange",
    "AliasTarget",
    "ApiKey",
    "BlobDeletion",
    "Job",
    "OwnerToken",
    "Session",
    "Table",
    "Tenant",
    "Upload",
    "UploadSlice",
    "UsageRecord",
    "VersionFile",
]
