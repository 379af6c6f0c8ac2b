"""Files of keys: nobody else reads a private one, none is replaced, and what is no key is said in a sentence."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant.errors import InputError
from pliant.registry.signing.signatures import Trust, is_public, load_signer, read_private, write_pair
from tests.registry.signing.keys import new_signer


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
