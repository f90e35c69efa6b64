"""The declarative root of all tables, and the column kinds they share. No behaviour."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from sqlalchemy import BigInteger, CheckConstraint, Integer, LargeBinary, MetaData, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from lorikeet_platform.ids import ID_LENGTH

# Names are fixed so that a migration can drop what it made, on both databases.
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

Id = Annotated[str, mapped_column(String(ID_LENGTH))]
Micros = Annotated[int, mapped_column(BigInteger)]  # microseconds since 1970, UTC
Bytes32 = Annotated[bytes, mapped_column(LargeBinary(32))]
Size = Annotated[int, mapped_column(BigInteger)]  # bytes
Count = Annotated[int, mapped_column(Integer)]


class Table(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)


class TenantOwned:
    """Rows of one tenant each: a session that is bound to a tenant sees no others (`db.session`)."""

    tenant_id: Mapped[Any] = mapped_column(String(ID_LENGTH))  # each table says it again, as a part of its key


def tenant_tables() -> frozenset[str]:
    """Names of the tables whose rows have a tenant."""
    return frozenset(
        mapper.local_table.name  # type: ignore[attr-defined]
        for mapper in Table.registry.mappers
        if issubclass(mapper.class_, TenantOwned)
    )


def one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


def length_is(column: str, n_bytes: int) -> CheckConstraint:
    """Exact length of a binary column: LargeBinary's length is not enforced by either database."""
    return CheckConstraint(f"length({column}) = {n_bytes}", name=f"{column}_length")
