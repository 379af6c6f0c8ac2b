"""What deploy/ says, as tests read it: the compose file with its variables filled in, manifests, and nginx's words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
import yaml

from pliant.registry.signing.signatures import TRUSTED_KEYS
from pliant.serving.settings import from_environment, settings_of
from pliant.settings import PREFIX, FlowSettings, variable
from tests.deploy.kustomize import Manifest, render
from tests.fixtures.places import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SYSTEMS = ("tokens", "bins", "cascade", "packing")
OVERLAYS = ("base", "overlays/gpu", "overlays/keda", "overlays/gpu-keda")
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::([-?])([^}]*))?\}")


def example() -> dict[str, str]:
    """Return the variables of env.example."""
    lines = (DEPLOY / "env.example").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def compose_text() -> str:
    return (DEPLOY / "compose.yaml").read_text(encoding="utf-8")


@cache
def compose() -> Any:
    """Return the compose file with the variables of env.example, filled into its values as Compose does it."""
    return _filled(yaml.safe_load(compose_text()), example())


def _filled(value: Any, values: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _filled(each, values) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    if isinstance(value, str):
        return VARIABLE.sub(lambda match: values.get(match[1]) or (match[3] if match[2] == "-" else ""), value)
    return value


def services() -> Mapping[str, Any]:
    return compose()["services"]  # type: ignore[no-any-return]


@cache
def manifests(overlay: str = "base") -> tuple[Manifest, ...]:
    return tuple(render(KUBERNETES / overlay))


def of_kind(kind: str, overlay: str = "base") -> list[Manifest]:
    return [manifest for manifest in manifests(overlay) if manifest["kind"] == kind]


def named(kind: str, name: str, overlay: str = "base") -> Manifest:
    (manifest,) = [each for each in of_kind(kind, overlay) if each["metadata"]["name"] == name]
    return manifest


def workloads(overlay: str = "base") -> list[Manifest]:
    """Return all that has pods."""
    return [*of_kind("Deployment", overlay), *of_kind("Job", overlay)]


def pods(overlay: str = "base") -> Iterator[tuple[str, Mapping[str, str], Any]]:
    """Yield name, labels and specification of each kind of pod."""
    for workload in workloads(overlay):
        template = workload["spec"]["template"]
        yield workload["metadata"]["name"], template["metadata"]["labels"], template["spec"]


def container(pod: Any) -> Any:
    (only,) = pod["containers"]
    return only


def pod_environment(pod: Any, overlay: str = "base") -> dict[str, str]:
    """Return the variables of a pod's container; those of a secret as a word."""
    values: dict[str, str] = {}
    for source in container(pod).get("envFrom", ()):
        values |= named("ConfigMap", source["configMapRef"]["name"], overlay)["data"]
    return values | {entry["name"]: entry.get("value", "secret") for entry in container(pod).get("env", ())}


def check_settings(system: str, environment: Mapping[str, str]) -> Any:
    """Return the settings that a service reads from an environment. Raises `InputError` for a variable that it refuses."""
    return from_environment(environment, settings_of(system))


def known_to_flows() -> set[str]:
    """Return the variables PLIANT_* that flows and commands read."""
    return {*map(variable, FlowSettings.model_fields), f"{PREFIX}HOME", f"{PREFIX}KEYS_FILE", TRUSTED_KEYS}


def selected(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector of Kubernetes takes these labels."""
    for rule in selector.get("matchExpressions", ()):
        assert rule["operator"] == "In"
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def file_of(package: str, path: str) -> Path:
    """Return a file of an installed package, without importing it; without the package the test is skipped."""
    try:
        return Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        pytest.skip(f"the package {package} is missing: pip install -e '.[dev]'")


def nginx_text() -> str:
    return (DEPLOY / "proxy" / "nginx.conf").read_text(encoding="utf-8")


def nginx_values(directive: str) -> list[str]:
    """Return what each line of nginx.conf with this directive sets."""
    return re.findall(rf"^\s*{directive}\s+([^;]+);", nginx_text(), re.MULTILINE)
