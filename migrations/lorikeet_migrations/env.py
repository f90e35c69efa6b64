"""Alembic's entry: runs the steps on the connection that the caller opened, inside the caller's transaction."""

from __future__ import annotations

from alembic import context

from lorikeet_platform.db.tables import Table

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=Table.metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
