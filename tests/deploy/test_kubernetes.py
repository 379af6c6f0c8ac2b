"""deploy/kubernetes keeps to the published schemas of Kubernetes and KEDA, and its parts know each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml
from jsonschema import Draft4Validator

from tests.deploy.kustomize import documents
from tests.deploy.stack import (
    DEPLOY,
    KUBERNETES,
    OVERLAYS,
    SYSTEMS,
    check_settings,
    container,
    manifests,
    named,
    of_kind,
    pod_environment,
    pods,
    selected,
    services,
)

ENDPOINTS = [*SYSTEMS, *(f"{system}-further" for system in SYSTEMS)]
KUSTOMIZATIONS = sorted(
    path.parent.relative_to(KUBERNETES).as_posix() for path in KUBERNETES.rglob("kustomization.yaml")
)


def pod_of(name, overlay="base"):
    (pod,) = [pod for other, _, pod in pods(overlay) if other == name]
    return pod


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_manifests_are_those_that_kustomize_renders(overlay):
    commands = [["kustomize", "build"], ["kubectl", "kustomize"]]
    command = next((command for command in commands if shutil.which(command[0])), None)
    if command is None:
        pytest.skip("neither kustomize nor kubectl is here")
    done = subprocess.run([*command, str(KUBERNETES / overlay)], capture_output=True, text=True, check=True)

    def by_name(documents):
        return {(each["kind"], each["metadata"]["name"]): each for each in documents}

    assert by_name(manifests(overlay)) == by_name(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("folder", KUSTOMIZATIONS)
def test_a_kustomization_keeps_to_its_published_schema(folder):
    schema = json.loads((DEPLOY.parent / "tests/deploy/schemas/kustomization.json").read_text(encoding="utf-8"))
    (document,) = documents(KUBERNETES / folder / "kustomization.yaml")
    if document["kind"] == "Component":  # the schema knows the other kind alone; their fields are the same
        document = {**document, "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
    errors = [error.message for error in Draft4Validator(schema).iter_errors(document)]
    # The schema is of 2021, before labels were put on templates: that field is the one that it may miss.
    assert [error for error in errors if "'includeTemplates' was unexpected" not in error] == []


@pytest.mark.parametrize(("overlay", "version"), [("base", "1.33"), *((overlay, "1.37") for overlay in OVERLAYS)])
def test_the_manifests_keep_to_the_published_schemas_of_kubernetes(overlay, version):
    kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="pip install -e '.[dev]'")
    known = list(manifests()) if overlay != "base" else []
    for manifest in manifests(overlay):
        if manifest not in known and manifest["kind"] != "ScaledObject":
            kubernetes_validate.validate(manifest, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError, match="spek"):
        kubernetes_validate.validate({**named("Service", "tokens"), "spek": {}}, version, strict=True)


def unknown(value, model):
    """Return the paths of what a model of KEDA's custom resources did not take from a manifest."""
    kept = model.model_dump(by_alias=True, exclude_unset=True, mode="json")

    def missing(mine, theirs, path):
        if isinstance(mine, dict):
            for key, each in mine.items():
                yield from missing(each, theirs[key], f"{path}.{key}") if key in theirs else (f"{path}.{key}",)
        elif isinstance(mine, list):
            for number, (each, other) in enumerate(zip(mine, theirs, strict=True)):
                yield from missing(each, other, f"{path}[{number}]")

    return list(missing(value, kept, ""))


