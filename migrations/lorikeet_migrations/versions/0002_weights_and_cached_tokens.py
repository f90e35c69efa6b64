"""Tenants get a weight, usage records the part of the prompt that was found in the prefix cache.

Plain statements with the check inside the column: SQLite can add and drop such a column in place, while Alembic would
copy the table. PostgreSQL reads the same words.
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
    # By copying the tables: a later revision may have made them anew, with the checks beside the columns.
    for table, column in (("usage_records", "cached_tokens"), ("tenants", "weight")):
        with op.batch_alter_table(table) as batch:
            batch.drop_constraint(op.f(f"ck_{table}_{column}"), type_="check")
            batch.drop_column(column)
