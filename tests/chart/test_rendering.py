"""The chart renders to objects that Kubernetes knows, and refuses values that it cannot honour."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml

from tests.support.chart_release import CHART_DIR, Release, render

KUBERNETES_VERSION = "1.33"
OPERATOR = "monitoring.coreos.com/"


def test_the_strict_linter_finds_nothing(values: dict[str, Any]) -> None:
    report = helm_python.lint(CHART_DIR, values, strict=True)
    assert report["errors"] == []
    # "icon is recommended" is all that it says
    assert [message["path"] for message in report["messages"]] == ["Chart.yaml"]


def test_every_document_is_a_valid_kubernetes_object(release: Release) -> None:
    assert release.documents
    for document in release.documents:
        if not document["apiVersion"].startswith(OPERATOR):  # not Kubernetes' own: see test_monitoring.py
            kubernetes_validate.validate(document, KUBERNETES_VERSION, strict=True)


def test_a_misspelt_field_of_an_object_would_be_noticed(release: Release) -> None:
    document = json.loads(json.dumps(release.one("Deployment", "engine")))
    document["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(document, KUBERNETES_VERSION, strict=True)


def test_the_four_components_are_there_and_run_their_command(release: Release) -> None:
    commands = {container["name"]: container["command"] + container["args"] for _, container in release.containers()}
    assert commands == {
        "gateway": ["lorikeet", "gateway"],
        "engine": ["lorikeet", "engine"],
        "worker": ["lorikeet", "worker"],
        "migration": ["lorikeet", "db", "upgrade"],
    }


def test_no_two_objects_share_a_name(release: Release) -> None:
    names = [(document["kind"], document["metadata"]["name"]) for document in release.documents]
    assert len(names) == len(set(names))


def test_the_notes_name_the_secrets_that_the_release_needs() -> None:
    notes = render({"secrets": {"pepper": {"existingSecret": "vaulted"}}}, name="bird").notes
    assert "bird-lorikeet-database, bird-lorikeet-broker, vaulted, bird-lorikeet-engine-socket-key" in notes


def test_the_notes_warn_of_a_login_that_may_do_more_than_serve() -> None:
    one, two = {"value": "postgresql+psycopg://one@db/x"}, {"existingSecret": "another"}
    both = "secrets.databaseOwner and secrets.databasePlatform;"
    for secrets, told in (
        ({}, ("as the owner of its tables", both)),
        ({"databasePlatform": one}, ("as the owner of its tables", "\nsecrets.databaseOwner;")),
        ({"databaseOwner": two}, ("by one login that sees every tenant", "\nsecrets.databasePlatform;")),
    ):
        notes = render({"secrets": secrets}).notes
        assert notes.count("WARNING") == 1
        for words in told:
            assert words in notes
    assert "WARNING" not in render({"secrets": {"databaseOwner": one, "databasePlatform": two}}).notes


def test_the_longest_release_name_still_gives_valid_object_names() -> None:
    for document in render({}, name="a" * 53).documents:
        assert len(document["metadata"]["name"]) <= 63


def test_large_numbers_are_written_in_digits() -> None:
    knobs = {"adapter_pool_bytes": 3 * 2**40, "kv_cache_bytes": 10**9}
    settings = render({"engine": {"knobs": knobs}}).one("ConfigMap", "engine")["data"]
    assert settings["LORIKEET_ENGINE__ADAPTER_POOL_BYTES"] == "3298534883328"
    assert settings["LORIKEET_ENGINE__KV_CACHE_BYTES"] == "1000000000"


@pytest.mark.parametrize(
    ("refused", "named"),
    [
        ({"gatway": {}}, "gatway"),
        ({"gateway": {"replica": 2}}, "replica"),
        ({"gateway": {"replicas": "2"}}, "gateway/replicas"),
        ({"gateway": {"replicas": 0}}, "gateway/replicas"),
        ({"gateway": {"resources": {"limits": None}}}, "limits"),
        ({"gateway": {"ingress": {"enabled": True}}}, "hosts"),
        ({"engine": {"replicas": 2}}, "replicas"),
        ({"engine": {"knobs": {"max_num_seq": 4}}}, "max_num_seq"),
        ({"engine": {"knobs": {"block_size": 24}}}, "block_size"),
        ({"engine": {"knobs": {"kv_cache_bytes": 0}}}, "kv_cache_bytes"),
        ({"engine": {"knobs": {"dtype": "float8"}}}, "dtype"),
        ({"engine": {"knobs": {"dtype": "float16"}}}, "engine.knobs.dtype: float16"),
        ({"engine": {"knobs": {"quantization": "int4"}}}, "quantization"),
        ({"engine": {"knobs": {"quantization": "int8"}, "gpu": {"enabled": True}}}, "engine.knobs.quantization: int8"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"worker": {"resources": {"requests": {"memory": "two"}}}}, "memory"),
        ({"secrets": {"database": {"value": "sqlite:///lorikeet.db"}}}, "database"),
        ({"secrets": {"broker": {"value": "memory://"}}}, "broker"),
        ({"secrets": {"pepper": {"value": "salt"}}}, "pepper"),
        ({"secrets": {"engineSocketKey": {"value": "short"}}}, "engineSocketKey"),
        ({"secrets": {"broker": {"value": "redis://r:6379", "existingSecret": "b"}}}, "secrets.broker: set value or"),
        ({"model": {"source": "someone/some-model"}}, "model.source"),
        ({"model": {"source": "/models/llama"}}, "model.existingClaim"),
    ],
)
def test_a_value_that_cannot_be_honoured_is_refused_by_name(refused: dict[str, Any], named: str) -> None:
    with pytest.raises(helm_python.HelmError, match=named):
        render(refused)


def test_no_object_of_the_schema_lets_unknown_keys_pass() -> None:
    schema = json.loads((CHART_DIR / "values.schema.json").read_text())
    loose = [path for path, part in _objects(schema, "") if "properties" in part and part["additionalProperties"]]
    assert loose == []


def test_every_value_has_a_comment_line_above_it() -> None:
    text = (CHART_DIR / "values.yaml").read_text()
    lines = text.splitlines()
    bare = [key for key, line in _leaves(yaml.compose(text), "") if not lines[line - 1].lstrip().startswith("#")]
    assert bare == []


def _objects(part: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(part, dict):
        if part.get("type") == "object":
            yield path, part
        for key, inner in part.items():
            yield from _objects(inner, f"{path}/{key}")


def _leaves(node: Any, path: str) -> Iterator[tuple[str, int]]:
    """Each value with its line; a `resources` block counts as one value."""
    for key, value in node.value:
        inner = f"{path}.{key.value}"
        if isinstance(value, yaml.MappingNode) and not value.flow_style and key.value != "resources":
            yield from _leaves(value, inner)
        else:
            yield inner, key.start_mark.line
