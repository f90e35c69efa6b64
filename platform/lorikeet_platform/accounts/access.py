"""Who may use the administration port: a session of the dashboard, or the token file of this machine.

A cookie travels by itself, so unsafe methods also need the CSRF token and must come from our own pages. A bearer token
does not, and needs neither.
"""

from __future__ import annotations

import hmac
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request

from lorikeet_platform.accounts.admin_token import is_admin_token
from lorikeet_platform.accounts.sessions import SignedIn, find_session, needs_touch, touch_session
from lorikeet_platform.auth.principal import Administrator
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.errors import PlatformError
from lorikeet_platform.web.access import declares_access

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
MAX_HEADER = 200


def cookie_name(context: PlatformContext) -> str:
    """`__Host-` needs TLS; plain HTTP on localhost uses another name."""
    return "__Host-lorikeet" if context.settings.admin_cookie_secure else "lorikeet_session"


@declares_access
def administrator(request: Request) -> Administrator:
    """The caller, or 401.

    Raises:
        PlatformError: not_signed_in, csrf_failed.
    """
    context = get_context(request)
    headers = request.headers.getlist("authorization")
    if headers:
        scheme, _, token = headers[0].partition(" ")
        is_ours = len(headers) == 1 and len(headers[0]) <= MAX_HEADER and scheme.lower() == "bearer"
        if not (is_ours and is_admin_token(token, context.admin_token)):
            raise PlatformError("not_signed_in")
        return Administrator("owner", None)
    session = current_session(request, context)
    if request.method not in SAFE_METHODS:
        sent = request.headers.get("x-csrf-token", "")
        if not hmac.compare_digest(sent.encode(), session.csrf_token.encode()):
            raise PlatformError("csrf_failed")
        check_same_origin(request)
    return Administrator(session.role, session.id_hash)


def current_session(request: Request, context: PlatformContext) -> SignedIn:
    """The cookie's session; its idle time starts again.

    Raises:
        PlatformError: not_signed_in.
    """
    cookie, now = request.cookies.get(cookie_name(context), ""), context.clock()
    if not cookie or len(cookie) > MAX_HEADER:
        raise PlatformError("not_signed_in")
    with context.db.platform.read() as work:
        session = find_session(work, cookie, now)
        is_stale = session is not None and needs_touch(work, session.id_hash, now)
    if session is None:
        raise PlatformError("not_signed_in")
    if is_stale:
        with context.db.platform.unit_of_work() as work:
            touch_session(work, session.id_hash, now)
    return session


def check_same_origin(request: Request) -> None:
    """Browsers say where a request comes from; programs say nothing and pass.

    Raises:
        PlatformError: csrf_failed.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site != "same-origin":
        raise PlatformError("csrf_failed")
    if origin is not None and _host_of(origin) != request.headers.get("host"):
        raise PlatformError("csrf_failed")


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # brackets of an IPv6 address that do not match
        raise PlatformError("csrf_failed") from None


Admin = Annotated[Administrator, Depends(administrator)]
