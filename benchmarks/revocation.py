"""How long a revoked key goes on working: two gateways under load, keys revoked one after another.

    python benchmarks/revocation.py [--quick] [--json FILE]

Every key has a stream running on each gateway. The one that is next is used without a pause on both until both have
refused it. Measured from the moment that the revocation's own answer arrived: when the last request that was answered
had been sent, and when the key's streams had ended, each of them with `key_revoked`. Meanwhile another key's requests
load both gateways.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import Figure, arguments, at_most, present
from http_load import Answer, Connection

sys.path.append(str(Path(__file__).parents[1]))

from tests.support.platform_parts import Tenant
from tests.support.served_model import model_to_talk_to
from tests.support.stack import running_stack, wait_until
from tests.support.stack_place import Place, chat_body, on_stack

CHAT = "/v1/chat/completions"
PACE_S = 0.2
LOAD_CONNECTIONS = 2  # on each gateway
BEFORE_S = 0.2  # that a key is used before it is revoked
GIVE_UP_S = 30.0
STREAM = chat_body(stream=True, max_tokens=4000)
SHORT = chat_body(max_tokens=1)


@dataclass
class Measured:
    """Seconds after each revocation, of the last success and of the last stream's end, and how many requests passed."""

    last_success_s: list[float] = field(default_factory=list)
    streams_ended_s: list[float] = field(default_factory=list)
    n_loaded: int = 0


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def stream(api: str, secret: str) -> Answer:
    with closing(Connection(api, secret)) as connection:
        answer = connection.post(CHAT, STREAM)
    assert answer.status == 200, answer.body
    assert b'"key_revoked"' in answer.body, answer.body[-300:]
    return answer


def use_until_refused(api: str, secret: str) -> float:
    """When the last request was sent that was answered."""
    last, give_up_s = 0.0, time.perf_counter() + GIVE_UP_S
    with closing(Connection(api, secret)) as connection:
        while time.perf_counter() < give_up_s:
            answer = connection.post(CHAT, SHORT)
            if answer.status == 401:
                return last
            if answer.status == 200:
                last = answer.asked_s
    raise AssertionError("the key still works")


def load(api: str, secret: str, stopping: threading.Event) -> int:
    n_answered = 0
    with closing(Connection(api, secret)) as connection:
        while not stopping.is_set():
            n_answered += connection.post(CHAT, SHORT).status == 200
    return n_answered


def revoke_one_after_another(place: Place, tenant: Tenant, n_keys: int) -> Measured:
    keys = [place.key(tenant.slug) for _ in range(n_keys)]
    place.engine.script(tenant.id, tokens=0, pace_s=PACE_S)
    measured, stopping = Measured(), threading.Event()
    with ThreadPoolExecutor((n_keys + LOAD_CONNECTIONS + 1) * len(place.apis)) as threads:
        loading = [
            threads.submit(load, api, tenant.secret, stopping) for api in place.apis for _ in range(LOAD_CONNECTIONS)
        ]
        streams = {
            key["id"]: [threads.submit(stream, api, key["secret"]) for api in place.apis]  # one on each gateway
            for key in keys
        }
        wait_until(lambda: place.engine.state()["inside"] >= n_keys * len(place.apis), GIVE_UP_S)
        for key in keys:
            used = [threads.submit(use_until_refused, api, key["secret"]) for api in place.apis]
            time.sleep(BEFORE_S)
            _revoke(place, tenant, key["id"], used, streams[key["id"]], measured)
        stopping.set()
        measured.n_loaded = sum(each.result() for each in loading)
    return measured


def _revoke(
    place: Place,
    tenant: Tenant,
    key_id: str,
    used: list[Future[float]],
    streams: list[Future[Answer]],
    measured: Measured,
) -> None:
    place.ask_admin("POST", f"/admin/v1/tenants/{tenant.slug}/keys/{key_id}/revoke", json={})
    revoked_s = time.perf_counter()
    measured.last_success_s.append(max(0.0, *(each.result() - revoked_s for each in used)))
    measured.streams_ended_s.append(max(0.0, *(each.result(GIVE_UP_S).ended_s - revoked_s for each in streams)))


def figures_of(measured: Measured, seconds: float) -> list[Figure]:
    def both(name: str, values: list[float]) -> list[Figure]:
        return [
            at_most(f"{name}, p99", percentile(values, 0.99) * 1e3, "ms", 1000.0),
            at_most(f"{name}, maximum", max(values) * 1e3, "ms", 5000.0),
        ]

    return [
        Figure("keys revoked", len(measured.last_success_s), ""),
        *both("last success after the revocation", measured.last_success_s),
        *both("end of the key's streams", measured.streams_ended_s),
        Figure("other requests meanwhile", measured.n_loaded / seconds, "1/s"),
    ]


def measure(*, quick: bool) -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="lk-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres may be another user
        (folder / "model").mkdir()
        settings: dict[str, Any] = {"n_gateways": 2, "with_worker": False}
        with running_stack(folder, model_to_talk_to(folder / "model"), **settings) as stack, on_stack(stack) as place:
            tenant = place.tenant()
            place.plenty(tenant)
            began_s = time.perf_counter()
            measured = revoke_one_after_another(place, tenant, 10 if quick else 50)
            return figures_of(measured, time.perf_counter() - began_s)


def main() -> None:
    options = arguments("How long a revoked key goes on working.").parse_args()
    present("Revocation", measure(quick=options.quick), options.json)


if __name__ == "__main__":
    main()
