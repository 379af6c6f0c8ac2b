"""A signature holds for one artifact under one name, by one key, and for nothing else."""

from __future__ import annotations

import base64
import json
import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import ArtifactError, DigestError, InputError, RegistryError, SignatureError
from pliant.registry import codec
from pliant.registry.mlflow_client import DIGEST
from pliant.registry.mlflow_store import MlflowRegistry
from pliant.registry.mlflow_switch import switch
from pliant.registry.package import Package, Published
from pliant.registry.signing.signatures import (
    SIGNATURE,
    Signer,
    Signing,
    Trust,
    TrustedKey,
    is_public,
    key_id,
    load_signer,
    read_private,
    signer_ids,
    signing,
    statement,
    write_pair,
)
from pliant.registry.signing.versions import sign_version
from tests.fixtures.bins.tiny import some_bins
from tests.fixtures.light_mlflow import lay_database, light
from tests.fixtures.signing import new_signer

NAME, SIGNED = "pliant-bins-colours", "0123456789abcdef" * 4
names = st.text(min_size=1, max_size=30)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)


def signer_of(seed: bytes) -> Signer:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.from_private_bytes(seed)
    return Signer(key_id(private.public_key()), private)


def trusted(signer: Signer) -> TrustedKey:
    return TrustedKey(signer.id, "release.pub.pem", signer.private.public_key())


def version(name: str = NAME, digest: str = SIGNED, tags: dict[str, str] | None = None) -> Published:
    return Published(name, 3, digest, f"models:/{name}/3", tags or {})


ONE, ANOTHER = signer_of(b"1" * 32), signer_of(b"2" * 32)


@given(names, digests, names, digests)
def test_a_signature_is_of_one_digest_under_one_name_by_one_key(name, digest, other_name, other_digest):
    expected = (name, digest) == (other_name, other_digest)
    assert trusted(ONE).verifies(version(name, digest, ONE.tags(name, digest)))
    assert trusted(ONE).verifies(version(other_name, other_digest, ONE.tags(name, digest))) is expected
    assert (statement(name, digest) == statement(other_name, other_digest)) is expected
    ((_, signature),) = ANOTHER.tags(name, digest).items()
    for id_ in (ANOTHER.id, ONE.id):
        assert not trusted(ONE).verifies(version(name, digest, {SIGNATURE + id_: signature}))


@given(st.integers(0, 87), st.characters())
def test_a_signature_with_any_other_character_is_none(at, character):
    ((tag, text),) = ONE.tags(NAME, SIGNED).items()
    changed = text[:at] + character + text[at + 1 :]
    assert trusted(ONE).verifies(version(tags={tag: changed})) is (changed == text)


def test_what_is_signed_is_an_in_toto_statement_in_the_encoding_of_dsse():
    """What was signed with former versions of Pliant must be accepted by later ones: this form never changes."""
    payload = (
        '{"_type":"https://in-toto.io/Statement/v1","predicate":{},"predicateType":"urn:pliant:artifact:1",'
        f'"subject":[{{"digest":{{"sha256":"{SIGNED}"}},"name":"{NAME}"}}]}}'
    )
    assert json.loads(payload)["subject"][0]["name"] == NAME
    expected = f"DSSEv1 28 application/vnd.in-toto+json {len(payload)} {payload}".encode()
    assert statement(NAME, SIGNED) == expected
    ((tag, signature),) = ONE.tags(NAME, SIGNED).items()
    trusted(ONE).public.verify(base64.b64decode(signature), expected)
    assert tag == f"pliant.signature.{ONE.id}" and len(ONE.id) == 16


def test_the_sentence_says_which_version_why_and_what_to_do(tmp_path):
    signer, public = new_signer(tmp_path / "keys")
    trust = Trust(public)
    with pytest.raises(SignatureError) as unsigned:
        trust.check(version())
    assert str(unsigned.value) == (
        f"version 3 of {NAME} is refused: it is not signed, and the keys in {public} (PLIANT_TRUSTED_KEYS) are trusted "
        "alone; if it is yours, sign it with `pliant sign bins`"
    )
    with pytest.raises(
        SignatureError, match=f"it is signed by key {ONE.id} alone, and the keys in .* are trusted alone"
    ):
        trust.check(version(tags=ONE.tags(NAME, SIGNED)))
    with pytest.raises(SignatureError, match=f"its signature by key {signer.id} \\(release.pub.pem\\) is not of this"):
        trust.check(version(tags=signer.tags(NAME, "0" * 64)))
    trust.check(version(tags=signer.tags(NAME, SIGNED)))


