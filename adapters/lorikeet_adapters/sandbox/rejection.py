"""Sentences on their way out of the jail: a rejection is believed only if it has the form of one."""

from __future__ import annotations

from typing import Final, get_args

from lorikeet_adapters.errors import AdapterRejected, RejectCode

MAX_CHARACTERS: Final = 4_000


def rejection_of(value: object) -> AdapterRejected | None:
    """The rejection that a child reports, None when this is none."""
    if not isinstance(value, dict) or value.keys() != {"code", "message", "param"}:
        return None
    code, message, param = value["code"], value["message"], value["param"]
    if code not in get_args(RejectCode) or not isinstance(message, str) or not isinstance(param, str | None):
        return None
    return AdapterRejected.restored(code, shown(message), None if param is None else shown(param))


def shown(text: str) -> str:
    """A child's sentence as one that can be stored and shown: bounded, without control characters."""
    cut = text[:MAX_CHARACTERS]
    return cut if cut.isprintable() else ascii(cut)[1:-1]
