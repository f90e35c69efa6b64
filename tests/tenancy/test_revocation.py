"""N-17: a revoked key stops everywhere within seconds; what runs on it ends and is billed. Measured in `benchmarks`."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass

import pytest
from sqlalchemy import select

from lorikeet_platform.db.tables import UsageRecord
from tests.support.parallel import AtOnce
from tests.support.platform_parts import Tenant
from tests.support.stack import wait_until
from tests.support.stack_place import Place, chat_body

STREAMS = 20
WITHIN_S = 5.0  # always; a second at the 99th percentile, which the benchmark measures


@dataclass(frozen=True)
class Stream:
    """How a stream ended."""

    last_frame: str
    ended_s: float


def stream(place: Place, key: str, gateway: int) -> Stream:
    last = ""
    body = chat_body(stream=True, max_tokens=4000)
    with (
        place.client(key, gateway=gateway) as client,
        client.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        assert answer.status_code == 200
        for line in answer.iter_lines():
            last = line or last
    return Stream(last.removeprefix("data: "), time.monotonic())


def use(place: Place, key: str, gateway: int, stopping: threading.Event) -> float:
    """When the last request was sent that was answered."""
    last = 0.0
    while not stopping.is_set():
        sent_s = time.monotonic()
        if place.chat(key, gateway=gateway, max_tokens=1).status_code == 200:
            last = sent_s
    return last


@pytest.mark.parametrize("ending", ["key_revoked", "tenant_suspended"])
def test_n_17_a_key_that_ends_has_no_success_after_seconds_and_its_streams_end_saying_so(
    place: Place, ours: Tenant, ending: str
) -> None:
    place.engine.script(ours.id, tokens=0, pace_s=0.05)
    n_gateways, stopping = len(place.apis), threading.Event()
    streams = AtOnce(STREAMS, lambda index: stream(place, ours.secret, index % n_gateways))
    wait_until(lambda: place.engine.state()["inside"] == STREAMS, 30.0)
    users = AtOnce(2 * n_gateways, lambda index: use(place, ours.secret, index % n_gateways, stopping))
    time.sleep(0.3)
    of_key = f"keys/{ours.key_id}/revoke" if ending == "key_revoked" else "suspend"
    place.ask_admin("POST", f"/admin/v1/tenants/{ours.slug}/{of_key}", json={})
    ended_s = time.monotonic()
    for found in streams.results():
        assert json.loads(found.last_frame)["error"]["code"] == ending
        assert found.ended_s - ended_s < WITHIN_S
    time.sleep(0.2)
    stopping.set()
    assert max(users.results()) - ended_s < WITHIN_S
    refused = [place.chat(ours.secret, gateway=gateway) for gateway in range(n_gateways)]
    status, code = (401, "invalid_api_key") if ending == "key_revoked" else (403, "tenant_suspended")
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in refused] == [(status, code)] * n_gateways
    check_the_bill(place, ours)


def check_the_bill(place: Place, tenant: Tenant) -> None:
    """All is settled, and the streams with what they had said."""
    mine = select(UsageRecord).where(UsageRecord.tenant_id == tenant.id)

    def records() -> list[UsageRecord]:
        with place.db.platform.read() as work:
            return list(work.scalars(mine))

    wait_until(lambda: all(record.state == "settled" for record in records()))
    streamed = [record for record in records() if record.stream]
    assert [record.outcome for record in streamed] == ["revoked"] * STREAMS
    assert all(record.completion_tokens > 0 and record.prompt_tokens == len("hello") for record in streamed)
    assert place.engine.state()["inside"] == 0
