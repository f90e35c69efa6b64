"""The engine's side of putting versions into service: it loads them before a request can be meant for them.

What the engine says comes out as the platform's refusals. A damaged image is more than that: its versions are
quarantined on the spot.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

import structlog

from lorikeet_engine.errors import AdapterDamaged, EngineError
from lorikeet_platform.context import PlatformContext
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.registry.lifecycle import quarantine_damaged

log = structlog.get_logger(__name__)

WARM_TIMEOUT_S: Final = 60.0


async def warm(context: PlatformContext, tenant_id: str, digests: Iterable[str]) -> None:
    """Returns when the engine has every adapter in host memory at least.

    Raises:
        PlatformError: engine_unavailable; adapter_unavailable for one that cannot be loaded, integrity_error for one
            that is damaged, which is quarantined then.
    """
    for digest in dict.fromkeys(digests):
        try:
            await context.engine_client.warm_adapter(tenant_id, digest, WARM_TIMEOUT_S)
        except AdapterDamaged as error:
            await asyncio.to_thread(take_out_damaged, context, tenant_id, digest)
            raise PlatformError("integrity_error") from error
        except EngineError as error:
            raise PlatformError(error.code, error.message, retry_after_s=error.retry_after_s) from error


async def end_running(context: PlatformContext, tenant_id: str, digest: str) -> None:
    """End what runs on an adapter within two steps; without an engine nothing runs."""
    with contextlib.suppress(EngineError):
        await context.engine_client.retire_adapter(tenant_id, digest, force=True)


def take_out_damaged(context: PlatformContext, tenant_id: str, digest: str) -> None:
    """Quarantine whatever has this image. Synchronous: it is called in a thread."""
    with context.db.unit_of_work() as work:
        job_ids = quarantine_damaged(work, tenant_id, digest, now=context.clock())
    for job_id in job_ids:
        log.error("a damaged adapter was quarantined", tenant=tenant_id, digest=digest[:12])
        context.wake(job_id)
