"""A signature holds for one artifact under one name, by one key, and for nothing else."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import ArtifactError, InputError, SignatureError
from pliant.registry import codec
from pliant.registry.package import Published
from pliant.registry.signing.signatures import (
    SIGNATURE,
    Signer,
    Signing,
    Trust,
    TrustedKey,
    key_id,
    signer_ids,
    signing,
    statement,
)
from tests.fixtures.bins.tiny import some_bins
from tests.registry.signing.keys import new_signer

NAME, DIGEST = "pliant-bins-colours", "0123456789abcdef" * 4
names = st.text(min_size=1, max_size=30)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)


def signer_of(seed: bytes) -> Signer:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.from_private_bytes(seed)
    return Signer(key_id(private.public_key()), private)


def trusted(signer: Signer) -> TrustedKey:
    return TrustedKey(signer.id, "release.pub.pem", signer.private.public_key())


def version(name: str = NAME, digest: str = DIGEST, tags: dict[str, str] | None = None) -> Published:
    return Published(name, 3, digest, f"models:/{name}/3", tags or {})


ONE, OTHER = signer_of(b"1" * 32), signer_of(b"2" * 32)


@given(names, digests)
def test_what_a_key_signed_it_verifies(name, digest):
    assert trusted(ONE).verifies(version(name, digest, ONE.tags(name, digest)))


@given(names, digests, names, digests)
def test_a_signature_is_of_one_digest_under_one_name(name, digest, other_name, other_digest):
    expected = (name, digest) == (other_name, other_digest)
    assert trusted(ONE).verifies(version(other_name, other_digest, ONE.tags(name, digest))) is expected
    assert (statement(name, digest) == statement(other_name, other_digest)) is expected


@given(names, digests)
def test_another_keys_signature_counts_for_nothing_also_under_the_id_of_the_trusted_key(name, digest):
    ((_, signature),) = OTHER.tags(name, digest).items()
    assert not trusted(ONE).verifies(version(name, digest, {SIGNATURE + OTHER.id: signature}))
    assert not trusted(ONE).verifies(version(name, digest, {SIGNATURE + ONE.id: signature}))


@given(st.integers(0, 87), st.characters())
def test_a_signature_with_any_other_character_is_none(at, character):
    ((tag, text),) = ONE.tags(NAME, DIGEST).items()
    changed = text[:at] + character + text[at + 1 :]
    assert trusted(ONE).verifies(version(tags={tag: changed})) is (changed == text)


def test_what_is_signed_is_an_in_toto_statement_in_the_encoding_of_dsse():
    """What was signed with former versions of Pliant must be accepted by later ones: this form never changes."""
    payload = (
        '{"_type":"https://in-toto.io/Statement/v1","predicate":{},"predicateType":"urn:pliant:artifact:1",'
        f'"subject":[{{"digest":{{"sha256":"{DIGEST}"}},"name":"{NAME}"}}]}}'
    )
    assert json.loads(payload)["subject"][0]["name"] == NAME
    expected = f"DSSEv1 28 application/vnd.in-toto+json {len(payload)} {payload}".encode()
    assert statement(NAME, DIGEST) == expected
    ((tag, signature),) = ONE.tags(NAME, DIGEST).items()
    trusted(ONE).public.verify(base64.b64decode(signature), expected)
    assert tag == f"pliant.signature.{ONE.id}" and len(ONE.id) == 16


@given(st.data())
def test_an_artifact_of_which_any_byte_differs_is_not_loaded_under_the_digest_that_was_signed(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("signed")
    digest = codec.save(some_bins(), folder / "a")
    published = version(digest=digest, tags=ONE.tags(NAME, digest))
    name = data.draw(st.sampled_from([codec.VALUES, codec.TENSORS, codec.DIGESTS]))
    content = bytearray((folder / "a" / name).read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    (folder / "a" / name).write_bytes(content)
    assert trusted(ONE).verifies(published), "the registry says what it said before"
    with pytest.raises(ArtifactError, match="was altered"):
        codec.load(type(some_bins()), folder / "a", published.digest)


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
        trust.check(version(tags=ONE.tags(NAME, DIGEST)))
    with pytest.raises(SignatureError, match=f"its signature by key {signer.id} \\(release.pub.pem\\) is not of this"):
        trust.check(version(tags=signer.tags(NAME, "0" * 64)))
    trust.check(version(tags=signer.tags(NAME, DIGEST)))


def test_one_good_signature_is_enough_beside_others_of_whatever_kind(tmp_path):
    signer, _ = new_signer(tmp_path / "keys")
    second, _ = new_signer(tmp_path / "keys", "second")
    (tmp_path / "keys" / "release.pem").unlink()
    (tmp_path / "keys" / "second.pem").unlink()
    tags = {**ONE.tags(NAME, DIGEST), **second.tags(NAME, "0" * 64), **signer.tags(NAME, DIGEST)}
    Trust(tmp_path / "keys").check(version(tags=tags))
    assert signer_ids(version(tags={"pliant.data": "x", **tags})) == sorted([ONE.id, second.id, signer.id])


def test_a_key_that_is_added_or_taken_away_counts_from_then_on(tmp_path):
    """Rotation: first the new key is trusted too, then flows sign with it, at last the old one is not trusted any more."""
    old, old_public = new_signer(tmp_path / "private", "old")
    new, new_public = new_signer(tmp_path / "private", "new")
    folder = tmp_path / "trusted"
    folder.mkdir()
    (folder / "old.pem").write_bytes(old_public.read_bytes())
    trust, by_old = Trust(folder), version(tags=old.tags(NAME, DIGEST))
    by_new, by_both = (
        version(tags=new.tags(NAME, DIGEST)),
        version(tags={**old.tags(NAME, DIGEST), **new.tags(NAME, DIGEST)}),
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
