"""How the objects find each other: labels, ports, probes, policies, the shared volume, and what runs first."""

from __future__ import annotations

from typing import Any

import helm_python
import pytest

from tests.support.chart_release import CHART_DIR, Release, hook_of, read_values, render, selects


class TestSelectors:
    def test_a_deployment_selects_its_own_pods_and_no_others(self, release: Release) -> None:
        for deployment in release.of_kind("Deployment"):
            selector = deployment["spec"]["selector"]["matchLabels"]
            chosen = [w["metadata"]["name"] for w in release.workloads() if selects(selector, _pod_labels(w))]
            assert chosen == [deployment["metadata"]["name"]]

    def test_every_other_selector_chooses_the_pods_of_one_deployment(self, release: Release) -> None:
        for document in release.documents:
            for selector in _selectors(document):
                chosen = [w["metadata"]["name"] for w in release.workloads() if selects(selector, _pod_labels(w))]
                assert len(chosen) == 1, document["metadata"]["name"]
                assert release.one("Deployment", chosen[0].removeprefix("lorikeet-"))

    def test_two_releases_in_one_namespace_do_not_select_each_other(self) -> None:
        mine, theirs = render({}, name="mine"), render({}, name="theirs")
        selectors = [selector for document in mine.documents for selector in _selectors(document)]
        assert selectors
        assert not any(selects(s, _pod_labels(w)) for s in selectors for w in theirs.workloads())


class TestPorts:
    def test_a_service_leads_to_a_port_that_its_pods_open(self, release: Release) -> None:
        for service in release.of_kind("Service"):
            for port in service["spec"]["ports"]:
                assert _opened(release, service["spec"]["selector"])[port["targetPort"]] == port["port"]

    def test_the_admin_port_is_in_its_own_service_inside_the_cluster(self, release: Release) -> None:
        with_admin = [s for s in release.of_kind("Service") if any(p["port"] == 8001 for p in s["spec"]["ports"])]
        assert [s["metadata"]["name"] for s in with_admin] == ["lorikeet-gateway-admin"]
        assert with_admin[0]["spec"]["type"] == "ClusterIP"
        assert [p["port"] for p in with_admin[0]["spec"]["ports"]] == [8001]

    def test_the_tenants_service_carries_the_api_alone_however_it_is_published(self) -> None:
        release = render({"gateway": {"service": {"type": "LoadBalancer"}}})
        assert [p["port"] for p in release.one("Service", "gateway")["spec"]["ports"]] == [8000]
        published = [s["metadata"]["name"] for s in release.of_kind("Service") if s["spec"]["type"] != "ClusterIP"]
        assert published == ["lorikeet-gateway"]

    def test_an_ingress_leads_to_the_api_alone(self) -> None:
        release = render(read_values(CHART_DIR / "ci" / "external-secrets-values.yaml"))
        (ingress,) = release.of_kind("Ingress")
        backends = [p["backend"]["service"] for rule in ingress["spec"]["rules"] for p in rule["http"]["paths"]]
        assert backends == [{"name": "lorikeet-gateway", "port": {"name": "api"}}]

    def test_the_engine_is_where_its_clients_look_for_it(self, release: Release) -> None:
        service = release.one("Service", "engine")
        address = f"tcp://{service['metadata']['name']}:{_numbers(service)['socket']}"
        for name in ("gateway", "worker"):
            (container,) = release.one("Deployment", name)["spec"]["template"]["spec"]["containers"]
            assert {"name": "LORIKEET_ENGINE_ENDPOINT", "value": address} in container["env"]


class TestNetworkPolicies:
    @pytest.fixture
    def release(self) -> Release:
        return render({})

    def test_only_gateway_and_worker_reach_the_engine(self, release: Release) -> None:
        (rule,) = release.one("NetworkPolicy", "engine")["spec"]["ingress"]
        assert [port["port"] for port in rule["ports"]] == ["socket"]
        peers = [peer["podSelector"]["matchLabels"] for peer in rule["from"]]
        reached = [w["metadata"]["name"] for w in release.workloads() if any(selects(p, _pod_labels(w)) for p in peers)]
        assert reached == ["lorikeet-gateway", "lorikeet-worker"]

    def test_the_engine_has_no_way_out(self, release: Release) -> None:
        spec = release.one("NetworkPolicy", "engine")["spec"]
        assert "Egress" in spec["policyTypes"]
        assert "egress" not in spec

    def test_with_a_bucket_the_engine_may_call_it_and_the_cluster_s_dns_and_nothing_else(self) -> None:
        values = read_values(CHART_DIR / "ci" / "bucket-values.yaml")
        bucket, dns = render(values).one("NetworkPolicy", "engine")["spec"]["egress"]
        assert bucket == {"to": values["networkPolicy"]["bucketTo"]}
        assert {port["port"] for port in dns["ports"]} == {53}

    def test_tenants_reach_the_api_port_and_never_the_admin_port(self, release: Release) -> None:
        (rule,) = release.one("NetworkPolicy", "gateway")["spec"]["ingress"]
        assert [port["port"] for port in rule["ports"]] == ["api"]

    def test_the_admin_port_opens_to_named_peers_only(self) -> None:
        peers = [{"namespaceSelector": {"matchLabels": {"team": "operators"}}}]
        policy = render({"networkPolicy": {"adminFrom": peers}}).one("NetworkPolicy", "gateway")
        admin = [rule for rule in policy["spec"]["ingress"] if any(p["port"] == "admin" for p in rule["ports"])]
        assert [rule["from"] for rule in admin] == [peers]

    def test_nobody_reaches_a_worker(self, release: Release) -> None:
        assert release.one("NetworkPolicy", "worker")["spec"].keys() == {"podSelector", "policyTypes"}


