"""Signatures of artifacts: a key's word that an artifact, by its digest, belongs to a registered model. Knows no MLflow.

A signature is of an in-toto statement (version 1) in the encoding of DSSE (version 1), by Ed25519 (RFC 8032):

    subject          the model's name, and the artifact's digest (the sha256 of its digests.json, see registry/codec.py)
    predicateType    FORMAT, the version of this format

It is a tag of the model's version, `pliant.signature.KEY`, in base64; KEY is the beginning of the sha256 of the public key
(DER). So a version bears any number of signatures, each is written at once, and none needs the others. A signature names no
number of a version: a former artifact under a new number is still that artifact, and going back to a former version needs
no key. It does name the model, so that a signed artifact cannot stand in for another model's.

Whoever reads verifies the files by the digest that was checked here, in the very bytes that it uses (registry/codec.py).
"""

from __future__ import annotations

import base64
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.errors import InputError, SignatureError
from pliant.registry.names import system_of
from pliant.registry.package import Published

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURE = "pliant.signature."
"""With a key's id: tag of a version, the signature by that key."""
FORMAT = "urn:pliant:artifact:1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"

SIGNING_KEY, TRUSTED_KEYS = "PLIANT_SIGNING_KEY", "PLIANT_TRUSTED_KEYS"
PUBLIC_FILES = "*.pem"  # of a folder of public keys
MAX_KEY_BYTES = 100_000  # of a file of keys; one of Ed25519 takes 119
_BLOCK = re.compile(rb"-----BEGIN ([^-\n]+)-----.*?-----END \1-----", re.DOTALL)

PUBLIC_SUFFIX = ".pub.pem"
PRIVATE_MODE, PUBLIC_MODE = 0o600, 0o644
ID_DIGITS = 16
OWN, OF_ROOT = 0o077, 0o037
"""Permissions that make a file public: of one's own, and of root's, which a group may read. The latter is how Kubernetes
gives a secret to a process without root, and what Postgres allows of its keys for the same reason.
"""


@dataclass(frozen=True, slots=True)
class Signer:
    """A private key. `id`: of its public key."""

    id: str
    private: Ed25519PrivateKey = field(repr=False)

    def tags(self, name: str, digest: str) -> dict[str, str]:
        """Return the tag with the signature of an artifact of model `name`."""
        return {SIGNATURE + self.id: base64.b64encode(self.private.sign(statement(name, digest))).decode()}


@dataclass(frozen=True, slots=True)
class TrustedKey:
    """A public key. `file`: the name of the file that holds it, for people."""

    id: str
    file: str
    public: Ed25519PublicKey

    def verifies(self, published: Published) -> bool:
        """Whether this key signed the artifact, under this model's name."""
        from cryptography.exceptions import InvalidSignature

        try:
            text = published.tags[SIGNATURE + self.id]
            signature = base64.b64decode(text, validate=True)
            self.public.verify(signature, statement(published.name, published.digest))
        except (KeyError, ValueError, InvalidSignature):
            return False
        return base64.b64encode(signature).decode() == text


@dataclass(frozen=True, slots=True)
class Trust:
    """The keys in a file or a folder, which are read whenever something is checked: adding one needs no restart."""

    path: Path
    source: str = TRUSTED_KEYS  # the setting that names the path, for messages

    def read(self) -> dict[str, TrustedKey]:
        """Return the public keys in the file, or in the files *.pem of the folder, by their ids.

        Raises `InputError` for what cannot be read, a block that is no public key of Ed25519, and where there is no key.
        """
        path = self.path
        try:
            files = sorted(path.glob(PUBLIC_FILES)) if path.is_dir() else [path]
            keys = [key for file in files for key in _public_keys(file, self.source)]
        except OSError as error:
            wanted = f"a file of public keys or a folder of them ({error.strerror})"
            raise InputError(self.source, path, wanted) from error
        if not keys:
            wanted = f"a file of public keys, or a folder with some in {PUBLIC_FILES}; it has none"
            raise InputError(self.source, path, wanted)
        return {key.id: key for key in keys}

    def check(self, published: Published) -> None:
        """Raise `SignatureError` unless one of the keys signed the version, and `InputError` as `read`."""
        keys = self.read()
        if not any(key.verifies(published) for key in keys.values()):
            raise SignatureError(self._refusal(published, keys))

    def _refusal(self, published: Published, keys: Mapping[str, TrustedKey]) -> str:
        which = f"version {published.version} of {published.name}"
        signers = signer_ids(published)
        broken = [key for key in signers if key in keys]
        known = system_of(published.name) or "SYSTEM"
        if broken:
            named = f"{broken[0]} ({keys[broken[0]].file})"
            return (
                f"{which} is refused: its signature by key {named} is not of this artifact under this name, so that one of "
                "them was altered or exchanged; publish it again, or go back to another version"
            )
        state = f"is signed by key {', '.join(signers)} alone" if signers else "is not signed"
        return (
            f"{which} is refused: it {state}, and the keys in {self.path} ({self.source}) are trusted alone; if it is "
            f"yours, sign it with `pliant sign {known}`"
        )


@dataclass(frozen=True, slots=True)
class Signing:
    """What a registry does about signatures: `signer` signs what is published, `trust` refuses what it does not trust."""

    signer: Signer | None = None
    trust: Trust | None = None


UNSIGNED = Signing()
"""Nothing is signed, and nothing is checked."""