def test_scaled_objects_keep_to_the_custom_resources_of_keda_and_scale_further_replicas_by_what_waits():
    keda = pytest.importorskip("cloudcoil.models.keda.v1alpha1", reason="pip install -e '.[dev]'")
    scaled = of_kind("ScaledObject", "overlays/keda")
    assert {each["metadata"]["name"] for each in scaled} == set(SYSTEMS)
    wrong = {**scaled[0], "spec": {**scaled[0]["spec"], "poolingInterval": 1}}
    assert unknown(wrong, keda.ScaledObject.model_validate(wrong)) == [".spec.poolingInterval"]
    for each in scaled:
        assert unknown(each, keda.ScaledObject.model_validate(each)) == []
        system, spec = each["metadata"]["name"], each["spec"]
        workload = named("Deployment", spec["scaleTargetRef"]["name"], "overlays/keda")
        assert workload["metadata"]["name"] == f"{system}-further"
        assert "replicas" not in workload["spec"]  # or each `kubectl apply` would undo what KEDA decided
        (trigger,) = spec["triggers"]
        assert trigger["metadata"]["query"] == f'sum(pliant_waiting{{system="{system}"}})'
        assert float(trigger["metadata"]["threshold"]) > 0
        assert spec["minReplicaCount"] <= spec["fallback"]["replicas"] <= spec["maxReplicaCount"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_no_pod_has_more_rights_than_it_needs_and_all_have_limits_and_one_version(overlay):
    for name, _, pod in pods(overlay):
        only = container(pod)
        assert pod["serviceAccountName"] == "pliant" and pod["automountServiceAccountToken"] is False, name
        assert pod["enableServiceLinks"] is False, "else Kubernetes names variables that a service refuses"
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert not any("hostPath" in volume for volume in pod["volumes"])
        for kind in ("requests", "limits"):
            assert {"cpu", "memory", "ephemeral-storage"} <= set(only["resources"][kind]), name
        assert re.fullmatch(r"pliant-\w+:\d+\.\d+\.\d+", only["image"]) or only["image"] == services()["proxy"]["image"]
    assert named("ServiceAccount", "pliant", overlay)["automountServiceAccountToken"] is False
    labels = named("Namespace", "pliant", overlay)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("name", ENDPOINTS)
def test_an_endpoint_is_probed_as_bentoml_has_it_and_ended_after_its_last_answers(name):
    pod = pod_of(name)
    only = container(pod)
    assert only["startupProbe"]["httpGet"] == only["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert only["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert only["ports"] == [{"name": "http", "containerPort": 3000}]
    pause = int(only["lifecycle"]["preStop"]["exec"]["command"][1])
    drained = int(only["args"][only["args"].index("--timeout-graceful-shutdown") + 1])
    assert pod["terminationGracePeriodSeconds"] > drained + pause


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("name", ENDPOINTS)
def test_a_service_accepts_the_variables_that_it_is_given(name, overlay):
    settings = check_settings(name.removesuffix("-further"), pod_environment(pod_of(name, overlay), overlay))
    assert settings.try_challengers == (not name.endswith("-further"))
    assert settings.device == ("cuda" if "gpu" in overlay else "cpu")
    assert settings.allowed_hosts.split(",")[0] == name.removesuffix("-further")


def reached(labels, policies):
    """Return the ports, and to whom, that a pod with these labels may reach, by the network policies."""
    return {
        (port["port"], next(iter(peer)))
        for policy in policies
        if selected(policy["spec"]["podSelector"], labels)
        for rule in policy["spec"].get("egress", ())
        for peer in rule["to"]
        for port in rule["ports"]
    }


def test_endpoints_reach_the_registry_and_of_prefect_the_door_for_events_alone():
    policies = of_kind("NetworkPolicy")
    for name, labels, pod in pods():
        ports = reached(labels, policies) - {(53, "namespaceSelector")}
        match labels["app.kubernetes.io/component"]:
            case "endpoint":
                assert ports == {(5000, "namespaceSelector"), (4280, "podSelector")}, name
                assert pod_environment(pod)["PREFECT_API_URL"] == "http://events:4280/api"
            case "door":
                assert ports == {(4200, "namespaceSelector")}
            case "flows":
                assert {(5000, "namespaceSelector"), (4200, "namespaceSelector")} <= ports, name


def test_the_worker_alone_holds_the_key_that_signs_and_nothing_unsigned_is_served():
    holders = [name for name, _, pod in pods() if "pliant-signing" in json.dumps(pod["volumes"])]
    assert holders == ["worker"]
    assert pod_environment(pod_of("worker"))["PLIANT_SIGNING_KEY"] == "/signing/release.pem"
    for name in (*ENDPOINTS, "worker"):
        pod = pod_of(name)
        mounts = {mount["mountPath"]: mount["name"] for mount in container(pod)["volumeMounts"]}
        assert mounts[pod_environment(pod)["PLIANT_TRUSTED_KEYS"]] == "trusted"
        assert {"name": "trusted", "configMap": {"name": "pliant-trusted"}} in pod["volumes"]


def test_the_ingress_leads_to_services_by_names_that_they_know():
    (ingress,) = of_kind("Ingress")
    assert ingress["spec"]["tls"][0]["hosts"] == [rule["host"] for rule in ingress["spec"]["rules"]]
    for rule in ingress["spec"]["rules"]:
        (path,) = rule["http"]["paths"]
        service = named("Service", path["backend"]["service"]["name"])
        assert path["backend"]["service"]["port"]["name"] == service["spec"]["ports"][0]["name"]
        hosts = pod_environment(pod_of(service["metadata"]["name"]))["PLIANT_ALLOWED_HOSTS"].split(",")
        assert rule["host"] in hosts


@pytest.mark.parametrize("overlay", ["overlays/gpu", "overlays/gpu-keda"])
def test_on_gpus_the_endpoints_and_the_worker_that_measures_for_them_have_one(overlay):
    having = {name for name, _, pod in pods(overlay) if "nvidia.com/gpu" in container(pod)["resources"]["limits"]}
    assert having == {*ENDPOINTS, "worker"}
    for name in having:
        pod = pod_of(name, overlay)
        resources = container(pod)["resources"]
        assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == "1"
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
