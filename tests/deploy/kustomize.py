"""Renders a kustomization as `kubectl kustomize` does, for what deploy/kubernetes uses of it, and refuses the rest.

It knows resources, components, patches (strategic merge and JSON Patch's `remove`) by kind and label, a namespace, and
labels with `includeTemplates`. Where kubectl or kustomize is there, a test holds the two against each other.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

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
CLUSTER_WIDE = ("Namespace",)


def render(folder: Path) -> list[Manifest]:
    """Return the manifests of a folder with a kustomization.yaml. Raises `ValueError` for what it does not know."""
    return _apply(folder, [])


def documents(path: Path) -> list[Any]:
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document is not None]


def _apply(folder: Path, manifests: list[Manifest]) -> list[Manifest]:
    """Return the manifests with those of the folder, to all of which its patches apply."""
    (kustomization,) = documents(folder / "kustomization.yaml")
    if unknown := set(kustomization) - KNOWN:
        raise ValueError(f"{folder} has {', '.join(sorted(unknown))}, which this renderer does not know")
    for name in kustomization.get("resources", ()):
        path = folder / name
        manifests += render(path) if path.is_dir() else documents(path)
    for name in kustomization.get("components", ()):
        manifests = _apply(folder / name, manifests)
    for patch in kustomization.get("patches", ()):
        text = patch["patch"] if "patch" in patch else (folder / patch["path"]).read_text(encoding="utf-8")
        targets = [manifest for manifest in manifests if _matches(manifest, patch["target"])]
        if not targets:
            raise ValueError(f"a patch of {folder} has no target: {patch['target']}")
        for manifest in targets:
            _patch(manifest, yaml.safe_load(text))
    for manifest in manifests:
        _complete(manifest, kustomization)
    return manifests


def _matches(manifest: Manifest, target: Mapping[str, str]) -> bool:
    key, _, value = target["labelSelector"].partition("=")
    return manifest["kind"] == target["kind"] and manifest["metadata"].get("labels", {}).get(key) == value


def _patch(manifest: Manifest, patch: Any) -> None:
    if isinstance(patch, list):
        for operation in patch:
            _remove(manifest, operation)
    else:
        name = manifest["metadata"]["name"]
        manifest.update(merge(manifest, patch))
        manifest["metadata"]["name"] = name  # a patch for several objects has a name that does not count


def _remove(manifest: Manifest, operation: Mapping[str, str]) -> None:
    if operation["op"] != "remove":
        raise ValueError(f"this renderer does not know the operation {operation['op']}")
    *folders, name = operation["path"].strip("/").split("/")
    place: Any = manifest
    for folder in folders:
        place = place[folder]
    del place[name]


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


def _complete(manifest: Manifest, kustomization: Mapping[str, Any]) -> None:
    if "namespace" in kustomization and manifest["kind"] not in CLUSTER_WIDE:
        manifest["metadata"]["namespace"] = kustomization["namespace"]
    for entry in kustomization.get("labels", ()):
        for metadata in _labelled(manifest, entry.get("includeTemplates", False)):
            metadata["labels"] = {**metadata.get("labels", {}), **entry["pairs"]}


def _labelled(manifest: Manifest, templates: bool) -> Iterator[Manifest]:
    yield manifest["metadata"]
    if templates and manifest["kind"] in ("Deployment", "Job"):
        yield manifest["spec"]["template"]["metadata"]
