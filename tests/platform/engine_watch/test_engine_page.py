"""GET /admin/v1/engine: what the engine was started with, and how it does."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.engine_watch.report import shown_design
from lorikeet_platform.settings import EngineSettings
from tests.support.engine_figures import engine_design
from tests.support.platform_parts import FakeClock, MeasuredEngine
from tests.support.seen_engine import KNOBS


@pytest.fixture
def engine(context: PlatformContext) -> MeasuredEngine:
    client = context.engine_client
    assert isinstance(client, MeasuredEngine)
    return client


def page(admin: TestClient, as_admin: dict[str, str]) -> dict[str, Any]:
    answer = admin.get("/admin/v1/engine", headers=as_admin)
    assert answer.status_code == 200
    shown: dict[str, Any] = answer.json()
    return shown


def test_an_engine_that_never_answered_is_starting_and_one_that_did_is_unavailable(
    admin: TestClient, as_admin: dict[str, str], context: PlatformContext, engine: MeasuredEngine
) -> None:
    engine.is_up = False
    assert page(admin, as_admin)["state"] == "starting"
    engine.is_up = True
    asyncio.run(context.watch.sample())
    assert page(admin, as_admin)["state"] == "ready"
    engine.is_up = False
    shown = page(admin, as_admin)
    assert (shown["state"], shown["design"], shown["performance"]) == ("unavailable", None, None)


def test_the_page_has_the_memory_table_and_after_two_samples_the_performance(
    admin: TestClient, as_admin: dict[str, str], context: PlatformContext, engine: MeasuredEngine, clock: FakeClock
) -> None:
    asyncio.run(context.watch.sample())
    shown = page(admin, as_admin)
    assert (shown["model"], shown["device"], shown["performance"]) == ("tiny", "cpu", None)
    design = shown["design"]
    assert sum(row["bytes"] for row in design["memory"]) == design["available_bytes"] == 8000
    assert (design["theoretical_concurrency"], design["suggested_max_num_seqs"]) == (2.0, 1)
    clock.advance(5)
    engine.figures = {"uptime_s": 17.5, "generated_tokens_total": 100}
    asyncio.run(context.watch.sample())
    performance = page(admin, as_admin)["performance"]
    assert performance["window_s"] == 5.0
    assert [moment["tokens_per_s"] for moment in performance["timeline"]] == [10.0]


def test_knobs_come_with_the_setting_that_sets_them_and_whether_the_engine_chose_them() -> None:
    design = engine_design(knobs={**KNOBS, "max_num_seqs": 32, "max_rank": 64, "dtype": "float32", "block_size": 8})
    shown = shown_design(design, EngineSettings(block_size=16))
    knobs = {knob.name: (knob.setting, knob.is_automatic) for knob in shown.knobs}
    assert knobs["max_num_seqs"] == ("LORIKEET_ENGINE__MAX_NUM_SEQS", True)
    assert knobs["dtype"] == ("LORIKEET_ENGINE__DTYPE", True)
    assert knobs["enable_prefix_caching"] == ("LORIKEET_ENGINE__ENABLE_PREFIX_CACHING", False)
    assert knobs["block_size"] == ("LORIKEET_ENGINE__BLOCK_SIZE", None)  # the engine has other settings than we
    assert knobs["max_rank"] == ("LORIKEET_MAX_RANK", None)


def test_the_page_tells_an_empty_pool_from_a_full_one(
    admin: TestClient, as_admin: dict[str, str], context: PlatformContext, engine: MeasuredEngine, clock: FakeClock
) -> None:
    for uptime_s in (20.0, 25.0):
        clock.advance(5)
        engine.figures = {"uptime_s": uptime_s}
        asyncio.run(context.watch.sample())
    [moment] = page(admin, as_admin)["performance"]["timeline"]
    assert moment["kv_used_share"] == pytest.approx(0.4)  # used and reserved, not what is only cached
    assert replace(clock).now // 1_000_000 == moment["at"]
