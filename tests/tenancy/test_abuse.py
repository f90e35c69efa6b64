"""Inputs, headers and addresses of somebody who means harm: refused by name, without effect and without a trace."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from sqlalchemy import func, select

from lorikeet_platform.db.tables import UsageRecord
from tests.support.engine_process import CONTEXT
from tests.support.platform_parts import SLICE, TUS, WEIGHTS, Tenant, encode_metadata
from tests.support.raw_requests import raw
from tests.support.stack import Stack, wait_until
from tests.support.stack_place import Place, chat_body

QUICK_S = 0.010
TRIES = 10
MANY = 2_000


def post(place: Place, tenant: Tenant, body: str | bytes) -> tuple[int, str, float]:
    """Status, code, and the quickest of several answers: others take the machine's time, too."""
    content, best = body.encode() if isinstance(body, str) else body, float("inf")
    with place.client(tenant.secret) as client:
        for _ in range(TRIES):
            began_s = time.perf_counter()
            answer = client.post("/v1/chat/completions", content=content, headers={"content-type": "application/json"})
            best = min(best, time.perf_counter() - began_s)
            if best < QUICK_S:
                break
    return answer.status_code, answer.json()["error"]["code"] if answer.status_code != 200 else "", best


def with_field(field: str, literal: str) -> str:
    """A chat request with one field more, its value written as it is."""
    return f'{{"model": "tiny-llama", "messages": [{{"role": "user", "content": "hi"}}], "{field}": {literal}}}'


@pytest.mark.parametrize("literal", ["0", "9", "1000000", "10000000000000000000", "true", "1.5", '"1"', "-1"])
def test_n_44_a_number_of_answers_out_of_bounds_is_refused_at_once(place: Place, ours: Tenant, literal: str) -> None:
    status, code, seconds = post(place, ours, with_field("n", literal))
    assert (status, code) == (400, "invalid_value")
    assert seconds < QUICK_S


@pytest.mark.parametrize(
    ("field", "literal"), [("best_of", "2"), ("top_logprobs", "21"), ("logprobs", "1000000000"), ("logprobs", "true")]
)
def test_n_44_what_would_multiply_the_work_is_refused(place: Place, ours: Tenant, field: str, literal: str) -> None:
    status, code, _ = post(place, ours, with_field(field, literal))
    assert status == 400
    assert code in ("invalid_value", "unsupported_parameter", "unknown_parameter")


