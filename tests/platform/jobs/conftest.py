"""Both databases, for what several workers do at once."""

from __future__ import annotations

from tests.platform.db.conftest import database, migrated_postgres, postgres, postgres_server

__all__ = ["database", "migrated_postgres", "postgres", "postgres_server"]
