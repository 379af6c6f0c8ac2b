"""A registry in MLflow signs what is published, and gives out and releases what is signed alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pliant.errors import ArtifactError, DigestError, RegistryError, SignatureError
from pliant.registry import codec
from pliant.registry.mlflow_client import DIGEST
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.mlflow_switch import switch
from pliant.registry.package import Package
from pliant.registry.signing.signatures import SIGNATURE, Signing, Trust
from pliant.registry.signing.versions import all_versions, announce, sign_version, versions_in_use
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.light_mlflow import lay_database, light
from tests.registry.signing.keys import new_signer

NAME, OTHER = "pliant-bins-colours", "pliant-bins-meanings"


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> MlflowRegistry:
    """A registry with one unsigned version of two models. Made once: MLflow's schema takes seconds."""
    folder = tmp_path_factory.mktemp("registry")
    registry = MlflowRegistry(lay_database(folder / "mlflow.db"), "pliant-bins", folder / "artifacts")
    for name in (NAME, OTHER):
        publish(registry, folder / "first", name)
    return registry


@pytest.fixture
def registry(stored, tmp_path) -> MlflowRegistry:
    """A copy of that registry: artifacts are named by their place, so they lie where they lay."""
    shutil.copy(stored.artifact_root.parent / "mlflow.db", tmp_path / "mlflow.db")
    return replace(stored, tracking_uri=f"sqlite:///{tmp_path / 'mlflow.db'}")


@pytest.fixture
def signer(tmp_path):
    return new_signer(tmp_path / "keys")[0]


@pytest.fixture
def checking(registry, tmp_path, signer) -> MlflowRegistry:
    """The registry as a service opens it: it trusts the key."""
    return replace(registry, signing=Signing(None, Trust(tmp_path / "keys" / "release.pub.pem")))


def publish(registry: MlflowRegistry, draft: Path, name: str = NAME, **changes):
    codec.save(some_bins(**changes), draft)
    with light(), registry.run("bins") as run:
        package = Package(name, draft, {"text": np.array(["a"])}, {"seconds": np.zeros(1)})
        return registry.publish(run, package)


def tag(registry: MlflowRegistry, number: int, name: str, value: str, model: str = NAME) -> None:
    """Write into the registry as somebody does who may."""
    registry.connect().set_model_version_tag(model, str(number), name, value)


def test_what_is_published_with_a_key_bears_its_signature_from_the_first_moment(registry, checking, signer, tmp_path):
    with pytest.raises(SignatureError, match=f"version 1 of {NAME} is refused: it is not signed"):
        checking.fetch(NAME, 1)
    published = publish(replace(registry, signing=Signing(signer, None)), tmp_path / "second", slo=9.0)
    assert published.tags[SIGNATURE + signer.id] == signer.tags(NAME, published.digest)[SIGNATURE + signer.id]
    folder, fetched = checking.fetch(NAME, published.version)
    assert codec.load(type(some_bins()), folder, fetched.digest).slo == 9.0
    registry.fetch(NAME, 1)  # without keys all is as before


def test_whoever_may_write_into_the_registry_cannot_have_something_else_accepted(checking, registry, signer, tmp_path):
    """Another digest, another model's signature, another artifact's files, a signature by a key of one's own."""
    signing = replace(registry, signing=Signing(signer, None))
    good = publish(signing, tmp_path / "good", slo=9.0)
    bad = publish(registry, tmp_path / "bad", slo=1.0)
    elsewhere = publish(signing, tmp_path / "bad", OTHER, slo=1.0)
    attacker, _ = new_signer(tmp_path / "attacker")
    name = SIGNATURE + signer.id
    for signature in (good.tags[name], elsewhere.tags[name], "", "AAAA"):
        tag(registry, bad.version, name, signature)
        with pytest.raises(SignatureError, match=r"is not of this artifact under this name"):
            checking.fetch(NAME, bad.version)
    tag(registry, bad.version, SIGNATURE + attacker.id, attacker.tags(NAME, bad.digest)[SIGNATURE + attacker.id])
    with pytest.raises(SignatureError):
        checking.fetch(NAME, bad.version)
    tag(registry, bad.version, DIGEST, good.digest)  # signed by all means, but the files are others
    tag(registry, bad.version, name, good.tags[name])
    folder, published = checking.fetch(NAME, bad.version)
    with pytest.raises(DigestError, match="was altered"):
        codec.load(type(some_bins()), folder, published.digest)