DEEP = "[" * 100_000 + "]" * 100_000
HOSTILE: dict[str, tuple[str | bytes, int]] = {
    "NaN": (with_field("temperature", "NaN"), 400),
    "Infinity": (with_field("temperature", "-Infinity"), 400),
    "1e400": (with_field("temperature", "1e400"), 400),
    "duplicate key": (with_field("n", '1, "n": 1'), 400),
    "lone surrogate": (with_field("user", '"\\ud800"'), 400),
    "depth": (with_field("stop", DEEP), 400),
    "5000 digits": (with_field("seed", "9" * 5_000), 400),
    "2 MiB + 1": (b" " * ((2 << 20) + 1), 413),
    "stops": (with_field("stop", "[" + ",".join(['"a"'] * 100_000) + "]"), 400),
    "logit_bias": (with_field("logit_bias", "{" + ",".join(f'"{n}":1' for n in range(100_000)) + "}"), 400),
    "messages": ('{"model":"tiny-llama","messages":[' + ",".join(["{}"] * 400_000) + "]}", 400),
    "no messages": ('{"model":"tiny-llama","messages":[]}', 400),
    "empty prompt": ('{"model":"tiny-llama","messages":[{"role":"user","content":""}]}', 400),
    "not UTF-8": (b'{"model":"\xff\xfe"}', 400),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_n_45_a_body_that_is_made_to_hurt_is_refused_and_bills_nothing(
    place: Place, ours: Tenant, theirs: Tenant, name: str
) -> None:
    body, status = HOSTILE[name]
    answered, _, _ = post(place, ours, body)
    assert answered == status
    assert place.chat(theirs.secret).status_code == 200
    with place.db.platform.read() as work:
        mine = select(func.count()).where(UsageRecord.tenant_id == ours.id)
        assert work.scalar(mine) == 0


@pytest.mark.parametrize("literal", ["0", "-1", "2147483648", str(CONTEXT + 1), "true", "1.0"])
def test_n_52_a_length_that_cannot_be_is_refused(place: Place, ours: Tenant, literal: str) -> None:
    for field in ("max_tokens", "max_completion_tokens"):
        status, code, _ = post(place, ours, with_field(field, literal))
        assert status == 400
        assert code in ("invalid_value", "context_length_exceeded")


def test_n_52_a_window_may_be_filled_exactly_and_one_more_is_told_the_numbers(place: Place, ours: Tenant) -> None:
    content = "x" * 96
    assert place.chat(ours.secret, content=content, max_tokens=CONTEXT - 96).status_code == 200
    refused = place.chat(ours.secret, content=content, max_tokens=CONTEXT - 95)
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    assert all(number in refused.json()["error"]["message"] for number in ("96", str(CONTEXT - 95), str(CONTEXT)))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("after", [0, 1, 20])
def test_n_58_a_caller_who_hangs_up_is_billed_what_was_made_and_nothing_goes_on(
    place: Place, ours: Tenant, stream: bool, after: int
) -> None:
    place.engine.script(ours.id, tokens=0, pace_s=0.02)
    for gateway in range(len(place.apis)):
        hang_up(place, ours, gateway, stream=stream, after=after)
    hung_up_s = time.monotonic()
    wait_until(lambda: place.engine.state()["inside"] == 0, 2.0)
    assert time.monotonic() - hung_up_s < 1.5
    mine = select(UsageRecord).where(UsageRecord.tenant_id == ours.id)

    def records() -> list[UsageRecord]:
        with place.db.platform.read() as work:
            return list(work.scalars(mine))

    wait_until(lambda: all(record.state == "settled" for record in records()), 5.0)
    for record in records():
        assert record.outcome == "client_cancelled"
        assert record.completion_tokens >= after
        assert record.prompt_tokens == (len("hello") if record.completion_tokens else 0)


def hang_up(place: Place, tenant: Tenant, gateway: int, *, stream: bool, after: int) -> None:
    """Once the engine has the request and has made so many tokens of it."""
    n_before = place.engine.state()["submitted"]
    parts = urlsplit(place.apis[gateway])
    content = httpx.Request("POST", place.apis[0], json=chat_body(stream=stream, max_tokens=4000)).content
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {tenant.secret}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as connection:
        connection.sendall(head.encode() + content)
        wait_until(lambda: place.engine.state()["submitted"] > n_before)
        received = b""
        while stream and received.count(b'"content":"') - received.count(b'"content":""') < after:
            received += connection.recv(1 << 16)
        if not stream:
            time.sleep(0.02 * after + 0.1 * bool(after))


def test_n_69_what_a_caller_says_of_itself_is_not_believed(place: Place, ours: Tenant) -> None:
    bound = place.key(ours.slug, ip_allowlist=["10.1.2.0/24"])["secret"]
    for header in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Client-IP", "True-Client-IP"):
        with place.client(bound) as client:
            answer = client.get("/v1/models", headers={header: "for=10.1.2.3" if header == "Forwarded" else "10.1.2.3"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "ip_not_allowed")
    with place.client(ours.secret) as client:
        forged = {"x-request-id": "mine\u0020own", "traceparent": "00-" + "f" * 8_000, "x-forwarded-host": "evil"}
        answer = client.get("/v1/models", headers=forged)
        assert answer.status_code == 200
        assert answer.headers["x-request-id"].startswith("req_")
        told = {"adapter": "pier", "filename": WEIGHTS, "sha256": "0" * 64}
        made = client.post(
            "/v1/uploads",
            headers={**TUS, **forged, "upload-length": "4", "upload-metadata": encode_metadata(told)},
        )
    assert made.status_code == 201
    assert "evil" not in str(made.headers)
    assert "f" * 100 not in place.logs()


def test_n_70_no_name_of_a_callers_becomes_a_series_of_the_metrics(place: Place, ours: Tenant) -> None:
    with place.client(ours.secret) as client:
        client.post("/v1/chat/completions", json=chat_body(model="first"))
        client.get("/v1/models/first")
        client.get("/v1/first")
        client.request("METHOD", "/v1/models")
        n_series(place)  # to be asked for is a series of the metrics, too
        before = n_series(place)
        place.plenty(ours)
        for index in range(MANY // 4):
            agent = {"user-agent": f'agent-{index}"}} 1\nfake_metric{{x="'.replace("\n", "")}
            client.post("/v1/chat/completions", json=chat_body(model=f'm{index}"}} 1'), headers=agent)
            client.get(f"/v1/models/model-{index}")
            client.get(f"/v1/nothing-{index}")
            client.request(f"METHOD{index}", "/v1/models")
    assert n_series(place) <= before + 5


def n_series(place: Place) -> int:
    text = httpx.get(f"{place.admins[0]}/metrics", headers=dict(place.admin.headers), trust_env=False).text
    return len([line for line in text.splitlines() if line and not line.startswith("#")])


INSIDE = (
    "/metrics",
    "/docs",
    "/redoc",
    "/openapi.json",
    "/debug",
    "/debug/pprof",
    "/debug/vars",
    "/profiler",
    "/flower",
    "/api/workers",
    "/admin",
    "/admin/v1/overview",
    "/auth/session",
    "/static/../../../../etc/passwd",
    "/assets/..%2f..%2f..%2fetc%2fpasswd",
    "/.env",
    "/index.html",
)


@pytest.mark.parametrize("path", INSIDE)
def test_n_71_nothing_of_the_inside_is_on_the_tenants_port(place: Place, ours: Tenant, path: str) -> None:
    for line in ("x: y", f"authorization: Bearer {ours.secret}"):
        answer = raw(place.apis[0], f"GET {path} HTTP/1.1\nhost: x\n{line}")
        assert answer.status in (400, 404)
        assert b"root:" not in answer.body


@pytest.mark.slow
def test_n_71_gateways_listen_on_their_two_ports_and_nothing_else_listens(stack: Stack) -> None:
    """The engine and the broker are reached by sockets in a folder, the worker by nobody."""
    for gateway in stack.gateways:
        assert ports_of(gateway.process.pid) == {urlsplit(url).port for url in (gateway.api, gateway.admin)}
    assert stack.worker is not None
    assert stack.worker.process.poll() is None, stack.worker.log.read_text()[-2000:]
    assert ports_of(stack.worker.process.pid) == set()
    assert ports_of(stack.redis.process.pid) == set()


def ports_of(pid: int) -> set[int | None]:
    """TCP ports that a process listens on (Linux)."""
    sockets = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    found: set[int | None] = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in sockets:
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


def test_n_27_a_slice_of_anothers_content_is_not_kept(place: Place, ours: Tenant) -> None:
    """One row of the uploads' own, which `registry/uploads` tests at length, on both databases."""
    told: dict[str, Any] = {"adapter": "pier", "filename": WEIGHTS, "sha256": "0" * 64}
    with place.client(ours.secret) as client:
        headers = {**TUS, "upload-length": "4", "upload-metadata": encode_metadata(told)}
        location = client.post("/v1/uploads", headers=headers).headers["location"]
        sent = client.patch(
            location,
            headers={**TUS, **SLICE, "upload-offset": "0", "upload-checksum": "sha256 " + "A" * 43 + "="},
            content=b"1234",
        )
        assert sent.status_code == 460
        assert client.head(location, headers=TUS).headers["upload-offset"] == "0"
