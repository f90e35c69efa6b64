"""Live, ready, metrics, and the dashboard's files."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient

from lorikeet_platform.context import PlatformContext
from lorikeet_platform.web.errors import install_error_rendering
from lorikeet_platform.web.guards import Bounds, Guard
from lorikeet_platform.web.pages import SECURITY_HEADERS, pages_router
from tests.support.platform_parts import MeasuredEngine


def test_live_and_ready_need_no_key(api: TestClient, admin: TestClient) -> None:
    for client in (api, admin):
        assert client.get("/livez").json() == {"status": "live"}
        assert client.get("/readyz").json() == {"status": "ready", "reasons": []}


def test_without_an_engine_the_process_lives_but_is_not_ready(api: TestClient, context: PlatformContext) -> None:
    engine = context.engine_client
    assert isinstance(engine, MeasuredEngine)
    engine.is_up = False
    assert api.get("/livez").status_code == 200
    response = api.get("/readyz")
    assert response.status_code == 503
    assert response.json() == {"status": "unavailable", "reasons": ["engine_unavailable"]}


def test_without_a_database_it_is_not_ready(api: TestClient, context: PlatformContext, tmp_path: Path) -> None:
    context.db.close()
    for path in tmp_path.glob("lorikeet.db*"):
        path.unlink()
    (tmp_path / "lorikeet.db").mkdir()
    assert api.get("/readyz").json() == {"status": "unavailable", "reasons": ["db_unavailable"]}


def test_metrics_count_by_route_never_by_address(api: TestClient, admin: TestClient) -> None:
    api.get("/v1/adapters/a-tenants-secret-name")
    text = admin.get("/metrics").text
    assert 'route="/v1/adapters/{name}"' in text
    assert "a-tenants-secret-name" not in text


@pytest.fixture
def pages(tmp_path: Path, context: PlatformContext) -> TestClient:
    (tmp_path / "static/assets").mkdir(parents=True)
    (tmp_path / "static/index.html").write_text("<title>page</title>")
    (tmp_path / "static/assets/app.123.js").write_text("js")
    (tmp_path / "secret").write_text("secret")
    app = FastAPI()
    install_error_rendering(app)
    app.include_router(pages_router(tmp_path / "static"))
    guarded = Guard(app, Bounds(context.settings.limits, answer_headers=SECURITY_HEADERS))
    return TestClient(guarded)


def test_every_route_is_known_to_the_metrics_by_its_whole_address(api: TestClient, admin: TestClient) -> None:
    """A router that gives its prefix to another's routes would leave it out."""
    for client in (api, admin):
        for route in iter_route_contexts(client.app.routes):  # type: ignore[attr-defined]
            assert getattr(route.original_route, "path", None) == route.path


@pytest.mark.parametrize("path", ["/", "/sign-in", "/tenants/harbour/adapters", "/" + "a" * 300, "/a" * 4000])
def test_every_other_address_is_the_page(pages: TestClient, path: str) -> None:
    response = pages.get(path)
    assert response.text == "<title>page</title>"
    assert response.headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in response.headers["content-security-policy"]
    assert "unsafe-inline" not in response.headers["content-security-policy"].split("style-src")[0]


def test_assets_are_kept_by_browsers_and_a_missing_one_is_404(pages: TestClient) -> None:
    assert "immutable" in pages.get("/assets/app.123.js").headers["cache-control"]
    for missing in ("app.999.js", "a" * 300):
        assert pages.get(f"/assets/{missing}").status_code == 404


@pytest.mark.parametrize("path", ["/..%2fsecret", "/%2e%2e/secret", "/assets/..%2f..%2fsecret", "//etc/passwd"])
def test_no_address_leads_out_of_the_folder(pages: TestClient, path: str) -> None:
    response = pages.get(path)
    assert response.status_code in (200, 404)
    assert "secret" not in response.text
    assert "root:" not in response.text


def test_pages_that_are_not_built_say_so(tmp_path: Path) -> None:
    app = FastAPI()
    app.include_router(pages_router(tmp_path / "none"))
    assert "make ui" in TestClient(app).get("/").text