def test_one_good_signature_is_enough_beside_others_of_whatever_kind(tmp_path):
    signer, _ = new_signer(tmp_path / "keys")
    second, _ = new_signer(tmp_path / "keys", "second")
    (tmp_path / "keys" / "release.pem").unlink()
    (tmp_path / "keys" / "second.pem").unlink()
    tags = {**ONE.tags(NAME, SIGNED), **second.tags(NAME, "0" * 64), **signer.tags(NAME, SIGNED)}
    Trust(tmp_path / "keys").check(version(tags=tags))
    assert signer_ids(version(tags={"pliant.data": "x", **tags})) == sorted([ONE.id, second.id, signer.id])


def test_a_key_that_is_added_or_taken_away_counts_from_then_on(tmp_path):
    """Rotation: first the new key is trusted too, then flows sign with it, at last the old one is not trusted any more."""
    old, old_public = new_signer(tmp_path / "private", "old")
    new, new_public = new_signer(tmp_path / "private", "new")
    folder = tmp_path / "trusted"
    folder.mkdir()
    (folder / "old.pem").write_bytes(old_public.read_bytes())
    trust, by_old = Trust(folder), version(tags=old.tags(NAME, SIGNED))
    by_new, by_both = (
        version(tags=new.tags(NAME, SIGNED)),
        version(tags={**old.tags(NAME, SIGNED), **new.tags(NAME, SIGNED)}),
    )
    with pytest.raises(SignatureError):
        trust.check(by_new)
    (folder / "new.pem").write_bytes(new_public.read_bytes())
    for accepted in (by_old, by_new, by_both):
        trust.check(accepted)
    (folder / "old.pem").unlink()
    for accepted in (by_new, by_both):
        trust.check(accepted)
    with pytest.raises(SignatureError):
        trust.check(by_old)


def test_without_the_settings_nothing_is_signed_or_checked_and_a_key_that_is_not_trusted_is_an_error(tmp_path):
    assert signing(None, None) == Signing(None, None)
    _, public = new_signer(tmp_path / "keys")
    new_signer(tmp_path / "keys", "second")
    both = signing(tmp_path / "keys" / "release.pem", public)
    assert both.signer.id in both.trust.read()
    with pytest.raises(
        InputError, match=r"PLIANT_SIGNING_KEY is .*second.pem, but must be a key whose public half is in"
    ):
        signing(tmp_path / "keys" / "second.pem", public)


def test_a_pair_is_a_private_file_and_a_public_one_of_the_same_id(tmp_path):
    before = os.umask(0)
    try:
        public, id_ = write_pair(tmp_path / "release.pem")
    finally:
        os.umask(before)
    assert public == tmp_path / "release.pub.pem"
    assert stat.S_IMODE((tmp_path / "release.pem").stat().st_mode) == 0o600
    assert load_signer(tmp_path / "release.pem").id == id_
    assert list(Trust(public).read()) == [id_]
    assert "private" not in repr(load_signer(tmp_path / "release.pem"))


@pytest.mark.parametrize("name", ["release.pem", "release.pub.pem"])
def test_a_file_that_is_there_is_never_replaced_and_nothing_is_left_of_the_attempt(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="a new file: a key that is there is never replaced"):
        write_pair(tmp_path / "release.pem")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [(name, "mine")]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o602, 0o610])
def test_a_private_key_that_others_can_read_or_write_is_refused(tmp_path, mode):
    new_signer(tmp_path)
    (tmp_path / "release.pem").chmod(mode)
    with pytest.raises(InputError, match=r"PLIANT_SIGNING_KEY is .*release.pem, but must be .*: chmod 600"):
        load_signer(tmp_path / "release.pem")
    (tmp_path / "release.pem").chmod(0o400)
    load_signer(tmp_path / "release.pem")


