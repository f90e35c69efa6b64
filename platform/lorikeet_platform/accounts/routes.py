"""Sign-in, session and sign-out of the dashboard: transport only."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter, Depends, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session as DbSession

from lorikeet_platform.accounts.access import Admin, check_same_origin, cookie_name, current_session
from lorikeet_platform.accounts.owner_token import redeem_owner_token
from lorikeet_platform.accounts.sessions import ABSOLUTE_US, end_session, start_session
from lorikeet_platform.audit.service import Action, record
from lorikeet_platform.auth.actor import ADMINISTRATOR
from lorikeet_platform.clock import SECOND
from lorikeet_platform.context import PlatformContext, get_context
from lorikeet_platform.web.access import Public
from lorikeet_platform.web.json_body import StrictJsonRoute

router = APIRouter(tags=["sign-in"], route_class=StrictJsonRoute)


class BootstrapRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    token: str = Field(min_length=1, max_length=200)


class Session(BaseModel):
    role: Literal["owner"]
    csrf_token: str


@router.post("/auth/bootstrap", operation_id="bootstrap", dependencies=[Public, Depends(check_same_origin)])
def bootstrap(body: BootstrapRequest, request: Request, response: Response) -> Session:
    """Sign in with the one-time owner link."""
    context = get_context(request)
    with context.db.platform.unit_of_work() as work:
        redeem_owner_token(work, body.token, context.clock())
        cookie, signed_in = start_session(work, context.clock())
        _record(work, "owner.sign_in", context.clock())
    _set_cookie(context, response, cookie, max_age_s=ABSOLUTE_US // SECOND)
    return Session(role="owner", csrf_token=signed_in.csrf_token)


@router.get("/auth/session", operation_id="get_session", dependencies=[Public])
def get_session(request: Request) -> Session:
    """Who is signed in; 401 when nobody is."""
    return Session(role="owner", csrf_token=current_session(request, get_context(request)).csrf_token)


@router.post("/auth/logout", operation_id="logout", status_code=204)
def logout(admin: Admin, request: Request, response: Response) -> None:
    """End the session."""
    context = get_context(request)
    if admin.session_hash is not None:
        with context.db.platform.unit_of_work() as work:
            if end_session(work, admin.session_hash, context.clock()):
                _record(work, "owner.sign_out", context.clock())
    _set_cookie(context, response, "", max_age_s=0)


def _record(work: DbSession, action: Action, now: int) -> None:
    record(work, tenant_id=None, actor=ADMINISTRATOR, action=action, subject="owner", now=now)


def _set_cookie(context: PlatformContext, response: Response, value: str, *, max_age_s: int) -> None:
    response.set_cookie(
        cookie_name(context),
        value,
        max_age=max_age_s,
        path="/",
        httponly=True,
        samesite="strict",
        secure=context.settings.admin_cookie_secure,
    )
