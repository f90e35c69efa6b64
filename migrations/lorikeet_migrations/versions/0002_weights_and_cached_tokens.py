"""Tenants get a weight, usage records the part of the prompt that was found in the prefix cache.

Plain statements with the check inside the column: SQLite can add and drop such a column in place, while Alembic would
copy the table, which foreign keys to it forbid. PostgreSQL reads the same words.
"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.execute(
        "ALTER TABLE tenants ADD COLUMN weight FLOAT DEFAULT 1 NOT NULL CONSTRAINT ck_tenants_weight CHECK (weight > 0)"
    )
    op.execute(
        "ALTER TABLE usage_records ADD COLUMN cached_tokens INTEGER DEFAULT 0 NOT NULL"
        " CONSTRAINT ck_usage_records_cached_tokens CHECK (cached_tokens >= 0 AND cached_tokens <= prompt_tokens)"
    )


def downgrade() -> None:
    op.execute("ALTER TABLE usage_records DROP COLUMN cached_tokens")
    op.execute("ALTER TABLE tenants DROP COLUMN weight")
