"""A plain folder of artifacts, in which a key names a subfolder. It needs no MLflow and has no versions or aliases."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pliant.errors import InputError
from registry import codec
from registry.codec import Artifact, T

_STEP = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class FolderStore:
    """Artifacts under `root`, by keys such as "tokens/task-digits". Raises as registry/codec.py does."""

    root: Path

    def path(self, key: str) -> Path:
        """Return the folder of `key`. Raises `InputError` for a key that could lead out of the root."""
        steps = key.split("/")
        if not all(_STEP.fullmatch(step) for step in steps):
            raise InputError("key", key, "names of letters, digits, '_', '-' and '.' (not in front), separated by '/'")
        return self.root.joinpath(*steps)

    def has(self, key: str) -> bool:
        return (self.path(key) / codec.DIGESTS).is_file()

    def touch(self, key: str) -> None:
        """Note that the artifact at `key`, if there is one, is in use: what has not been used for longest may be removed."""
        with suppress(OSError):
            os.utime(self.path(key) / codec.DIGESTS)

    def save(self, key: str, artifact: Artifact) -> str:
        """Write the artifact, replacing a former one, and return its digest."""
        return codec.save(artifact, self.path(key))

    def load(self, cls: type[T], key: str, digest: str | None = None) -> T:
        """Return the artifact at `key`, which must have `digest` if one is given."""
        self.touch(key)
        return codec.load(cls, self.path(key), digest)
