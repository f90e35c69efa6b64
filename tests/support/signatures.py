"""Reading a route's signature is most of what an application costs to build, and thousands of tests build one each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from fastapi import routing
from fastapi.dependencies import utils
from fastapi.dependencies.models import Dependant


@contextmanager
def signatures_read_once() -> Iterator[None]:
    """FastAPI remembers what it read of a function of a module, for all applications of this process.

    A function inside another is read each time: it may hold an application's state, which must not outlive its test.
    """
    read = utils.get_dependant
    known: dict[Any, Dependant] = {}

    def read_once(*, call: Callable[..., Any], **options: Any) -> Dependant:
        if "<locals>" in getattr(call, "__qualname__", "<locals>"):
            return read(call=call, **options)
        scopes = {name: tuple(options.get(name) or ()) for name in ("own_oauth_scopes", "parent_oauth_scopes")}
        key = (call, *sorted((options | scopes).items()))
        if key not in known:
            known[key] = read(call=call, **options)
        found = known[key]
        # A route puts its router's dependencies before its own.
        return replace(found, dependencies=list(found.dependencies))

    with pytest.MonkeyPatch.context() as patch:
        for module in (utils, routing):
            patch.setattr(module, "get_dependant", read_once)
        yield
