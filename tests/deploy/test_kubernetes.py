"""deploy/kubernetes keeps to the published schemas of Kubernetes and KEDA, and its parts know each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest
import yaml
from jsonschema import Draft4Validator

from tests.deploy.stack import (
    KUBERNETES,
    OVERLAYS,
    SYSTEMS,
    check_settings,
    documents,
    manifests,
    named,
    of_kind,
    pod_environment,
    pods,
    services,
)
from tests.fixtures.places import ROOT

ENDPOINTS = [*SYSTEMS, *(f"{system}-further" for system in SYSTEMS)]
KUSTOMIZATIONS = sorted(KUBERNETES.rglob("kustomization.yaml"))
KUSTOMIZE = next((words for words in (["kustomize", "build"], ["kubectl", "kustomize"]) if shutil.which(words[0])), [])


def pod_of(name, overlay="base"):
    """Return specification and container of a pod."""
    ((pod, only),) = [(pod, only) for other, _, pod, only in pods(overlay) if other == name]
    return pod, only


def by_name(some):
    return {(each["kind"], each["metadata"]["name"]): each for each in some}


@pytest.mark.skipif(not KUSTOMIZE, reason="neither kustomize nor kubectl is here")
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_manifests_are_those_that_kustomize_renders(overlay):
    done = subprocess.run([*KUSTOMIZE, str(KUBERNETES / overlay)], capture_output=True, text=True, check=True)
    assert by_name(manifests(overlay)) == by_name(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
def test_a_kustomization_keeps_to_its_published_schema(path):
    schema = json.loads((ROOT / "tests/deploy/schemas/kustomization.json").read_text(encoding="utf-8"))
    (document,) = documents(path)
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


def test_scaled_objects_keep_to_the_custom_resources_of_keda_and_scale_further_replicas_by_what_waits():
    keda = pytest.importorskip("cloudcoil.models.keda.v1alpha1", reason="pip install -e '.[dev]'")

    def known(manifest):
        """Return what a model of KEDA's custom resources takes from a manifest."""
        return keda.ScaledObject.model_validate(manifest).model_dump(by_alias=True, exclude_unset=True, mode="json")

    scaled = of_kind("ScaledObject", "overlays/keda")
    assert {each["metadata"]["name"] for each in scaled} == set(SYSTEMS)
    wrong = {**scaled[0], "spec": {**scaled[0]["spec"], "poolingInterval": 1}}
    assert known(wrong) == scaled[0]
    for each in scaled:
        assert known(each) == each
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
    for name, _, pod, only in pods(overlay):
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
def test_an_endpoint_is_probed_as_bentoml_has_it_ended_after_its_last_answers_and_takes_its_variables(name):
    pod, only = pod_of(name)
    assert only["startupProbe"]["httpGet"] == only["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert only["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert only["ports"] == [{"name": "http", "containerPort": 3000}]
    pause = int(only["lifecycle"]["preStop"]["exec"]["command"][1])
    drained = int(only["args"][only["args"].index("--timeout-graceful-shutdown") + 1])
    assert pod["terminationGracePeriodSeconds"] > drained + pause
    for overlay in OVERLAYS:
        system = name.removesuffix("-further")
        settings = check_settings(system, pod_environment(pod_of(name, overlay)[1], overlay))
        assert settings.try_challengers == (name == system)
        assert settings.device == ("cuda" if "gpu" in overlay else "cpu")
        assert settings.allowed_hosts.split(",")[0] == system


def selected(selector, labels):
    """Whether a label selector of Kubernetes takes these labels."""
    rules = selector.get("matchExpressions", ())
    assert all(rule["operator"] == "In" for rule in rules)
    return all(labels.get(rule["key"]) in rule["values"] for rule in rules) and all(
        labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()
    )


def test_endpoints_reach_the_registry_and_of_prefect_the_door_for_events_alone():
    for name, labels, _, only in pods():
        ports = {
            (port["port"], next(iter(peer)))
            for policy in of_kind("NetworkPolicy")
            if selected(policy["spec"]["podSelector"], labels)
            for rule in policy["spec"].get("egress", ())
            for peer in rule["to"]
            for port in rule["ports"]
        } - {(53, "namespaceSelector")}
        match labels["app.kubernetes.io/component"]:
            case "endpoint":
                assert ports == {(5000, "namespaceSelector"), (4280, "podSelector")}, name
                assert pod_environment(only)["PREFECT_API_URL"] == "http://events:4280/api"
            case "door":
                assert ports == {(4200, "namespaceSelector")}
            case "flows":
                assert {(5000, "namespaceSelector"), (4200, "namespaceSelector")} <= ports, name


def test_the_worker_alone_holds_the_key_that_signs_and_nothing_unsigned_is_served():
    assert [name for name, _, pod, _ in pods() if "pliant-signing" in json.dumps(pod["volumes"])] == ["worker"]
    assert pod_environment(pod_of("worker")[1])["PLIANT_SIGNING_KEY"] == "/signing/release.pem"
    for name in (*ENDPOINTS, "worker"):
        pod, only = pod_of(name)
        mounts = {mount["mountPath"]: mount["name"] for mount in only["volumeMounts"]}
        assert mounts[pod_environment(only)["PLIANT_TRUSTED_KEYS"]] == "trusted"
        assert {"name": "trusted", "configMap": {"name": "pliant-trusted"}} in pod["volumes"]


def test_the_ingress_leads_to_services_by_names_that_they_know():
    (ingress,) = of_kind("Ingress")
    assert ingress["spec"]["tls"][0]["hosts"] == [rule["host"] for rule in ingress["spec"]["rules"]]
    for rule in ingress["spec"]["rules"]:
        (path,) = rule["http"]["paths"]
        service = named("Service", path["backend"]["service"]["name"])
        assert path["backend"]["service"]["port"]["name"] == service["spec"]["ports"][0]["name"]
        hosts = pod_environment(pod_of(service["metadata"]["name"])[1])["PLIANT_ALLOWED_HOSTS"].split(",")
        assert rule["host"] in hosts


@pytest.mark.parametrize("overlay", ["overlays/gpu", "overlays/gpu-keda"])
def test_on_gpus_the_endpoints_and_the_worker_that_measures_for_them_have_one(overlay):
    having = {name: (pod, only["resources"]) for name, _, pod, only in pods(overlay) if "nvidia" in str(only)}
    assert set(having) == {*ENDPOINTS, "worker"}
    for pod, resources in having.values():
        assert resources["limits"]["nvidia.com/gpu"] == resources["requests"]["nvidia.com/gpu"] == "1"
        assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
