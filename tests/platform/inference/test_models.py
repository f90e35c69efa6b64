"""The models a key can see."""

from __future__ import annotations

import pytest

from tests.platform.inference.conftest import Gateway


def test_a_tenant_sees_the_base_model_and_its_own_adapters(gateway: Gateway) -> None:
    models = gateway.get("/v1/models").json()
    assert models["object"] == "list"
    assert [(model["id"], model["object"], model["owned_by"]) for model in models["data"]] == [
        ("tiny", "model", "platform"),
        ("pirate", "model", "harbour"),
    ]
    detail = models["data"][1]["lorikeet"]
    assert detail["base_model"] == "tiny"
    assert detail["aliases"] == {"live": [{"version": 1, "weight": 100}]}
    assert detail["version_id"].startswith("ver_")


def test_one_model_is_found_by_every_name_it_answers_to(gateway: Gateway) -> None:
    for name in ("tiny", "pirate", "pirate@live", "pirate:1"):
        response = gateway.get(f"/v1/models/{name}")
        assert (response.status_code, response.json()["id"]) == (200, name)


def test_another_tenants_model_is_404_like_a_missing_one(gateway: Gateway) -> None:
    for name in ("haiku", "nobody"):
        response = gateway.get(f"/v1/models/{name}")
        assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


def test_one_model_is_looked_up_without_all_others(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    def load_all(*_arguments: object) -> None:
        raise AssertionError("all adapters were loaded for one of them")

    monkeypatch.setattr("lorikeet_platform.inference.models.list_adapters", load_all)
    for name in ("pirate", "pirate@live", "pirate:1"):
        assert gateway.get(f"/v1/models/{name}").json()["lorikeet"]["version_id"].startswith("ver_")
