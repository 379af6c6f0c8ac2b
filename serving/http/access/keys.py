"""Keys and tenants: how a key is made, recognised, and written without its secret.

A key is `pliant_ID_SECRET`. Of the secret only the SHA-256 of the whole key is kept. A slow hash, as passwords need,
would add nothing: a secret is 256 random bits, so nobody can try them all, and every request would pay for it. A file of
keys is read whole, replaced whole, by one writer at a time, and readable by its owner alone; a running service follows
it.
"""

from __future__ import annotations

import fcntl
import hmac
import json
import logging
import math
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from pliant.errors import InputError
from pliant.jsonl import PRIVATE, write_whole
from pliant.serving.client import Client
from pliant.serving.settings import Settings

ROLES = ("use", "admin", "monitor")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Of a tenant: what a label of a metric and a line of the log can hold."""
_ID = slice(len("pliant_"), len("pliant_") + 8)
"""Where a key holds its id."""
_ID_FORM = re.compile(r"[0-9a-f]{8}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NOBODY: tuple[str, None] = "0" * 64, None  # what an unknown id is compared with, so that it takes as long

MAX_BYTES = 16 * 1024 * 1024
"""Of a file of keys: some 50,000 of them."""
LOOK_SECONDS = 0.5  # between two looks at the file
FILE = "keys.json"
"""Name of the file of keys in the project's folder, which counts if it is there when the service starts."""
T = TypeVar("T")
logger = logging.getLogger("pliant.serving")


@dataclass(frozen=True, slots=True)
class Tenant:
    """Who pays for requests. None: no limit."""

    weight: float = 1.0  # share of the devices relative to the other tenants'
    rate: float | None = None  # requests a second
    max_waiting: int | None = None  # requests without an answer

    def __post_init__(self) -> None:
        _check_positive("weight", self.weight)
        if self.rate is not None:
            _check_positive("rate", self.rate)
        if self.max_waiting is not None and (type(self.max_waiting) is not int or self.max_waiting < 1):
            raise InputError("max_waiting", repr(self.max_waiting), "a whole number from 1 on")


@dataclass(frozen=True, slots=True)
class Key:
    """A key without its secret. `created` and `revoked` are times in ISO 8601; a key that is revoked opens nothing."""

    id: str
    tenant: str
    roles: tuple[str, ...]
    sha256: str
    created: str
    revoked: str | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.tenant):
            raise InputError("tenant", repr(self.tenant), "1 to 64 letters, digits, dots, dashes or underscores")
        for role in self.roles:
            if role not in ROLES:
                raise InputError("role", repr(role), f"one of {', '.join(ROLES)}")
        if not self.roles or not _DIGEST.fullmatch(self.sha256) or not _ID_FORM.fullmatch(self.id):
            raise InputError("key", repr(self.id), "an entry with roles and a SHA-256, as `pliant keys add` writes it")

    @property
    def rights(self) -> frozenset[str]:
        """Return all that the roles allow: an administrator may do everything."""
        return frozenset(ROLES if "admin" in self.roles else self.roles)


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys by id, and the tenants that have other limits than the usual ones, by name."""

    keys: Mapping[str, Key] = field(default_factory=dict)
    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    _clients: Mapping[str, tuple[str, Client]] = field(init=False, repr=False, compare=False)  # hash and client by id

    def __post_init__(self) -> None:
        valid = [key for key in self.keys.values() if not key.revoked]
        users, admins = ({key.tenant for key in valid if role in key.rights} for role in ("use", "admin"))
        capped = users - admins if len(users - admins) > 1 else set()
        clients = {}
        for key in valid:
            weight, is_capped = self.tenant(key.tenant).weight, key.tenant in capped
            clients[key.id] = key.sha256, Client(key.tenant, weight, key.rights, key.id, capped=is_capped)
        object.__setattr__(self, "_clients", clients)

    def tenant(self, name: str) -> Tenant:
        return self.tenants.get(name, _USUAL)

    def client(self, presented: str) -> Client | None:
        """Return whom a key belongs to; None for one that is unknown or revoked. It takes some microseconds."""
        expected, client = self._clients.get(presented[_ID], _NOBODY)
        return client if hmac.compare_digest(digest(presented), expected) else None

    def with_key(self, key: Key, tenant: Tenant) -> Keys:
        return Keys({**self.keys, key.id: key}, {**self.tenants, key.tenant: tenant})

    def revoked(self, id: str, at: str) -> Keys:
        """Return the keys with this one revoked. Raises `InputError` for an unknown id."""
        if id not in self.keys:
            raise InputError("id", repr(id), "the id of a key, as `pliant keys list` shows it")
        key = self.keys[id]
        return self if key.revoked else Keys({**self.keys, id: replace(key, revoked=at)}, self.tenants)


def new_key(tenant: str, roles: Iterable[str], created: str, known: Keys) -> tuple[str, Key]:
    """Return a new secret key, and its entry. Raises `InputError` for a tenant or a role that cannot be one."""
    id = secrets.token_hex(4)
    while id in known.keys:
        id = secrets.token_hex(4)
    secret = f"pliant_{id}_{secrets.token_hex(32)}"
    return secret, Key(id, tenant, tuple(roles), digest(secret), created)


def digest(presented: str) -> str:
    """Return the SHA-256 of a key, as it is kept."""
    return sha256(presented.encode("utf-8", "surrogatepass")).hexdigest()


def to_json(keys: Keys) -> str:
    """Return keys and tenants as a file holds them."""

    def written(entry: Tenant | Key) -> dict[str, Any]:
        return {name: value for name, value in asdict(entry).items() if value is not None}

    tenants = {name: written(tenant) for name, tenant in sorted(keys.tenants.items())}
    entries = [written(key) for key in sorted(keys.keys.values(), key=lambda key: (key.created, key.id))]
    return json.dumps({"tenants": tenants, "keys": entries}, indent=2) + "\n"


def from_json(text: str, source: str) -> Keys:
    """Return the keys and tenants of a document. Raises `InputError` that names `source` for one that is not valid."""
    try:
        document = json.loads(text)
        tenants = {name: Tenant(**entry) for name, entry in document.get("tenants", {}).items()}
        entries = [Key(**{**entry, "roles": tuple(entry["roles"])}) for entry in document["keys"]]
        for name in tenants:
            if not NAME.fullmatch(name):
                raise InputError("tenant", repr(name), "1 to 64 letters, digits, dots, dashes or underscores")
    except InputError as error:
        raise InputError(source, "unusable", f"a document of `pliant keys add` ({error})") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # The text of such an error may repeat what the document holds, so its kind must do.
        raise InputError(source, "unusable", f"a document of `pliant keys add` ({type(error).__name__})") from None
    if len({entry.id for entry in entries}) < len(entries):
        raise InputError(source, "unusable", "a document of `pliant keys add` (an id is there twice)")
    return Keys(MappingProxyType({entry.id: entry for entry in entries}), MappingProxyType(tenants))


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(name, repr(value), "positive and finite")


_USUAL = Tenant()


KeySource = Callable[[], Keys]
"""Returns the present keys."""


def read_keys(path: Path) -> Keys:
    """Return the keys of a file. Raises `InputError` for one that is missing or not valid."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError("file of keys", path, f"at most {MAX_BYTES} bytes")
        return from_json(path.read_text(encoding="utf-8"), f"file of keys {path}")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InputError("file of keys", path, f"a file that `pliant keys add` made ({reason})") from None


