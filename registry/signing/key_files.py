"""Files of keys for signatures: a private one that nobody else may read, and a public one beside it.

Permissions are checked when a private key is read, and a file that is there is never replaced.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from pliant.errors import InputError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PUBLIC_SUFFIX = ".pub.pem"
PRIVATE_MODE, PUBLIC_MODE = 0o600, 0o644
ID_DIGITS = 16
OWN, OF_ROOT = 0o077, 0o037
"""Permissions that make a file public: of one's own, and of root's, which a group may read. The latter is how Kubernetes
gives a secret to a process without root, and what Postgres allows of its keys for the same reason.
"""


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


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Write a file that is not there yet, with these permissions from its first moment, through to the disk.

    Raises `OSError`, `FileExistsError` above all; then what was there before is there, and nothing else.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask says
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _write(file: Path, content: bytes, mode: int) -> None:
    try:
        write_new(file, content, mode)
    except FileExistsError as error:
        raise InputError("FILE", file, "a new file: a key that is there is never replaced") from error
    except OSError as error:
        raise InputError("FILE", file, f"a file that can be written ({error.strerror})") from error
