"""What a request says beyond what its route takes: refused by name, because silence would look like obedience.

These are dependencies of routers, to be listed after the one that finds out who calls: strangers learn nothing here.
Unknown fields of a body are its schema's business.
"""

from __future__ import annotations

from typing import Final, cast

from fastapi import Depends, Request, params
from fastapi.dependencies.utils import get_flat_params, get_validation_alias
from fastapi.routing import APIRoute

from lorikeet_platform.errors import PlatformError, quoted
from lorikeet_platform.web.json_body import MAX_PARAM, read_json


async def _refuse_unknown_query(request: Request) -> None:
    """Raises PlatformError: unknown_parameter, invalid_value for one that is given twice."""
    fields = get_flat_params(_route_of(request).dependant)
    known = {get_validation_alias(field) for field in fields if isinstance(field.field_info, params.Query)}
    for name in request.query_params:
        if name not in known:
            raise _unknown(name)
        if len(request.query_params.getlist(name)) > 1:
            raise PlatformError("invalid_value", f"{name} is given twice.", name)


async def _refuse_unwanted_body(request: Request) -> None:
    """A route that takes no body gets none, or an empty object. Raises PlatformError: unknown_parameter."""
    has_body = "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0"
    if has_body and _route_of(request).body_field is None and (body := await read_json(request)):
        raise _unknown(min(body))


def _route_of(request: Request) -> APIRoute:
    return cast(APIRoute, request.scope["route"])


def _unknown(name: str) -> PlatformError:
    return PlatformError("unknown_parameter", f"{quoted(name)} is not a parameter here.", name[:MAX_PARAM] or None)


KnownQuery: Final = Depends(_refuse_unknown_query)
WantedBody: Final = Depends(_refuse_unwanted_body)
