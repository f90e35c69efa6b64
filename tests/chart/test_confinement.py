"""What the pods may do: no root, no writable root file system, no token, no secret where anybody reads it."""

from __future__ import annotations

import json
from typing import Any

from tests.support.chart_release import CHART_DIR, Release, read_values, render

SECRET_SETTINGS = {"LORIKEET_DATABASE_URL", "LORIKEET_BROKER_URL"}


def test_no_container_runs_as_root_or_can_become_it(release: Release) -> None:
    for workload in release.workloads():
        confinement = workload["spec"]["template"]["spec"]["securityContext"]
        assert confinement["runAsNonRoot"] is True
        assert confinement["runAsUser"] > 0
        assert confinement["runAsGroup"] > 0
        assert confinement["seccompProfile"] == {"type": "RuntimeDefault"}
    for _, container in release.containers():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_every_container_states_its_resources(release: Release) -> None:
    for _, container in release.containers():
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert "memory" in container["resources"]["limits"]


def test_no_pod_holds_a_cluster_token(release: Release) -> None:
    for document in release.of_kind("ServiceAccount"):
        assert document["automountServiceAccountToken"] is False
    for workload in release.workloads():
        assert workload["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_services_do_not_leak_into_the_settings(release: Release) -> None:
    """A Service named lorikeet-engine would inject LORIKEET_ENGINE_PORT, and unknown settings end the process."""
    for workload in release.workloads():
        assert workload["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_secret_settings_come_from_secrets_only(release: Release) -> None:
    for document in release.of_kind("ConfigMap"):
        assert not SECRET_SETTINGS & document["data"].keys()
    for _, container in release.containers():
        for variable in container.get("env", []):
            if variable["name"] in SECRET_SETTINGS:
                assert variable.keys() == {"name", "valueFrom"}
                assert variable["valueFrom"].keys() == {"secretKeyRef"}


def test_a_secret_given_as_a_value_appears_in_secret_objects_only() -> None:
    values = read_values(CHART_DIR / "ci" / "minimal-values.yaml")
    release = render(values)
    given = {key: secret["value"] for key, secret in values["secrets"].items()}
    stored = [text for document in release.of_kind("Secret") for text in document["stringData"].values()]
    assert set(stored) == set(given.values())
    rest = json.dumps([document for document in release.documents if document["kind"] != "Secret"]) + release.notes
    for key, text in given.items():
        assert json.dumps(text)[1:-1] not in rest, key


def test_without_secret_values_the_chart_makes_no_secret() -> None:
    for name in ("default", "external-secrets", "gpu"):
        assert render(read_values(CHART_DIR / "ci" / f"{name}-values.yaml")).of_kind("Secret") == []


def test_one_external_secret_serves_all() -> None:
    release = render(read_values(CHART_DIR / "ci" / "external-secrets-values.yaml"))
    assert {name for workload in release.workloads() for name, _ in _secret_keys(workload)} == {"lorikeet-production"}
    gateway = _secret_keys(release.one("Deployment", "gateway"))
    assert {key for _, key in gateway} == {
        "database-url",
        "database-platform-url",
        "broker-url",
        "limits-url",
        "key-pepper",
        "engine-socket-key",
    }


def test_the_engine_holds_its_socket_key_what_it_reads_the_bucket_with_and_no_other_secret(
    release: Release, values: dict[str, Any]
) -> None:
    reader = values.get("storage", {}).get("bucket", {}).get("readerSecret")
    of_bucket = {(reader, "AWS_ACCESS_KEY_ID"), (reader, "AWS_SECRET_ACCESS_KEY")} if reader else set()
    keys = _secret_keys(release.one("Deployment", "engine"))
    assert of_bucket <= keys
    assert len(keys - of_bucket) == 1


def test_nobody_who_writes_the_bucket_shares_credentials_with_the_engine() -> None:
    release = render(read_values(CHART_DIR / "ci" / "bucket-values.yaml"))
    names = {
        name: {secret for secret, key in _secret_keys(release.one("Deployment", name)) if key.startswith("AWS_")}
        for name in ("gateway", "worker", "engine")
    }
    writer, reader = {"lorikeet-bucket-writer"}, {"lorikeet-bucket-reader"}
    assert names == {"gateway": writer, "worker": writer, "engine": reader}


def test_the_worker_does_not_hold_the_pepper(release: Release) -> None:
    of_the_gateway = _secret_keys(release.one("Deployment", "gateway"))
    of_the_worker = _secret_keys(release.one("Deployment", "worker"))
    [pepper] = (found for found in of_the_gateway if "pepper" in found[1])
    assert pepper not in of_the_worker


def test_the_engine_cannot_write_adapters(release: Release) -> None:
    writable = [
        mount["mountPath"]
        for name, container in release.containers()
        if name.endswith("-engine")
        for mount in container["volumeMounts"]
        if not mount.get("readOnly")
    ]
    assert writable == ["/var/lib/lorikeet/models", "/var/outbox", "/tmp"]


def _secret_keys(workload: dict[str, Any]) -> set[tuple[str, str]]:
    """Every (Secret, key) that a workload's pods can read."""
    pod = workload["spec"]["template"]["spec"]
    keys: set[tuple[str, str]] = set()
    for volume in pod["volumes"]:
        if "secret" in volume:
            keys |= {(volume["secret"]["secretName"], item["key"]) for item in volume["secret"]["items"]}
    for container in pod["containers"]:
        assert not any("secretRef" in source for source in container.get("envFrom", []))
        for variable in container.get("env", []):
            if "valueFrom" in variable:
                reference = variable["valueFrom"]["secretKeyRef"]
                keys.add((reference["name"], reference["key"]))
    return keys
