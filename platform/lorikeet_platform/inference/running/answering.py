"""Answers on their way, by whose they are: to wait for them, and to end those whose caller may have no more.

A revocation may come between a request's authentication and its start. Whoever takes a request therefore asks for a
`mark` first, and `ended_since` that mark before it starts. A revoked key never comes back: for keys any mark will do.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, Literal

from lorikeet_platform.auth.principal import Principal

EndCode = Literal["key_revoked", "tenant_suspended"]
REMEMBERED: Final = 10_000  # each matters until the requests that were on their way then have started


class Answering:
    """For one event loop; only `end` may be called from another thread."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: dict[asyncio.Task[None], Principal] = {}
        self._codes: dict[asyncio.Task[None], EndCode] = {}
        self._ended: OrderedDict[tuple[str, str | None], tuple[int, EndCode]] = OrderedDict()
        self._n_ended = 0

    def mark(self) -> int:
        self._loop = asyncio.get_running_loop()
        return self._n_ended

    def add(self, task: asyncio.Task[None], principal: Principal) -> None:
        self._tasks[task] = principal
        task.add_done_callback(self._forget)

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks)

    def end(self, tenant_id: str, key_id: str | None, code: EndCode) -> None:
        """End what runs for a key, or for all of a tenant's; does not wait."""
        if self._loop is None or self._loop.is_closed():
            self._end(tenant_id, key_id, code)
        else:
            self._loop.call_soon_threadsafe(self._end, tenant_id, key_id, code)

    def code_of(self, task: asyncio.Task[None] | None) -> EndCode | None:
        """Why a task was ended by `end`; None for all others."""
        return None if task is None else self._codes.get(task)

    def ended_since(self, mark: int, principal: Principal) -> EndCode | None:
        if (of_key := self._ended.get((principal.tenant_id, principal.key_id))) is not None:
            return of_key[1]
        of_tenant = self._ended.get((principal.tenant_id, None))
        return of_tenant[1] if of_tenant is not None and of_tenant[0] > mark else None

    def _end(self, tenant_id: str, key_id: str | None, code: EndCode) -> None:
        self._n_ended += 1
        self._ended[tenant_id, key_id] = (self._n_ended, code)
        self._ended.move_to_end((tenant_id, key_id))
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)
        for task, principal in self._tasks.items():
            is_meant = principal.tenant_id == tenant_id and key_id in (None, principal.key_id)
            if is_meant and task not in self._codes:
                self._codes[task] = code
                task.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._codes.pop(task, None)
