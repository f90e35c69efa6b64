"""A broker that does not answer blocks whoever wakes a worker for seconds: the event loop's thread never does."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from lorikeet_platform.app import create_tenant_app
from lorikeet_platform.context import PlatformContext
from tests.support.lora_files import write_files
from tests.support.platform_parts import Tenant, Uploader
from tests.support.registry_port import Port


def is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


@pytest.fixture
def wakes() -> list[bool]:
    """For each time that a worker was woken: whether a loop's thread did it."""
    return []


@pytest.fixture
def context(context: PlatformContext, wakes: list[bool]) -> PlatformContext:
    return replace(context, wake=lambda _job_id: wakes.append(is_on_a_loop()))


def test_no_step_of_a_version_wakes_a_worker_on_the_event_loop(
    pirate: list[str], wakes: list[bool], api: TestClient, harbour: Tenant, operator: Port
) -> None:
    path = "/v1/adapters/pirate/versions"
    assert api.post(f"{path}/2/retire", json={"force": True}, headers=harbour.auth).status_code == 200
    assert api.post(f"{path}/2/restore", headers=harbour.auth).status_code == 200
    assert api.delete(f"{path}/3", headers=harbour.auth).status_code == 202
    assert operator.call("POST", "/adapters/pirate/versions/1/quarantine", {}).status_code == 200
    assert api.delete("/v1/adapters/pirate", headers=harbour.auth).status_code == 409
    assert wakes == [False, False, False]


def test_no_push_wakes_a_worker_on_the_event_loop(
    context: PlatformContext, wakes: list[bool], harbour: Tenant, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = write_files(tmp_path_factory.mktemp("files"))
    with TestClient(create_tenant_app(context)) as client:
        sealed = Uploader(client, harbour).seal(files.config.read_bytes(), files.weights.read_bytes())
    assert sealed.status_code == 202
    assert wakes == [False]