def test_no_release_is_made_of_what_is_not_signed_nor_gone_back_to(checking, registry, signer, tmp_path):
    signed = publish(replace(registry, signing=Signing(signer, None)), tmp_path / "second", slo=9.0)
    registry.commit({NAME: 1})
    registry.commit({NAME: signed.version})
    for change in (lambda: checking.commit({NAME: 1}), lambda: checking.promote(NAME, 1)):
        with pytest.raises(SignatureError, match="sign it with `pliant sign bins`"):
            change()
    with pytest.raises(SignatureError, match=f"version 1 of {NAME} is refused"):
        switch(checking, "bins", 1, "by hand")
    assert registry.release("bins").versions == {NAME: signed.version}
    sign_version(registry, registry.version(NAME, 1), signer)
    switch(checking, "bins", 1, "by hand")
    assert registry.release("bins").versions == {NAME: 1}


def test_what_is_in_use_is_what_a_release_with_an_alias_or_an_alias_names(registry, tmp_path):
    for number in (2, 3, 4, 5):
        publish(registry, tmp_path / str(number), slo=float(number))
    for number in (2, 3, 4):
        registry.commit({NAME: number})
    registry.promote(OTHER, 1, "challenger")
    listed = [(published.name, published.version) for published in versions_in_use(registry, "bins")]
    assert listed == [(NAME, 3), (NAME, 4), (OTHER, 1)]
    listed = [(published.name, published.version) for published in all_versions(registry, "bins")]
    assert listed == [*((NAME, number) for number in (1, 2, 3, 4, 5)), (OTHER, 1)]
    assert versions_in_use(registry, "tokens") == all_versions(registry, "tokens") == []


def test_what_was_altered_after_it_was_signed_is_not_signed_again(registry, signer, tmp_path):
    """Else an operator who signs all that is there would sign what an attacker has put in its place."""
    published = publish(registry, tmp_path / "second", slo=9.0)
    sign_version(registry, published, signer)
    tag(registry, published.version, DIGEST, registry.version(NAME, 1).digest)
    with pytest.raises(ArtifactError, match="it was altered after this key signed it"):
        sign_version(registry, registry.version(NAME, published.version), signer)


def test_what_is_damaged_or_gone_is_not_signed(registry, signer, tmp_path):
    published = publish(registry, tmp_path / "second", slo=9.0)
    folder, _ = registry.fetch(NAME, published.version)
    (folder / codec.VALUES).write_text("{}")
    with pytest.raises(DigestError):
        sign_version(registry, published, signer)
    tag(registry, 1, DIGEST, published.digest)
    with pytest.raises(ArtifactError, match=f"version 1 of {NAME} holds another artifact than it says"):
        sign_version(registry, registry.version(NAME, 1), signer)
    shutil.rmtree(folder)
    with pytest.raises((RegistryError, ArtifactError)):
        sign_version(registry, published, signer)
    assert not any(name.startswith(SIGNATURE) for name in registry.version(NAME, published.version).tags)


def test_a_release_says_when_its_versions_were_signed_by_hand_and_stays_the_same_release(registry):
    announce(registry, "bins")  # without a release nobody is to be told anything
    before = registry.commit({NAME: 1})
    assert before.signed == "" and registry.release("bins").signed == ""
    announce(registry, "bins")
    after = registry.release("bins")
    assert after.signed.startswith("20") and after == before