class TestLifecycle:
    def test_gateway_and_engine_have_all_three_probes_on_open_ports(self, release: Release) -> None:
        for name in ("gateway", "engine"):
            (container,) = release.one("Deployment", name)["spec"]["template"]["spec"]["containers"]
            ports = {port["name"] for port in container["ports"]}
            paths = {}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert container[probe]["httpGet"]["port"] in ports - {"admin", "socket"}
                paths[probe] = container[probe]["httpGet"]["path"]
            assert (paths["livenessProbe"], paths["readinessProbe"]) == ("/livez", "/readyz")

    def test_loading_a_model_may_take_as_long_as_the_value_says(self) -> None:
        (container,) = render({"engine": {"startupSeconds": 1801}}).one("Deployment", "engine")["spec"]["template"][
            "spec"
        ]["containers"]
        probe = container["startupProbe"]
        assert probe["httpGet"]["path"] == "/readyz"
        assert 1801 <= probe["periodSeconds"] * probe["failureThreshold"] < 1801 + probe["periodSeconds"]

    def test_streams_have_time_to_end_before_a_pod_is_killed(self, release: Release) -> None:
        for name in ("gateway", "engine"):
            pod = release.one("Deployment", name)["spec"]["template"]["spec"]
            assert pod["terminationGracePeriodSeconds"] >= 5 + 120 + 10

    def test_a_rollout_never_has_fewer_gateways_and_never_two_engines(self, release: Release) -> None:
        gateway = release.one("Deployment", "gateway")["spec"]["strategy"]
        assert gateway["rollingUpdate"]["maxUnavailable"] == 0
        engine = release.one("Deployment", "engine")["spec"]
        assert (engine["replicas"], engine["strategy"]) == (1, {"type": "Recreate"})

    def test_changed_settings_restart_the_pods_that_read_them(self) -> None:
        before, after = render({}), render({"engine": {"knobs": {"max_num_seqs": 8}}})
        changed = [
            old["metadata"]["name"]
            for old, new in zip(before.of_kind("Deployment"), after.of_kind("Deployment"), strict=True)
            if old["spec"]["template"] != new["spec"]["template"]
        ]
        assert changed == ["lorikeet-engine"]


class TestMigration:
    def test_it_ends_before_the_rollout_of_an_installation_or_upgrade(self, release: Release) -> None:
        (job,) = release.of_kind("Job")
        assert hook_of(job) == {"pre-install", "pre-upgrade"}
        assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"
        assert not any(hook_of(document) for document in release.of_kind("Deployment"))

    def test_it_needs_nothing_that_helm_creates_after_it(self, release: Release) -> None:
        (job,) = release.of_kind("Job")
        later = {(d["kind"], d["metadata"]["name"]) for d in release.documents if not hook_of(d)}
        pod = job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert ("ServiceAccount", pod["serviceAccountName"]) not in later
        assert "envFrom" not in container
        assert [volume.keys() - {"name"} for volume in pod["volumes"]] == [{"emptyDir"}]
        needed = [v["valueFrom"]["secretKeyRef"]["name"] for v in container["env"] if "valueFrom" in v]
        assert len(needed) == 1
        assert ("Secret", needed[0]) not in later

    def test_a_database_secret_of_the_chart_is_there_before_it(self) -> None:
        release = render({"secrets": {"database": {"value": "postgresql+psycopg://u:p@h/d"}}})
        (job,) = release.of_kind("Job")
        secret = release.one("Secret", "migration-database")
        assert hook_of(secret) == hook_of(job)
        assert _weight(secret) < _weight(job)


