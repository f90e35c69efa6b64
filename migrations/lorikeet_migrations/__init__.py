"""Alembic migrations, run by `lorikeet_platform.db.migrate`."""
