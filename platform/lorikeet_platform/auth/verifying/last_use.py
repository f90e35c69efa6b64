"""When and where from each key was used last: collected in memory, written together, to the minute."""

from __future__ import annotations

import threading
from typing import Any, cast

from sqlalchemy import Table as SqlTable
from sqlalchemy import bindparam, or_, update
from sqlalchemy.exc import SQLAlchemyError

from lorikeet_platform.auth.addresses import Address, neighbourhood_of
from lorikeet_platform.auth.principal import Principal
from lorikeet_platform.clock import MINUTE
from lorikeet_platform.db.session import Database
from lorikeet_platform.db.tables import ApiKey

_Use = tuple[int, Address | None]


class LastUse:
    """The last use of each key since it was written; nothing is written but by `flush`."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._uses: dict[tuple[str, str], _Use] = {}
        self._lock = threading.Lock()

    def note(self, principal: Principal, address: Address | None, now: int) -> None:
        with self._lock:
            self._uses[principal.tenant_id, principal.key_id] = (now, address)

    def flush(self) -> int:
        """How many keys were written about; what could not be written is kept for the next time.

        Raises:
            SQLAlchemyError: the database does not answer.
        """
        with self._lock:
            uses, self._uses = self._uses, {}
        if not uses:
            return 0
        try:
            # In one order, so that two processes wait for each other's rows instead of each for the other.
            self._write([_row(key, use) for key, use in sorted(uses.items(), key=lambda item: item[0])])
        except SQLAlchemyError:
            with self._lock:
                self._uses = uses | self._uses
            raise
        return len(uses)

    def _write(self, rows: list[dict[str, Any]]) -> None:
        keys = cast(SqlTable, ApiKey.__table__)
        later = or_(keys.c.last_used_at.is_(None), keys.c.last_used_at <= bindparam("at"))
        statement = (
            update(keys)
            .where(keys.c.tenant_id == bindparam("tenant"), keys.c.id == bindparam("key"), later)
            .values(last_used_at=bindparam("at"), last_used_network=bindparam("network"))
        )
        with self._db.platform.unit_of_work() as work:
            work.connection().execute(statement, rows)


def _row(key: tuple[str, str], use: _Use) -> dict[str, Any]:
    at, address = use
    network = None if address is None else neighbourhood_of(address)
    return {"tenant": key[0], "key": key[1], "at": at - at % MINUTE, "network": network}