class TestDatabaseLogins:
    def test_one_login_does_everything_where_no_other_is_named(self) -> None:
        release = render({})
        for name in ("gateway", "worker"):
            assert _secrets_of(release, name)["LORIKEET_DATABASE_URL"] == ("lorikeet-database", "url")
            assert "LORIKEET_DATABASE_PLATFORM_URL" not in _secrets_of(release, name)
        assert _secrets_of(release, "migration") == {"LORIKEET_DATABASE_URL": ("lorikeet-database", "url")}

    def test_each_login_that_is_named_is_where_it_is_needed_and_nowhere_else(self) -> None:
        release = render(read_values(CHART_DIR / "ci" / "external-secrets-values.yaml"))
        platform = ("lorikeet-production", "database-platform-url")
        owner = ("lorikeet-production", "database-owner-url")
        for name in ("gateway", "worker"):
            held = _secrets_of(release, name)
            assert held["LORIKEET_DATABASE_URL"] == ("lorikeet-production", "database-url")
            assert held["LORIKEET_DATABASE_PLATFORM_URL"] == platform
            assert owner not in held.values()
        assert _secrets_of(release, "migration") == {"LORIKEET_DATABASE_URL": owner}
        assert not {platform, owner} & set(_secrets_of(release, "engine").values())

    def test_an_owners_address_in_the_values_lies_in_the_migrations_own_secret_alone(self) -> None:
        address = "postgresql+psycopg://owner:p@h/d"
        release = render({"secrets": {"databaseOwner": {"value": address}}})
        holders = [s["metadata"]["name"] for s in release.of_kind("Secret") if address in s["stringData"].values()]
        assert holders == ["lorikeet-migration-database"]
        expected = {"LORIKEET_DATABASE_URL": ("lorikeet-migration-database", "url")}
        assert _secrets_of(release, "migration") == expected


class TestLimits:
    def test_gateways_count_rates_in_the_brokers_redis_or_in_one_of_their_own(self) -> None:
        assert _secrets_of(render({}), "gateway")["LORIKEET_REDIS_URL"] == ("lorikeet-broker", "url")
        named = render({"secrets": {"limits": {"existingSecret": "rates"}}})
        assert _secrets_of(named, "gateway")["LORIKEET_REDIS_URL"] == ("rates", "url")
        assert "LORIKEET_REDIS_URL" not in _secrets_of(named, "worker")


class TestSharedVolume:
    def test_gateway_worker_and_engine_share_one_claim(self, release: Release) -> None:
        claims = {
            volume["persistentVolumeClaim"]["claimName"]
            for deployment in release.of_kind("Deployment")
            for volume in deployment["spec"]["template"]["spec"]["volumes"]
            if volume["name"] == "data"
        }
        mounted = {c["name"] for _, c in release.containers() if any(m["name"] == "data" for m in c["volumeMounts"])}
        assert len(claims) == 1
        assert mounted == {"gateway", "worker", "engine"}

    def test_the_charts_claim_is_for_many_nodes_and_survives_an_uninstallation(self) -> None:
        (claim,) = render({}).of_kind("PersistentVolumeClaim")
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
        assert claim["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}

    def test_an_existing_claim_is_used_instead(self) -> None:
        release = render({"storage": {"existingClaim": "shared"}})
        assert release.of_kind("PersistentVolumeClaim") == []
        volumes = release.one("Deployment", "worker")["spec"]["template"]["spec"]["volumes"]
        assert {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}} in volumes

    def test_every_mount_has_its_volume(self, release: Release) -> None:
        for workload in release.workloads():
            pod = workload["spec"]["template"]["spec"]
            volumes = {volume["name"] for volume in pod["volumes"]}
            assert {mount["name"] for c in pod["containers"] for mount in c["volumeMounts"]} == volumes


class TestOutbox:
    def test_the_engine_writes_it_to_a_volume_of_its_own_that_survives_the_container(self, release: Release) -> None:
        folder = release.one("ConfigMap", "engine")["data"]["LORIKEET_ENGINE__OUTBOX_DIR"]
        (container,) = release.one("Deployment", "engine")["spec"]["template"]["spec"]["containers"]
        assert {"name": "outbox", "mountPath": folder} in container["volumeMounts"]
        read_only = [mount["mountPath"] for mount in container["volumeMounts"] if mount.get("readOnly")]
        assert not any(folder.startswith(above) for above in read_only), "there is no place to mount it"
        elsewhere = [c["name"] for _, c in release.containers() for m in c["volumeMounts"] if m["name"] == "outbox"]
        assert elsewhere == ["engine"]

    def test_its_volume_is_the_pods_own_or_the_claim_that_is_named(self) -> None:
        def volume(values: dict[str, Any]) -> dict[str, Any]:
            volumes = render(values).one("Deployment", "engine")["spec"]["template"]["spec"]["volumes"]
            (found,) = (volume for volume in volumes if volume["name"] == "outbox")
            assert isinstance(found, dict)
            return found

        assert volume({}) == {"name": "outbox", "emptyDir": {"sizeLimit": "256Mi"}}
        claimed = volume({"engine": {"outbox": {"existingClaim": "outbox"}}})
        assert claimed == {"name": "outbox", "persistentVolumeClaim": {"claimName": "outbox"}}