@given(st.integers(0, 0o777), st.integers(0, 3), st.integers(0, 3))
def test_no_one_but_the_reader_root_and_a_group_that_root_named_can_read_a_private_file(mode, owner, reader):
    if not is_public(mode, owner, reader):
        assert owner in (0, reader)
        assert not mode & 0o007 and not mode & 0o030, "others, and writers or runners of the group"
        assert not mode & 0o040 or (owner == 0 and reader != 0), "as Kubernetes gives a secret to a group"


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path, reason in ((tmp_path / "pipe", "a file"), (tmp_path, "a file"), (tmp_path / "none", "No such file")):
        with pytest.raises(InputError, match=reason):
            read_private(path, "--key", 100)
    (tmp_path / "long").write_bytes(b"x" * 101)
    (tmp_path / "long").chmod(0o600)
    with pytest.raises(InputError, match="at most 100 bytes"):
        read_private(tmp_path / "long", "--key", 100)


def pem_of(kind: str) -> bytes:
    """Return a private key that is none of Ed25519 without a passphrase."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519

    encryption = serialization.NoEncryption()
    private = ec.generate_private_key(ec.SECP256R1())
    if kind == "passphrase":
        private, encryption = ed25519.Ed25519PrivateKey.generate(), serialization.BestAvailableEncryption(b"secret")
    return private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


@pytest.mark.parametrize("content", ["", "words", "public", "curve", "passphrase", "cut"])
def test_what_is_no_private_key_of_ed25519_is_a_sentence(tmp_path, content):
    _, public = new_signer(tmp_path)
    contents = {"public": public.read_bytes(), "cut": (tmp_path / "release.pem").read_bytes()[:60]}
    if content in ("curve", "passphrase"):
        contents[content] = pem_of(content)
    path = tmp_path / "key.pem"
    path.write_bytes(contents.get(content, content.encode()))
    path.chmod(0o600)
    with pytest.raises(InputError, match=r"must be a private key of Ed25519 in PEM, without a passphrase, such as"):
        load_signer(path)


def test_what_is_no_public_key_is_a_sentence_and_never_passed_over(tmp_path):
    new_signer(tmp_path)
    for content, reason in (
        (b"", "it has none"),
        (b"words", "it has none"),
        ((tmp_path / "release.pem").read_bytes(), "it holds a private one, which belongs elsewhere"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "it holds something else"),
        (b"x" * 100_001, "at most 100000 bytes"),
    ):
        (tmp_path / "key.pub.pem").write_bytes(content)
        with pytest.raises(InputError, match=f"PLIANT_TRUSTED_KEYS is .*{reason}"):
            Trust(tmp_path / "key.pub.pem").read()
    with pytest.raises(InputError, match="No such file"):
        Trust(tmp_path / "nothing").read()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"a folder with some in \*\.pem; it has none"):
        Trust(tmp_path / "empty").read()
    (tmp_path / "key.pub.pem").unlink()
    with pytest.raises(InputError, match="it holds a private one"):  # in a folder beside public ones
        Trust(tmp_path).read()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_key_that_openssl_made_signs_and_openssl_reads_ours(tmp_path):
    made_elsewhere = tmp_path / "theirs.pem"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", made_elsewhere], check=True)
    made_elsewhere.chmod(0o600)
    public = tmp_path / "theirs.pub.pem"
    subprocess.run(["openssl", "pkey", "-in", made_elsewhere, "-pubout", "-out", public], check=True)
    assert list(Trust(public).read()) == [load_signer(made_elsewhere).id]
    _, ours = new_signer(tmp_path)
    subprocess.run(["openssl", "pkey", "-pubin", "-in", ours, "-noout"], check=True)


COLOURS, MEANINGS = "pliant-bins-colours", "pliant-bins-meanings"


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> MlflowRegistry:
    """A registry with one unsigned version of two models. Made once: MLflow's schema takes seconds."""
    folder = tmp_path_factory.mktemp("registry")
    registry = MlflowRegistry(lay_database(folder / "mlflow.db"), "pliant-bins", folder / "artifacts")
    for name in (COLOURS, MEANINGS):
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


def publish(registry: MlflowRegistry, draft: Path, name: str = COLOURS, **changes):
    codec.save(some_bins(**changes), draft)
    with light(), registry.run("bins") as run:
        package = Package(name, draft, {"text": np.array(["a"])}, {"seconds": np.zeros(1)})
        return registry.publish(run, package)