def signing(signing_key: Path | None, trusted_keys: Path | None) -> Signing:
    """Return what the two settings say, with the keys read once, so that what is wrong with them is said at the start.

    Raises `InputError` for a key that cannot be used or that others can read, and for a signing key that is not trusted.
    """
    signer = None if signing_key is None else load_signer(signing_key)
    trust = None if trusted_keys is None else Trust(trusted_keys)
    known = None if trust is None else trust.read()
    if signer is not None and known is not None and signer.id not in known:
        limit = f"a key whose public half is in {trusted_keys} ({TRUSTED_KEYS}), or all that it signs would be refused"
        raise InputError(SIGNING_KEY, signing_key, limit)
    return Signing(signer, trust)


def statement(name: str, digest: str) -> bytes:
    """Return the bytes that are signed for an artifact of model `name`."""
    subject = [{"digest": {"sha256": digest}, "name": name}]
    values = {"_type": "https://in-toto.io/Statement/v1", "predicate": {}, "predicateType": FORMAT, "subject": subject}
    payload = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def signer_ids(published: Published) -> list[str]:
    """Return the ids of the keys that a version claims to be signed by, sorted; whether it is true is not checked."""
    return sorted(tag.removeprefix(SIGNATURE) for tag in published.tags if tag.startswith(SIGNATURE))


def load_signer(path: Path, source: str = SIGNING_KEY) -> Signer:
    """Return the private key in a file (PEM, PKCS 8, without a passphrase). `source`: the setting that names the file.

    Raises `InputError` for a file that is no such key, or that others can read.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    private: object = None
    content = read_private(path, source, MAX_KEY_BYTES)
    # What has a passphrase, is damaged, or is of a kind that is not known here, is no key for us.
    with suppress(TypeError, ValueError, UnsupportedAlgorithm):
        private = load_pem_private_key(content, None)
    if not isinstance(private, Ed25519PrivateKey):
        limit = "a private key of Ed25519 in PEM, without a passphrase, such as `pliant sign --new-key FILE` makes"
        raise InputError(source, path, limit)
    return Signer(key_id(private.public_key()), private)


def _public_keys(file: Path, source: str) -> Iterator[TrustedKey]:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    with file.open("rb") as opened:
        content = opened.read(MAX_KEY_BYTES + 1)
    if len(content) > MAX_KEY_BYTES:
        raise InputError(source, file, f"a file of at most {MAX_KEY_BYTES} bytes")
    for block in _BLOCK.finditer(content):
        if b"PRIVATE" in block[1]:
            raise InputError(source, file, "a file of public keys; it holds a private one, which belongs elsewhere")
        public: object = None
        with suppress(ValueError, UnsupportedAlgorithm):
            public = load_pem_public_key(block[0])
        if not isinstance(public, Ed25519PublicKey):
            raise InputError(source, file, "a file of public keys of Ed25519 in PEM; it holds something else")
        yield TrustedKey(key_id(public), file.name, public)


def key_id(public: Ed25519PublicKey) -> str:
    """Return the first digits of the sha256 of a public key in DER."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()[:ID_DIGITS]


def write_pair(file: Path) -> tuple[Path, str]:
    """Write a new private key to `file`, which only its owner can read, and the public one beside it.

    Return the public key's file and the key's id. Raises `InputError` if one of the files is there already, or cannot be
    written; then neither is left that was not there before.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    private = Ed25519PrivateKey.generate()
    secret = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    _write(file, secret, PRIVATE_MODE)
    try:
        _write(public_file(file), public, PUBLIC_MODE)
    except BaseException:
        with suppress(OSError):
            file.unlink()
        raise
    return public_file(file), key_id(private.public_key())


def public_file(file: Path) -> Path:
    """Return the name of the public key's file: release.pub.pem for release.pem."""
    return file.with_name(file.name.removesuffix(".pem") + PUBLIC_SUFFIX)


def read_private(path: Path, source: str, limit: int) -> bytes:
    """Return the content of a file of at most `limit` bytes. `source`: the setting that names it.

    Raises `InputError` for a file that cannot be read, belongs to somebody else, or that others can read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe must not hold us up
        try:
            status = os.fstat(descriptor)  # of what is read, whatever takes its name meanwhile
            if not stat.S_ISREG(status.st_mode):
                raise InputError(source, path, "a file")
            if is_public(status.st_mode, status.st_uid, os.geteuid()):
                raise InputError(source, path, f"a file that nobody but you can read: chmod 600 {path}")
            content = os.read(descriptor, limit + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(source, path, f"a file that can be read ({error.strerror})") from error
    if len(content) > limit:
        raise InputError(source, path, f"a file of at most {limit} bytes")
    return content


def is_public(mode: int, owner: int, reader: int) -> bool:
    """Whether a file with these permissions and this owner can be read, or written, by others than `reader` and root."""
    if owner == reader:
        return bool(mode & OWN)
    return owner != 0 or bool(mode & OF_ROOT)


def _write(file: Path, content: bytes, mode: int) -> None:
    """Write a file that is not there yet, with these permissions from its first moment, through to the disk.

    Raises `InputError` where it is there, or cannot be written; then what was there before is there, and nothing else.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "wb") as opened:
                os.fchmod(opened.fileno(), mode)  # whatever the umask says
                opened.write(content)
                opened.flush()
                os.fsync(opened.fileno())
        except BaseException:
            with suppress(OSError):
                file.unlink()
            raise
    except FileExistsError as error:
        raise InputError("FILE", file, "a new file: a key that is there is never replaced") from error
    except OSError as error:
        raise InputError("FILE", file, f"a file that can be written ({error.strerror})") from error