def update_keys(path: Path, change: Callable[[Keys], tuple[Keys, T]]) -> T:
    """Replace the keys of a file by those that `change` returns for them, and return what it returns besides.

    A missing file counts as one without keys. Raises `InputError` as `read_keys`, for a file that cannot be written, and as
    `change`; then the file is as before.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The lock is on a file beside, since the file itself is replaced.
        lock = path.with_name(f".{path.name}.lock")
        with open(lock, "w", opener=lambda name, flags: os.open(name, flags, PRIVATE)) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            keys, result = change(read_keys(path) if path.exists() else Keys())
            write_whole(path, to_json(keys).encode())
    except OSError as error:
        raise InputError("file of keys", path, f"a file that can be written ({error.strerror})") from None
    return result


def key_source(settings: Settings) -> KeySource | None:
    """Return the keys of a service; None if there are none, so that everybody on this machine may call it.

    Raises `InputError` for keys that are not valid, and for two sources.
    """
    if settings.keys and settings.keys_file is not None:
        raise InputError("PLIANT_KEYS", "given together with PLIANT_KEYS_FILE", "given without it")
    if settings.keys:
        fixed = from_json(settings.keys, "PLIANT_KEYS")
        return lambda: fixed
    usual = settings.home / FILE
    path = settings.keys_file or (usual if usual.exists() else None)
    return None if path is None else FollowedKeys(path)


class FollowedKeys:
    """The keys of a file. One that breaks or vanishes later leaves the former keys in force, and the log says so."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises `InputError` for a file that is missing or not valid."""
        self._path, self._clock = path, clock
        self._seen, self._looked = _signature(path), clock()
        self._keys = read_keys(path)

    def __call__(self) -> Keys:
        now = self._clock()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            if (signature := _signature(self._path)) != self._seen:
                self._seen = signature
                try:
                    self._keys = read_keys(self._path)
                    logger.info("the keys of %s are in force: %d", self._path, len(self._keys.keys))
                except InputError as error:
                    logger.error("the former keys stay in force: %s", error)
        return self._keys


def _signature(path: Path) -> tuple[int, int, int] | None:
    """Return what differs after a change of the file; None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