def tag(registry: MlflowRegistry, number: int, name: str, value: str, model: str = COLOURS) -> None:
    """Write into the registry as somebody does who may."""
    registry.connect().set_model_version_tag(model, str(number), name, value)


def test_what_is_published_with_a_key_bears_its_signature_from_the_first_moment(registry, checking, signer, tmp_path):
    with pytest.raises(SignatureError, match=f"version 1 of {COLOURS} is refused: it is not signed"):
        checking.fetch(COLOURS, 1)
    published = publish(replace(registry, signing=Signing(signer, None)), tmp_path / "second", slo=9.0)
    assert published.tags[SIGNATURE + signer.id] == signer.tags(COLOURS, published.digest)[SIGNATURE + signer.id]
    folder, fetched = checking.fetch(COLOURS, published.version)
    assert codec.load(type(some_bins()), folder, fetched.digest).slo == 9.0
    registry.fetch(COLOURS, 1)  # without keys all is as before


def test_whoever_may_write_into_the_registry_cannot_have_something_else_accepted(checking, registry, signer, tmp_path):
    """Another digest, another model's signature, another artifact's files, a signature by a key of one's own."""
    signing = replace(registry, signing=Signing(signer, None))
    good = publish(signing, tmp_path / "good", slo=9.0)
    bad = publish(registry, tmp_path / "bad", slo=1.0)
    elsewhere = publish(signing, tmp_path / "bad", MEANINGS, slo=1.0)
    attacker, _ = new_signer(tmp_path / "attacker")
    name = SIGNATURE + signer.id
    for signature in (good.tags[name], elsewhere.tags[name], "", "AAAA"):
        tag(registry, bad.version, name, signature)
        with pytest.raises(SignatureError, match=r"is not of this artifact under this name"):
            checking.fetch(COLOURS, bad.version)
    tag(registry, bad.version, SIGNATURE + attacker.id, attacker.tags(COLOURS, bad.digest)[SIGNATURE + attacker.id])
    with pytest.raises(SignatureError):
        checking.fetch(COLOURS, bad.version)
    tag(registry, bad.version, DIGEST, good.digest)  # signed by all means, but the files are others
    tag(registry, bad.version, name, good.tags[name])
    folder, published = checking.fetch(COLOURS, bad.version)
    with pytest.raises(DigestError, match="was altered"):
        codec.load(type(some_bins()), folder, published.digest)


def test_no_release_is_made_of_what_is_not_signed_nor_gone_back_to(checking, registry, signer, tmp_path):
    signed = publish(replace(registry, signing=Signing(signer, None)), tmp_path / "second", slo=9.0)
    registry.commit({COLOURS: 1})
    registry.commit({COLOURS: signed.version})
    for change in (lambda: checking.commit({COLOURS: 1}), lambda: checking.promote(COLOURS, 1)):
        with pytest.raises(SignatureError, match="sign it with `pliant sign bins`"):
            change()
    with pytest.raises(SignatureError, match=f"version 1 of {COLOURS} is refused"):
        switch(checking, "bins", 1, "by hand")
    assert registry.release("bins").versions == {COLOURS: signed.version}
    sign_version(registry, registry.version(COLOURS, 1), signer)
    switch(checking, "bins", 1, "by hand")
    assert registry.release("bins").versions == {COLOURS: 1}


def test_what_is_damaged_or_gone_is_not_signed(registry, signer, tmp_path):
    published = publish(registry, tmp_path / "second", slo=9.0)
    folder, _ = registry.fetch(COLOURS, published.version)
    (folder / codec.VALUES).write_text("{}")
    with pytest.raises(DigestError):
        sign_version(registry, published, signer)
    tag(registry, 1, DIGEST, published.digest)
    with pytest.raises(ArtifactError, match=f"version 1 of {COLOURS} holds another artifact than it says"):
        sign_version(registry, registry.version(COLOURS, 1), signer)
    shutil.rmtree(folder)
    with pytest.raises((RegistryError, ArtifactError)):
        sign_version(registry, published, signer)
    assert not any(name.startswith(SIGNATURE) for name in registry.version(COLOURS, published.version).tags)
