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
from lorikeet_platform.db.tables.audit import AuditEvent
from lorikeet_platform.db.tables.deletion import BlobDeletion
from lorikeet_platform.db.tables.job import Job
from lorikeet_platform.db.tables.limit import KeyLimit, Plan, PlanLimit, TenantLimit
from lorikeet_platform.db.tables.metadata import Table, TenantOwned, tenant_tables
from lorikeet_platform.db.tables.process import Chore, Gateway
from lorikeet_platform.db.tables.tenant import Tenant
from lorikeet_platform.db.tables.upload import Upload, UploadSlice
from lorikeet_platform.db.tables.usage import BudgetCounter, DirtyBucket, UsageCost, UsageRecord, UsageRollup

__all__ = [
    "Adapter",
    "AdapterVersion",
    "Alias",
    "AliasChange",
    "AliasTarget",
    "ApiKey",
    "AuditEvent",
    "BlobDeletion",
    "BudgetCounter",
    "Chore",
    "DirtyBucket",
    "Gateway",
    "Job",
    "KeyLimit",
    "OwnerToken",
    "Plan",
    "PlanLimit",
    "Session",
    "Table",
    "Tenant",
    "TenantLimit",
    "TenantOwned",
    "Upload",
    "UploadSlice",
    "UsageCost",
    "UsageRecord",
    "UsageRollup",
    "VersionFile",
    "tenant_tables",
]