class TestBucket:
    def test_gateway_worker_and_engine_open_the_same_store(self) -> None:
        release = render(read_values(CHART_DIR / "ci" / "bucket-values.yaml"))
        settings = release.one("ConfigMap", "settings")["data"]
        assert settings["LORIKEET_STORE_URL"] == "s3://lorikeet/production"
        assert settings["LORIKEET_STORE_ALLOW_HTTP"] == "true"
        for name in ("gateway", "worker", "engine"):
            (container,) = release.one("Deployment", name)["spec"]["template"]["spec"]["containers"]
            assert {"configMapRef": {"name": "lorikeet-settings"}} in container["envFrom"]

    @pytest.mark.parametrize(
        ("bucket", "network", "named"),
        [
            ({"endpoint": "https://s3.example.org"}, {}, "storage.bucket"),
            ({"url": "s3://lorikeet"}, {}, "networkPolicy.bucketTo"),
            (
                {"url": "s3://lorikeet", "writerSecret": "one", "readerSecret": "one"},
                {"enabled": False},
                "readerSecret",
            ),
            ({"url": "https://lorikeet.s3.amazonaws.com"}, {"enabled": False}, "url"),
        ],
    )
    def test_what_could_not_work_is_refused_by_name(
        self, bucket: dict[str, Any], network: dict[str, Any], named: str
    ) -> None:
        with pytest.raises(helm_python.HelmError, match=named):
            render({"storage": {"bucket": bucket}, "networkPolicy": network})


def test_a_worker_s_memory_holds_what_its_jobs_may_take_at_once(release: Release) -> None:
    (container,) = release.one("Deployment", "worker")["spec"]["template"]["spec"]["containers"]
    settings = release.one("ConfigMap", "worker")["data"]
    concurrency = int(settings["LORIKEET_WORKER_CONCURRENCY"])
    jails = concurrency * int(settings["LORIKEET_VALIDATION__JAIL_MEMORY_BYTES"])
    limit = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) << 30
    assert limit >= jails + int(settings["LORIKEET_VALIDATION__CERTIFICATE_MEMORY_BYTES"]) + (1 << 30)


def test_a_gpu_is_asked_for_exactly_when_the_device_is_cuda(release: Release, values: dict[str, Any]) -> None:
    wanted = values.get("engine", {}).get("gpu", {}).get("enabled", False)
    for _, container in release.containers():
        assert ("nvidia.com/gpu" in container["resources"]["limits"]) == (wanted and container["name"] == "engine")
    device = release.one("ConfigMap", "engine")["data"]["LORIKEET_ENGINE__DEVICE"]
    assert device == ("cuda" if wanted else "cpu")


def _pod_labels(workload: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def _selectors(document: dict[str, Any]) -> list[dict[str, str]]:
    spec = document.get("spec", {})
    if document["kind"] == "Service":
        return [spec["selector"]]
    if document["kind"] == "NetworkPolicy":
        return [spec["podSelector"]["matchLabels"]]
    if document["kind"] == "PodDisruptionBudget":
        return [spec["selector"]["matchLabels"]]
    if document["kind"] == "Deployment":
        spreads = spec["template"]["spec"].get("topologySpreadConstraints", [])
        return [spread["labelSelector"]["matchLabels"] for spread in spreads]
    return []


def _opened(release: Release, selector: dict[str, str]) -> dict[str, int]:
    return {
        port["name"]: port["containerPort"]
        for workload in release.workloads()
        if selects(selector, _pod_labels(workload))
        for container in workload["spec"]["template"]["spec"]["containers"]
        for port in container.get("ports", [])
    }


def _numbers(service: dict[str, Any]) -> dict[str, int]:
    return {port["name"]: port["port"] for port in service["spec"]["ports"]}


def _weight(document: dict[str, Any]) -> int:
    return int(document["metadata"]["annotations"]["helm.sh/hook-weight"])


def _secrets_of(release: Release, name: str) -> dict[str, tuple[str, str]]:
    """Per variable of a container, the Secret and key that it comes from."""
    (container,) = (container for _, container in release.containers() if container["name"] == name)
    references = {v["name"]: v["valueFrom"]["secretKeyRef"] for v in container["env"] if "valueFrom" in v}
    return {variable: (found["name"], found["key"]) for variable, found in references.items()}
