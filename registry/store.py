"""A plain folder of artifacts, in which a key names a subfolder. It needs no MLflow and has no versions or aliases.

What is saved under a name replaces what was there. What is kept under a key of all that it was made from is never replaced:
equal keys stand for equal results, and others may have been made of what is there.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pliant.errors import InputError, RegistryError
from pliant.registry import codec
from pliant.registry.codec import Artifact, T
from pliant.registry.folder import add_folder

NOTES = "notes.json"
"""Beside an artifact that is kept: what whoever made it noted. No part of the artifact, and published with none."""
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

    def keep(self, key: str, artifact: Artifact, notes: Mapping[str, Any]) -> str:
        """Write the artifact and its notes, plain values, in one step; nothing where `key` is kept already.

        Return the artifact's digest, which is another than that of what is kept where it was not made alike.
        """
        files = codec.encode(artifact) | {NOTES: json.dumps(notes).encode()}
        add_folder(self.path(key), files)
        return codec.digest_of(files)

    def kept(self, key: str) -> tuple[str, dict[str, Any]] | None:
        """Return digest and notes of what is kept under `key`, which is in use then; None where nothing is."""
        try:
            notes = json.loads((self.path(key) / NOTES).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RegistryError(f"{self.path(key) / NOTES} cannot be read: {error}; remove its folder") from error
        self.touch(key)
        return codec.digest(self.path(key)), notes

    def remove(self, key: str) -> None:
        """Remove what is under `key`, if anything is."""
        shutil.rmtree(self.path(key), ignore_errors=True)

    def load(self, cls: type[T], key: str, digest: str | None = None) -> T:
        """Return the artifact at `key`, which must have `digest` if one is given."""
        self.touch(key)
        return codec.load(cls, self.path(key), digest)
