"""What deploy/ says, as tests read it: the compose file with its variables filled in, manifests, and nginx's words.

`render` does what `kubectl kustomize` does, for what deploy/kubernetes uses of it, and refuses the rest: resources,
components, patches (strategic merge and JSON Patch) by kind and label, a namespace, and labels with `includeTemplates`.
Where kubectl or kustomize is there, a test holds the two against each other.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
import yaml

from pliant import systems
from pliant.registry.signing.signatures import TRUSTED_KEYS
from pliant.serving.settings import from_environment, settings_of
from pliant.settings import PREFIX, FlowSettings, variable
from tests.fixtures.places import ROOT

Manifest = dict[str, Any]

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SYSTEMS = systems.names()
OVERLAYS = ("base", "overlays/gpu", "overlays/keda", "overlays/gpu-keda")
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::([-?])([^}]*))?\}")
KNOWN = {"apiVersion", "kind", "namespace", "labels", "resources", "components", "patches"}
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "containerPort",
    "topologySpreadConstraints": "topologyKey",
}
"""List of a pod -> the field by which patches find its entries, as in Kubernetes' API; all other lists are replaced."""


def example() -> dict[str, str]:
    """Return the variables of env.example."""
    lines = (DEPLOY / "env.example").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def compose_text() -> str:
    return (DEPLOY / "compose.yaml").read_text(encoding="utf-8")


@cache
def compose() -> Any:
    """Return the compose file with the variables of env.example, filled into its values as Compose does it."""
    values = example()

    def filled(value: Any) -> Any:
        match value:
            case dict():
                return {name: filled(each) for name, each in value.items()}
            case list():
                return [filled(each) for each in value]
            case str():
                return VARIABLE.sub(lambda m: values.get(m[1]) or (m[3] if m[2] == "-" else ""), value)
        return value

    return filled(yaml.safe_load(compose_text()))


def services() -> Mapping[str, Any]:
    return compose()["services"]


def documents(path: Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document is not None]


def render(folder: Path, manifests: tuple[Manifest, ...] = ()) -> tuple[Manifest, ...]:
    """Return the manifests of a folder with a kustomization.yaml, and those given, to all of which its patches apply."""
    (own,) = documents(folder / "kustomization.yaml")
    assert set(own) <= KNOWN, f"{folder} has what this renderer does not know"
    for name in own.get("resources", ()):
        manifests += tuple(render(folder / name) if (folder / name).is_dir() else documents(folder / name))
    for name in own.get("components", ()):
        manifests = render(folder / name, manifests)
    for patch in own.get("patches", ()):
        change = yaml.safe_load(patch["patch"] if "patch" in patch else (folder / patch["path"]).read_text("utf-8"))
        key, _, value = patch["target"]["labelSelector"].partition("=")
        of_kind = [each for each in manifests if each["kind"] == patch["target"]["kind"]]
        targets = [each for each in of_kind if each["metadata"].get("labels", {}).get(key) == value]
        assert targets, f"a patch of {folder} has no target: {patch['target']}"
        for target in targets:
            if isinstance(change, list):
                jsonpatch.apply_patch(target, change, in_place=True)
            else:  # a patch for several objects has a name that does not count
                metadata = {**change["metadata"], "name": target["metadata"]["name"]}
                target.update(merge(target, {**change, "metadata": metadata}))
    for each in manifests:
        if "namespace" in own and each["kind"] != "Namespace":
            each["metadata"]["namespace"] = own["namespace"]
        for entry in own.get("labels", ()):
            templated = entry.get("includeTemplates") and each["kind"] in ("Deployment", "Job")
            for metadata in [each["metadata"], *([each["spec"]["template"]["metadata"]] if templated else [])]:
                metadata["labels"] = {**metadata.get("labels", {}), **entry["pairs"]}
    return manifests


def merge(value: Any, patch: Any, field: str = "") -> Any:
    """Return the value with a strategic merge patch. `field`: the name under which it stands."""
    if isinstance(value, dict) and isinstance(patch, dict):
        fresh = {name: copy.deepcopy(each) for name, each in patch.items() if name not in value}
        return {name: merge(each, patch[name], name) if name in patch else each for name, each in value.items()} | fresh
    key = MERGE_KEYS.get(field)
    if key is not None and isinstance(value, list):
        patches = {each[key]: each for each in patch}
        merged = [merge(each, patches.pop(each[key], {}), "") for each in value]
        return [*(copy.deepcopy(each) for each in patches.values()), *merged]
    return copy.deepcopy(patch)


@cache
def manifests(overlay: str = "base") -> tuple[Manifest, ...]:
    return render(KUBERNETES / overlay)


def of_kind(kind: str, overlay: str = "base") -> list[Manifest]:
    return [manifest for manifest in manifests(overlay) if manifest["kind"] == kind]


def named(kind: str, name: str, overlay: str = "base") -> Manifest:
    (manifest,) = [each for each in of_kind(kind, overlay) if each["metadata"]["name"] == name]
    return manifest


def pods(overlay: str = "base") -> Iterator[tuple[str, Mapping[str, str], Any, Any]]:
    """Yield name, labels, specification and the only container of each kind of pod."""
    for workload in [*of_kind("Deployment", overlay), *of_kind("Job", overlay)]:
        template = workload["spec"]["template"]
        (only,) = template["spec"]["containers"]
        yield workload["metadata"]["name"], template["metadata"]["labels"], template["spec"], only


def pod_environment(container: Any, overlay: str = "base") -> dict[str, str]:
    """Return the variables of a pod's container; those of a secret as a word."""
    values: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        values |= named("ConfigMap", source["configMapRef"]["name"], overlay)["data"]
    return values | {entry["name"]: entry.get("value", "secret") for entry in container.get("env", ())}


def check_settings(system: str, environment: Mapping[str, str]) -> Any:
    """Return the settings that a service reads from an environment. Raises `InputError` for a variable that it refuses."""
    return from_environment(environment, settings_of(system))


def known_to_flows() -> set[str]:
    """Return the variables PLIANT_* that flows and commands read."""
    return {*map(variable, FlowSettings.model_fields), f"{PREFIX}HOME", f"{PREFIX}KEYS_FILE", TRUSTED_KEYS}


def file_of(package: str, path: str) -> Path:
    """Return a file of an installed package, without importing it; without the package the test is skipped."""
    try:
        return Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        pytest.skip(f"the package {package} is missing: pip install -e '.[dev]'")


def nginx_text() -> str:
    return (DEPLOY / "proxy" / "nginx.conf").read_text(encoding="utf-8")
