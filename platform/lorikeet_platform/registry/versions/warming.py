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
from lorikeet_platform.errors import ERRORS, PlatformError
from lorikeet_platform.registry.versions.lifecycle import quarantine_damaged

log = structlog.get_logger(__name__)

WARM_TIMEOUT_S: Final = 60.0


async def warm(context: PlatformContext, tenant_id: str, digests: Iterable[str]) -> None:
    """Returns when the engine has every adapter in host memory at least.

    Raises:
        PlatformError: engine_unavailable; adapter_unavailable for one that cannot be loaded, integrity_error for one
            that is damaged, which is quarantined then; internal_error for a fault of the engine's own.
    """
    for digest in dict.fromkeys(digests):
        try:
            await context.engine_client.warm_adapter(tenant_id, digest, WARM_TIMEOUT_S)
        except AdapterDamaged as error:
            await asyncio.to_thread(take_out_damaged, context, tenant_id, digest)
            raise PlatformError("integrity_error") from error
        except EngineError as error:
            raise _refusal(error) from error


def _refusal(error: EngineError) -> PlatformError:
    """Not every word of the engine's is one of the platform's: what it says of its own faults is for the log."""
    if error.code not in ERRORS:
        log.error("the engine failed to load an adapter", error=type(error).__name__)
        return PlatformError("internal_error", "The engine failed while it loaded the adapter.")
    return PlatformError(error.code, error.message, retry_after_s=error.retry_after_s)


async def end_running(context: PlatformContext, tenant_id: str, digest: str) -> None:
    """End what runs on an adapter within two steps; without an engine nothing runs."""
    with contextlib.suppress(EngineError):
        await context.engine_client.retire_adapter(tenant_id, digest, force=True)


def take_out_damaged(context: PlatformContext, tenant_id: str, digest: str) -> None:
    """Quarantine whatever has this image. Synchronous: it is called in a thread."""
    with context.db.tenant(tenant_id).unit_of_work() as work:
        job_ids = quarantine_damaged(work, tenant_id, digest, now=context.clock())
    for job_id in job_ids:
        log.error("a damaged adapter was quarantined", tenant=tenant_id, digest=digest[:12])
        context.wake(job_id)
