"""Signs versions that are in a registry already, and says which are signed by whom."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pliant.errors import ArtifactError
from pliant.registry import codec
from pliant.registry.mlflow_client import find_version, published_of
from pliant.registry.mlflow_store import CHAMPION, MlflowRegistry
from pliant.registry.mlflow_switch import aliases
from pliant.registry.names import prefix
from pliant.registry.names import release as release_model
from pliant.registry.package import Published
from pliant.registry.releases import SIGNED, now_text
from pliant.registry.signing.signatures import Signer, Trust, TrustedKey, signer_ids


@dataclass(frozen=True, slots=True)
class SignatureState:
    """What is known of a version's signatures. `by`: trusted keys that signed it; the ids of the others:
    `unknown`: not trusted, so that nothing is known of their signatures; `broken`: trusted, but not of this artifact.
    """

    published: Published
    by: tuple[TrustedKey, ...]
    unknown: tuple[str, ...]
    broken: tuple[str, ...]


def versions_in_use(registry: MlflowRegistry, system: str) -> list[Published]:
    """Return the versions of a system that a release with an alias names, or an alias of their own. Raises `RegistryError`.

    They are what a service may load, what waits, and what a rollback goes back to.
    """
    wanted = {
        (model.name, int(number)) for model in registry.models(prefix(system)) for number in model.aliases.values()
    }
    for number in set(aliases(registry, system).values()):
        release = registry.release(system, number)
        wanted |= set(release.versions.items()) if release is not None else set()
    return _existing(registry, wanted)


def all_versions(registry: MlflowRegistry, system: str) -> list[Published]:
    """Return all versions of a system's models that are in the registry. Raises `RegistryError`."""
    return _existing(
        registry, [(name, number) for name in registry.names(prefix(system)) for number in registry.numbers(name)]
    )


def sign_version(registry: MlflowRegistry, published: Published, signer: Signer) -> bool:
    """Give a version the signature of a key, after verifying that its files are those of its digest.

    Return whether it lacked that signature. Raises `ArtifactError` where the files are others, or the version bears a
    signature by this key that is of something else; `RegistryError` where they are gone or the registry refuses.
    """
    ((tag, signature),) = signer.tags(published.name, published.digest).items()
    present = published.tags.get(tag)
    if present is not None:
        if present != signature:  # of Ed25519 there is one
            raise ArtifactError(
                "it was altered after this key signed it: whoever did that must not get it signed again"
            )
        return False
    folder, _ = registry.unchecked().fetch(published.name, published.version)
    try:
        if codec.digest(folder) != published.digest:
            raise ArtifactError(f"version {published.version} of {published.name} holds another artifact than it says")
        codec.kind(folder)  # verifies the files
    finally:
        registry.discard(folder)
    with registry.asking(f"{published.uri} could not be signed") as client:
        client.set_model_version_tag(published.name, str(published.version), tag, signature)
    return True


def announce(registry: MlflowRegistry, system: str) -> None:
    """Let services see that something was signed: those that refused the release of a system look at it again."""
    with registry.asking(f"{system} could not be marked") as client, registry.locked(system):
        release = registry.release(system, CHAMPION)
        if release is not None:
            client.set_model_version_tag(release_model(system), str(release.number), SIGNED, now_text())


def state_of(published: Published, trust: Trust) -> SignatureState:
    """Return what is known of a version's signatures. Raises `InputError` for keys that cannot be read."""
    keys, claimed = trust.read(), signer_ids(published)
    by = tuple(key for key in keys.values() if key.verifies(published))
    valid = {key.id for key in by}
    broken = tuple(id_ for id_ in claimed if id_ in keys and id_ not in valid)
    return SignatureState(published, by, tuple(id_ for id_ in claimed if id_ not in keys), broken)


def _existing(registry: MlflowRegistry, wanted: Iterable[tuple[str, int]]) -> list[Published]:
    with registry.asking("versions could not be looked up") as client:
        known = [find_version(client, name, number) for name, number in sorted(set(wanted))]
    return [published_of(version) for version in known if version is not None]
