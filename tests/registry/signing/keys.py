"""Keys for tests, and a registry in a folder whose versions bear signatures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pliant.registry.signing.signatures import Signer, Trust, load_signer, public_file, write_pair
from tests.fixtures.registry import FolderRegistry


def new_signer(folder: Path, name: str = "release") -> tuple[Signer, Path]:
    """Make a key pair in `folder`, and return the private key and the file of the public one."""
    folder.mkdir(exist_ok=True)
    write_pair(folder / f"{name}.pem")
    return load_signer(folder / f"{name}.pem"), public_file(folder / f"{name}.pem")


class SignedRegistry(FolderRegistry):
    """Versions in plain folders; `signatures` are their tags. What `trust` does not accept is not given out."""

    def __init__(self, root: Path, trust: Trust) -> None:
        super().__init__(root)
        self.trust = trust
        self.signatures: dict[tuple[str, int], Mapping[str, str]] = {}

    def sign(self, signer: Signer) -> None:
        """Sign all versions that are there."""
        for name in self.names(""):
            for number in self.numbers(name):
                digest = self.version(name, number).digest
                self.signatures[name, number] = signer.tags(name, digest)

    def version(self, name: str, which: str | int = "champion"):
        known = super().version(name, which)
        if known is None:
            return None
        return replace(known, tags={**known.tags, **self.signatures.get((name, known.version), {})})

    def fetch(self, name: str, which: str | int = "champion"):
        folder, published = super().fetch(name, which)
        self.trust.check(published)
        return folder, published
