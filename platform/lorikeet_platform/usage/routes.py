"""Usage over HTTP: sums and single records, the same routes on both ports, and everybody's sums for administrators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import StreamingResponse

from lorikeet_engine.cost_vector import COSTS
from lorikeet_platform.accounts.access import administrator
from lorikeet_platform.auth.actor import FindActor
from lorikeet_platform.auth.scopes import needs
from lorikeet_platform.clock import unix_seconds
from lorikeet_platform.context import get_context
from lorikeet_platform.registry.acting import Acting, acting_as
from lorikeet_platform.usage.export import MEDIA_TYPE, Format, Sheet, exported
from lorikeet_platform.usage.records import newest
from lorikeet_platform.usage.schemas import UsageRecord, UsageRecordPage, UsageReport
from lorikeet_platform.usage.sums import LAST_SECOND, Question, Width, question, sums
from lorikeet_platform.web.json_body import StrictJsonRoute
from lorikeet_platform.web.pagination import DEFAULT_PAGE, After, Cursors, PageLimit, cut
from lorikeet_platform.web.surplus import KnownQuery, WantedBody

RECORDS: Final = "usage.records"
HELD_ROWS: Final = 5_000  # a report of so many frees the database before it is written
_ANSWERS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "model": UsageReport,
        "content": {MEDIA_TYPE[form]: {"schema": {"type": "string"}} for form in ("csv", "jsonl")},
    }
}
Second = Annotated[int | None, Query(ge=0, le=LAST_SECOND)]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request asks to be summed up, and how it is to be written."""

    start: int | None
    end: int | None
    bucket: Width
    group_by: str | None
    form: Format


def _wanted(
    start: Annotated[Second, Query(description="unix seconds; the bucket that it lies in is the first")] = None,
    end: Annotated[Second, Query(description="unix seconds, not included; the default is now")] = None,
    bucket: Annotated[Width, Query(description="up to 1 day of minutes, 92 days of hours")] = "1h",
    group_by: Annotated[
        str | None,
        Query(max_length=100, description="a list of key, model, adapter, version; administrators also tenant"),
    ] = None,
    form: Annotated[Format, Query(alias="format")] = "json",
) -> Wanted:
    return Wanted(start, end, bucket, group_by, form)


Asking = Annotated[Wanted, Depends(_wanted)]


def usage_routes(prefix: str, find_actor: FindActor) -> APIRouter:
    """A tenant's usage under `prefix`, for whom `find_actor` finds."""
    router = APIRouter(
        prefix=f"{prefix}/usage",
        tags=["usage"],
        route_class=StrictJsonRoute,
        dependencies=[acting_as(find_actor), KnownQuery, WantedBody],
    )
    router.get("", operation_id="get_usage", response_model=None, responses=_ANSWERS)(get_usage)
    router.get("/records", operation_id="list_usage_records")(list_usage_records)
    return router


def all_usage_routes() -> APIRouter:
    """Everybody's usage, on the administration port."""
    router = APIRouter(
        prefix="/admin/v1/usage",
        tags=["usage"],
        route_class=StrictJsonRoute,
        dependencies=[Depends(administrator), KnownQuery, WantedBody],
    )
    router.get("", operation_id="get_all_usage", response_model=None, responses=_ANSWERS)(get_all_usage)
    return router


@needs("usage:read")
def get_usage(actor: Acting, request: Request, wanted: Asking) -> StreamingResponse:
    """Requests, tokens and costs by time and group, as JSON, CSV or JSON lines; exact to the last settled request."""
    return _report(request, wanted, actor.tenant_id)


def get_all_usage(request: Request, wanted: Asking) -> StreamingResponse:
    """Requests, tokens and costs of all tenants."""
    return _report(request, wanted, None)


@needs("usage:read")
def list_usage_records(
    actor: Acting, request: Request, limit: PageLimit = DEFAULT_PAGE, after: After = None
) -> UsageRecordPage:
    """Single requests, the newest first; those that run, too."""
    context = get_context(request)
    cursors = Cursors(context.pepper, actor.tenant_id, RECORDS)
    position = cursors.read(after)
    behind = None if position is None else (int(position[0]), str(position[1]))
    with context.db.tenant(actor.tenant_id).read() as work:
        page, has_more = cut(newest(work, actor.tenant_id, behind=behind, limit=limit + 1), limit)
    last = page[-1].record if has_more else None
    return UsageRecordPage(
        data=[UsageRecord.of(entry) for entry in page],
        has_more=has_more,
        next=None if last is None else cursors.write([last.admitted_at, last.request_id]),
    )


def _report(request: Request, wanted: Wanted, tenant_id: str | None) -> StreamingResponse:
    context = get_context(request)
    asked = question(
        tenant_id=tenant_id,
        width=wanted.bucket,
        start=wanted.start,
        end=wanted.end,
        group_by=wanted.group_by,
        now=context.clock(),
    )
    transactions = context.db.platform if tenant_id is None else context.db.tenant(tenant_id)
    folder = context.settings.temporary_dir
    with transactions.read() as work:
        rows = sums(work, asked)
        held = list(islice(rows, HELD_ROWS + 1))
        if len(held) > HELD_ROWS:
            return exported(_sheet(asked, chain(held, rows)), wanted.form, folder)
    return exported(_sheet(asked, held), wanted.form, folder)


def _sheet(asked: Question, rows: Iterable[Sequence[Any]]) -> Sheet:
    head = {
        "object": "usage",
        "bucket": asked.width,
        "start": unix_seconds(asked.start),
        "end": unix_seconds(asked.end),
        "group_by": list(asked.groups),
    }
    summed = ("requests_without_cost", *COSTS)
    return Sheet("usage", asked.columns, rows, head, folded={"costs": COSTS}, summed=summed)
